//! A service at work in a task of the test.
//!
//! Owns the task's life and nothing of what the service is made of: a crate's own bench builds
//! that and knows which handle it has.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A service that runs until it is stopped. Dropping this cuts it off, as a kill would.
#[derive(Debug)]
pub struct Running<H> {
    /// What the service shows of itself.
    pub handle: H,
    /// Cancelled, the service ends in order.
    pub shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl<H> Running<H> {
    /// Starts what `run` makes of the token that asks it to end.
    ///
    /// # Panics
    ///
    /// In the service's own task, and then in [`Running::stop`], when the service ends with an
    /// error.
    pub fn start<F, E>(handle: H, run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Debug,
    {
        let shutdown = CancellationToken::new();
        let service = run(shutdown.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = service.await {
                panic!("the service ended: {error:?}");
            }
        });
        Self {
            handle,
            shutdown,
            task,
        }
    }

    /// Asks the service to end, waits until it has, and says how long that took.
    ///
    /// # Panics
    ///
    /// When it ended with an error or a panic.
    pub async fn stop(mut self) -> Duration {
        let started = Instant::now();
        self.shutdown.cancel();
        if let Err(error) = (&mut self.task).await {
            panic!("the service did not end in order: {error}");
        }
        started.elapsed()
    }

    /// Cuts it off as a crash would, as far as that is possible within the process: nothing is
    /// finished.
    pub async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl<H> Drop for Running<H> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stopped_service_has_ended_in_order() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let running = Running::start((), |shutdown| async move {
            shutdown.cancelled().await;
            ended.send(()).map_err(|()| "nobody listens")
        });
        running.stop().await;
        end.await.unwrap();
    }

    #[tokio::test]
    #[should_panic(expected = "did not end in order")]
    async fn a_service_that_fails_fails_the_test() {
        let failing = |_| async { Err("no database") };
        Running::start((), failing).stop().await;
    }

    #[tokio::test]
    async fn a_dropped_service_is_cut_off() {
        let (held, cut_off) = tokio::sync::oneshot::channel::<()>();
        drop(Running::start((), |_| async move {
            let _held = held;
            std::future::pending::<Result<(), ()>>().await
        }));
        assert!(cut_off.await.is_err());
    }
}
