//! Events and entities as a person looks for them, and how many there are.

use chrono::{DateTime, Utc};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use uuid::Uuid;

use super::{Mode, Reason, Stage, Status, entity_key, partner, word};
use crate::manage::Page;
use crate::{Error, Store};

/// Which events are meant; every field narrows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of one partner.
    pub partner: Option<Partner>,
    /// Those with one id of the partner's; quick with a partner.
    pub partner_event: Option<String>,
    /// Those with one status.
    pub status: Option<Status>,
    /// Those in quarantine for one reason.
    pub reason: Option<Reason>,
    /// Those of one type.
    pub event_type: Option<String>,
    /// Those about one entity: its type and its key.
    pub entity: Option<(String, String)>,
    /// Those received at or after this.
    pub since: Option<DateTime<Utc>>,
    /// Those received at or before this.
    pub until: Option<DateTime<Utc>>,
}

/// A place among events, by the time of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it was received.
    pub received_at: DateTime<Utc>,
    /// Its id.
    pub id: InboxId,
}

/// An event, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: InboxId,
    /// Whose it is.
    pub partner: Partner,
    /// The partner's id of it.
    pub partner_event_id: String,
    /// What has become of it.
    pub status: Status,
    /// What is to be done with it, or would be after a replay.
    pub stage: Stage,
    /// Which way it is handed off; `None` until it took effect.
    pub mode: Option<Mode>,
    /// When it was received.
    pub received_at: DateTime<Utc>,
    /// When it was handed off, superseded or discarded.
    pub processed_at: Option<DateTime<Utc>>,
    /// Whether a signature was verified.
    pub signature_verified: bool,
    /// Which secret verified it.
    pub key_label: Option<String>,
    /// Whether the signature covers the partner's id.
    pub id_signed: bool,
    /// An earlier event with the same body.
    pub same_body_as: Option<InboxId>,
    /// What the signature covers.
    pub integrity: String,
    /// What happened.
    pub event_type: Option<String>,
    /// To what: a type and a key.
    pub entity: Option<(String, String)>,
    /// Where it stands among its entity's, as the partner says.
    pub order: Option<i64>,
    /// Where it stands among its entity's that took effect.
    pub sequence: Option<i64>,
    /// The request that it is an item of.
    pub parent: Option<InboxId>,
    /// Failed hand-offs since it took effect, or since somebody replayed it.
    pub failures: u32,
    /// Hand-offs at all.
    pub attempt: u32,
    /// How often it was found to wait for something.
    pub deferrals: u32,
    /// When it is looked at again; `None` where it is closed or needs a person.
    pub next_at: Option<DateTime<Utc>>,
    /// When it stops waiting for what comes before it.
    pub deadline_at: Option<DateTime<Utc>>,
    /// Why it is in quarantine.
    pub reason: Option<String>,
    /// What there is to say about it.
    pub detail: Option<String>,
    /// The size of its body, in bytes.
    pub bytes: u32,
    /// The body's SHA-256.
    pub sha256: [u8; 32],
}

impl Row {
    /// Where it stands in a listing.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            received_at: self.received_at,
            id: self.id,
        }
    }
}

/// Where an entity stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityRow {
    /// Its state; `None` until an event of a machine took effect.
    pub state: Option<String>,
    /// Events that took effect.
    pub sequence: i64,
    /// The highest order value of those.
    pub last_order: Option<i64>,
    /// Events that wait for what comes before them.
    pub deferred: u32,
    /// When it changed last.
    pub changed_at: DateTime<Utc>,
}

/// How much there is to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Events that are PENDING, DEFERRED or QUARANTINED, by partner.
    pub by_status: Vec<(Partner, Status, u64)>,
    /// When the oldest PENDING event of each partner was received.
    pub oldest_pending: Vec<(Partner, DateTime<Utc>)>,
    /// Events that are to be published.
    pub publications: u64,
}

