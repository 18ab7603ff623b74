use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

mod cases;

fn open() -> Policy {
    Policy {
        allow_http: true,
        ..Policy::default()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn code(url: &str, policy: &Policy) -> &'static str {
    check_url(url, policy).map_or_else(|refusal| refusal.code(), |_| "accepted")
}

#[test]
fn what_is_accepted_is_the_parsed_url() {
    let url = check_url("https://EXAMPLE.com:443/A?b=%0d", &Policy::default()).unwrap();
    assert_eq!(url.as_str(), "https://example.com/A?b=%0d");
    assert_eq!(check_url(url.as_str(), &Policy::default()), Ok(url));
}

#[test]
fn only_https_unless_the_policy_allows_http() {
    let url = "http://example.com/";
    assert_eq!(check_url(url, &Policy::default()), Err(Refusal::PlainHttp));
    assert!(check_url(url, &open()).is_ok());
    assert_eq!(code("ftp://example.com/", &open()), "url_scheme");
}

#[test]
fn every_range_refuses_its_ends_and_allows_its_neighbours() {
    // first and last of a range, then the neighbours outside it, where they are public
    let table = [
        ("0.0.0.0", "0.255.255.255", "1.0.0.0", ""),
        ("10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"),
        (
            "100.64.0.0",
            "100.127.255.255",
            "100.63.255.255",
            "100.128.0.0",
        ),
        (
            "127.0.0.0",
            "127.255.255.255",
            "126.255.255.255",
            "128.0.0.0",
        ),
        (
            "168.63.129.16",
            "168.63.129.16",
            "168.63.129.15",
            "168.63.129.17",
        ),
        (
            "169.254.0.0",
            "169.254.255.255",
            "169.253.255.255",
            "169.255.0.0",
        ),
        (
            "172.16.0.0",
            "172.31.255.255",
            "172.15.255.255",
            "172.32.0.0",
        ),
        ("192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"),
        ("192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"),
        (
            "192.31.196.0",
            "192.31.196.255",
            "192.31.195.255",
            "192.31.197.0",
        ),
        (
            "192.52.193.0",
            "192.52.193.255",
            "192.52.192.255",
            "192.52.194.0",
        ),
        (
            "192.88.99.0",
            "192.88.99.255",
            "192.88.98.255",
            "192.88.100.0",
        ),
        (
            "192.168.0.0",
            "192.168.255.255",
            "192.167.255.255",
            "192.169.0.0",
        ),
        (
            "192.175.48.0",
            "192.175.48.255",
            "192.175.47.255",
            "192.175.49.0",
        ),
        (
            "198.18.0.0",
            "198.19.255.255",
            "198.17.255.255",
            "198.20.0.0",
        ),
        (
            "198.51.100.0",
            "198.51.100.255",
            "198.51.99.255",
            "198.51.101.0",
        ),
        (
            "203.0.113.0",
            "203.0.113.255",
            "203.0.112.255",
            "203.0.114.0",
        ),
        ("224.0.0.0", "255.255.255.255", "223.255.255.255", ""),
        ("::", "1fff:ffff::", "", "2000::"),
        ("2001::", "2001:1ff:ffff::1", "2000:ffff::1", "2001:200::"),
        (
            "2001:db8::",
            "2001:db8:ffff::1",
            "2001:db7:ffff::1",
            "2001:db9::",
        ),
        ("2002::", "2002:ffff:ffff::1", "2001:ffff::1", "2003::"),
        (
            "2620:4f:8000::",
            "2620:4f:8000:ffff::",
            "2620:4f:7fff::1",
            "2620:4f:8001::",
        ),
        ("3fff::", "3fff:fff:ffff::1", "3ffe:ffff::1", "3fff:1000::"),
        ("4000::", "ffff:ffff:ffff::1", "3fff:ffff::1", ""),
    ];
    for (first, last, below, above) in table {
        for inside in [first, last] {
            let refused = check_ip(ip(inside), &Policy::default());
            assert!(matches!(refused, Err(Refusal::Address { .. })), "{inside}");
        }
        for outside in [below, above].into_iter().filter(|o| !o.is_empty()) {
            assert_eq!(
                check_ip(ip(outside), &Policy::default()),
                Ok(()),
                "{outside}"
            );
        }
    }
}

#[test]
fn carried_ipv4_addresses_are_judged() {
    let refused = [
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "::8.8.8.8",
        "::ffff:0:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::8.8.8.8",
        "2002:0a00:0001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:470::5efe:10.0.0.1",
        "2001:470::200:5efe:127.0.0.1",
        "fd00:ec2::254",
    ];
    for text in refused {
        assert!(check_ip(ip(text), &Policy::default()).is_err(), "{text}");
    }
    // DNS64 gives such an address for every receiver that has IPv4 only.
    for text in ["64:ff9b::8.8.8.8", "2001:470::5efe:8.8.8.8"] {
        assert_eq!(check_ip(ip(text), &Policy::default()), Ok(()), "{text}");
    }
}

#[test]
fn allowed_ranges_open_and_denied_ranges_close() {
    let policy = Policy {
        allow_cidrs: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()],
        deny_cidrs: vec![
            "10.1.2.0/24".parse().unwrap(),
            "8.8.8.0/24".parse().unwrap(),
        ],
        ..Policy::default()
    };
    assert_eq!(code("https://10.1.1.1/", &policy), "accepted");
    assert_eq!(code("https://[fd00::5]/", &policy), "accepted");
    assert_eq!(code("https://10.2.1.1/", &policy), "address_refused");
    assert_eq!(code("https://10.1.2.3/", &policy), "address_denied");
    assert_eq!(code("https://8.8.8.8/", &policy), "address_denied");
    // What opens an IPv4 range opens no IPv6 form of it.
    for text in ["::ffff:10.1.1.1", "64:ff9b::10.1.1.1"] {
        assert!(check_ip(ip(text), &policy).is_err(), "{text}");
    }
}

