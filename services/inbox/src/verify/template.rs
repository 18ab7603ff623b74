//! Templates: text with places in braces, such as `{ts}.{raw}` or `{json:/type}.{json:/action}`.
//!
//! One grammar for what is signed and for ids, types and keys. What is signed is put together as
//! bytes, and a place with nothing in it is a reject; the others are text, and a place with
//! nothing in it means that the next template is tried.

use std::borrow::Cow;

use super::Reject;
use super::place::{Parts, Place, Scope, Unfit};
use crate::read::form;

/// Most fields of a form that are sorted before anybody knows who sent it.
const MAX_FIELDS: usize = 1_000;

/// Text with places in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Place(Place),
}

impl Template {
    /// Reads one; `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence.
    pub(crate) fn parse(text: &str, scope: Scope<'_>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let Some((place, after)) = rest.split_once('}').filter(|_| brace == "{") else {
                return Err(format!("has a lone `{brace}`"));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Place(Place::parse(place, scope)?));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    /// The places in it.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Place(place) => Some(place),
            Piece::Literal(_) => None,
        })
    }

    /// What is signed, piece by piece. `url` is the address with its query.
    pub(crate) fn content<'p>(
        &'p self,
        parts: &'p Parts<'_>,
        url: &'p str,
    ) -> Result<Vec<Cow<'p, [u8]>>, Reject> {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) => Ok(Cow::Borrowed(text.as_bytes())),
                Piece::Place(place) => signed(place, parts, url),
            })
            .collect()
    }

    /// The text; none where one of its places has nothing in it.
    pub(crate) fn text(&self, parts: &Parts<'_>) -> Result<Option<String>, Unfit> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Place(place) => match parts.text(place)? {
                    Some(value) if !value.is_empty() => text.push_str(&value),
                    _ if matches!(place, Place::Json { optional: true, .. }) => {}
                    _ => return Ok(None),
                },
            }
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

/// The first of these templates that has something in all its places.
pub(crate) fn first(templates: &[Template], parts: &Parts<'_>) -> Result<Option<String>, Unfit> {
    for template in templates {
        if let Some(text) = template.text(parts)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn signed<'p>(place: &Place, parts: &'p Parts<'_>, url: &'p str) -> Result<Cow<'p, [u8]>, Reject> {
    match place {
        Place::Raw => Ok(parts.body.into()),
        Place::Url => Ok(url.as_bytes().into()),
        Place::UrlUnescaped => Ok(unescape(url).into_bytes().into()),
        Place::FormSorted if parts.body.is_empty() => Ok(Cow::Borrowed(&[])),
        Place::FormSorted if !parts.says_form() || form::count(parts.body) > MAX_FIELDS => {
            Err(Reject::UnreadableBody)
        }
        Place::FormSorted => {
            let mut fields: Vec<_> = form::fields(parts.body).collect();
            fields.sort_unstable();
            fields.dedup();
            let pieces = fields.into_iter().flat_map(|(name, value)| [name, value]);
            Ok(pieces.collect::<Vec<_>>().concat().into())
        }
        place => match parts.text(place) {
            Ok(Some(Cow::Borrowed(text))) => Ok(text.as_bytes().into()),
            Ok(Some(Cow::Owned(text))) => Ok(text.into_bytes().into()),
            Ok(None) => match place {
                Place::Json {
                    pointer,
                    optional: true,
                } if parts.is_void(pointer) => Ok([][..].into()),
                _ => Err(Reject::MissingPart),
            },
            Err(Unfit::Repeated | Unfit::NoText) => Err(Reject::RepeatedPart),
            Err(Unfit::NoJson(_)) => Err(Reject::UnreadableBody),
        },
    }
}

/// The escapes that HubSpot undoes before it signs an address. The first `?` starts the query and
/// is no escape.
fn unescape(url: &str) -> String {
    const ESCAPES: [(&str, char); 12] = [
        ("3A", ':'),
        ("2F", '/'),
        ("3F", '?'),
        ("40", '@'),
        ("21", '!'),
        ("24", '$'),
        ("27", '\''),
        ("28", '('),
        ("29", ')'),
        ("2A", '*'),
        ("2C", ','),
        ("3B", ';'),
    ];
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).unwrap_or_default();
        let escape = ESCAPES
            .iter()
            .find(|(hex, _)| hex.eq_ignore_ascii_case(code));
        match escape {
            Some((_, plain)) => {
                text.push(*plain);
                rest = &rest[at + 3..];
            }
            None => {
                text.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_makes_no_sense_is_refused_with_the_reason() {
        for (text, problem) in [
            ("{raw", "has a lone `{`"),
            ("raw}", "has a lone `}`"),
            ("{body}", "names `body`, which is no place in a request"),
            ("{jsn:/a}", "names `jsn:/a`, which is no place in a request"),
            ("{header:a b}", "names `a b`, which is no header's name"),
            ("{ts}", "names `ts`, and no `timestamp` says where that is"),
            (
                "{kv:t}",
                "names `kv:t`, and the signature's grammar is not `kv`",
            ),
        ] {
            let found = Template::parse(text, Scope::default()).unwrap_err();
            assert_eq!(found, problem, "{text}");
        }
        let braces = Template::parse("{{a}}{raw}}}", Scope::default()).unwrap();
        let expected = [
            Piece::Literal("{a}".to_owned()),
            Piece::Place(Place::Raw),
            Piece::Literal("}".to_owned()),
        ];
        assert_eq!(braces.0, expected);
    }

    #[test]
    fn only_the_named_escapes_of_an_address_are_undone() {
        for (url, expected) in [
            (
                "https://a.example/x?y=1%2C2%3a3",
                "https://a.example/x?y=1,2:3",
            ),
            (
                "https://a.example/%20%25%zz%2",
                "https://a.example/%20%25%zz%2",
            ),
            ("https://a.example/é%40", "https://a.example/é@"),
        ] {
            assert_eq!(unescape(url), expected);
        }
    }
}