/// An event's columns.
pub(super) struct Columns {
    pub(super) id: Uuid,
    pub(super) partner_name: String,
    pub(super) partner_event_id: String,
    pub(super) status: String,
    pub(super) stage: String,
    pub(super) hand_off: Option<String>,
    pub(super) received_at: DateTime<Utc>,
    pub(super) processed_at: Option<DateTime<Utc>>,
    pub(super) signature_verified: bool,
    pub(super) key_label: Option<String>,
    pub(super) id_signed: bool,
    pub(super) same_body_as: Option<Uuid>,
    pub(super) integrity: String,
    pub(super) event_type: Option<String>,
    pub(super) entity_type: Option<String>,
    pub(super) entity_key: Option<String>,
    pub(super) order_value: Option<i64>,
    pub(super) sequence: Option<i64>,
    pub(super) parent: Option<Uuid>,
    pub(super) failures: i16,
    pub(super) handed_out: i32,
    pub(super) deferrals: i32,
    pub(super) next_at: DateTime<Utc>,
    pub(super) deadline_at: Option<DateTime<Utc>>,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) body_bytes: i32,
    pub(super) body_sha256: Vec<u8>,
}

/// A query for [`Columns`].
macro_rules! events {
    ($first:literal $(+ $rest:literal)* $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            $crate::inbox::list::Columns,
            "SELECT id, partner_name, partner_event_id, status, stage, hand_off, received_at,
                    processed_at, signature_verified, key_label, id_signed, same_body_as, integrity,
                    event_type, entity_type, entity_key, order_value, sequence, parent, failures,
                    handed_out, deferrals, next_at, deadline_at, reason, detail, body_bytes,
                    body_sha256
               FROM hooklane.webhook_inbox " + $first $(+ $rest)*
            $(, $argument)*
        )
    };
}
pub(super) use events;

impl Columns {
    pub(super) fn row(self) -> Result<Row, Error> {
        let Self {
            id,
            partner_name,
            partner_event_id,
            status,
            stage,
            hand_off,
            received_at,
            processed_at,
            signature_verified,
            key_label,
            id_signed,
            same_body_as,
            integrity,
            event_type,
            entity_type,
            entity_key,
            order_value,
            sequence,
            parent,
            failures,
            handed_out,
            deferrals,
            next_at,
            deadline_at,
            reason,
            detail,
            body_bytes,
            body_sha256,
        } = self;
        let status: Status = word(&status)?;
        let open = matches!(status, Status::Pending | Status::Deferred);
        let count = |n: i32| u32::try_from(n).unwrap_or_default();
        Ok(Row {
            id: InboxId::from_uuid(id),
            partner: partner(&partner_name)?,
            partner_event_id,
            status,
            stage: word(&stage)?,
            mode: hand_off.as_deref().map(word).transpose()?,
            received_at,
            processed_at,
            signature_verified,
            key_label,
            id_signed,
            same_body_as: same_body_as.map(InboxId::from_uuid),
            integrity,
            event_type,
            entity: entity_type.zip(entity_key),
            order: order_value,
            sequence,
            parent: parent.map(InboxId::from_uuid),
            failures: count(failures.into()),
            attempt: count(handed_out),
            deferrals: count(deferrals),
            next_at: open.then_some(next_at),
            deadline_at,
            reason,
            detail,
            bytes: count(body_bytes),
            sha256: digest(&body_sha256)?,
        })
    }
}

pub(super) fn digest(bytes: &[u8]) -> Result<[u8; 32], Error> {
    bytes
        .try_into()
        .map_err(Error::unreadable("reading the digest of an inbox body"))
}

