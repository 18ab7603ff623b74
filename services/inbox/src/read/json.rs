//! JSON, looked into without being built: one pass says whether the bytes are JSON within bounds,
//! and a pointer then finds a value's exact bytes.
//!
//! A tree of values would forget what matters here: that a key is there twice, how a number was
//! written, which bytes an item of a batch has. Nor does it bound what a short number may become
//! elsewhere: `1e131071` is eight bytes here and 131,072 digits in a database.

use std::borrow::Cow;
use std::ops::Range;

mod scan;
#[cfg(test)]
mod tests;

/// Deepest nesting of arrays and objects.
pub(crate) const MAX_DEPTH: usize = 128;
/// Longest number, in bytes. The largest of a double's values has 309 digits.
pub(crate) const MAX_NUMBER: usize = 400;
/// Largest exponent, either way.
pub(crate) const MAX_EXPONENT: u32 = 400;

/// Why bytes are not read as JSON. Holds none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJson {
    /// Nothing but white space.
    #[error("the body is empty")]
    Empty,
    /// Starts with U+FEFF.
    #[error("the body starts with a byte order mark")]
    ByteOrderMark,
    /// Not UTF-8 from this byte on.
    #[error("the body is not UTF-8 at byte {0}")]
    Encoding(usize),
    /// No JSON from this byte on.
    #[error("the body is not JSON at byte {0}")]
    Syntax(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the body is nested deeper than 128 levels at byte {0}")]
    Depth(usize),
    /// A number beyond [`MAX_NUMBER`] or [`MAX_EXPONENT`].
    #[error("the body has a number of more than 400 digits at byte {0}")]
    Number(usize),
}

/// A key on the way of a pointer is there more than once: what it names depends on the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is there twice")]
pub(crate) struct Ambiguous;

/// A JSON pointer, RFC 6901.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

/// A text that is no JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no JSON pointer; write it as `/data/object/id`, with `~1` for `/` and `~0` for `~`")]
pub(crate) struct NotPointer;

impl Pointer {
    /// Reads `/a/b/0`; the empty text is the whole.
    pub(crate) fn parse(text: &str) -> Result<Self, NotPointer> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/').ok_or(NotPointer)?;
        rest.split('/')
            .map(unescape)
            .collect::<Option<_>>()
            .map(Self)
            .ok_or(NotPointer)
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut text = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}

/// One value of a document: its bytes, and where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node<'a> {
    /// The document's bytes up to the value's end.
    bytes: &'a [u8],
    start: usize,
}

/// A value as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    /// A string's characters, a number as it is written, `true` or `false`.
    Text(Cow<'a, str>),
    /// A string with half a surrogate pair, which no text can hold.
    NoText,
}

impl<'a> Node<'a> {
    /// Takes a document: JSON within the bounds, with nothing around it but white space.
    pub(crate) fn document(bytes: &'a [u8]) -> Result<Self, NotJson> {
        if bytes.starts_with(&[0xEF, 0xBB, 0xBF]) {
            return Err(NotJson::ByteOrderMark);
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            return Err(NotJson::Encoding(error.valid_up_to()));
        }
        let range = scan::document(bytes)?;
        Ok(Self {
            bytes: &bytes[..range.end],
            start: range.start,
        })
    }

