//! How much there is to a schema once every reference in it is followed.
//!
//! A validator visits what a reference leads to each time it comes by, so a schema of a few lines may
//! have more to be visited than there is time for: two references to a part that has two references to
//! the next, and so on. What is counted here is that: a bound for the work on each value of a payload.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Subschemas that a schema may have, all references followed.
const MAX_NODES: usize = 10_000;
/// How many levels deep subschemas and references may lead.
const MAX_LEVELS: usize = 50;

/// What a schema comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Subschemas, all references followed, each circle once.
    pub(super) nodes: usize,
    /// Whether it refers to itself: then a payload's depth decides.
    pub(super) recursive: bool,
}

/// Measures a schema.
///
/// # Errors
/// Where it is too large, for the person who gave it, or refers to anything by another name than `#/…`
/// and `#anchor`.
pub(super) fn of(schema: &Value) -> Result<Size, String> {
    let mut walk = Walk {
        root: schema,
        anchors: anchors(schema),
        done: HashMap::new(),
        open: HashSet::new(),
        recursive: false,
    };
    let measured = walk.measure(schema, 0)?;
    Ok(Size {
        nodes: measured.nodes,
        recursive: walk.recursive,
    })
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    nodes: usize,
    levels: usize,
}

struct Walk<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
    /// By address: the schema is borrowed meanwhile.
    done: HashMap<*const Value, Measured>,
    open: HashSet<*const Value>,
    recursive: bool,
}

impl<'s> Walk<'s> {
    fn measure(&mut self, schema: &'s Value, level: usize) -> Result<Measured, String> {
        let mut all = Measured {
            nodes: 1,
            levels: 1,
        };
        let Value::Object(members) = schema else {
            return Ok(all);
        };
        let at: *const Value = schema;
        if let Some(known) = self.done.get(&at) {
            return within(level, *known);
        }
        if !self.open.insert(at) {
            self.recursive = true;
            return Ok(all);
        }
        within(level, all)?;
        for part in self.parts(members, level)? {
            let part = self.measure(part, level + 1)?;
            all.nodes += part.nodes;
            all.levels = all.levels.max(part.levels + 1);
            within(level, all)?;
        }
        self.open.remove(&at);
        self.done.insert(at, all);
        Ok(all)
    }

    /// The subschemas of a schema, and what it refers to.
    fn parts(
        &self,
        members: &'s Map<String, Value>,
        level: usize,
    ) -> Result<Vec<&'s Value>, String> {
        let mut parts = Vec::new();
        for (name, value) in members {
            match name.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    if let Value::String(reference) = value {
                        parts.push(self.target(reference)?);
                    }
                }
                "$id" if level > 0 && value.is_string() => {
                    return Err("`$id` may stand at the top alone".to_owned());
                }
                _ => parts.extend(subschemas(name, value)),
            }
        }
        Ok(parts)
    }

    fn target(&self, reference: &str) -> Result<&'s Value, String> {
        let found = match reference.strip_prefix('#') {
            Some(anchor) if !anchor.is_empty() && !anchor.starts_with('/') => {
                self.anchors.get(anchor).copied()
            }
            Some(pointer) => self.root.pointer(pointer),
            None => None,
        };
        found.ok_or_else(|| {
            let shown: String = reference.chars().take(100).collect();
            format!(
                "the reference `{shown}` leads to nothing within the schema; give one such as \
                 `#/$defs/name`"
            )
        })
    }
}

fn within(level: usize, measured: Measured) -> Result<Measured, String> {
    if measured.nodes > MAX_NODES {
        return Err(format!(
            "it comes to more than {MAX_NODES} subschemas where its references are followed"
        ));
    }
    if level + measured.levels > MAX_LEVELS {
        return Err(format!(
            "its subschemas and references lead more than {MAX_LEVELS} levels deep"
        ));
    }
    Ok(measured)
}

/// The schemas in a member of a schema.
fn subschemas<'s>(name: &str, value: &'s Value) -> Vec<&'s Value> {
    match (name, value) {
        // Data, which may look like schemas.
        ("const" | "enum" | "default" | "example" | "examples", _) => Vec::new(),
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies",
            Value::Object(named),
        ) => named.values().filter(|value| value.is_object()).collect(),
        (_, Value::Object(_)) => vec![value],
        (_, Value::Array(items)) => items.iter().filter(|item| item.is_object()).collect(),
        _ => Vec::new(),
    }
}

/// The parts that have a name of their own.
fn anchors(schema: &Value) -> HashMap<&str, &Value> {
    let mut anchors = HashMap::new();
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        let Value::Object(members) = schema else {
            continue;
        };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                    anchors.insert(anchor.as_str(), schema);
                }
                _ => open.extend(subschemas(name, value)),
            }
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size(schema: &Value) -> (usize, bool) {
        let size = of(schema).unwrap_or_else(|refused| panic!("{schema}: {refused}"));
        (size.nodes, size.recursive)
    }

    #[test]
    fn what_is_referred_to_counts_each_time() {
        assert_eq!(size(&json!(true)), (1, false));
        assert_eq!(
            size(&json!({"properties": {"a": {}, "b": {"items": {}}}})),
            (4, false)
        );
        let twice = json!({"$defs": {"a": {"items": {}}}, "prefixItems": [
            {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"},
        ]});
        assert_eq!(size(&twice), (1 + 2 + 2 + 2 * 2, false));
        let data = json!({"const": {"$ref": "nowhere"}, "enum": [{"$ref": "nowhere"}]});
        assert_eq!(size(&data), (1, false));
        let named = json!({"properties": {"const": {"type": "string"}, "$id": {}}});
        assert_eq!(size(&named), (3, false));
    }

    #[test]
    fn circles_are_noticed() {
        for circle in [
            json!({"properties": {"child": {"$ref": "#"}}}),
            json!({"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}}),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}},
            }}),
        ] {
            assert!(size(&circle).1, "{circle}");
        }
    }

    #[test]
    fn what_grows_with_each_reference_or_leads_too_deep_is_refused() {
        let chain = |parts: usize, times: usize| {
            let mut defs = serde_json::Map::new();
            for n in 0..parts {
                let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
                defs.insert(format!("a{n}"), json!({"anyOf": vec![next; times]}));
            }
            defs.insert(format!("a{parts}"), json!({}));
            json!({"$ref": "#/$defs/a0", "$defs": defs})
        };
        assert!(of(&chain(8, 2)).is_ok());
        assert!(of(&chain(14, 2)).unwrap_err().contains("subschemas"));
        assert!(of(&chain(40, 1)).unwrap_err().contains("levels"));
    }
}
