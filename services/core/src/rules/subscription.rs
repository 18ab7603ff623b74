//! Which event types an endpoint wants.
//!
//! Owns the filters' grammar and the match. Does not own where filters are kept or how many
//! endpoints are asked: `accept` resolves a whole batch in SQL, and [`candidates`] is what it
//! looks for, so that both sides of the match are this one module.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Longest event type, in bytes.
const MAX_EVENT_TYPE: usize = 100;
/// Most patterns one endpoint may have.
pub const MAX_PATTERNS: usize = 200;

/// One pattern of a filter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// `*`: every event type.
    All,
    /// `invoice.*`: every event type below `invoice`, at any depth, not `invoice` itself.
    /// Holds what stands before the dot.
    Prefix(String),
    /// `invoice.paid`: this event type.
    Exact(String),
}

/// A filter that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No pattern at all.
    #[error("the event type filter is empty; give `*` to have every event type")]
    Empty,
    /// Too many.
    #[error(
        "the event type filter has {0} patterns; give at most 200, or a prefix such as `invoice.*`"
    )]
    TooMany(usize),
    /// Not a pattern.
    #[error(
        "`{0}` is no event type pattern; give `*`, an event type such as `invoice.paid`, or a \
         prefix such as `invoice.*` (dot-separated words of A-Z, a-z, 0-9 and `_`, at most 100 \
         characters)"
    )]
    Pattern(String),
}

impl Pattern {
    /// Whether it covers this event type.
    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(exact) => exact == event_type,
            Self::Prefix(prefix) => event_type
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.starts_with('.')),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}.*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

impl FromStr for Pattern {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let pattern = match text.strip_suffix(".*") {
            _ if text == "*" => return Ok(Self::All),
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        };
        let (Self::Prefix(words) | Self::Exact(words)) = &pattern else {
            return Ok(pattern);
        };
        if is_event_type(words) {
            Ok(pattern)
        } else {
            Err(Invalid::Pattern(text.chars().take(120).collect()))
        }
    }
}

/// An endpoint's filter: one pattern or more, in a canonical order, none twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Filter(Vec<Pattern>);

impl Filter {
    /// The filter that wants everything.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![Pattern::All])
    }

    /// Reads the patterns. What is written twice counts once; the order carries no meaning.
    ///
    /// # Errors
    /// [`Invalid`] where there is none, too many, or one that is no pattern.
    pub fn parse<I>(patterns: I) -> Result<Self, Invalid>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let parsed: Result<Vec<Pattern>, Invalid> = patterns
            .into_iter()
            .map(|text| text.as_ref().parse())
            .collect();
        let mut parsed = parsed?;
        parsed.sort_unstable();
        parsed.dedup();
        match parsed.len() {
            0 => Err(Invalid::Empty),
            1..=MAX_PATTERNS => Ok(Self(parsed)),
            more => Err(Invalid::TooMany(more)),
        }
    }

    /// Whether the endpoint wants this event type.
    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(event_type))
    }

    /// The patterns, in their canonical order.
    #[must_use]
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// The patterns as text, in their canonical order: what the ledger keeps.
    #[must_use]
    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

/// The canonical form in one line, joined by commas; it parses back to an equal filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            pattern.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for Filter {
    type Err = Invalid;

    /// Reads patterns joined by commas, with white space around them.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim().is_empty() {
            return Err(Invalid::Empty);
        }
        Self::parse(text.split(',').map(str::trim))
    }
}

impl TryFrom<Vec<String>> for Filter {
    type Error = Invalid;

    fn try_from(patterns: Vec<String>) -> Result<Self, Invalid> {
        Self::parse(patterns)
    }
}

impl From<Filter> for Vec<String> {
    fn from(filter: Filter) -> Self {
        filter.to_strings()
    }
}

/// Every pattern that covers this event type: an endpoint wants the event exactly when its
/// filter holds one of them. A database can look for these where they overlap, with no pattern
/// language of its own.
#[must_use]
pub fn candidates(event_type: &str) -> Vec<String> {
    let mut patterns = vec!["*".to_owned()];
    patterns.extend(
        event_type
            .match_indices('.')
            .map(|(dot, _)| format!("{}.*", &event_type[..dot])),
    );
    patterns.push(event_type.to_owned());
    patterns
}

fn is_event_type(text: &str) -> bool {
    text.len() <= MAX_EVENT_TYPE
        && text.split('.').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
}
