//! What the reader of values found wrong, in words for who wrote the file; and never with the value,
//! which may be a secret.

use std::path::Path;

use figment::error::{Actual, Kind};

/// How a duration is named as what was expected.
const DURATION: &str = "a duration";

/// What is wrong.
pub(super) fn problem(kind: &Kind) -> String {
    match kind {
        Kind::Message(text) => format!("is invalid ({text})"),
        Kind::InvalidType(actual, _) => format!("is {}", noun(actual)),
        Kind::InvalidValue(_, expected) if expected == DURATION => "is no duration".to_owned(),
        Kind::InvalidValue(_, expected) if whole(expected).is_some() => {
            "is out of range".to_owned()
        }
        Kind::InvalidValue(..) | Kind::InvalidLength(..) => {
            "has a value that can't be used".to_owned()
        }
        Kind::UnknownVariant(given, _) => format!("is `{given}`, which is none of its choices"),
        Kind::UnknownField(..) => "is not a key that Hooklane knows".to_owned(),
        Kind::MissingField(field) => format!("lacks `{field}`"),
        Kind::DuplicateField(field) => format!("has `{field}` twice"),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "is out of range".to_owned(),
        Kind::Unsupported(actual) | Kind::UnsupportedKey(actual, _) => {
            format!("is {}, which can't be used here", noun(actual))
        }
    }
}

fn noun(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a number",
        Actual::Float(_) => "a number with a fraction",
        Actual::Char(_) | Actual::Str(_) => "text",
        Actual::Seq => "a list",
        Actual::Map => "a section",
        _ => "of another kind",
    }
}

/// What to do about it, and where.
pub(super) fn fix(kind: &Kind, variable: Option<&str>, file: Option<&Path>) -> String {
    let place = match (variable, file) {
        (Some(variable), _) => format!(" in {variable}"),
        (None, Some(file)) => format!(" in {}", file.display()),
        (None, None) => String::new(),
    };
    match kind {
        Kind::InvalidType(_, expected)
        | Kind::InvalidValue(_, expected)
        | Kind::InvalidLength(_, expected) => {
            format!("give {}{place}", wanted(expected))
        }
        Kind::UnknownVariant(_, choices) => {
            format!("choose one of {}{place}", choices.join(", "))
        }
        Kind::UnknownField(_, known) => {
            format!("remove it{place}; known here: {}", known.join(", "))
        }
        Kind::MissingField(field) => format!("add `{field}`{place}"),
        _ => format!("correct it{place}"),
    }
}

/// What was expected, without the names that it has in the program.
fn wanted(expected: &str) -> String {
    if let Some(whole) = whole(expected) {
        return whole;
    }
    let words = match expected {
        DURATION => "a duration with its unit, such as 250ms, 15s, 5m or 2h,",
        "a boolean" => "true or false",
        "a string" | "string" | "path string" => "text",
        "a sequence" => "a list",
        "f32" | "f64" => "a number",
        "a map" | "map" => "a section",
        other if other.starts_with("struct ") => "a section",
        other => other,
    };
    words.to_owned()
}

/// A whole number of a size, if that was expected.
fn whole(expected: &str) -> Option<String> {
    let most = match expected {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => return Some("a whole number of 0 or more".to_owned()),
        "i8" | "i16" | "i32" | "i64" | "isize" => return Some("a whole number".to_owned()),
        _ => return None,
    };
    Some(format!("a whole number from 0 to {most}"))
}