#[test]
fn allowed_names_open_names_and_not_their_addresses() {
    let policy = Policy {
        allow_names: vec!["Receiver".to_owned(), ".internal".to_owned()],
        ..open()
    };
    assert_eq!(code("http://receiver:8080/hook", &policy), "accepted");
    assert_eq!(code("https://a.b.internal./", &policy), "accepted");
    assert_eq!(code("https://internal/", &policy), "host_refused");
    assert_eq!(code("https://x.receiver.local/", &policy), "host_refused");
    assert!(check_ip(ip("10.0.0.1"), &policy).is_err());
    assert!(policy.invalid_names().is_empty());
    let bad = Policy {
        allow_names: ["*.internal", "", ".", "http://x", "ok"]
            .map(str::to_owned)
            .to_vec(),
        ..open()
    };
    assert_eq!(bad.invalid_names(), ["*.internal", "", ".", "http://x"]);
}

#[test]
fn allowed_ports_open_ports() {
    let policy = Policy {
        allow_ports: vec![25],
        ..open()
    };
    assert_eq!(code("https://example.com:25/", &policy), "accepted");
    assert_eq!(code("https://example.com:22/", &policy), "port_refused");
    assert_eq!(code("https://example.com:0/", &policy), "port_refused");
    for port in [1, 80, 81, 443, 3000, 8080, 8443, 9000, 65535] {
        let url = format!("http://example.com:{port}/");
        let expected = if port == 1 {
            "port_refused"
        } else {
            "accepted"
        };
        assert_eq!(code(&url, &open()), expected, "{port}");
    }
}

#[test]
fn a_trial_on_one_machine_reaches_loopback_and_nothing_else_inside() {
    let policy = Policy::loopback();
    for url in [
        "http://127.0.0.1:9000/",
        "http://[::1]:9000/",
        "http://localhost:9000/",
    ] {
        assert_eq!(code(url, &policy), "accepted", "{url}");
    }
    for url in [
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "http://metadata/",
    ] {
        assert_ne!(code(url, &policy), "accepted", "{url}");
    }
}

#[test]
fn what_parsers_disagree_on_is_refused() {
    let table = [
        ("https:example.com/", "url_slashes"),
        ("https:/example.com/", "url_slashes"),
        ("https:///example.com/", "url_slashes"),
        ("https://@example.com/", "url_userinfo"),
        ("https://:@example.com/", "url_userinfo"),
        ("https://example.com/#", "url_fragment"),
        ("https://example.com/a@b?c@d", "accepted"),
        ("https://example.com/\u{7f}", "url_blank"),
        ("https://example.com/\u{2028}", "url_blank"),
        ("https://b\u{fc}cher.example.com/\u{fc}", "accepted"),
        ("https://a!b.example.com/", "host_malformed"),
        ("https://a_b.example.com/", "accepted"),
        ("https://", "url_malformed"),
        ("", "url_malformed"),
    ];
    for (url, expected) in table {
        assert_eq!(code(url, &open()), expected, "{url:?}");
    }
}

