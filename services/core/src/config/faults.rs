//! What is wrong with a configuration: everything at once, each with its fix.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use humantime_serde::re::humantime::format_duration;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// The key, such as `relay.batch`.
    pub key: String,
    /// What is wrong with its value; never the value of a secret.
    pub problem: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.key, self.problem, self.fix)
    }
}

/// Collects faults under the keys of the section that is being looked at.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    found: Vec<Fault>,
    section: Vec<String>,
    unread: bool,
}

impl Faults {
    /// No faults yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one. `key` is relative to the current section. A key is reported once: a value that
    /// can't be read at all, or not the whole of it, has no second fault.
    pub fn add(&mut self, key: &str, problem: impl Into<String>, fix: impl Into<String>) {
        let mut path = self.section.join(".");
        if !path.is_empty() && !key.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        if !self.concerns(&path) {
            self.found.push(Fault {
                key: path,
                problem: problem.into(),
                fix: fix.into(),
            });
        }
    }

    /// Whether something is wrong with a key, or with one below it.
    #[must_use]
    pub fn concerns(&self, key: &str) -> bool {
        self.found.iter().any(|fault| {
            let rest = fault.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Adds that a whole file can't be read. What it would have set is unknown from then on.
    pub fn add_unread(&mut self, file: &str, problem: impl Into<String>, fix: impl Into<String>) {
        self.add(file, problem, fix);
        self.unread = true;
    }

    /// Whether everything was read that may set something: only then a value that is not set is a
    /// fault.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.unread
    }

    /// Looks at a section: keys that `check` adds are below `name`.
    pub fn within(&mut self, name: impl Into<String>, check: impl FnOnce(&mut Self)) {
        self.section.push(name.into());
        check(self);
        self.section.pop();
    }

    /// Adds a fault unless `value` lies in `allowed`.
    pub fn range<T: PartialOrd + fmt::Display>(
        &mut self,
        key: &str,
        value: T,
        allowed: RangeInclusive<T>,
    ) {
        if !allowed.contains(&value) {
            let (low, high) = allowed.into_inner();
            self.add(
                key,
                format!("is {value}"),
                format!("set it between {low} and {high}"),
            );
        }
    }

    /// Adds a fault unless `value` lies in `allowed`.
    pub fn duration(&mut self, key: &str, value: Duration, allowed: RangeInclusive<Duration>) {
        if !allowed.contains(&value) {
            let (low, high) = allowed.into_inner();
            self.add(
                key,
                format!("is {}", shown(value)),
                format!("set it between {} and {}", shown(low), shown(high)),
            );
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What was found, in the order in which it was found.
    #[must_use]
    pub fn found(&self) -> &[Fault] {
        &self.found
    }

    /// `Ok` where nothing is wrong.
    ///
    /// # Errors
    /// All faults.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// A duration as it is written in a file; whole days as days, however many.
fn shown(duration: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let seconds = duration.as_secs();
    if seconds > 0 && seconds.is_multiple_of(DAY) && duration.subsec_nanos() == 0 {
        return format!("{}days", seconds / DAY);
    }
    format_duration(duration).to_string()
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.found.len();
        let noun = if count == 1 { "fault" } else { "faults" };
        write!(f, "the configuration has {count} {noun}")?;
        for fault in &self.found {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
