//! Payloads against their event type's JSON Schema.
//!
//! Owns which schemas can be used and how a violation is told. A schema may come from anybody who may
//! manage event types, and a payload from anybody who may publish, so neither is trusted: a reference
//! leads nowhere beyond the schema itself, patterns run in linear time, and how large either is, and how
//! deep, has a limit.
//!
//! Whether a payload fits is found out without much ado, also where a schema refers to itself: what a
//! validator has decided about a value, it remembers. Where it does not fit is another matter: the
//! validator collects everything that is wrong on every way that it tried, which may be more than there
//! is memory for. So it is asked only where that is bounded.

mod size;

use hooklane_store::accept::MAX_PAYLOAD;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::problem::Pointer;
use size::Size;

/// How deep arrays and objects of a payload may be nested.
pub(crate) const MAX_DEPTH: usize = 100;
/// How deep those of a schema may be.
const MAX_SCHEMA_DEPTH: usize = 100;
/// Violations told at the most.
const MAX_VIOLATIONS: usize = 10;
/// Longest text about a violation, in characters: it may quote the payload.
const MAX_TEXT: usize = 200;
/// Longest pointer, in characters: its words are the payload's.
const MAX_POINTER: usize = 500;
/// Most memory of a compiled pattern, in bytes.
const PATTERN_SIZE: usize = 1 << 20;

/// Subschemas times values up to which violations are looked for one by one.
const MAX_WORK: usize = 200_000;

/// A schema that can be used.
#[derive(Debug)]
pub(crate) struct Schema {
    validator: Validator,
    size: Size,
}

/// Says what speaks against using a JSON Schema, for the person who gave it.
///
/// # Errors
/// Where it is no schema, refers to anything beyond itself, is too large or too deep with all
/// references followed, or holds a pattern that can't run in linear time (with look-around or
/// back-references) or is too large.
pub fn check(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

/// As [`check`], from the text that the ledger keeps.
pub(crate) fn parse(text: &str) -> Result<Schema, String> {
    let schema = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    compile(&schema)
}

fn compile(schema: &Value) -> Result<Schema, String> {
    if depth_of(schema) > MAX_SCHEMA_DEPTH {
        return Err(format!(
            "it is nested deeper than {MAX_SCHEMA_DEPTH} levels; move parts of it to `$defs`"
        ));
    }
    let size = size::of(schema)?;
    let patterns = PatternOptions::regex()
        .size_limit(PATTERN_SIZE)
        .dfa_size_limit(PATTERN_SIZE);
    jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        .build(schema)
        .map(|validator| Schema { validator, size })
        .map_err(|error| {
            let at = cut(error.schema_path().as_str(), MAX_POINTER);
            let at = if at.is_empty() { "/".to_owned() } else { at };
            format!("{} (at {at})", text(&error))
        })
}

fn depth_of(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0_usize)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => {
                open.extend(members.values().map(|member| (member, depth + 1)));
            }
            _ => {}
        }
    }
    deepest
}

