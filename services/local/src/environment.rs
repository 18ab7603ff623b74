//! The variables by which a shell reaches local servers, and how they are told from somebody's own
//! once these servers have ended.
//!
//! A file of such variables also sets [`MARK`], which holds a fingerprint of each. A variable that
//! still has its marked value was read in from the file; one that was set anew since is its owner's.

use std::env;

/// The variable that tells which others were read in.
pub const MARK: &str = "HOOKLANE_LOCAL_ENV";

/// Lines that a shell reads in: the variables, and the mark.
#[must_use]
pub fn exports(variables: &[(&str, String)]) -> String {
    let prints: Vec<String> = variables
        .iter()
        .map(|(name, value)| format!("{name}={:016x}", fingerprint(value)))
        .collect();
    let mark = (MARK, prints.join(" "));
    let line = |(name, value): &(&str, String)| {
        format!("export {name}='{}'\n", value.replace('\'', r"'\''"))
    };
    variables.iter().chain([&mark]).map(line).collect()
}

/// The variables of this process that were read in from such a file, the mark with them, and their
/// values.
#[must_use]
pub fn inherited() -> Vec<(String, String)> {
    let Ok(mark) = env::var(MARK) else {
        return Vec::new();
    };
    inherited_of(&mark, |name| env::var(name).ok())
}

/// The value of a variable that is set, not empty and not inherited.
pub(crate) fn own(name: &str) -> Option<String> {
    let value = env::var(name).ok().filter(|value| !value.is_empty())?;
    let inherited = inherited().iter().any(|(known, _)| known == name);
    (!inherited).then_some(value)
}

fn inherited_of(mark: &str, value: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let marked = mark.split(' ').filter_map(|entry| {
        let (name, print) = entry.split_once('=')?;
        let value = value(name)?;
        let same = u64::from_str_radix(print, 16) == Ok(fingerprint(&value));
        same.then(|| (name.to_owned(), value))
    });
    marked.chain([(MARK.to_owned(), mark.to_owned())]).collect()
}

/// FNV-1a: the same in every build, and no password to read.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_in_is_known_until_it_is_set_anew() {
        let text = exports(&[
            ("DATABASE_URL", "postgres://u:canary@h/d".to_owned()),
            ("NATS_URL", "nats://h:1".to_owned()),
            ("KEY", "it's here".to_owned()),
        ]);
        assert!(text.contains(r"export KEY='it'\''s here'"), "{text}");
        let mark = text.lines().last().unwrap();
        let mark = mark.strip_prefix("export HOOKLANE_LOCAL_ENV='").unwrap();
        let mark = mark.strip_suffix('\'').unwrap();
        assert!(!mark.contains("canary"), "{mark}");
        let now = |name: &str| match name {
            "DATABASE_URL" => Some("postgres://mine/".to_owned()),
            "NATS_URL" => Some("nats://h:1".to_owned()),
            _ => None,
        };
        let inherited = inherited_of(mark, now);
        let names: Vec<&str> = inherited.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["NATS_URL", MARK]);
        assert_eq!(inherited_of("nonsense KEY=zz", now).len(), 1);
    }
}
