//! Forms and queries: `a=1&b=two+words`, as bytes. What is signed field by field must not be
//! changed by reading it, so that nothing is replaced where it is not UTF-8.

/// A field's name and value, decoded.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// The fields in their order. Every text is a form: `%` without two hex digits stands for itself.
pub(crate) fn fields(text: &[u8]) -> impl Iterator<Item = Field> {
    pairs(text).map(|(name, value)| (decode(name), decode(value)))
}

/// The values of the fields with this name. Holds none of the others: a body may be a million of them.
pub(crate) fn values(text: &[u8], name: &str) -> impl Iterator<Item = Vec<u8>> {
    pairs(text)
        .filter(move |(key, _)| {
            let plain = !key.iter().any(|b| matches!(b, b'%' | b'+'));
            (plain && *key == name.as_bytes()) || (!plain && decode(key) == name.as_bytes())
        })
        .map(|(_, value)| decode(value))
}

/// How many fields there are.
pub(crate) fn count(text: &[u8]) -> usize {
    pairs(text).count()
}

/// Names and values as they are written.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|b| *b == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let equals = pair.iter().position(|b| *b == b'=');
            equals.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]))
        })
}

/// Whether a body is a form and can't be JSON. It is the body that decides, since a signature seldom
/// covers `Content-Type`: whoever repeats a request could have it read in another way.
pub(crate) fn is_one(body: &[u8]) -> bool {
    let starts = body
        .first()
        .is_some_and(|first| !matches!(first, b'{' | b'[' | b'"'));
    starts && body.contains(&b'=') && body.iter().all(u8::is_ascii_graphic)
}

fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let escaped = (*byte == b'%')
            .then(|| Some((digit(at + 1)?, digit(at + 2)?)))
            .flatten();
        if let Some((high, low)) = escaped {
            decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
            at += 3;
        } else {
            decoded.push(if *byte == b'+' { b' ' } else { *byte });
            at += 1;
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_as_bytes() {
        let field = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        for (text, expected) in [
            ("", vec![]),
            (
                "a=1&b=two+words",
                vec![field(b"a", b"1"), field(b"b", b"two words")],
            ),
            (
                "a=%2B1%3d&a=2",
                vec![field(b"a", b"+1="), field(b"a", b"2")],
            ),
            (
                "a&=b&&c==d",
                vec![field(b"a", b""), field(b"", b"b"), field(b"c", b"=d")],
            ),
            (
                "a=%zz%2&b=%",
                vec![field(b"a", b"%zz%2"), field(b"b", b"%")],
            ),
            ("a=%FF%00", vec![field(b"a", b"\xFF\0")]),
        ] {
            let found: Vec<_> = fields(text.as_bytes()).collect();
            assert_eq!(found, expected, "{text}");
            assert_eq!(count(text.as_bytes()), expected.len(), "{text}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_decoded_name() {
        let text = b"a=1&a%62=2&ab=%33&a+b=4&%61b";
        let found = |name| values(text, name).collect::<Vec<_>>();
        assert_eq!(found("a"), [b"1"]);
        assert_eq!(found("ab"), [&b"2"[..], b"3", b""]);
        assert_eq!(found("a b"), [b"4"]);
        assert!(found("a%62").is_empty() && found("c").is_empty());
    }

    #[test]
    fn a_body_is_a_form_only_where_it_can_be_nothing_else() {
        for body in ["a=1", "payload=%7B%7D", "=", "a&b=", "1=2"] {
            assert!(is_one(body.as_bytes()), "{body}");
        }
        for body in [
            "",
            "{\"a\":\"=\"}",
            "[\"=\"]",
            "\"=\"",
            " {\"a\":\"=\"}",
            "a",
            "a = 1",
            "a=\u{e9}",
        ] {
            assert!(!is_one(body.as_bytes()), "{body}");
        }
    }
}
