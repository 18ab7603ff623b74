//! What commands read: files, standard input, secrets, numbers with names.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use hooklane_core::rules::signing::Secret;
use hooklane_store::endpoint::Rate;

use crate::failure::Failure;

/// Stands for standard input where a file is named.
const STDIN: &str = "-";

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| {
        Failure::data(format!(
            "{} can't be read ({error}); name a readable file, or - for standard input",
            path.display()
        ))
    })
}

/// As [`read`], for text.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read(path)?)
        .map_err(|_| Failure::data(format!("{} is not UTF-8 text", path.display())))
}

/// Reads a signing secret from a file; a line break at its end is no part of it.
pub(super) fn secret_file(path: &Path) -> Result<Secret, Failure> {
    secret(text(path)?.trim_end_matches(['\r', '\n']))
}

/// Reads a signing secret.
pub(super) fn secret(text: &str) -> Result<Secret, Failure> {
    Secret::parse(text).map_err(|error| Failure::data(error.to_string()))
}

/// `15s`, `5m`, `24h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; give a number with a unit, such as 15s or 24h"))
}

/// A number, `none` for no limit, or `default`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate::Unlimited),
        "default" => Ok(Rate::Inherited),
        number => match number.parse() {
            Ok(rate @ 1..=1000) => Ok(Rate::PerSecond(rate)),
            _ => Err("give 1 to 1000 a second, `none` for no limit, or `default`".to_owned()),
        },
    }
}

/// A number, or `default` for none of one's own.
pub(super) fn number_or_default(text: &str) -> Result<Option<u16>, String> {
    match text {
        "default" => Ok(None),
        number => match number.parse() {
            Ok(number @ 1..=1000) => Ok(Some(number)),
            _ => Err("give 1 to 1000, or `default`".to_owned()),
        },
    }
}

/// `on`, `off`, or `default` for neither of one's own.
pub(super) fn switch_or_default(text: &str) -> Result<Option<bool>, String> {
    match text {
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        "default" => Ok(None),
        _ => Err("give on, off, or default".to_owned()),
    }
}

/// Text, or hex where it is no text; at most `limit` characters of it. What a terminal would act
/// upon is escaped; quotes and backslashes are not, so that JSON stays readable.
pub(super) fn shown(bytes: &[u8], limit: usize) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().fold(String::new(), |mut shown, c| {
            match c {
                '"' | '\'' | '\\' => shown.push(c),
                other => shown.extend(other.escape_debug()),
            }
            shown
        }),
        Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if text.chars().count() <= limit {
        return text;
    }
    let cut: String = text.chars().take(limit).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_names_for_their_ends() {
        assert_eq!(rate("none"), Ok(Rate::Unlimited));
        assert_eq!(rate("default"), Ok(Rate::Inherited));
        assert_eq!(rate("1000"), Ok(Rate::PerSecond(1000)));
        assert!(rate("0").is_err() && rate("1001").is_err() && rate("fast").is_err());
    }

    #[test]
    fn what_is_shown_is_cut_and_harmless() {
        assert_eq!(shown(b"a\n\x1b[2J", 50), "a\\n\\u{1b}[2J");
        assert_eq!(shown(&[0xff, 0x00], 50), "ff00");
        assert_eq!(shown(b"abcdef", 3), "abc…");
        let json = r#"{"who": "Zoë's", "path": "C:\\n"}"#;
        assert_eq!(shown(json.as_bytes(), 50), json);
        assert_eq!(
            shown("a\u{202e}b\u{9b}".as_bytes(), 50),
            "a\\u{202e}b\\u{9b}"
        );
    }
}
