//! What keeps a step from being done; it is tried again.

use hooklane_nats::PublishError;

/// A step that was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Store(#[from] hooklane_store::Error),
    #[error(transparent)]
    Nats(#[from] hooklane_nats::Error),
    #[error("{count} dead letters {source}")]
    Publish { count: usize, source: PublishError },
}

impl Fault {
    /// Whether it may pass without anybody doing anything.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Nats(error) => error.is_transient() || error.is_not_found(),
            Self::Publish { source, .. } => source.is_transient(),
        }
    }
}
