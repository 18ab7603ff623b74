//! Every row of `cases/addresses.json`, by where it says the decision falls.

use serde::Deserialize;

use super::*;

const CASES: &str = include_str!("../../../../cases/addresses.json");

#[derive(Deserialize)]
struct Case {
    url: String,
    expect: String,
    decided_at: String,
    why: String,
}

/// What we decided where the table leaves it open: the URL, the code, the reason.
const DECIDED: [(&str, &str, &str); 8] = [
    (
        "https://[2001:470::5efe:7f00:1]/",
        "address_refused",
        "an ISATAP id with a loopback tail is no address that a receiver has",
    ),
    (
        "https://example.com#@127.0.0.1/",
        "url_fragment",
        "a fragment is never sent, and parsers differ on the host",
    ),
    (
        "https://./",
        "host_malformed",
        "the DNS root has no receiver",
    ),
    (
        "https://example.com:22/",
        "port_refused",
        "the Fetch standard's bad ports are refused, all others allowed",
    ),
    (
        "https://example.com:25/",
        "port_refused",
        "SMTP takes lines of a request for commands",
    ),
    (
        "https://example.com/a b",
        "url_blank",
        "the stored URL is the one given, so that its owner encodes the space",
    ),
    (
        "https://xn--127-0-0-1.example.com/",
        "url_malformed",
        "the parser's IDNA check decides",
    ),
    (
        "https://rebind-pool.dns.example.com/hook",
        "accepted",
        "a vetted connection may be reused; the next connect is vetted anew",
    ),
];

/// Answers of the rows that only say which service gives them.
const ANSWERS: [(&str, &str); 4] = [
    ("http://169.254.169.254.nip.io/", "169.254.169.254"),
    ("http://localtest.me/", "127.0.0.1"),
    (
        "http://make-1.2.3.4-rebind-169.254-169.254-rr.1u.ms/",
        "169.254.169.254",
    ),
    ("https://cname-localhost.dns.example.com/hook", "127.0.0.1"),
];

/// The addresses that a row's text names as answers, in their order.
fn answers(case: &Case) -> Vec<IpAddr> {
    if let Some((_, answer)) = ANSWERS.iter().find(|(url, _)| *url == case.url) {
        return vec![ip(answer)];
    }
    case.why
        .split([' ', ';', ','])
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// A parser-level refusal may also fall earlier, on the text; never later.
fn is_refused_by_form(code: &str) -> bool {
    code.starts_with("url_") && code != "url_plain_http"
}

#[test]
fn every_row_is_decided_as_it_says() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for case in &cases {
        let stage = format!("{} {}", case.expect, case.decided_at);
        let decision = code(&case.url, &open());
        let context = format!("{:?} ({}): {decision}", case.url, case.why);
        match (case.expect.as_str(), case.decided_at.as_str()) {
            ("refuse", "dns") => refuse_dns(case, decision),
            ("refuse", "redirect") => refuse_redirect(case, decision),
            ("refuse", "literal") => {
                assert!(
                    decision == "address_refused" || is_refused_by_form(decision),
                    "{context}"
                );
                refuse_literal_itself(case);
            }
            ("refuse", "parse" | "url-policy") => {
                assert!(is_refused_by_form(decision), "{context}")
            }
            ("refuse", "host-policy") => {
                let by_name = matches!(decision, "host_refused" | "host_malformed");
                assert!(by_name || is_refused_by_form(decision), "{context}");
            }
            ("allow", _) => {
                assert_eq!(decision, "accepted", "{context}");
                for answer in answers(case) {
                    assert_eq!(check_ip(answer, &Policy::default()), Ok(()), "{context}");
                }
            }
            ("policy", "redirect") => assert_eq!(decision, "accepted", "{context}"),
            ("policy", _) => {
                let (_, decided, why) = DECIDED
                    .iter()
                    .find(|(url, ..)| *url == case.url)
                    .unwrap_or_else(|| panic!("undecided: {context}"));
                assert_eq!(decision, *decided, "{context}: {why}");
            }
            other => panic!("a row of an unknown kind: {other:?}"),
        }
        *seen.entry(stage).or_default() += 1;
    }
    assert_eq!(seen.values().sum::<usize>(), cases.len());
    assert_eq!(cases.len(), 182, "{seen:?}");
}

/// Even without the checks on the text, the address itself must be refused: a form that a later
/// parser lets through still ends at the guard of the connect.
fn refuse_literal_itself(case: &Case) {
    let url = Url::parse(&case.url).unwrap();
    let address: IpAddr = match url.host() {
        Some(Host::Ipv4(ip)) => ip.into(),
        Some(Host::Ipv6(ip)) => ip.into(),
        other => panic!("{:?} has no literal: {other:?}", case.url),
    };
    assert!(check_ip(address, &Policy::default()).is_err(), "{address}");
}

/// The name is public, so that only the answer can be refused: the last one that is given, since
/// earlier ones are there to be vetted.
fn refuse_dns(case: &Case, decision: &str) {
    assert_eq!(decision, "accepted", "{:?}", case.url);
    let answers = answers(case);
    let Some((last, earlier)) = answers.split_last() else {
        panic!("{:?} names no answer", case.url)
    };
    assert!(
        check_ip(*last, &Policy::default()).is_err(),
        "{:?}",
        case.url
    );
    for answer in earlier {
        assert_eq!(
            check_ip(*answer, &Policy::default()),
            Ok(()),
            "{:?}",
            case.url
        );
    }
}

/// Registration is allowed; that no redirect is followed is the HTTP client's test. The target
/// would be refused on its own where it is internal.
fn refuse_redirect(case: &Case, decision: &str) {
    assert_eq!(decision, "accepted", "{:?}", case.url);
    if let Some((_, target)) = case.why.split_once("Location http://169") {
        assert_eq!(
            code(&format!("http://169{target}"), &open()),
            "address_refused"
        );
    }
}
