use proptest::prelude::*;

use super::*;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap()
}

fn class(status: u16) -> Class {
    Outcome::answered(status, None, now()).class()
}

fn secs(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(n))
}

#[test]
fn every_2xx_is_success() {
    for status in 200..=299 {
        assert_eq!(class(status), Class::Success, "{status}");
    }
}

#[test]
fn only_410_is_gone() {
    assert_eq!(class(410), Class::Gone);
    let gone = (0..=999).filter(|&status| class(status) == Class::Gone);
    assert_eq!(gone.count(), 1);
}

#[test]
fn other_4xx_are_not_terminal() {
    for status in [
        400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 411, 413, 414, 415, 418, 421, 422, 423,
        425, 426, 428, 431, 451,
    ] {
        assert_eq!(class(status), Class::Retry, "{status}");
    }
}

#[test]
fn redirects_are_failures() {
    for status in 300..=399 {
        assert_eq!(class(status), Class::Retry, "{status}");
    }
}

#[test]
fn registered_and_unregistered_5xx_are_failures() {
    for status in [
        500, 501, 502, 504, 505, 507, 508, 511, 520, 521, 522, 523, 524, 525, 526, 527, 530, 598,
        599,
    ] {
        assert_eq!(class(status), Class::Retry, "{status}");
    }
}

#[test]
fn codes_outside_the_classes_are_failures() {
    for status in [0, 99, 100, 101, 103, 199, 600, 999, 1000, u16::MAX] {
        assert_eq!(class(status), Class::Retry, "{status}");
    }
}

#[test]
fn retry_after_weighs_on_429_and_503() {
    let answered = |status, value: &[u8]| Outcome::answered(status, Some(value), now()).class();
    assert_eq!(
        answered(429, b"1"),
        Class::Throttled {
            retry_after: secs(1)
        }
    );
    assert_eq!(
        answered(503, b"7200"),
        Class::Unavailable {
            retry_after: secs(7200)
        }
    );
    for junk in [&b"soon"[..], b"-5", b"", b"\xff", b"12.5"] {
        assert_eq!(answered(429, junk), Class::Throttled { retry_after: None });
        assert_eq!(
            answered(503, junk),
            Class::Unavailable { retry_after: None }
        );
    }
}

#[test]
fn retry_after_is_ignored_elsewhere() {
    for status in [200, 301, 404, 408, 410, 500, 502, 504] {
        let outcome = Outcome::answered(status, Some(b"3000"), now());
        assert_eq!(outcome.class().retry_after(), None, "{status}");
        assert_eq!(outcome.class(), class(status));
    }
}

#[test]
fn own_faults_are_not_counted_and_receivers_faults_are() {
    for &error in ErrorClass::ALL {
        let class = Outcome::Failed(error).class();
        let ours = matches!(error, ErrorClass::OwnFault | ErrorClass::Interrupted);
        assert_eq!(class, if ours { Class::OwnFault } else { Class::Retry });
        assert_eq!(class.is_counted(), !ours, "{error}");
    }
    for status in [200, 410, 429, 503, 404] {
        assert!(class(status).is_counted());
    }
}

#[test]
fn status_and_error_exclude_each_other() {
    let answered = Outcome::answered(204, None, now());
    assert_eq!((answered.status(), answered.error()), (Some(204), None));
    let failed = Outcome::Failed(ErrorClass::Tls);
    assert_eq!(
        (failed.status(), failed.error()),
        (None, Some(ErrorClass::Tls))
    );
}

#[test]
fn error_classes_have_stable_names() {
    let names: Vec<&str> = ErrorClass::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(
        names,
        [
            "dns",
            "address_refused",
            "connect_refused",
            "connect_timeout",
            "unreachable",
            "tls",
            "timeout",
            "reset",
            "bad_response",
            "io",
            "own_fault",
            "interrupted"
        ]
    );
    for &class in ErrorClass::ALL {
        assert_eq!(class.as_str().parse(), Ok(class));
        let json = serde_json::to_string(&class).unwrap();
        assert_eq!(json, format!("\"{class}\""));
        assert_eq!(serde_json::from_str::<ErrorClass>(&json).unwrap(), class);
    }
    assert!("Tls".parse::<ErrorClass>().is_err());
    assert!(serde_json::from_str::<ErrorClass>("\"other\"").is_err());
}

proptest! {
    #[test]
    fn every_status_has_exactly_one_class_whatever_the_header(
        status in any::<u16>(),
        header in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
    ) {
        let class = Outcome::answered(status, header.as_deref(), now()).class();
        prop_assert_eq!(class == Class::Success, (200..300).contains(&status));
        prop_assert_eq!(matches!(class, Class::Throttled { .. }), status == 429);
        prop_assert_eq!(matches!(class, Class::Unavailable { .. }), status == 503);
        prop_assert!(class != Class::OwnFault);
    }
}