#[test]
fn length_is_bounded_also_after_encoding() {
    let fits = format!("https://example.com/{}", "a".repeat(MAX_URL - 20));
    assert_eq!(code(&fits, &open()), "accepted");
    assert_eq!(code(&format!("{fits}a"), &open()), "url_too_long");
    let grows = format!("https://example.com/{}", "\u{fc}".repeat(900));
    assert_eq!(code(&grows, &open()), "url_too_long");
}

#[test]
fn no_refusal_shows_credentials() {
    for url in [
        "https://user:canary@example.com/",
        "ftp://user:canary@example.com/",
        "https://user:canary@10.0.0.1/",
        "https://example.com:25/?token=canary",
        "https://10.0.0.1/?token=canary",
        "https://local/?token=canary",
    ] {
        let refusal = check_url(url, &open()).unwrap_err();
        assert!(
            !format!("{refusal} {refusal:?}").contains("canary"),
            "{refusal}"
        );
    }
}

#[test]
fn settings_read_from_a_file_and_unknown_ones_are_errors() {
    let policy: Policy = toml::from_str(
        "allow_http = true\nallow_cidrs = [\"10.0.0.0/8\"]\nallow_names = [\".internal\"]",
    )
    .unwrap();
    assert!(policy.allow_http);
    assert_eq!(policy.allow_cidrs, ["10.0.0.0/8".parse::<IpNet>().unwrap()]);
    assert!(toml::from_str::<Policy>("allow_cidr = []").is_err());
    assert!(toml::from_str::<Policy>("allow_cidrs = [\"10.0.0.0/33\"]").is_err());
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_accepted_is_accepted_again(
        text in prop_oneof![
            ".{0,60}",
            "(https?|HTTP)(:|:/|://|:///)[a-z0-9.@:%\\[\\]\\\\-]{0,20}[/?#]?.{0,10}",
            "https://[0-9a-fx.]{1,20}/",
            "https://\\[[0-9a-f:.]{1,20}\\]/",
        ],
    ) {
        if let Ok(url) = check_url(&text, &open()) {
            prop_assert_eq!(check_url(url.as_str(), &open()), Ok(url.clone()));
            prop_assert!(matches!(url.scheme(), "http" | "https"));
            prop_assert!(url.username().is_empty() && url.password().is_none());
        }
    }

    /// A second opinion from the standard library on what is not public.
    #[test]
    fn no_address_that_std_knows_as_internal_passes(bits in any::<u32>(), top in proptest::sample::select(&[0_u8, 10, 127, 169, 172, 192, 224, 255][..])) {
        for ip in [Ipv4Addr::from(bits), Ipv4Addr::from(bits & 0x00ff_ffff | u32::from(top) << 24)] {
            let internal = ip.is_private() || ip.is_loopback() || ip.is_link_local()
                || ip.is_broadcast() || ip.is_documentation() || ip.is_unspecified() || ip.is_multicast();
            if internal {
                prop_assert!(check_ip(ip.into(), &Policy::default()).is_err());
                prop_assert!(check_ip(ip.to_ipv6_mapped().into(), &Policy::default()).is_err());
                prop_assert!(check_ip(ip.to_ipv6_compatible().into(), &Policy::default()).is_err());
            }
        }
    }

    #[test]
    fn however_an_internal_ipv4_address_is_written_it_is_refused(d in any::<u8>(), form in 0..6_u8) {
        let ip = Ipv4Addr::new(169, 254, 169, d);
        let n = u32::from(ip);
        let host = match form {
            0 => n.to_string(),
            1 => format!("{n:#x}"),
            2 => format!("0{n:o}"),
            3 => format!("169.{}", n & 0x00ff_ffff),
            4 => format!("0xa9.0376.{}", n & 0xffff),
            _ => format!("[64:ff9b::{:x}:{:x}]", n >> 16, n & 0xffff),
        };
        prop_assert_eq!(code(&format!("https://{host}/"), &Policy::default()), "address_refused");
    }

    #[test]
    fn ipv6_outside_global_unicast_never_passes(segments in any::<[u16; 8]>()) {
        let ip = Ipv6Addr::from(segments);
        if segments[0] >> 13 != 1 {
            let nat64 = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            prop_assert!(nat64 || check_ip(ip.into(), &Policy::default()).is_err());
        }
    }
}
