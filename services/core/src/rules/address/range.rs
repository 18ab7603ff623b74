//! Addresses that are not public: every special-purpose range of the IANA registries, multicast,
//! and the forms in which IPv6 carries an IPv4 address.
//!
//! The IPv6 side is closed by default: outside 2000::/3 nothing is globally routed unicast, so
//! that a range nobody has thought of yet is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, d: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

const V4: [(Ipv4Net, &str); 20] = [
    (v4(0, 0, 0, 0, 8), "of \"this network\" (0.0.0.0/8)"),
    (v4(10, 0, 0, 0, 8), "private (10.0.0.0/8)"),
    (v4(100, 64, 0, 0, 10), "a carrier's own (100.64.0.0/10)"),
    (v4(127, 0, 0, 0, 8), "loopback (127.0.0.0/8)"),
    (v4(168, 63, 129, 16, 32), "a cloud's internal service"),
    (v4(169, 254, 0, 0, 16), "link-local (169.254.0.0/16)"),
    (v4(172, 16, 0, 0, 12), "private (172.16.0.0/12)"),
    (
        v4(192, 0, 0, 0, 24),
        "for protocol assignments (192.0.0.0/24)",
    ),
    (v4(192, 0, 2, 0, 24), "for documentation (192.0.2.0/24)"),
    (v4(192, 31, 196, 0, 24), "for AS112 (192.31.196.0/24)"),
    (
        v4(192, 52, 193, 0, 24),
        "for multicast tunnels (192.52.193.0/24)",
    ),
    (v4(192, 88, 99, 0, 24), "a 6to4 relay (192.88.99.0/24)"),
    (v4(192, 168, 0, 0, 16), "private (192.168.0.0/16)"),
    (v4(192, 175, 48, 0, 24), "for AS112 (192.175.48.0/24)"),
    (v4(198, 18, 0, 0, 15), "for benchmarks (198.18.0.0/15)"),
    (
        v4(198, 51, 100, 0, 24),
        "for documentation (198.51.100.0/24)",
    ),
    (v4(203, 0, 113, 0, 24), "for documentation (203.0.113.0/24)"),
    (v4(224, 0, 0, 0, 4), "multicast (224.0.0.0/4)"),
    (v4(255, 255, 255, 255, 32), "the broadcast address"),
    (v4(240, 0, 0, 0, 4), "reserved (240.0.0.0/4)"),
];

/// NAT64's well-known prefix: the address behind it is an IPv4 one.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 0, 96);
const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const LOOPBACK: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);
const UNSPECIFIED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128);
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 0, 3);

const V6: [(Ipv6Net, &str); 17] = [
    (UNSPECIFIED, "unspecified (::)"),
    (LOOPBACK, "loopback (::1)"),
    (
        v6(0, 0, 0, 0, 96),
        "an IPv4 address in a retired form (::/96)",
    ),
    (MAPPED, "an IPv4 address in IPv6 form (::ffff:0:0/96)"),
    (
        v6(0x64, 0xff9b, 1, 0, 48),
        "for local NAT64 (64:ff9b:1::/48)",
    ),
    (v6(0x100, 0, 0, 0, 64), "for discarding (100::/64)"),
    (v6(0x100, 0, 0, 1, 64), "a dummy prefix (100:0:0:1::/64)"),
    (v6(0x2001, 0, 0, 0, 32), "Teredo (2001::/32)"),
    (
        v6(0x2001, 0, 0, 0, 23),
        "for protocol assignments (2001::/23)",
    ),
    (
        v6(0x2001, 0xdb8, 0, 0, 32),
        "for documentation (2001:db8::/32)",
    ),
    (v6(0x2002, 0, 0, 0, 16), "6to4 (2002::/16)"),
    (
        v6(0x2620, 0x4f, 0x8000, 0, 48),
        "for AS112 (2620:4f:8000::/48)",
    ),
    (v6(0x3fff, 0, 0, 0, 20), "for documentation (3fff::/20)"),
    (v6(0xfc00, 0, 0, 0, 7), "private (fc00::/7)"),
    (v6(0xfe80, 0, 0, 0, 10), "link-local (fe80::/10)"),
    (v6(0xfec0, 0, 0, 0, 10), "site-local (fec0::/10)"),
    (v6(0xff00, 0, 0, 0, 8), "multicast (ff00::/8)"),
];

/// The loopback ranges of both families.
pub(super) fn loopback() -> [IpNet; 2] {
    [IpNet::V4(v4(127, 0, 0, 0, 8)), IpNet::V6(LOOPBACK)]
}

/// What an address is, where it is not public.
pub(super) fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(net, _)| net.contains(&ip))
        .map(|(_, why)| *why)
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if NAT64.contains(&ip) {
        // On an IPv6-only host DNS64 gives every IPv4-only receiver such an address, so that the
        // address behind it decides.
        return special_v4(tail(ip)).map(|_| "a NAT64 form of an IPv4 address that is not public");
    }
    if let Some((_, why)) = V6.iter().find(|(net, _)| net.contains(&ip)) {
        return Some(why);
    }
    if !GLOBAL_UNICAST.contains(&ip) {
        return Some("outside the global unicast range (2000::/3)");
    }
    if is_isatap(ip) && special_v4(tail(ip)).is_some() {
        return Some("a tunnel (ISATAP) form of an IPv4 address that is not public");
    }
    None
}

/// The IPv4 address in the last 32 bits.
fn tail(ip: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = ip.octets();
    Ipv4Addr::new(a, b, c, d)
}

/// Whether the interface id is `0000:5efe` or `0200:5efe` and an IPv4 address (RFC 5214, 6.1).
/// A random interface id looks so once in two billion times, and then only matters where its
/// tail is special too.
fn is_isatap(ip: Ipv6Addr) -> bool {
    let [_, _, _, _, high, low, _, _] = ip.segments();
    (high == 0 || high == 0x0200) && low == 0x5efe
}
