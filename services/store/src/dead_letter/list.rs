//! Dead letters as a person looks for them: by what they are and when they failed, in pages.

use chrono::{DateTime, Utc};
use hooklane_proto::dead_letter::DeadLetter;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId};
use hooklane_proto::token::{ConsumerId, EventType};
use uuid::Uuid;

use super::row::Row;
use super::{Columns, Series};
use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store};

/// Which dead letters are meant; every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of one message.
    pub message: Option<MessageId>,
    /// Those of one consumer.
    pub consumer: Option<ConsumerId>,
    /// Those for one endpoint.
    pub endpoint: Option<EndpointId>,
    /// Those of one event type.
    pub event_type: Option<EventType>,
    /// Those that failed for one reason, by its name.
    pub reason: Option<String>,
    /// Those that failed at or after this.
    pub since: Option<DateTime<Utc>>,
    /// Those that failed at or before this.
    pub until: Option<DateTime<Utc>>,
}

/// A place among dead letters, by the time of failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it failed.
    pub failed_at: DateTime<Utc>,
    /// The message.
    pub message: MessageId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

/// Which end a listing begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The last that failed first.
    NewestFirst,
    /// The first that failed first.
    OldestFirst,
}

/// A dead letter, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Which delivery, and which series of it.
    pub series: Series,
    /// Whose endpoint it is.
    pub consumer: ConsumerId,
    /// What happened, as the message has it.
    pub event_type: String,
    /// Attempts made, in all series.
    pub attempts: i32,
    /// Why it failed.
    pub reason: String,
    /// The last answer's status code.
    pub last_status: Option<i16>,
    /// The last attempt's error class.
    pub last_error: Option<String>,
    /// When it failed.
    pub failed_at: DateTime<Utc>,
    /// When it was put into `DLQ`; `None` for a moment, or while the broker is away.
    pub dead_lettered_at: Option<DateTime<Utc>>,
    /// The size of its payload, in bytes.
    pub bytes: i32,
}

impl Listed {
    /// Where it stands in a listing.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            failed_at: self.failed_at,
            message: self.series.key.message,
            endpoint: self.series.key.endpoint,
        }
    }
}

