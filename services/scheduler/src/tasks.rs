//! Taking tasks further: what somebody wants delivered again becomes due, page by page.
//!
//! Each step is a short transaction of the ledger's, with a pause behind it, so that the lanes'
//! claims and the recorder get their turn; several tasks take turns too. What becomes due is the
//! top-up's, like everything that is. Once a step has committed, the dead letters of what is no
//! dead letter any more go from `DLQ`, as far as the broker answers.

use std::time::Duration;

use hooklane_core::pace::pause;
use hooklane_nats::Client;
use hooklane_nats::letters::{self, Letter};
use hooklane_store::Store;
use hooklane_store::dead_letter::Terms;
use hooklane_store::task::{Status, Stepped, Task};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::Config;
use crate::clocks::{self, Clocks};
use crate::pace::Pace;
use crate::stats::{Count, Handle};

/// How long the broker is waited for after a step.
const PATIENCE: Duration = Duration::from_secs(5);

/// What tasks are taken further with.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) config: Config,
    pub(crate) terms: Terms,
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) handle: Handle,
}

impl Runner {
    /// Takes tasks further until told to stop. A step that is cut off is taken again.
    pub(crate) async fn run(self, mut clocks: watch::Receiver<Clocks>, term: CancellationToken) {
        let mut pace = Pace::new(self.config.tasks_every);
        while clocks::good(&mut clocks, &term).await {
            let step = self.store.step_task(self.terms, self.config.rows_at_once);
            let stepped = tokio::select! {
                biased;
                () = term.cancelled() => return,
                stepped = step => stepped,
            };
            let wait = match stepped {
                Ok(Some(stepped)) => {
                    pace.good();
                    self.note(&stepped);
                    self.clear(stepped).await;
                    self.config.task_pause
                }
                Ok(None) => pace.good(),
                Err(fault) => pace.bad("taking a task further", &fault),
            };
            if !pause(wait, &term).await {
                return;
            }
        }
    }

    fn note(&self, stepped: &Stepped) {
        self.handle.add(Count::TaskSteps, 1);
        self.handle.add(Count::TaskDue, stepped.due);
        self.handle.add(Count::TaskRefused, stepped.refused);
        let Task {
            id,
            work,
            consumer,
            status,
            total,
            found,
            due,
            ..
        } = &stepped.task;
        let kind = work.kind();
        match status {
            Status::Running if *found == 0 => {
                info!(task = %id, kind, %consumer, total, "a task began");
            }
            Status::Done => {
                let refused: u64 = stepped.task.refused.values().sum();
                info!(task = %id, kind, %consumer, due, refused, "a task is done");
            }
            _ => debug!(task = %id, kind, due, found, "a task went on"),
        }
    }

    /// Takes what is no dead letter any more off the stream.
    async fn clear(&self, stepped: Stepped) {
        if stepped.gone.is_empty() {
            return;
        }
        let gone = stepped.gone.into_iter().map(|(series, filed)| Letter {
            key: series.key,
            series: series.series,
            sequence: filed.sequence,
        });
        let removing = letters::remove(&self.client, gone);
        if timeout(PATIENCE, removing).await.is_err() {
            debug!("dead letters stay in the stream until they are too old: the broker is slow");
        }
    }
}
