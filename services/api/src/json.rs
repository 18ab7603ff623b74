//! Reads JSON, and says what is wrong with it in JSON's own terms.
//!
//! Owns the wording. `serde` tells of a value that does not fit in the terms of this program (`u16`,
//! `struct NewConsumer`, `map`), which is nothing to who wrote the document. Its words are put into
//! others here and nothing is decided by them: words that nobody has thought of are shown as they are.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::problem::Problem;

/// What of an error's text is shown, in characters.
const SHOWN: usize = 300;

/// Reads a whole body: an object.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let read = serde_json::from_slice(bytes).map(|Object(body)| body);
    read.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let detail = format!("{} at line {line} column {column}", explain(&error));
        if error.is_data() {
            Problem::unprocessable(format!("the body is not what is expected: {detail}"))
        } else {
            Problem::invalid(format!("the body can't be read: {detail}"))
        }
    })
}

/// What is read from an object alone. `serde` would read what has fields from an array, too, by the order
/// of the fields: nobody is to rely on that.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// What is wrong, without the place. It names the field; a value is shown only where it is short.
pub(crate) fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    in_terms(text.strip_suffix(&place).unwrap_or(&text))
}

/// The same text in terms of JSON, and not too long.
pub(crate) fn in_terms(text: &str) -> String {
    let text = match text.rsplit_once(", expected ") {
        Some((found, wanted)) => format!("{}, expected {}", given(found), expected(wanted)),
        None => text.to_owned(),
    };
    text.chars()
        .filter(|c| !c.is_control())
        .take(SHOWN)
        .collect()
}

/// What was found.
fn given(text: &str) -> String {
    const TERMS: [(&str, &str); 4] = [
        ("invalid type: sequence", "invalid type: array"),
        ("invalid type: map", "invalid type: object"),
        ("invalid type: floating point `", "invalid type: number `"),
        ("unknown variant `", "unknown value `"),
    ];
    for (theirs, ours) in TERMS {
        if let Some(rest) = text.strip_prefix(theirs) {
            return format!("{ours}{rest}");
        }
    }
    text.to_owned()
}

/// What was expected in its place.
fn expected(text: &str) -> String {
    match text {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        _ if text.starts_with("struct ") => "an object",
        _ => text,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use chrono::{DateTime, Utc};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        Left,
        Right,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code, reason = "what is read is not looked at")]
    struct Everything {
        small: Option<u16>,
        large: Option<u32>,
        huge: Option<u64>,
        signed: i64,
        real: f64,
        flag: bool,
        text: String,
        list: Vec<String>,
        table: BTreeMap<String, String>,
        choice: Option<Choice>,
        nested: Option<Box<Everything>>,
        object: Option<Object<Box<Everything>>>,
        at: Option<DateTime<Utc>>,
    }

    fn detail(body: &str) -> String {
        let read: Result<Everything, Problem> = parse(body.as_bytes());
        read.expect_err(body).detail().to_owned()
    }

    #[test]
    fn what_is_wrong_is_told_in_terms_of_json() {
        for (body, told) in [
            (
                r#"{"small": -1}"#,
                "integer `-1`, expected an integer from 0 to 65535",
            ),
            (
                r#"{"small": 1e9}"#,
                "number `1000000000.0`, expected an integer from 0 to 65535",
            ),
            (
                r#"{"small": "7"}"#,
                "string \"7\", expected an integer from 0 to 65535",
            ),
            (
                r#"{"large": 4294967296}"#,
                "expected an integer from 0 to 4294967295",
            ),
            (r#"{"huge": -1}"#, "expected an integer from 0 at"),
            (r#"{"signed": 1.5}"#, "number `1.5`, expected an integer at"),
            (r#"{"real": "x"}"#, "expected a number"),
            (r#"{"flag": 1}"#, "integer `1`, expected a boolean"),
            (r#"{"text": {}}"#, "invalid type: object, expected a string"),
            (r#"{"text": []}"#, "invalid type: array, expected a string"),
            (r#"{"text": null}"#, "invalid type: null, expected a string"),
            (r#"{"list": {}}"#, "invalid type: object, expected an array"),
            (
                r#"{"table": [1]}"#,
                "invalid type: array, expected an object",
            ),
            (
                r#"{"choice": "up"}"#,
                "unknown value `up`, expected `left` or `right`",
            ),
            (r#"{"choice": 7}"#, "expected value"),
            (r#"{"choice": {"left": 1}}"#, "expected null"),
            (r#"{"nested": 7}"#, "integer `7`, expected an object"),
            (
                r#"{"object": [1, 2]}"#,
                "invalid type: array, expected an object",
            ),
            (r#"{"at": 7}"#, "integer `7`, expected"),
            (r#"{"at": "then"}"#, ""),
            (r#"{"other": 7}"#, "unknown field `other`"),
            (r#"{"flag": true, "flag": true}"#, "duplicate field `flag`"),
            (r#"null"#, "invalid type: null, expected an object"),
            (r#""x""#, "expected an object"),
            (r#"[1]"#, "invalid type: array, expected an object"),
            (r#"{"text": "a, expected u16"#, "EOF"),
        ] {
            let detail = detail(body);
            assert!(detail.contains(told), "{body}: {detail}");
            let ours = [
                "u16", "u32", "u64", "i64", "f64", "struct", "enum", "variant", "sequence", "map",
            ];
            let quoted = body.contains("u16");
            assert!(
                quoted || !ours.iter().any(|word| detail.contains(word)),
                "{body}: {detail}"
            );
        }
    }

    #[test]
    fn a_long_text_is_cut_and_has_no_control_characters() {
        let text = in_terms(&format!("a\r\n{}", "x".repeat(1_000)));
        assert_eq!(text.chars().count(), SHOWN);
        assert!(text.starts_with("axx"));
    }
}
