//! Which event types a transition is for.

use std::fmt;
use std::str::FromStr;

/// Longest pattern, in bytes.
const MAX: usize = 255;

/// `*`, an event type, or what event types begin with and a `*`: `customer.subscription.*`. Partners
/// name their events as they like, so that any text is an event type here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    prefix: bool,
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no pattern; give an event type, or the beginning of some with one `*` at the end, of \
     at most 255 bytes"
)]
pub struct InvalidPattern(String);

impl Pattern {
    /// Whether it is for events of this type.
    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        if self.prefix {
            event_type.starts_with(&self.text)
        } else {
            event_type == self.text
        }
    }

    /// Whether some event type fits both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.prefix, other.prefix) {
            (true, true) => {
                self.text.starts_with(&other.text) || other.text.starts_with(&self.text)
            }
            (_, false) => self.matches(&other.text),
            (false, true) => other.matches(&self.text),
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let (body, prefix) = match text.strip_suffix('*') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let odd = body.contains('*') || body.chars().any(char::is_control);
        if odd || text.is_empty() || text.len() > MAX {
            return Err(InvalidPattern(text.chars().take(80).collect()));
        }
        Ok(Self {
            text: body.to_owned(),
            prefix,
        })
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        f.write_str(if self.prefix { "*" } else { "" })
    }
}
