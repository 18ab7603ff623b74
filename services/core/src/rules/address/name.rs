//! Host names that belong to an internal network, whatever a resolver says.
//!
//! A resolver can't be trusted with them: `localhost` is answered from a hosts file, and a short
//! name gets the host's own search domains appended.

use super::Refusal;

/// Longest DNS name, in bytes, without the trailing dot.
const MAX_NAME: usize = 253;
/// Longest label of one, in bytes.
const MAX_LABEL: usize = 63;

/// Refused with everything below them.
const INTERNAL: [(&str, &str); 18] = [
    ("localhost", "a name of this machine"),
    ("localdomain", "a name of a local network"),
    ("local", "a name of a local network"),
    ("lan", "a name of a local network"),
    ("home", "a name of a local network"),
    ("internal", "a name of a private network"),
    ("intranet", "a name of a private network"),
    ("private", "a name of a private network"),
    ("corp", "a name of a private network"),
    ("test", "a name reserved for testing"),
    ("onion", "a name outside DNS"),
    ("alt", "a name outside DNS"),
    ("arpa", "a name of the network's own infrastructure"),
    ("svc", "a name inside a cluster"),
    ("consul", "a name inside a cluster"),
    ("metadata.goog", "a name of a cloud's metadata service"),
    (
        "metadata.tencentyun.com",
        "a name of a cloud's metadata service",
    ),
    (
        "metadata.packet.net",
        "a name of a cloud's metadata service",
    ),
];

/// Judges a host name as the URL parser gives it: ASCII, in lower case.
pub(super) fn check(host: &str, allowed: &[String]) -> Result<(), Refusal> {
    // One trailing dot makes a name absolute and changes nothing else.
    let name = host.strip_suffix('.').unwrap_or(host);
    if !is_dns_name(name) {
        return Err(Refusal::NotAName(host.chars().take(80).collect()));
    }
    if allowed.iter().any(|entry| permits(entry, name)) {
        return Ok(());
    }
    let refuse = |why| {
        let name = name.to_owned();
        Err(Refusal::Name { name, why })
    };
    for (suffix, why) in INTERNAL {
        if is_at_or_below(name, suffix) {
            return refuse(why);
        }
    }
    if !name.contains('.') {
        return refuse("a short name, which only an internal network resolves");
    }
    Ok(())
}

/// Whether this entry of `allow_names` can match anything.
pub(super) fn is_allow_entry(entry: &str) -> bool {
    is_dns_name(
        &entry
            .strip_prefix('.')
            .unwrap_or(entry)
            .to_ascii_lowercase(),
    )
}

fn permits(entry: &str, name: &str) -> bool {
    let entry = entry.to_ascii_lowercase();
    match entry.strip_prefix('.') {
        Some(suffix) => name != suffix && is_at_or_below(name, suffix),
        None => name == entry,
    }
}

fn is_at_or_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}
