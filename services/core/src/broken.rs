//! Builds that are broken on purpose, to prove that the fault suite notices.
//!
//! Each way of being broken is one line where it belongs, asks [`is`], and is compiled away without
//! the feature `broken`, which nothing enables but the suite's own proof. A build with it breaks only
//! what `HOOKLANE_BROKEN` names, and an optimised build with it does not compile.

#[cfg(all(feature = "broken", not(debug_assertions)))]
compile_error!("the feature `broken` is for tests of the fault suite, never for a release");

/// A promise that is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A delivery's message is acknowledged before its record is safe, which it is a second later.
    AckFirst,
    /// What the broker lost is not looked for.
    NoSweep,
    /// Nobody asks whether a partition is still his.
    NoLeaseCheck,
}

impl Broken {
    /// How `HOOKLANE_BROKEN` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckFirst => "ack-first",
            Self::NoSweep => "no-sweep",
            Self::NoLeaseCheck => "no-lease-check",
        }
    }
}

/// Whether this build is broken that way.
#[cfg(feature = "broken")]
#[must_use]
#[allow(
    clippy::disallowed_methods,
    reason = "no setting: it exists in broken builds alone"
)]
pub fn is(what: Broken) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let name = NAME.get_or_init(|| std::env::var("HOOKLANE_BROKEN").ok());
    name.as_deref() == Some(what.name())
}

/// Whether this build is broken that way: it is not.
#[cfg(not(feature = "broken"))]
#[must_use]
pub const fn is(_what: Broken) -> bool {
    false
}
