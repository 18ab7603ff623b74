//! A partner's event on `INBOX`: the body as it was received, the rest in headers.
//!
//! Written for code that is not ours: whatever NATS client reads it needs nothing but these headers.

use bytes::Bytes;

use crate::header::{self, Headers};
use crate::id::InboxId;
use crate::subject;
use crate::token::Partner;

/// What the inbox hands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEvent {
    /// The inbox's own id.
    pub id: InboxId,
    /// Whose event it is.
    pub partner: Partner,
    /// The partner's id of it.
    pub partner_event: String,
    /// What happened, in the partner's words.
    pub event_type: String,
    /// What it is about; `None` where nobody said how to tell.
    pub entity: Option<Entity>,
    /// What the signature covers: `full`, or `partial: ` and what it does not.
    pub integrity: String,
    /// The body's media type, as the partner named it.
    pub content_type: Option<String>,
    /// The how-many-eth time it is handed on, from 1.
    pub attempt: u32,
    /// The exact bytes.
    pub body: Bytes,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// The kind, such as `order`.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Which of its events this is, from 1 without a gap.
    pub sequence: Option<i64>,
}

impl InboxEvent {
    /// Where it is published.
    #[must_use]
    pub fn subject(&self) -> String {
        subject::inbox(&self.partner, &self.event_type)
    }

    /// The broker's deduplication id: another one for each time that it is handed on anew.
    #[must_use]
    pub fn message_id(&self) -> String {
        match self.attempt {
            0 | 1 => self.id.to_string(),
            again => format!("{}.{again}", self.id),
        }
    }

    /// The headers to publish it with. Control characters in what the partner said are
    /// percent-encoded.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        headers.push(header::MSG_ID, self.message_id());
        headers.push(header::INBOX_EVENT, self.id.to_string());
        headers.push(header::PARTNER, self.partner.as_str());
        headers.push(header::PARTNER_EVENT, printable(&self.partner_event));
        headers.push(header::EVENT_TYPE, printable(&self.event_type));
        if let Some(Entity {
            kind,
            key,
            sequence,
        }) = &self.entity
        {
            headers.push(header::ENTITY, printable(&format!("{kind}/{key}")));
            if let Some(sequence) = sequence {
                headers.push(header::ENTITY_SEQUENCE, sequence.to_string());
            }
        }
        headers.push(header::INTEGRITY, printable(&self.integrity));
        headers.push(header::INBOX_ATTEMPT, self.attempt.to_string());
        if let Some(content_type) = &self.content_type {
            headers.push(header::CONTENT_TYPE, printable(content_type));
        }
        headers
    }
}

/// Text without line breaks and other control characters.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                shown.push_str(&format!("%{byte:02X}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> InboxEvent {
        InboxEvent {
            id: InboxId::for_test(7),
            partner: Partner::new("shop").unwrap(),
            partner_event: "evt_1\r\nEvil: 1".to_owned(),
            event_type: "order.paid".to_owned(),
            entity: Some(Entity {
                kind: "order".to_owned(),
                key: "a/b c".to_owned(),
                sequence: Some(3),
            }),
            integrity: "full".to_owned(),
            content_type: Some("application/json".to_owned()),
            attempt: 1,
            body: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn headers_tell_everything_and_break_no_line() {
        let id = InboxId::for_test(7).to_string();
        let headers = event().headers();
        let told: Vec<_> = headers.iter().collect();
        let expected = [
            ("Nats-Msg-Id", id.as_str()),
            ("Hooklane-Inbox-Event", id.as_str()),
            ("Hooklane-Partner", "shop"),
            ("Hooklane-Partner-Event", "evt_1%0D%0AEvil: 1"),
            ("Hooklane-Event-Type", "order.paid"),
            ("Hooklane-Entity", "order/a/b c"),
            ("Hooklane-Entity-Sequence", "3"),
            ("Hooklane-Integrity", "full"),
            ("Hooklane-Inbox-Attempt", "1"),
            ("Content-Type", "application/json"),
        ];
        assert_eq!(told, expected);
        assert_eq!(event().subject(), "inbox.shop.order.paid");
    }

    #[test]
    fn each_time_has_a_message_id_of_its_own() {
        let again = InboxEvent {
            attempt: 2,
            entity: None,
            content_type: None,
            ..event()
        };
        let headers = again.headers();
        let id = format!("{}.2", again.id);
        assert_eq!(headers.get(header::MSG_ID), Some(id.as_str()));
        assert_eq!(headers.get(header::INBOX_ATTEMPT), Some("2"));
        assert_eq!(headers.get(header::ENTITY), None);
    }
}
