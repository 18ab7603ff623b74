//! The streams, buckets and durable JetStream consumers: what they should be, what is there, and
//! the way from one to the other.
//!
//! The definitions are the JSON files in `streams/` and `consumers/`, in the form that `nats stream
//! add --config` and `nats consumer add --config` take. Code puts in only what configuration
//! decides: partitions, replicas and size. What the server has beyond a definition (metadata,
//! fields of a newer version, an operator's own) is left alone.

mod definition;
mod diff;
mod ledger;

use std::fmt;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::api;
use crate::client::Client;
use crate::error::{CONSUMER_NOT_FOUND, Error, STREAM_NOT_FOUND};
use definition::{Definition, definitions};
pub use diff::Line;
pub use ledger::refuse as refuse_foreign;

/// API requests in flight at a time.
const AT_ONCE: usize = 8;

/// One difference between the definitions and the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `stream EVENTS`, or `consumer EVENTS/fanout-3`.
    pub name: String,
    /// What to do about it.
    pub kind: Kind,
    definition: Definition,
}

/// What a [`Change`] does.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// It is missing and is made.
    Create,
    /// It is there and is changed.
    Update {
        /// Field by field.
        diff: Vec<Line>,
    },
    /// It is there and can't be changed into what it should be: it has to be deleted first.
    Conflict {
        /// The fields that JetStream can't change.
        diff: Vec<Line>,
    },
    /// It is there and is another ledger's.
    Foreign {
        /// The ledgers' ids.
        diff: Vec<Line>,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, diff, note) = match &self.kind {
            Kind::Create => ('+', [].as_slice(), ""),
            Kind::Update { diff } => ('~', diff.as_slice(), ""),
            Kind::Conflict { diff } => {
                ('!', diff.as_slice(), " (can't be changed: delete it first)")
            }
            Kind::Foreign { diff } => ('!', diff.as_slice(), " (another ledger's)"),
        };
        write!(f, "{sign} {}{note}", self.name)?;
        for line in diff {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// Compares everything with the server; nothing is changed. Empty where all is as it should be.
///
/// # Errors
/// Where the server can't be asked.
pub async fn plan(client: &Client) -> Result<Vec<Change>, Error> {
    compare(client, definitions(client), false).await
}

/// As [`plan`], but streams of another ledger become ours.
///
/// # Errors
/// As [`plan`].
pub async fn plan_adopting(client: &Client) -> Result<Vec<Change>, Error> {
    compare(client, definitions(client), true).await
}

/// Carries out a plan, streams before their consumers.
///
/// # Errors
/// [`Error::OtherLedger`] or [`Error::Conflict`] where one of the changes is one, before anything
/// is changed; otherwise where the server refuses, with everything before it done.
pub async fn apply(client: &Client, changes: &[Change]) -> Result<(), Error> {
    refuse_conflicts(changes)?;
    for change in changes {
        match &change.kind {
            Kind::Create => change.definition.create(client).await?,
            Kind::Update { .. } => change.definition.update(client).await?,
            Kind::Conflict { .. } | Kind::Foreign { .. } => {}
        }
        info!(change = %change.name, "applied");
    }
    Ok(())
}

/// Makes what is missing, subjects of a stream included, and gives streams that carry no ledger's id
/// ours. What is there and only differs is left as it is, with a warning.
///
/// # Errors
/// [`Error::OtherLedger`] where a stream is another ledger's, [`Error::Conflict`] where something
/// can't become what it should be; otherwise where the server can't be asked or refuses.
pub async fn ensure(client: &Client) -> Result<(), Error> {
    make_missing(client, definitions(client)).await
}

/// As [`ensure`], for one stream (or bucket, by its stream's name) and its durables.
///
/// # Errors
/// As [`ensure`].
pub async fn ensure_stream(client: &Client, stream: &str) -> Result<(), Error> {
    let mut wanted = definitions(client);
    wanted.retain(|definition| definition.stream == stream);
    make_missing(client, wanted).await
}

async fn make_missing(client: &Client, wanted: Vec<Definition>) -> Result<(), Error> {
    let changes = compare(client, wanted, false).await?;
    refuse_conflicts(&changes)?;
    for mut change in changes {
        match &mut change.kind {
            Kind::Create => {
                change.definition.create(client).await?;
                info!(made = %change.name, "made what was missing");
            }
            Kind::Update { diff } => {
                let known = diff.len();
                diff.retain(|line| line.field != ledger::FIELD);
                let marked = diff.len() < known;
                if marked {
                    change.definition.mark(client).await?;
                    info!(stream = %change.name, "took a stream that carried no ledger's id");
                }
                if diff.iter().any(Line::adds_subjects) {
                    change.definition.extend(client).await?;
                    diff.retain(|line| !line.adds_subjects());
                    info!(stream = %change.name, "added the subjects that it lacked");
                }
                if diff.is_empty() {
                    continue;
                }
                warn!(%change, "differs from its definition, `hooklane nats apply` would change it");
            }
            Kind::Conflict { .. } | Kind::Foreign { .. } => {}
        }
    }
    Ok(())
}

fn refuse_conflicts(changes: &[Change]) -> Result<(), Error> {
    ledger::refuse(changes)?;
    let conflicts: Vec<String> = changes
        .iter()
        .filter(|change| matches!(change.kind, Kind::Conflict { .. }))
        .map(ToString::to_string)
        .collect();
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(Error::Conflict(conflicts.join("\n")))
    }
}

