//! Several services in one process: they stop together.
//!
//! A service runs until it is told to stop. One that ends before, whether it failed, panicked or
//! simply returned, ends the process, with its name and its error: half a Hooklane that looks
//! alive is worse than none, and whoever runs the process starts it anew.

use std::time::Duration;

use hooklane_core::error::ErrorCode;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::failure::Failure;

/// How long services may take to stop.
pub(crate) const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The services of this process.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shutdown: CancellationToken,
    running: JoinSet<Result<(), Failure>>,
    names: Vec<(Id, &'static str)>,
}

impl Supervisor {
    /// No services yet; `shutdown` stops those to come.
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            shutdown,
            running: JoinSet::new(),
            names: Vec::new(),
        }
    }

    /// Starts a service. It gets a token that is cancelled when it has to stop.
    pub(crate) fn start<F>(
        &mut self,
        name: &'static str,
        service: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let task = self.running.spawn(service(self.shutdown.child_token()));
        self.names.push((task.id(), name));
    }

    /// Waits for the end: `Ok` once all were told to stop and did.
    ///
    /// # Errors
    /// The failure of the first service that ended by itself, or that of those that did not stop
    /// within `within`.
    pub(crate) async fn run(mut self, within: Duration) -> Result<(), Failure> {
        let mut outcome = Ok(());
        tokio::select! {
            // Services end a moment after they are told to, which is not by themselves.
            biased;
            () = self.shutdown.cancelled() => {}
            Some(ended) = self.running.join_next_with_id() => {
                outcome = Err(self.early(ended));
                self.shutdown.cancel();
            }
        }
        let stopped = tokio::time::timeout(within, async {
            while let Some(ended) = self.running.join_next_with_id().await {
                if let Some(failure) = self.late(ended)
                    && outcome.is_ok()
                {
                    outcome = Err(failure);
                }
            }
        });
        if stopped.await.is_err() {
            let names: Vec<&str> = self.names.iter().map(|(_, name)| *name).collect();
            let names = names.join(", ");
            error!(services = %names, ?within, "did not stop in time");
            return outcome.and(Err(Failure::new(
                ErrorCode::Internal,
                format!(
                    "{names} did not stop within {within:?}; what was in flight is driven again"
                ),
            )));
        }
        outcome
    }

    fn forget(&mut self, id: Id) -> &'static str {
        let at = self.names.iter().position(|(known, _)| *known == id);
        at.map_or("a service", |at| self.names.swap_remove(at).1)
    }

    /// A service ended that was not told to.
    fn early(&mut self, ended: Result<(Id, Result<(), Failure>), JoinError>) -> Failure {
        let (name, failure) = match ended {
            Ok((id, Err(failure))) => (self.forget(id), failure),
            Ok((id, Ok(()))) => (self.forget(id), Failure::internal("ended by itself")),
            Err(error) => (self.forget(error.id()), Failure::internal(panicked(error))),
        };
        error!(service = name, error = %failure, "ended by itself, the process stops");
        failure.while_doing(name)
    }

    /// A service ended after it was told to.
    fn late(&mut self, ended: Result<(Id, Result<(), Failure>), JoinError>) -> Option<Failure> {
        let (name, failure) = match ended {
            Ok((id, Ok(()))) => (self.forget(id), None),
            Ok((id, Err(failure))) => (self.forget(id), Some(failure)),
            Err(error) => (
                self.forget(error.id()),
                Some(Failure::internal(panicked(error))),
            ),
        };
        info!(service = name, clean = failure.is_none(), "stopped");
        failure.map(|failure| failure.while_doing(name))
    }
}

fn panicked(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panicked: {}", text.unwrap_or("without a message"))
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(5);

    fn told(outcome: Result<(), Failure>) -> String {
        outcome.map_or_else(|failure| format!("{failure:?}"), |()| "fine".to_owned())
    }

    async fn until_told(shutdown: CancellationToken) -> Result<(), Failure> {
        shutdown.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn services_that_stop_when_told_are_fine() {
        let shutdown = CancellationToken::new();
        let mut supervisor = Supervisor::new(shutdown.clone());
        supervisor.start("one", until_told);
        supervisor.start("two", until_told);
        shutdown.cancel();
        assert_eq!(told(supervisor.run(WITHIN).await), "fine");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_service_stops_the_others_and_is_named() {
        let mut supervisor = Supervisor::new(CancellationToken::new());
        supervisor.start("steady", until_told);
        supervisor.start("shaky", |_| async { Err(Failure::internal("broke")) });
        let text = told(supervisor.run(WITHIN).await);
        assert!(text.contains("shaky: broke"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_returns_or_panics_is_a_failure() {
        let mut supervisor = Supervisor::new(CancellationToken::new());
        supervisor.start("short", |_| async { Ok(()) });
        let text = told(supervisor.run(WITHIN).await);
        assert!(text.contains("short: ended by itself"), "{text}");

        let mut supervisor = Supervisor::new(CancellationToken::new());
        supervisor.start("loud", |_| async { panic!("at the disco") });
        let text = told(supervisor.run(WITHIN).await);
        assert!(text.contains("loud: panicked: at the disco"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_does_not_stop_is_named() {
        let shutdown = CancellationToken::new();
        let mut supervisor = Supervisor::new(shutdown.clone());
        supervisor.start("prompt", until_told);
        supervisor.start("stubborn", |_| std::future::pending());
        shutdown.cancel();
        let text = told(supervisor.run(WITHIN).await);
        assert!(
            text.contains("stubborn did not stop") && !text.contains("prompt"),
            "{text}"
        );
    }
}
