//! Taking exhausted messages off `DELIVERIES`: their deliveries go back into the ledger first, then
//! the messages go.
//!
//! In that order, so that a crash in between leaves a message whose delivery is settled already: it
//! is found again and only deleted.

use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt as _};
use hooklane_nats::stored::{self, Stored};
use hooklane_nats::{Outgoing, PublishError};
use hooklane_proto::dead_letter::Unreadable;
use hooklane_proto::delivery::Delivery;
use hooklane_proto::record::Drive;
use hooklane_proto::subject;
use hooklane_store::dead_letter::Exhausted;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::Parts;
use crate::fault::Fault;
use crate::stats::Count;

/// Messages read at a time; each may be as large as the broker takes.
const READS: usize = 8;
/// Messages deleted at a time.
const DELETES: usize = 32;

/// A message that the broker gives to nobody any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) sequence: u64,
    /// When that was said or seen: one stored later is another one.
    pub(crate) at: DateTime<Utc>,
}

/// What is there under a sequence.
enum Found {
    Nothing,
    Drive(u64, Drive),
    /// It was dead-lettered with what is there.
    Unreadable(u64),
}

/// Takes messages off. To do it again does no harm.
pub(crate) async fn take_off(parts: &Parts, suspects: &[Suspect]) -> Result<(), Fault> {
    let mut sequences = Vec::with_capacity(suspects.len());
    let mut drives = Vec::with_capacity(suspects.len());
    let mut unreadable = 0;
    let mut reading = stream::iter(suspects.iter().copied())
        .map(|suspect| look(parts, suspect))
        .buffer_unordered(READS);
    while let Some(found) = reading.next().await {
        match found? {
            Found::Nothing => {}
            Found::Drive(sequence, drive) => {
                sequences.push(sequence);
                drives.push(drive);
            }
            Found::Unreadable(sequence) => {
                sequences.push(sequence);
                unreadable += 1;
            }
        }
    }
    drop(reading);
    if !drives.is_empty() {
        let exhausted = Exhausted {
            drives: &drives,
            pause: parts.config.fault_pause,
        };
        let faulted = parts.store.fault_exhausted(exhausted).await?;
        parts.handle.add(Count::Stalled, faulted.stalled);
        parts.handle.add(Count::Poisoned, faulted.poisoned);
        if faulted.poisoned > 0 {
            parts.look.notify_one();
            error!(
                deliveries = faulted.poisoned,
                "deliveries failed as poison: their messages were never settled"
            );
        }
        if faulted.stalled > 0 {
            warn!(
                deliveries = faulted.stalled,
                "messages were never settled, their deliveries are driven again later"
            );
        }
    }
    let taken = delete(parts, sequences).await?;
    parts.handle.add(Count::TakenOff, taken);
    parts.handle.add(Count::Unreadable, unreadable);
    Ok(())
}

async fn look(parts: &Parts, suspect: Suspect) -> Result<Found, Fault> {
    let found = stored::get(&parts.client, subject::DELIVERIES, suspect.sequence).await;
    let message = match found {
        Ok(Some(message)) if message.stored_at <= suspect.at => message,
        Ok(_) => return Ok(Found::Nothing),
        // It went with its stream.
        Err(error) if error.is_not_found() => return Ok(Found::Nothing),
        Err(error) => return Err(error.into()),
    };
    let header = |name: &str| message.header(name);
    match Delivery::read(&message.subject, header, message.payload.clone()) {
        Ok(delivery) => {
            let drive = Drive {
                key: delivery.key,
                series: delivery.series,
                drive: delivery.drive,
            };
            Ok(Found::Drive(message.sequence, drive))
        }
        Err(problem) => {
            let unreadable = Unreadable::new(
                subject::DELIVERIES,
                message.sequence,
                message.stored_at,
                &message.subject,
                header,
                message.payload.clone(),
                &problem,
            );
            dead_letter(parts, unreadable, &message).await?;
            Ok(Found::Unreadable(message.sequence))
        }
    }
}

async fn dead_letter(parts: &Parts, unreadable: Unreadable, message: &Stored) -> Result<(), Fault> {
    let letter = Outgoing {
        subject: unreadable.subject(),
        headers: unreadable.headers(),
        payload: unreadable.payload,
    };
    let give_up = Instant::now() + parts.config.publish_within;
    match parts.publisher.publish(letter, give_up).await {
        Ok(_) => Ok(()),
        Err(PublishError::Permanent(fault)) => {
            error!(sequence = message.sequence, subject = %message.subject, %fault, "a message can be neither read nor dead-lettered, it is dropped");
            Ok(())
        }
        Err(source) => Err(Fault::Publish { count: 1, source }),
    }
}

async fn delete(parts: &Parts, sequences: Vec<u64>) -> Result<u64, Fault> {
    let mut deleting = stream::iter(sequences)
        .map(|sequence| stored::delete(&parts.client, subject::DELIVERIES, sequence))
        .buffer_unordered(DELETES);
    let mut deleted = 0;
    while let Some(outcome) = deleting.next().await {
        deleted += u64::from(outcome?);
    }
    Ok(deleted)
}