async fn compare(
    client: &Client,
    wanted: Vec<Definition>,
    adopt: bool,
) -> Result<Vec<Change>, Error> {
    let mut found = futures::stream::iter(wanted.into_iter().map(|definition| async move {
        let there = definition.found(client).await;
        there.map(|there| change(definition, there.as_ref(), adopt))
    }))
    .buffered(AT_ONCE);
    let mut changes = Vec::new();
    while let Some(change) = found.next().await {
        changes.extend(change?);
    }
    Ok(changes)
}

/// What to do about a definition; with `adopt`, another ledger's streams become ours.
fn change(definition: Definition, there: Option<&Value>, adopt: bool) -> Option<Change> {
    let kind = match there {
        None => Kind::Create,
        Some(there) => {
            let diff = diff::lines(&definition.config, there);
            let (foreign, diff): (Vec<_>, Vec<_>) = diff
                .into_iter()
                .partition(|line| !adopt && ledger::is_foreign(line));
            let (fixed, loose): (Vec<_>, Vec<_>) = diff
                .into_iter()
                .partition(|line| definition.fixed().contains(&line.field.as_str()));
            match (foreign.is_empty(), fixed.is_empty(), loose.is_empty()) {
                (true, true, true) => return None,
                (true, true, false) => Kind::Update { diff: loose },
                (true, false, _) => Kind::Conflict { diff: fixed },
                (false, ..) => Kind::Foreign { diff: foreign },
            }
        }
    };
    Some(Change {
        name: definition.to_string(),
        kind,
        definition,
    })
}

impl Definition {
    /// Its configuration on the server, `None` where it does not exist.
    async fn found(&self, client: &Client) -> Result<Option<Value>, Error> {
        let request = match &self.durable {
            None => format!("STREAM.INFO.{}", self.stream),
            Some(durable) => format!("CONSUMER.INFO.{}.{durable}", self.stream),
        };
        match api::call::<Value>(client, &request, &Value::Null).await {
            Ok(mut info) => Ok(Some(info["config"].take())),
            Err(Error::Api { code, .. })
                if code == STREAM_NOT_FOUND || code == CONSUMER_NOT_FOUND =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&self, client: &Client) -> Result<(), Error> {
        let mut config = self.config.clone();
        if self.durable.is_some() && config.get("opt_start_time").is_some() {
            config["opt_start_time"] = self.start(client).await?.into();
        }
        self.write(client, "CREATE", config).await
    }

    async fn update(&self, client: &Client) -> Result<(), Error> {
        // Over what is there, so that fields we don't define stay.
        let there = self.found(client).await?.unwrap_or_else(|| json!({}));
        let config = diff::overlay(&self.config, there);
        self.write(client, "UPDATE", config).await
    }

    /// Gives a stream the subjects that it lacks, as one of an earlier release may, and changes
    /// nothing else about it.
    async fn extend(&self, client: &Client) -> Result<(), Error> {
        let Some(there) = self.found(client).await? else {
            // Gone since: it is made with all of them.
            return Ok(());
        };
        let subjects = json!({"subjects": self.config["subjects"]});
        self.write(client, "UPDATE", diff::overlay(&subjects, there))
            .await
    }

    async fn write(&self, client: &Client, verb: &str, config: Value) -> Result<(), Error> {
        let (request, body) = match &self.durable {
            None => (format!("STREAM.{verb}.{}", self.stream), config),
            Some(durable) => (
                format!("CONSUMER.DURABLE.CREATE.{}.{durable}", self.stream),
                json!({"stream_name": self.stream, "config": config, "action": verb.to_lowercase()}),
            ),
        };
        match api::call::<Value>(client, &request, &body).await {
            Ok(_) => Ok(()),
            // Somebody else was faster; whether with the same definition shows another look. A broker
            // without room for the stream twice calls that a lack of storage.
            Err(error @ Error::Api { .. }) if verb == "CREATE" => {
                let Some(there) = self.found(client).await? else {
                    return Err(error);
                };
                match change(self.clone(), Some(&there), false) {
                    None => Ok(()),
                    Some(other) => ledger::refuse(&[other]).and(Err(error)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// From where a durable that starts by time starts: a little before now, by the server's
    /// clock. A durable made anew on a stream that keeps a day of events must not fan all of them
    /// out again; what it misses the ledger drives anew. The overlap is within the deduplication
    /// window of what it publishes.
    async fn start(&self, client: &Client) -> Result<String, Error> {
        let state = crate::inspect::stream_state(client, &self.stream).await?;
        let start = state.server_time - chrono::TimeDelta::seconds(20);
        Ok(start.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
    }
}