/// How deep arrays and objects are nested in a text that is JSON. Looks at no more of it than it takes
/// to find it deeper than [`MAX_DEPTH`].
pub(crate) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
                if deepest > MAX_DEPTH {
                    break;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                // To the end of the text, over escaped quotation marks.
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

impl Schema {
    /// What is wrong with a payload: nothing, or at most [`MAX_VIOLATIONS`].
    pub(crate) fn violations(&self, payload: &[u8]) -> Vec<Pointer> {
        debug_assert!(payload.len() <= MAX_PAYLOAD, "it is refused before");
        let payload: Value = match serde_json::from_slice(payload) {
            Ok(payload) => payload,
            // A number beyond what can be computed with.
            Err(error) => {
                return vec![Pointer {
                    pointer: "/payload".to_owned(),
                    detail: cut(&error.to_string(), MAX_TEXT),
                }];
            }
        };
        if self.validator.is_valid(&payload) {
            return Vec::new();
        }
        if self.size.recursive || self.size.nodes.saturating_mul(values(&payload)) > MAX_WORK {
            return vec![Pointer {
                pointer: "/payload".to_owned(),
                detail:
                    "it does not fit; where exactly is not looked for, since the schema refers to \
                         itself or the payload is large"
                        .to_owned(),
            }];
        }
        let errors = self.validator.iter_errors(&payload).take(MAX_VIOLATIONS);
        errors
            .map(|error| Pointer {
                pointer: format!(
                    "/payload{}",
                    cut(error.instance_path().as_str(), MAX_POINTER)
                ),
                detail: text(&error),
            })
            .collect()
    }
}

/// How many values there are in a value, itself among them.
fn values(value: &Value) -> usize {
    let mut count = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    count
}

/// What an error says, and of a value no more than a little.
fn text(error: &ValidationError<'_>) -> String {
    let full = error.to_string();
    if full.chars().nth(MAX_TEXT).is_none() {
        return full;
    }
    cut(&error.masked().to_string(), MAX_TEXT)
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violations(schema: Value, payload: &str) -> Vec<(String, String)> {
        let schema = compile(&schema).unwrap();
        let found = schema.violations(payload.as_bytes());
        found.into_iter().map(|v| (v.pointer, v.detail)).collect()
    }

    #[test]
    fn a_violation_says_where_and_what() {
        let schema = json!({
            "type": "object",
            "properties": {"lines": {"items": {"properties": {"amount": {"type": "number"}}}}},
            "required": ["id"],
        });
        assert!(violations(schema.clone(), r#"{"id": 1, "lines": []}"#).is_empty());
        let found = violations(schema, r#"{"lines": [{}, {"amount": "ten"}]}"#);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&(
            "/payload/lines/1/amount".to_owned(),
            r#""ten" is not of type "number""#.to_owned()
        )));
        assert!(found.contains(&(
            "/payload".to_owned(),
            r#""id" is a required property"#.to_owned()
        )));
    }

    #[test]
    fn of_many_violations_some_are_told_and_of_a_large_value_little() {
        let many = format!("[{}]", vec!["0"; 1_000].join(","));
        let found = violations(json!({"items": {"type": "string"}}), &many);
        assert_eq!(found.len(), MAX_VIOLATIONS);
        let large = format!("{:?}", "x".repeat(100_000));
        for schema in [
            json!({"type": "number"}),
            json!({"anyOf": [{"type": "number"}, {"const": 1}]}),
            json!({"maxLength": 3}),
        ] {
            let found = violations(schema, &large);
            assert_eq!(found.len(), 1);
            assert!(found[0].1.chars().count() <= MAX_TEXT + 1, "{found:?}");
        }
        let name = format!("{{{large}: 1}}");
        let found = violations(json!({"additionalProperties": false}), &name);
        assert!(found[0].1.chars().count() <= MAX_TEXT + 1, "{found:?}");
        let found = violations(json!({"additionalProperties": {"type": "string"}}), &name);
        assert!(found[0].0.len() <= MAX_POINTER + 20, "{found:?}");
    }

    #[test]
    fn what_leads_out_of_the_schema_or_is_no_schema_is_refused() {
        for (schema, told) in [
            (
                json!({"$ref": "https://example.com/other.json"}),
                "within the schema",
            ),
            (json!({"$ref": "file:///etc/passwd"}), "within the schema"),
            (json!({"$schema": "https://example.com/draft"}), ""),
            (json!({"$ref": "#/$defs/nowhere"}), "within the schema"),
            (json!({"$ref": "#nowhere"}), "within the schema"),
            (json!({"$defs": {"b": {"$id": "b"}}}), "$id"),
            (json!({"type": "nothing"}), "nothing"),
            (json!({"properties": []}), "object"),
            (json!([]), ""),
            (json!("a"), ""),
            (json!({"pattern": "(?=a)b"}), ""),
            (json!({"pattern": "("}), ""),
            (json!({"pattern": "(((a{100}){100}){100}){100}"}), ""),
        ] {
            let refused = check(&schema).expect_err(&schema.to_string());
            assert!(refused.contains(told), "{schema}: {refused}");
            assert!(refused.chars().count() < 2_000, "{refused}");
        }
        let mut deep = json!(true);
        for _ in 0..=MAX_SCHEMA_DEPTH {
            deep = json!({"not": deep});
        }
        assert!(check(&deep).unwrap_err().contains("nested"));
    }

    #[test]
    fn usual_schemas_pass() {
        for schema in [
            json!(true),
            json!({}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
            json!({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}),
            json!({"pattern": "^[a-z]+(-[0-9]{2,4})?$", "format": "email"}),
            json!({"$id": "https://example.com/a", "$defs": {"b": {"$anchor": "b"}}, "$ref": "#b"}),
        ] {
            check(&schema).unwrap_or_else(|refused| panic!("{schema}: {refused}"));
        }
    }

    #[test]
    fn neither_a_pattern_nor_a_reference_to_itself_takes_for_ever() {
        let evil = format!("{:?}", format!("{}!", "a".repeat(100_000)));
        assert_eq!(violations(json!({"pattern": "^(a+)+$"}), &evil).len(), 1);
        // Twice as many ways with each level, and a payload that is as deep as may be.
        let twice = json!({"$ref": "#/$defs/a", "$defs": {"a": {
            "anyOf": [
                {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["y"]},
                {"properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["z"]},
            ],
        }}});
        let deep = format!("{}1{}", r#"{"x":"#.repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        let found = violations(twice, &deep);
        assert_eq!((found.len(), found[0].0.as_str()), (1, "/payload"));
        // As many violations as there are values times ways.
        let ways = json!({"items": {"anyOf": vec![json!({"type": "string"}); 100]}});
        let found = violations(ways, &format!("[{}]", vec!["0"; 8_000].join(",")));
        assert_eq!(found.len(), 1);
        for endless in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]})] {
            if let Ok(schema) = compile(&endless) {
                schema.violations(b"{}");
            }
        }
    }

    #[test]
    fn as_many_levels_as_may_be_fit_on_the_stack() {
        let mut level = json!({"$ref": "#"});
        for _ in 0..45 {
            level = json!({"not": level});
        }
        let schema = compile(&json!({"properties": {"x": level}, "maxProperties": 1})).unwrap();
        let deep = format!("{}1{}", r#"{"x":"#.repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        schema.violations(deep.as_bytes());
    }

    #[test]
    fn nesting_is_measured_outside_of_texts() {
        assert_eq!(depth("1"), 0);
        assert_eq!(depth(r#"{"a": [1, {"b": []}], "c": {}}"#), 4);
        assert_eq!(depth(r#"["[[[[", "\"[[", "\\", []]"#), 2);
        assert_eq!(depth(&"[".repeat(100_000)), MAX_DEPTH + 1);
    }
}
