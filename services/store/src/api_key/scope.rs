//! What a key is good for.

use std::fmt;
use std::str::FromStr;

/// What a key is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Publishing messages, of one consumer or of all.
    Publish,
    /// One consumer's endpoints and what became of its messages.
    Consumer,
    /// Reading everything but secrets.
    Read,
    /// Everything.
    Admin,
}

/// No scope has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope; give publish, consumer, read or admin")]
pub struct InvalidScope(String);

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Consumer, Self::Read, Self::Admin];

    /// The name in the ledger and in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Consumer => "consumer",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == name)
            .ok_or_else(|| InvalidScope(name.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_is_read_back_by_its_name() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
