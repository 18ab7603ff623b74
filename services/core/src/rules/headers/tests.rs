use proptest::prelude::*;

use super::*;

fn one(name: &str, value: &str) -> Result<CustomHeaders, Invalid> {
    CustomHeaders::parse([(name, value)])
}

#[test]
fn ordinary_headers_are_kept() {
    for (name, value) in [
        ("Authorization", "Bearer abc.def"),
        ("X-Api-Key", "k-123"),
        ("user-agent", "mine/1"),
        ("x-empty", ""),
        ("x-spaces", "a b\tc"),
        ("x_under.score~", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("webhooks", "not the prefix"),
    ] {
        let headers = one(name, value).unwrap();
        let kept: Vec<_> = headers.expose().collect();
        assert_eq!(kept, [(name.to_lowercase().as_str(), value)]);
    }
}

#[test]
fn reserved_names_are_refused_in_any_case() {
    for name in [
        "webhook-id",
        "Webhook-Timestamp",
        "WEBHOOK-SIGNATURE",
        "webhook-anything",
        "Hooklane-Message",
        "Host",
        "content-length",
        "Content-Type",
        "Content-Encoding",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "HTTP2-Settings",
        "traceparent",
    ] {
        assert_eq!(
            one(name, "x"),
            Err(Invalid::Reserved(name.to_lowercase())),
            "{name}"
        );
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let long = "x".repeat(MAX_NAME + 1);
    for name in [
        "", " ", "a b", "a:", ":path", "a\r\nb", "a\0", "ä", "a(b)", "a\t", &long,
    ] {
        assert!(matches!(one(name, "x"), Err(Invalid::Name(_))), "{name:?}");
    }
}

#[test]
fn what_could_break_the_line_is_refused() {
    for value in [
        "a\r\nHost: b",
        "a\nb",
        "a\rb",
        "a\0b",
        "a\u{7f}",
        "\u{1}",
        " a",
        "a ",
        "\ta",
        "ä",
        "a\u{85}b",
    ] {
        assert_eq!(
            one("x-a", value),
            Err(Invalid::Value("x-a".to_owned())),
            "{value:?}"
        );
    }
}

#[test]
fn number_and_sizes_are_bounded() {
    let value = "v".repeat(MAX_VALUE + 1);
    assert_eq!(
        one("x-a", &value),
        Err(Invalid::ValueTooLong("x-a".to_owned()))
    );
    assert!(one("x-a", &value[1..]).is_ok());
    let many = (0..=MAX_COUNT).map(|n| (format!("x-{n}"), "v"));
    assert_eq!(CustomHeaders::parse(many), Err(Invalid::TooMany(33)));
    let large = [("x-a", &value[1000..]), ("x-b", &value[1000..])];
    assert_eq!(CustomHeaders::parse(large), Err(Invalid::TooLarge(6200)));
}

#[test]
fn a_name_given_twice_is_refused_in_any_case() {
    let twice = CustomHeaders::parse([("X-A", "1"), ("x-a", "2")]);
    assert_eq!(twice, Err(Invalid::Repeated("x-a".to_owned())));
}

#[test]
fn values_are_shown_nowhere() {
    let canary = "canary-7f3a";
    let headers = one("authorization", canary).unwrap();
    assert_eq!(format!("{headers:?}"), r#"{"authorization"}"#);
    let mut request = HeaderMap::new();
    headers.apply(&mut request);
    assert!(!format!("{request:?}").contains(canary));
    let bad = format!("{canary}\n");
    for error in [
        one("x-a", &bad).unwrap_err(),
        one("host", canary).unwrap_err(),
    ] {
        assert!(!format!("{error} {error:?}").contains(canary));
    }
}

#[test]
fn a_header_of_ours_is_never_overridden() {
    let headers = CustomHeaders::parse([("user-agent", "theirs"), ("x-a", "1")]).unwrap();
    let mut request = HeaderMap::new();
    request.insert("user-agent", HeaderValue::from_static("ours"));
    headers.apply(&mut request);
    assert_eq!(request["user-agent"], "ours");
    assert_eq!(request["x-a"], "1");
    assert_eq!(request.len(), 2);
    assert_eq!(headers.names().count(), headers.len());
    assert!(!headers.is_empty() && CustomHeaders::default().is_empty());
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_one_harmless_line(name in ".{0,20}", value in ".{0,20}") {
        if let Ok(headers) = one(&name, &value) {
            let line: String = headers.expose().map(|(n, v)| format!("{n}: {v}")).collect();
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b) || b == b'\t'));
            prop_assert!(!line.starts_with("webhook-") && !line.starts_with("hooklane-"));
        }
    }
}
