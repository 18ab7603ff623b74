//! Which running dispatchers lack a key: they are the ones that open secrets, and their leases on
//! partitions tell which keys they have.

use std::collections::BTreeSet;
use std::time::Duration;

use hooklane_core::config::Faults;
use hooklane_nats::topology;
use hooklane_nats::{Leases, Ownership};

use crate::config::Section;
use crate::context::{Sealed, connect_nats};
use crate::failure::Failure;

/// How long the broker is waited for: it need not be there for a rotation.
const PATIENCE: Duration = Duration::from_secs(2);

/// Dispatchers that may not open what a key seals.
#[derive(Debug, Default)]
pub(super) struct Without {
    /// Those that lack it, by the name that is also in their logs.
    pub(super) lacking: Vec<String>,
    /// How many don't tell.
    pub(super) untold: usize,
}

/// Asks the broker which dispatchers run without the key `id`.
pub(super) async fn without(sealed: &Sealed, id: &str) -> Result<Without, Failure> {
    let mut faults = Faults::new();
    sealed.config.validate(&[Section::Nats], &mut faults);
    faults.into_result()?;
    let mut config = sealed.config.clone();
    config.nats.connect_timeout = config.nats.connect_timeout.min(PATIENCE);
    let client = connect_nats(&config, &sealed.store).await?;
    topology::refuse_foreign(&topology::plan(&client).await?)?;
    Ok(among(&Leases::new(&client).list().await?, id))
}

fn among(owners: &[Ownership], id: &str) -> Without {
    let mut lacking = BTreeSet::new();
    let mut untold = BTreeSet::new();
    for Ownership { owner, keys, .. } in owners {
        if keys.is_empty() {
            untold.insert(owner);
        } else if !keys.iter().any(|key| key == id) {
            lacking.insert(owner.clone());
        }
    }
    Without {
        lacking: lacking.into_iter().collect(),
        untold: untold.len(),
    }
}
