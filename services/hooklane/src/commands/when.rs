//! Times on a command line: a time or an age, and the stretch between two of them.

use chrono::{DateTime, Utc};
use hooklane_core::clock;

use super::input;
use crate::failure::Failure;
use crate::output::short;

/// A time, or an age. An age may have a minus, which says the same: `-2h` is `2h`.
pub(super) fn at(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(at.to_utc());
    }
    let age = input::duration(text.strip_prefix('-').unwrap_or(text))
        .map_err(|_| "give a time such as 2026-05-01T12:00:00Z, or an age such as 2h".to_owned())?;
    chrono::TimeDelta::from_std(age)
        .ok()
        .and_then(|age| clock::now().checked_sub_signed(age))
        .filter(|at| *at >= DateTime::UNIX_EPOCH)
        .ok_or_else(|| "that is too long ago".to_owned())
}

/// Refuses a stretch of time that has no inside, in which there would be nothing whatever happened.
pub(super) fn inside(
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
) -> Result<(), Failure> {
    let Some(since) = since else {
        return Ok(());
    };
    let told = short(Some(since));
    if let Some(until) = until.filter(|until| *until < since) {
        return Err(Failure::usage(format!(
            "--until ({}) is before --since ({told}), and nothing is in between. An age counts back \
             from now, so that --since takes the longer one: --since 2h --until 1h",
            short(Some(until))
        )));
    }
    if since > clock::now() {
        return Err(Failure::usage(format!(
            "--since ({told}) is still to come: give a time that is over, or an age such as 2h"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use hooklane_core::error::ErrorCode;

    use super::*;

    #[test]
    fn a_time_or_an_age_is_taken() {
        assert_eq!(
            at("2026-05-01T12:00:00+02:00").unwrap().to_rfc3339(),
            "2026-05-01T10:00:00+00:00"
        );
        for age in ["2h", "-2h"] {
            let then = at(age).unwrap();
            let ago = clock::now() - then;
            assert!((7200..7260).contains(&ago.num_seconds()), "{age}: {ago}");
        }
        for wrong in ["yesterday", "--2h", "-", "9999999days", "900000000years"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stretch_without_an_inside_is_refused() {
        let now = clock::now();
        let ago = |hours| Some(now - TimeDelta::hours(hours));
        for (since, until) in [
            (None, ago(2)),
            (ago(2), None),
            (ago(2), ago(1)),
            (ago(1), ago(1)),
        ] {
            assert!(inside(since, until).is_ok(), "{since:?} {until:?}");
        }
        for (since, until) in [(ago(1), ago(2)), (ago(-1), None), (ago(-1), ago(-2))] {
            let refused = inside(since, until).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Usage, "{refused}");
        }
    }
}
