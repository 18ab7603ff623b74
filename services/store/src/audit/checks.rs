//! The checks themselves: one statement each, which lists what breaks the rule.

use sqlx::Row;

use crate::{Error, Store};

/// Rows that break a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The invariant's id, such as `I1`.
    pub invariant: &'static str,
    /// What is wrong with the rows.
    pub what: &'static str,
    /// Whether a crash may cause it: a kill, a suspended process, a wiped store or an answer that
    /// was lost. Whoever asks must know of one.
    pub excusable: bool,
    /// How many there are.
    pub count: u64,
    /// A few of them.
    pub sample: Vec<String>,
}

struct Check {
    invariant: &'static str,
    what: &'static str,
    excusable: bool,
    /// A query with one text column, a row for each fault.
    sql: &'static str,
}

const CHECKS: &[Check] = &[
    Check {
        invariant: "I1",
        what: "outbox rows taken that are neither a message nor set aside",
        excusable: false,
        sql: "SELECT o.id::text FROM hooklane.outbox_events o
              WHERE o.processed_at IS NOT NULL
                AND NOT EXISTS (SELECT FROM hooklane.messages m WHERE m.id = o.id)
                AND NOT EXISTS (SELECT FROM hooklane.rejected_events r WHERE r.source_id = o.id::text)
                AND (o.idempotency_key IS NULL OR NOT EXISTS (
                        SELECT FROM hooklane.idempotency_keys k
                        WHERE k.consumer_id = o.consumer_id AND k.key = o.idempotency_key))",
    },
    Check {
        invariant: "I1",
        what: "messages without a delivery to an endpoint that was subscribed and never changed since",
        excusable: false,
        sql: "SELECT m.id || ' ' || e.id
              FROM hooklane.messages m
              JOIN hooklane.endpoints e ON e.consumer_id = m.consumer_id
                   AND e.created_at < m.accepted_at - interval '1 second'
                   AND e.state IN ('active', 'failing')
                   AND e.updated_at < m.accepted_at - interval '1 second'
              WHERE EXISTS (SELECT FROM unnest(e.filters) f
                            WHERE f = '*' OR f = m.event_type
                               OR (f LIKE '%.*' AND starts_with(m.event_type, left(f, -1))))
                AND NOT EXISTS (SELECT FROM hooklane.deliveries d
                                WHERE d.accepted_at = m.accepted_at AND d.message_id = m.id
                                  AND d.endpoint_id = e.id)",
    },
    Check {
        invariant: "I1",
        what: "deliveries without their message, or of another consumer's endpoint",
        excusable: false,
        sql: "SELECT d.message_id || ' ' || d.endpoint_id
              FROM hooklane.deliveries d
              LEFT JOIN hooklane.messages m ON m.accepted_at = d.accepted_at AND m.id = d.message_id
              LEFT JOIN hooklane.endpoints e ON e.id = d.endpoint_id
              WHERE m.id IS NULL OR m.consumer_id <> d.consumer_id
                 OR e.id IS NULL OR e.consumer_id <> d.consumer_id",
    },
    Check {
        invariant: "I1",
        what: "deliveries `sent` without an attempt that says so",
        excusable: false,
        sql: "SELECT d.message_id || ' ' || d.endpoint_id
              FROM hooklane.deliveries d
              WHERE d.status = 'sent'
                AND NOT EXISTS (SELECT FROM hooklane.attempts a
                                WHERE a.message_id = d.message_id AND a.endpoint_id = d.endpoint_id
                                  AND a.series = d.series AND a.verdict = 'sent')",
    },
    Check {
        invariant: "I1",
        what: "deliveries not `sent` although an attempt of their series says so",
        excusable: false,
        sql: "SELECT DISTINCT d.message_id || ' ' || d.endpoint_id || ' ' || d.status
              FROM hooklane.deliveries d
              JOIN hooklane.attempts a ON a.message_id = d.message_id
                   AND a.endpoint_id = d.endpoint_id AND a.series = d.series
              WHERE a.verdict = 'sent' AND d.status <> 'sent'",
    },
    Check {
        invariant: "I1",
        what: "stalled deliveries that their endpoint's backlog entry would find too late, or never",
        excusable: false,
        sql: "SELECT d.message_id || ' ' || d.endpoint_id
              FROM hooklane.deliveries d
              LEFT JOIN hooklane.backlogs b ON b.endpoint_id = d.endpoint_id
              WHERE d.status = 'stalled' AND (b.due_at IS NULL OR b.due_at > d.next_attempt_at)",
    },
    Check {
        invariant: "I3",
        what: "attempts after the deadline",
        excusable: true,
        sql: "SELECT a.message_id || ' ' || a.endpoint_id || ' #' || a.number
              FROM hooklane.attempts a
              JOIN hooklane.deliveries d ON d.accepted_at = a.accepted_at
                   AND d.message_id = a.message_id AND d.endpoint_id = a.endpoint_id
              WHERE a.series = d.series AND a.started_at > d.deadline",
    },
    Check {
        invariant: "I3",
        what: "series with more than 8 counted attempts",
        excusable: true,
        sql: "SELECT message_id || ' ' || endpoint_id || ' series ' || series
              FROM hooklane.attempts
              WHERE error IS NULL OR error NOT IN ('own_fault', 'interrupted')
              GROUP BY message_id, endpoint_id, series HAVING count(*) > 8",
    },
    Check {
        invariant: "I4",
        what: "attempts after the one that was `sent`, in the same series",
        excusable: true,
        sql: "WITH firsts AS (
                  SELECT message_id, endpoint_id, series, min(started_at) AS started_at
                  FROM hooklane.attempts WHERE verdict = 'sent'
                  GROUP BY message_id, endpoint_id, series)
              SELECT a.message_id || ' ' || a.endpoint_id || ' #' || a.number
              FROM hooklane.attempts a JOIN firsts f USING (message_id, endpoint_id, series)
              WHERE a.started_at > f.started_at",
    },
    Check {
        invariant: "I5",
        what: "attempts of nothing in the ledger",
        excusable: false,
        sql: "SELECT a.message_id || ' ' || a.endpoint_id || ' #' || a.number
              FROM hooklane.attempts a
              WHERE NOT EXISTS (SELECT FROM hooklane.deliveries d
                                WHERE d.accepted_at = a.accepted_at
                                  AND d.message_id = a.message_id
                                  AND d.endpoint_id = a.endpoint_id)",
    },
    Check {
        invariant: "I5",
        what: "attempts that share their number with another of the same delivery",
        excusable: true,
        sql: "SELECT message_id || ' ' || endpoint_id || ' #' || number
              FROM (SELECT message_id, endpoint_id, number,
                           row_number() OVER (PARTITION BY message_id, endpoint_id, number) AS nth
                    FROM hooklane.attempts) numbered
              WHERE nth > 1",
    },
    Check {
        invariant: "I5",
        what: "attempts recorded twice under one id",
        excusable: false,
        sql: "SELECT id::text FROM hooklane.attempts GROUP BY id HAVING count(*) > 1",
    },
    Check {
        invariant: "I5",
        what: "deliveries whose attempt count is not that of their attempts",
        excusable: false,
        sql: "SELECT d.message_id || ' ' || d.endpoint_id || ' says ' || d.attempt_count
                     || ', has ' || coalesce(a.made, 0)
              FROM hooklane.deliveries d
              LEFT JOIN (SELECT message_id, endpoint_id, count(DISTINCT number) AS made
                         FROM hooklane.attempts GROUP BY message_id, endpoint_id) a
                   ON a.message_id = d.message_id AND a.endpoint_id = d.endpoint_id
              WHERE d.attempt_count <> coalesce(a.made, 0)",
    },
    Check {
        invariant: "I9",
        what: "idempotency keys under which an outbox made two messages",
        excusable: false,
        sql: "SELECT o.consumer_id || ' ' || o.idempotency_key
              FROM hooklane.outbox_events o
              JOIN hooklane.messages m ON m.id = o.id AND m.consumer_id = o.consumer_id
              WHERE o.idempotency_key IS NOT NULL
              GROUP BY o.consumer_id, o.idempotency_key HAVING count(*) > 1",
    },
];

/// Every rule that some row breaks. Joins whole tables: not for a busy ledger.
///
/// # Errors
/// Where the database can't be reached or refuses, or a check takes longer than five minutes.
pub async fn findings(store: &Store) -> Result<Vec<Finding>, Error> {
    let mut session = store.session(&[("statement_timeout", "300000")]).await?;
    let mut findings = Vec::new();
    for check in CHECKS {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT count(*) AS count, coalesce((array_agg(fault))[1:5], '{{}}') AS sample
             FROM ({}) AS faults (fault)",
            check.sql
        )))
        .fetch_one(&mut session)
        .await
        .map_err(Error::doing(check.what))?;
        let count = super::unsigned(row.get("count"));
        if count > 0 {
            findings.push(Finding {
                invariant: check.invariant,
                what: check.what,
                excusable: check.excusable,
                count,
                sample: row.get("sample"),
            });
        }
    }
    Ok(findings)
}