    /// Its exact bytes.
    pub(crate) fn raw(&self) -> &'a [u8] {
        &self.bytes[self.start..]
    }

    /// Where its bytes are in the document.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.bytes.len()
    }

    /// The value that a pointer names, seen from here.
    ///
    /// # Errors
    /// [`Ambiguous`] where an object on the way has the key twice.
    pub(crate) fn at(&self, pointer: &Pointer) -> Result<Option<Self>, Ambiguous> {
        let mut node = *self;
        for token in &pointer.0 {
            let next = match node.raw().first() {
                Some(b'{') => node.member(token)?,
                Some(b'[') => node.element(token),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// An array's elements; none where it is no array.
    pub(crate) fn elements(&self) -> Option<impl Iterator<Item = Self> + use<'a>> {
        let parts = self.parts(b'[')?;
        Some(parts.map(|(_, value)| value))
    }

    /// An object's members that hold neither an object nor an array, as they are written: the key with
    /// its quotes, and the value.
    pub(crate) fn scalars(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let members = self.parts(b'{').into_iter().flatten();
        let plain = |value: &[u8]| !matches!(value.first(), Some(b'{' | b'['));
        members
            .map(|(name, value)| (name, value.raw()))
            .filter(move |(_, value)| plain(value))
    }

    /// The value as text; none for `null`, objects and arrays.
    pub(crate) fn scalar(&self) -> Option<Scalar<'a>> {
        let raw = self.raw();
        match raw.first() {
            Some(b'"') => Some(decode(raw).map_or(Scalar::NoText, Scalar::Text)),
            Some(b'{' | b'[' | b'n') | None => None,
            Some(_) => std::str::from_utf8(raw)
                .ok()
                .map(|text| Scalar::Text(text.into())),
        }
    }

    fn member(&self, key: &str) -> Result<Option<Self>, Ambiguous> {
        let mut found = None;
        for (name, value) in self.parts(b'{').into_iter().flatten() {
            let same = decode(name).is_some_and(|name| name == key);
            if same && found.replace(value).is_some() {
                return Err(Ambiguous);
            }
        }
        Ok(found)
    }

    fn element(&self, token: &str) -> Option<Self> {
        let canonical = token == "0" || !token.starts_with('0');
        let digits = token.bytes().all(|b| b.is_ascii_digit());
        let index: usize = token.parse().ok().filter(|_| canonical && digits)?;
        self.elements()?.nth(index)
    }

    /// The members or elements; a member's key with its quotes, nothing for an element's.
    fn parts(&self, open: u8) -> Option<impl Iterator<Item = (&'a [u8], Self)> + use<'a>> {
        if self.raw().first() != Some(&open) {
            return None;
        }
        let bytes = self.bytes;
        let mut at = self.start + 1;
        Some(std::iter::from_fn(move || {
            at = scan::gap(bytes, at);
            if matches!(bytes.get(at), None | Some(b'}' | b']')) {
                return None;
            }
            let mut name: &[u8] = &[];
            if open == b'{' {
                let end = scan::value_end(bytes, at);
                name = &bytes[at..end];
                at = scan::gap(bytes, end);
            }
            let end = scan::value_end(bytes, at);
            let node = Self {
                bytes: &bytes[..end],
                start: at,
            };
            at = end;
            Some((name, node))
        }))
    }
}

/// A string's characters, without its quotes; none where half a surrogate pair stands alone.
fn decode(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    let inner = std::str::from_utf8(inner).ok()?;
    if !inner.contains('\\') {
        return Some(inner.into());
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(escape) = rest.find('\\') {
        text.push_str(&rest[..escape]);
        let kind = *rest.as_bytes().get(escape + 1)?;
        rest = &rest[escape + 2..];
        let plain = match kind {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => unicode(&mut rest)?,
            other => char::from(other),
        };
        text.push(plain);
    }
    text.push_str(rest);
    Some(text.into())
}

/// What stands after `\u`, and the other half where it is one.
fn unicode(rest: &mut &str) -> Option<char> {
    let unit = |rest: &mut &str| {
        let unit = u32::from_str_radix(rest.get(..4)?, 16).ok()?;
        *rest = &rest[4..];
        Some(unit)
    };
    let high = unit(rest)?;
    if !(0xD800..0xDC00).contains(&high) {
        return char::from_u32(high);
    }
    *rest = rest.strip_prefix("\\u")?;
    let low = unit(rest).filter(|low| (0xDC00..0xE000).contains(low))?;
    char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))
}
