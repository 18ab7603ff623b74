//! The pass over a document, and the steps through one that has passed.

use std::ops::Range;

use super::{MAX_DEPTH, MAX_EXPONENT, MAX_NUMBER, NotJson};

/// Says whether these bytes are JSON, and where the value is. Takes UTF-8. Never recurses.
pub(super) fn document(bytes: &[u8]) -> Result<Range<usize>, NotJson> {
    let start = white(bytes, 0);
    if start == bytes.len() {
        return Err(NotJson::Empty);
    }
    // What is open: the closing bracket of each level.
    let mut open: Vec<u8> = Vec::new();
    let mut at = start;
    loop {
        at = match bytes.get(at) {
            Some(&bracket @ (b'{' | b'[')) => {
                if open.len() == MAX_DEPTH {
                    return Err(NotJson::Depth(at));
                }
                let close = bracket + 2;
                at = white(bytes, at + 1);
                if bytes.get(at) == Some(&close) {
                    at + 1
                } else {
                    open.push(close);
                    if bracket == b'{' {
                        at = key(bytes, at)?;
                    }
                    continue;
                }
            }
            Some(b'"') => string(bytes, at)?,
            Some(b'-' | b'0'..=b'9') => number(bytes, at)?,
            Some(b't') => word(bytes, at, b"true")?,
            Some(b'f') => word(bytes, at, b"false")?,
            Some(b'n') => word(bytes, at, b"null")?,
            _ => return Err(NotJson::Syntax(at)),
        };
        // After a value: close what ends here, until there is another value or none is open.
        loop {
            let Some(&close) = open.last() else {
                return match white(bytes, at) {
                    end if end == bytes.len() => Ok(start..at),
                    more => Err(NotJson::Syntax(more)),
                };
            };
            at = white(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = white(bytes, at + 1);
                    if close == b'}' {
                        at = key(bytes, at)?;
                    }
                    break;
                }
                Some(found) if *found == close => {
                    open.pop();
                    at += 1;
                }
                _ => return Err(NotJson::Syntax(at)),
            }
        }
    }
}

/// A member's key and its colon; answers where the value starts.
fn key(bytes: &[u8], at: usize) -> Result<usize, NotJson> {
    if bytes.get(at) != Some(&b'"') {
        return Err(NotJson::Syntax(at));
    }
    let colon = white(bytes, string(bytes, at)?);
    if bytes.get(colon) != Some(&b':') {
        return Err(NotJson::Syntax(colon));
    }
    Ok(white(bytes, colon + 1))
}

fn string(bytes: &[u8], start: usize) -> Result<usize, NotJson> {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => {
                at += match bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                    Some(b'u') => {
                        let digits = bytes.get(at + 2..at + 6);
                        if !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(NotJson::Syntax(at));
                        }
                        6
                    }
                    _ => return Err(NotJson::Syntax(at)),
                };
            }
            Some(0x20..) => at += 1,
            Some(_) | None => return Err(NotJson::Syntax(at)),
        }
    }
}

fn number(bytes: &[u8], start: usize) -> Result<usize, NotJson> {
    let digits = |from: usize| {
        let len = bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        if len == 0 {
            Err(NotJson::Syntax(from))
        } else {
            Ok(from + len)
        }
    };
    let mut at = start + usize::from(bytes[start] == b'-');
    at = if bytes.get(at) == Some(&b'0') {
        at + 1
    } else {
        digits(at)?
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        let from = at + 1 + usize::from(sign);
        at = digits(from)?;
        let exponent = bytes[from..at].iter().fold(0_u32, |sum, b| {
            sum.saturating_mul(10).saturating_add(u32::from(b - b'0'))
        });
        if exponent > MAX_EXPONENT {
            return Err(NotJson::Number(start));
        }
    }
    if at - start > MAX_NUMBER {
        Err(NotJson::Number(start))
    } else {
        Ok(at)
    }
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, NotJson> {
    if bytes[at..].starts_with(word) {
        Ok(at + word.len())
    } else {
        Err(NotJson::Syntax(at))
    }
}

fn white(bytes: &[u8], at: usize) -> usize {
    let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r');
    at + bytes[at..].iter().take_while(blank).count()
}

/// Past white space, and a comma or colon in it. For documents that have passed.
pub(super) fn gap(bytes: &[u8], at: usize) -> usize {
    let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
    at + bytes[at..].iter().take_while(blank).count()
}

/// The end of the value that starts here. For documents that have passed.
pub(super) fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return at + depth,
            b'}' | b']' => depth -= 1,
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}
