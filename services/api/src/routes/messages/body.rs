//! What is said about messages that come in: the bodies of requests and answers.

use std::fmt;

use chrono::{DateTime, Utc};
use hooklane_proto::token::EventType;
use hooklane_store::accept::Receipt;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::MAX_BATCH;
use crate::json::{self, Object};
use crate::problem::{Pointer, Problem};

/// A message to send to the consumer's endpoints.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewMessage)]
pub(super) struct Sent {
    /// What happened: the name of an event type.
    #[schema(
        value_type = String, max_length = 100, pattern = r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$",
        example = "invoice.paid"
    )]
    pub(super) event_type: EventType,
    /// What is sent, byte for byte as it stands here: any JSON of at most 256 KiB, nested at most 100
    /// levels deep.
    #[schema(value_type = Value, example = json!({"invoice": "6f1e", "amount": 1250}))]
    pub(super) payload: Box<RawValue>,
    /// Sent again within seven days, the same key with the same content is answered with the first
    /// receipt, and nothing is sent twice. No control characters.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\x00-\x1F\x7F-\x9F]*$"
    )]
    pub(super) idempotency_key: Option<String>,
}

/// Messages to send to the consumer's endpoints.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewMessages)]
pub(super) struct SentBatch {
    /// The messages. Each is taken or refused by itself.
    #[schema(value_type = Vec<Sent>, min_items = 1, max_items = 1000)]
    #[serde(deserialize_with = "unread")]
    pub(super) messages: Vec<Box<RawValue>>,
}

/// The items of a batch, each still to be read: what is wrong with one is not wrong with the others.
/// Many small ones would take many times their size, so there are never more than a batch may have.
fn unread<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Items;

    impl<'de> Visitor<'de> for Items {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "an array of 1 to {MAX_BATCH} messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut unread = Vec::new();
            while let Some(item) = items.next_element()? {
                if unread.len() == MAX_BATCH {
                    return Err(A::Error::invalid_length(MAX_BATCH + 1, &self));
                }
                unread.push(item);
            }
            if unread.is_empty() {
                return Err(A::Error::invalid_length(0, &self));
            }
            Ok(unread)
        }
    }

    deserializer.deserialize_seq(Items)
}

impl Sent {
    /// Reads an item of a batch. What is wrong points at the whole item.
    pub(super) fn read(item: &RawValue) -> Result<Self, Problem> {
        let wrong = |text: String| {
            let pointer = Pointer {
                pointer: String::new(),
                detail: text.clone(),
            };
            Problem::unprocessable(format!("the message is not what is expected: {text}"))
                .with_errors(vec![pointer])
        };
        let read = serde_json::from_str(item.get()).map(|Object(sent)| sent);
        // Without the place in the item: nobody knows where that is in the body.
        read.map_err(|error| wrong(json::explain(&error)))
    }
}

/// The proof that a message is in the ledger.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Receipt)]
pub(super) struct Taken {
    /// The message: the `webhook-id` of every attempt.
    #[schema(example = "msg_01987c3e-9d6a-7000-8000-000000000001")]
    pub(super) id: String,
    /// When the ledger took it.
    pub(super) accepted_at: DateTime<Utc>,
    /// Whether it was there already, under the same idempotency key.
    pub(super) repeated: bool,
    /// What is to be looked at, such as that the event type is deprecated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// What became of the messages of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Receipts)]
pub(super) struct TakenBatch {
    /// One for each message, in their order.
    pub(super) results: Vec<Item>,
}

/// What became of one message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReceiptStatus)]
pub(super) enum Status {
    /// It is in the ledger now.
    Accepted,
    /// It was there already, under the same idempotency key.
    Repeated,
    /// It is not in the ledger, or nobody can tell.
    Rejected,
}

/// What became of one message of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchReceipt)]
pub(super) struct Item {
    /// What became of it.
    pub(super) status: Status,
    /// The message, unless it was rejected: the `webhook-id` of every attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// When the ledger took it, unless it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) accepted_at: Option<DateTime<Utc>>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<ItemProblem>,
    /// What is to be looked at, such as that the event type is deprecated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// Why one message of a batch was rejected.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchProblem)]
pub(super) struct ItemProblem {
    /// The code, from a closed set.
    #[schema(example = "unknown_event_type")]
    pub(super) code: &'static str,
    /// What is wrong and what helps.
    pub(super) detail: String,
    /// What is wrong with the message, as pointers into the body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<Pointer>,
}

impl Item {
    pub(super) fn taken(status: Status, receipt: Receipt, warnings: Vec<String>) -> Self {
        Self {
            status,
            id: Some(receipt.message.to_string()),
            accepted_at: Some(receipt.accepted_at),
            problem: None,
            warnings,
        }
    }

    /// The one that stands at `at` in the body.
    pub(super) fn rejected(at: usize, problem: Problem) -> Self {
        let errors = problem.errors().iter().map(|error| Pointer {
            pointer: format!("/messages/{at}{}", error.pointer),
            detail: error.detail.clone(),
        });
        Self {
            status: Status::Rejected,
            id: None,
            accepted_at: None,
            problem: Some(ItemProblem {
                code: problem.code().as_str(),
                detail: problem.detail().to_owned(),
                errors: errors.collect(),
            }),
            warnings: Vec::new(),
        }
    }
}
