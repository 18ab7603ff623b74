//! `hooklane master-key`: the key that endpoint secrets are sealed with.

mod running;

use clap::Subcommand;
use hooklane_core::error::ErrorCode;
use hooklane_core::secrets::generate_master_key;
use hooklane_nats::leases::MAX_AGE;
use hooklane_store::master_key::{self, Rotation};
use secrecy::ExposeSecret as _;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::fields;
use crate::progress;
use running::Without;

/// Endpoints sealed anew in one transaction.
const BATCH: u32 = 200;

/// The key that endpoint secrets are sealed with.
#[derive(Debug, Subcommand)]
pub(crate) enum MasterKey {
    /// Print a new key for the configuration.
    Generate,
    /// Seal everything anew with the configuration's first key. It can be interrupted and begun
    /// again.
    Rotate,
}

#[derive(Debug, Serialize)]
struct Generated {
    key: String,
}

#[derive(Debug, Serialize)]
struct Rotated {
    current: String,
    endpoints: u64,
    resealed: u64,
    /// Endpoints whose settings in the broker may still need an older key.
    unrouted: u64,
}

impl MasterKey {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Generate => {
                let answer = Generated {
                    key: generate_master_key().expose_secret().to_owned(),
                };
                context.output.print(&answer, || answer.key.clone())
            }
            Self::Rotate => rotate(context).await,
        }
    }
}

async fn rotate(context: &Context) -> Result<(), Failure> {
    let sealed = context.sealed(&[]).await?;
    let current = sealed.keys.current_id().to_owned();
    match running::without(&sealed, &current).await {
        Ok(Without { lacking, untold }) if lacking.is_empty() && untold == 0 => {}
        Ok(Without { lacking, .. }) if !lacking.is_empty() => {
            return Err(Failure::new(
                ErrorCode::Conflict,
                format!(
                    "dispatchers run that don't have the key `{current}` and could not deliver to \
                     endpoints sealed anew: {}; restart them with it, then rotate (one that is gone \
                     is forgotten within {} seconds)",
                    lacking.join(", "),
                    MAX_AGE.as_secs(),
                ),
            ));
        }
        Ok(Without { untold, .. }) => context.output.note(&format!(
            "{untold} dispatchers of an older release don't tell which keys they have: be sure that \
             they have `{current}`"
        )),
        Err(failure) => context.output.note(&format!(
            "which keys running dispatchers have could not be asked ({failure}): be sure that each \
             has `{current}`, without which it can't deliver to endpoints sealed anew"
        )),
    }
    let total = master_key::endpoints(&sealed.store).await?;
    let bar = progress::bar("sealing anew", Some(total), context.output.json);
    let mut rotation = Rotation::new();
    while rotation.step(&sealed.store, &sealed.keys, BATCH).await? {
        bar.set_position(rotation.seen);
    }
    bar.finish_and_clear();
    let answer = Rotated {
        current,
        endpoints: rotation.seen,
        resealed: rotation.resealed,
        unrouted: master_key::unrouted(&sealed.store).await?,
    };
    context.output.print(&answer, || {
        fields(vec![
            ("current key", answer.current.clone()),
            ("endpoints", answer.endpoints.to_string()),
            ("sealed anew", answer.resealed.to_string()),
        ])
    })?;
    let note = match answer.unrouted {
        0 => "nothing in the ledger or in the broker's settings needs an older key any more: take \
              them out of the configuration"
            .to_owned(),
        count => format!(
            "keep the older keys until the broker has the new settings ({count} endpoints to go; a \
             relay puts them there): run this again to see"
        ),
    };
    context.output.note(&note);
    Ok(())
}
