//! Whose streams they are: each carries its ledger's id in its metadata.

use serde_json::{Value, json};
use uuid::Uuid;

use super::definition::Definition;
use super::diff::{self, Line};
use super::{Change, Kind};
use crate::client::Client;
use crate::error::Error;

const KEY: &str = "hooklane_ledger";
/// Where a difference shows it.
pub(super) const FIELD: &str = "metadata.hooklane_ledger";

/// Writes the id into a stream's definition.
pub(super) fn put(config: &mut Value, ledger: Uuid) {
    config["metadata"][KEY] = ledger.to_string().into();
}

/// Whether the server has another ledger's id there.
pub(super) fn is_foreign(line: &Line) -> bool {
    line.field == FIELD && !line.there.is_null()
}

/// Refuses what is another ledger's.
///
/// # Errors
/// [`Error::OtherLedger`] where one of the changes is [`Kind::Foreign`].
pub fn refuse(changes: &[Change]) -> Result<(), Error> {
    let foreign = || {
        changes.iter().filter_map(|change| match &change.kind {
            Kind::Foreign { diff } => diff.first().map(|line| (change, line)),
            _ => None,
        })
    };
    let Some((_, line)) = foreign().next() else {
        return Ok(());
    };
    let streams: Vec<&str> = foreign().map(|(change, _)| change.name.as_str()).collect();
    let text = |id: &Value| id.as_str().unwrap_or_default().to_owned();
    Err(Error::OtherLedger {
        streams: streams.join(", "),
        theirs: text(&line.there),
        ours: text(&line.wanted),
    })
}

impl Definition {
    /// Gives a stream that carries no ledger's id ours, and changes nothing else about it.
    pub(super) async fn mark(&self, client: &Client) -> Result<(), Error> {
        let Some(there) = self.found(client).await? else {
            // Gone since: it is made with the id.
            return Ok(());
        };
        let id = json!({"metadata": {KEY: self.config["metadata"][KEY]}});
        self.write(client, "UPDATE", diff::overlay(&id, there))
            .await
    }
}
