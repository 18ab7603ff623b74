//! The inbox on a real PostgreSQL: kept once, decided in order, handed off, or seen by a person.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use hooklane_core::rules::transition::{Config, Machine, Transition};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{
    Claimed, Entity, Headers, Incoming, Item, Mode, Reader, Reading, Reason, Receipt, StepLimits,
    Stepped,
};
use serde_json::Value;

use crate::ledger::{Ledger, at};

mod hand_off;
mod person;
mod receive;
mod retention;
mod speed;
mod sql;
mod step;
mod stream;

/// The partner of most tests.
pub(crate) fn shop() -> Partner {
    Partner::new("shop").unwrap()
}

/// A verified request with a signed id.
pub(crate) fn incoming(event_id: &str, body: &str) -> Incoming {
    Incoming {
        id: InboxId::generate(),
        partner: shop(),
        partner_event_id: event_id.to_owned(),
        id_signed: true,
        same_body: None,
        signature_verified: true,
        key_label: Some("secrets.0".to_owned()),
        integrity: "full".to_owned(),
        event_type: None,
        content_type: Some("application/json".to_owned()),
        headers: Headers(vec![("x-shop".to_owned(), "1".to_owned())]),
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

/// An event of the order `key`.
pub(crate) fn order(event_id: &str, event_type: &str, key: &str) -> Incoming {
    incoming(
        event_id,
        &format!(r#"{{"id":"{event_id}","type":"{event_type}","key":"{key}"}}"#),
    )
}

/// Reads bodies of `{"type", "key", "order", "status"}` or `{"items": […]}`; panics at `{"panic": true}`.
pub(crate) struct Shop {
    machine: Option<Machine>,
    /// Of the partners that are configured.
    pub(crate) modes: Mutex<HashMap<Partner, Mode>>,
}

impl Shop {
    /// Orders that are created, paid, shipped, delivered and closed; and, in any state that is not
    /// closed, refunded.
    pub(crate) fn new(mode: Mode) -> Self {
        let step = |event: &str, from: &str, to: &str| Transition {
            event: event.to_owned(),
            from: vec![from.to_owned()],
            to: Some(to.to_owned()),
            to_field: None,
        };
        let mut config = Config {
            initial: "none".to_owned(),
            terminal: vec!["closed".to_owned(), "refunded".to_owned()],
            transitions: vec![
                step("order.created", "none", "created"),
                step("order.paid", "created", "paid"),
                step("order.shipped", "paid", "shipped"),
                step("order.delivered", "shipped", "delivered"),
                step("order.closed", "delivered", "closed"),
                step("order.refunded", "paid", "refunded"),
            ],
            ..Config::default()
        };
        config.policy.max_deferred = 5;
        Self {
            machine: Some(Machine::compile(&config).unwrap()),
            modes: Mutex::new(HashMap::from([(shop(), mode)])),
        }
    }

    /// Where events apply as they come.
    pub(crate) fn without_machine(mode: Mode) -> Self {
        Self {
            machine: None,
            ..Self::new(mode)
        }
    }
}

impl Reader for Shop {
    fn read(&self, event: &Claimed) -> Reading {
        let unreadable = |detail: &str| Reading::Unreadable {
            reason: Reason::Unparseable,
            detail: detail.to_owned(),
        };
        let Ok(body) = serde_json::from_slice::<Value>(&event.body) else {
            return unreadable("it is no JSON");
        };
        assert!(body.get("panic").is_none(), "a reading that panics");
        if let Some(items) = body.get("items").and_then(Value::as_array) {
            let item = |item: &Value| Item {
                partner_event_id: item["id"].as_str().unwrap_or("none").to_owned(),
                id_signed: true,
                event_type: None,
                body: Bytes::from(item.to_string()),
            };
            return Reading::Items(items.iter().map(item).collect());
        }
        let Some(event_type) = body["type"].as_str() else {
            return unreadable("it has no type");
        };
        Reading::Event {
            event_type: event_type.to_owned(),
            entity: body["key"].as_str().map(|key| Entity {
                entity_type: "order".to_owned(),
                key: key.to_owned(),
                order: body["order"].as_i64(),
                to_field: body["status"].as_str().map(str::to_owned),
            }),
        }
    }

    fn machine(&self, _: &Partner, _: &str) -> Option<&Machine> {
        self.machine.as_ref()
    }

    fn mode(&self, partner: &Partner) -> Option<Mode> {
        self.modes.lock().unwrap().get(partner).copied()
    }
}

impl Ledger {
    /// Keeps one request at [`at`] `seconds`.
    pub(crate) async fn received(&self, seconds: i64, item: Incoming) -> Receipt {
        let receipts = self
            .store
            .inbox_receive(at(seconds), &[item])
            .await
            .unwrap();
        receipts.into_iter().next().unwrap()
    }

    /// One step at [`at`] `seconds`.
    pub(crate) async fn stepped(&self, seconds: i64, reader: &Shop) -> Stepped {
        self.step_at(at(seconds), reader).await
    }

    pub(crate) async fn step_at(&self, now: DateTime<Utc>, reader: &Shop) -> Stepped {
        let limits = StepLimits::default();
        self.store.inbox_step(now, &limits, reader).await.unwrap()
    }

    /// Steps at the same time until there is nothing more to do.
    pub(crate) async fn settled(&self, seconds: i64, reader: &Shop) {
        while self.stepped(seconds, reader).await.more() {}
    }

    /// What is in the inbox: partner's id, status, and sequence, by id.
    pub(crate) async fn inbox(&self) -> String {
        self.sql(
            "SELECT string_agg(concat_ws(':', partner_event_id, status, sequence), ' '
                               ORDER BY partner_event_id)
               FROM hooklane.webhook_inbox",
        )
        .await
    }

    /// Why an event is where it is.
    pub(crate) async fn why(&self, event_id: &str) -> String {
        self.sql(&format!(
            "SELECT concat_ws(': ', reason, detail) FROM hooklane.webhook_inbox
              WHERE partner_event_id = '{event_id}'"
        ))
        .await
    }

    /// The state of an order.
    pub(crate) async fn state(&self, key: &str) -> String {
        self.sql(&format!(
            "SELECT concat_ws(':', state, sequence, deferred) FROM hooklane.inbox_entities
              WHERE entity_key = '{key}'"
        ))
        .await
    }

    /// What is to be published, in order.
    pub(crate) async fn published(&self) -> Vec<(i64, String, u32)> {
        let page = self.store.inbox_publications(1000, 1 << 20).await.unwrap();
        page.into_iter()
            .map(|one| {
                let event = one.hand_off;
                (one.position, event.partner_event_id, event.attempt)
            })
            .collect()
    }

    pub(crate) async fn id_of(&self, event_id: &str) -> InboxId {
        let text = self
            .sql(&format!(
                "SELECT id FROM hooklane.webhook_inbox WHERE partner_event_id = '{event_id}'"
            ))
            .await;
        text.parse().unwrap()
    }
}