impl Store {
    /// Dead letters that nobody discarded, at most `limit`, those behind `after` where it is given.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the filter names a message that is not there, or a fault of the
    /// database.
    pub async fn dead_letters(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Page<Listed, Place>, Error> {
        let rows = match filter.message {
            Some(message) => self.of_message(filter, message).await?,
            None => self.in_order(filter, order, after, limit).await?,
        };
        let listed: Result<Vec<Listed>, Fault> = rows.into_iter().map(ListedRow::listed).collect();
        let mut listed = listed?;
        if filter.message.is_some() {
            match order {
                Order::NewestFirst => listed.sort_by_key(|l| std::cmp::Reverse(l.place())),
                Order::OldestFirst => listed.sort_by_key(Listed::place),
            }
            listed.retain(|letter| match (order, after) {
                (_, None) => true,
                (Order::NewestFirst, Some(after)) => letter.place() < after,
                (Order::OldestFirst, Some(after)) => letter.place() > after,
            });
        }
        Ok(Page::cut(listed, limit, Listed::place))
    }

    /// A page along the index, and one row more.
    async fn in_order(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Vec<ListedRow>, Fault> {
        let doing = "listing dead letters";
        let (mut since, mut until) = (filter.since, filter.until);
        if let Some(place) = after {
            match order {
                Order::NewestFirst => {
                    until = Some(until.map_or(place.failed_at, |until| until.min(place.failed_at)));
                }
                Order::OldestFirst => {
                    since = Some(since.map_or(place.failed_at, |since| since.max(place.failed_at)));
                }
            }
        }
        let consumer = filter.consumer.as_ref().map(ConsumerId::as_str);
        let endpoint = filter.endpoint.map(EndpointId::uuid);
        let event_type = filter.event_type.as_ref().map(EventType::as_str);
        let reason = filter.reason.as_deref();
        let at = after.map(|place| place.failed_at);
        let message = after.map(|place| place.message.uuid());
        let of = after.map(|place| place.endpoint.uuid());
        let limit = i64::from(limit) + 1;
        let mut tx = self.begin_probing().await?;
        // The index has the order; a plan that sorts would read all of it for each page.
        sqlx::query("SET LOCAL enable_sort = off")
            .execute(&mut *tx)
            .await
            .map_err(Fault::doing(doing))?;
        // Which way an index is read is part of the statement.
        macro_rules! page {
            ($file:literal) => {
                sqlx::query_file_as!(
                    ListedRow, $file, consumer, endpoint, event_type, reason, since, until, at,
                    message, of, limit,
                )
                .fetch_all(&mut *tx)
                .await
            };
        }
        let rows = match order {
            Order::NewestFirst => page!("src/dead_letter/newest.sql"),
            Order::OldestFirst => page!("src/dead_letter/oldest.sql"),
        };
        let rows = rows.map_err(Fault::doing(doing))?;
        tx.rollback().await.map_err(Fault::doing(doing))?;
        Ok(rows)
    }

    /// All of one message, in no order.
    async fn of_message(
        &self,
        filter: &Filter,
        message: MessageId,
    ) -> Result<Vec<ListedRow>, Error> {
        let doing = "listing a message's dead letters";
        let accepted = self.accepted(message).await?;
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query_file_as!(
            ListedRow,
            "src/dead_letter/of_message.sql",
            message.uuid(),
            &accepted,
            filter.consumer.as_ref().map(ConsumerId::as_str),
            filter.endpoint.map(EndpointId::uuid),
            filter.event_type.as_ref().map(EventType::as_str),
            filter.reason.as_deref(),
            filter.since,
            filter.until,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        tx.rollback().await.map_err(Fault::doing(doing))?;
        Ok(rows)
    }

    /// Dead letters with their payloads, in the order of `series`; one that is none any more is left
    /// out. They are all in memory at once: ask for few.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn whole_dead_letters(&self, series: &[Series]) -> Result<Vec<DeadLetter>, Fault> {
        let doing = "reading dead letters";
        let columns = Columns::of(series.iter().copied());
        let mut tx = self.begin_probing().await?;
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, m.event_type, m.content_type,
                      m.payload, m.traceparent, m.tracestate, d.series, d.attempt_count, d.failure_reason,
                      d.last_status, d.last_error, d.settled_at, statement_timestamp() AS "now!"
                 FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::int[])
                      AS r (accepted_at, message_id, endpoint_id, series)
                 JOIN hooklane.deliveries d ON d.accepted_at = r.accepted_at
                  AND d.message_id = r.message_id AND d.endpoint_id = r.endpoint_id
                 JOIN hooklane.messages m ON m.accepted_at = r.accepted_at AND m.id = r.message_id
                WHERE d.status = 'failed' AND d.series = r.series"#,
            &columns.accepted_at,
            &columns.message,
            &columns.endpoint,
            &columns.series,
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(Fault::doing(doing))?;
        tx.rollback().await.map_err(Fault::doing(doing))?;
        let mut letters = std::collections::HashMap::with_capacity(rows.len());
        for row in rows {
            let key = row.series();
            let letter = row.letter().map_err(Fault::unreadable(doing))?;
            letters.insert(key, letter);
        }
        Ok(series
            .iter()
            .filter_map(|series| letters.remove(series))
            .collect())
    }

    /// When a message was accepted: its day, where everything of it is.
    async fn accepted(&self, message: MessageId) -> Result<Vec<DateTime<Utc>>, Error> {
        let accepted = sqlx::query_scalar!(
            "SELECT accepted_at FROM hooklane.messages WHERE id = $1",
            message.uuid(),
        )
        .fetch_all(self.pool())
        .await
        .map_err(Fault::doing("looking for a message"))?;
        if accepted.is_empty() {
            return Err(Error::not_found(Kind::Message, message));
        }
        Ok(accepted)
    }
}

struct ListedRow {
    accepted_at: DateTime<Utc>,
    message_id: Uuid,
    endpoint_id: Uuid,
    consumer_id: String,
    event_type: String,
    series: i32,
    attempt_count: i32,
    failure_reason: Option<String>,
    last_status: Option<i16>,
    last_error: Option<String>,
    failed_at: DateTime<Utc>,
    dead_lettered_at: Option<DateTime<Utc>>,
    bytes: i32,
}

impl ListedRow {
    fn listed(self) -> Result<Listed, Fault> {
        let Self {
            accepted_at,
            message_id,
            endpoint_id,
            consumer_id,
            event_type,
            series,
            attempt_count,
            failure_reason,
            last_status,
            last_error,
            failed_at,
            dead_lettered_at,
            bytes,
        } = self;
        Ok(Listed {
            series: Series {
                key: DeliveryKey::from_uuids(accepted_at, message_id, endpoint_id),
                series,
            },
            consumer: ConsumerId::new(&consumer_id)
                .map_err(Fault::unreadable("reading a dead letter"))?,
            event_type,
            attempts: attempt_count,
            reason: failure_reason.unwrap_or_else(|| "failed".to_owned()),
            last_status,
            last_error,
            failed_at,
            dead_lettered_at,
            bytes,
        })
    }
}