impl Store {
    /// Events, the last received first, those behind `after` where it is given.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_events(
        &self,
        filter: &Filter,
        after: Option<Place>,
        limit: u32,
    ) -> Result<Page<Row, Place>, Error> {
        let of = filter.partner.as_ref().map(Partner::as_str);
        let event = filter.partner_event.as_deref();
        let status = filter.status.map(Status::as_str);
        let reason = filter.reason.map(Reason::as_str);
        let event_type = filter.event_type.as_deref();
        let kind = filter.entity.as_ref().map(|(kind, _)| kind.as_str());
        let key = filter.entity.as_ref().map(|(_, key)| entity_key(key));
        let at = after.map(|place| place.received_at);
        let id = after.map(|place| place.id.uuid());
        let fetched = i64::from(limit) + 1;
        // What is in quarantine has an index of its own, which has to be said to be used.
        macro_rules! page {
            ($only:literal) => {
                events!(
                    "WHERE ($1::text IS NULL OR partner_name = $1) AND ($2::text IS NULL OR status = $2)
                       AND ($3::text IS NULL OR reason = $3) AND ($4::text IS NULL OR event_type = $4)
                       AND ($5::text IS NULL OR entity_type = $5 AND entity_key = $6)
                       AND ($7::timestamptz IS NULL OR received_at >= $7)
                       AND ($8::timestamptz IS NULL OR received_at <= $8)
                       AND ($9::timestamptz IS NULL OR (received_at, id) < ($9, $10::uuid))
                       AND ($12::text IS NULL OR partner_event_id = $12) "
                    + $only
                    + " ORDER BY received_at DESC, id DESC LIMIT $11",
                    of, status, reason, event_type, kind, key, filter.since, filter.until, at, id,
                    fetched, event,
                )
                .fetch_all(self.pool())
                .await
            };
        }
        let rows = if filter.status == Some(Status::Quarantined) {
            page!("AND status = 'QUARANTINED'")
        } else {
            page!("")
        };
        let rows = rows.map_err(Error::doing("listing inbox events"))?;
        let rows: Result<Vec<Row>, Error> = rows.into_iter().map(Columns::row).collect();
        Ok(Page::cut(rows?, limit, Row::place))
    }

    /// Where an entity stands; `None` where no event of it came.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_entity(
        &self,
        of: &Partner,
        entity_type: &str,
        key: &str,
    ) -> Result<Option<EntityRow>, Error> {
        let row = sqlx::query!(
            "SELECT state, sequence, last_order, deferred, changed_at FROM hooklane.inbox_entities
              WHERE partner_name = $1 AND entity_type = $2 AND entity_key = $3",
            of.as_str(),
            entity_type,
            entity_key(key),
        )
        .fetch_optional(self.pool())
        .await
        .map_err(Error::doing("looking at an inbox entity"))?;
        Ok(row.map(|row| EntityRow {
            state: row.state,
            sequence: row.sequence,
            last_order: row.last_order,
            deferred: u32::try_from(row.deferred).unwrap_or_default(),
            changed_at: row.changed_at,
        }))
    }

    /// How much there is to do, for gauges.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn inbox_counts(&self) -> Result<Counts, Error> {
        let doing = "counting inbox events";
        // Each part has a partial index of its own.
        let rows = sqlx::query!(
            r#"SELECT partner_name AS "partner_name!", status AS "status!", count(*) AS "count!",
                      min(received_at) AS "oldest!"
                 FROM (SELECT partner_name, status, received_at FROM hooklane.webhook_inbox
                        WHERE status IN ('PENDING', 'DEFERRED') AND stage = 'decide'
                        UNION ALL
                       SELECT partner_name, status, received_at FROM hooklane.webhook_inbox
                        WHERE status = 'PENDING' AND stage = 'hand_off'
                        UNION ALL
                       SELECT partner_name, status, received_at FROM hooklane.webhook_inbox
                        WHERE status = 'QUARANTINED') AS open
                GROUP BY partner_name, status ORDER BY partner_name, status"#
        )
        .fetch_all(self.pool())
        .await
        .map_err(Error::doing(doing))?;
        let publications =
            sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM hooklane.inbox_handoffs"#)
                .fetch_one(self.pool())
                .await
                .map_err(Error::doing(doing))?;
        let mut counts = Counts {
            publications: publications.unsigned_abs(),
            ..Counts::default()
        };
        for row in rows {
            let of = partner(&row.partner_name)?;
            let status: Status = word(&row.status)?;
            if status == Status::Pending {
                counts.oldest_pending.push((of.clone(), row.oldest));
            }
            counts
                .by_status
                .push((of, status, row.count.unsigned_abs()));
        }
        Ok(counts)
    }
}
