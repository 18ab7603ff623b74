//! Waiting for a condition, with a budget, in place of sleeping.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

const EVERY: Duration = Duration::from_millis(10);

/// Asks `condition` every 10 ms until it says yes.
///
/// # Errors
///
/// After `budget`, naming `what` was waited for.
pub async fn until(
    what: &str,
    budget: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> Result<()> {
    until_some(what, budget, async || condition().await.then_some(())).await
}

/// Asks `find` every 10 ms until it finds something, and returns that.
///
/// # Errors
///
/// After `budget`, naming `what` was waited for.
pub async fn until_some<T>(
    what: &str,
    budget: Duration,
    mut find: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let started = Instant::now();
    let mut asked = 0_u64;
    loop {
        asked += 1;
        if let Some(found) = find().await {
            return Ok(found);
        }
        let waited = started.elapsed();
        if waited >= budget {
            bail!("waited {waited:.1?} for {what}, asked {asked} times");
        }
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn returns_what_was_found() {
        let mut left = 3;
        let found = until_some("three", Duration::from_secs(1), async || {
            left -= 1;
            (left == 0).then_some("here")
        });
        assert_eq!(found.await.unwrap(), "here");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spent_budget_names_what_was_missing() {
        let error = until("the moon", Duration::from_secs(1), || async { false })
            .await
            .unwrap_err();
        assert!(error.to_string().contains("for the moon"), "{error}");
    }
}
