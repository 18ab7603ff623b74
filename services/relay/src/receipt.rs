//! Receipts for who published to `INTAKE` and asked for one.

use hooklane_store::accept::{Outcome, Receipt};
use serde::Serialize;

/// Longest subject that a receipt is sent to.
const MAX_SUBJECT: usize = 255;

/// What a receipt says, as JSON.
#[derive(Debug, Serialize)]
struct Body<'a> {
    /// `accepted`, `repeat`, `waiting` or `rejected`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    key: &'a str,
}

/// The receipt for an outcome; `key` is what the message went by.
pub(crate) fn of(outcome: &Outcome, key: &str) -> Vec<u8> {
    let receipt = |outcome, receipt: &Receipt| Body {
        outcome,
        message: Some(receipt.message.to_string()),
        accepted_at: Some(
            receipt
                .accepted_at
                .to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
        ),
        reason: None,
        detail: None,
        key,
    };
    let body = match outcome {
        Outcome::Accepted(accepted) => receipt("accepted", accepted),
        Outcome::Repeat(first) => receipt("repeat", first),
        Outcome::Rejected(rejection) => Body {
            outcome: if rejection.reason.may_pass() {
                "waiting"
            } else {
                "rejected"
            },
            message: None,
            accepted_at: None,
            reason: Some(rejection.reason.as_str()),
            detail: Some(&rejection.detail),
            key,
        },
    };
    // A struct of texts: this can't fail.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// Whether a receipt may be sent there. The relay may publish more than the producer may, so it
/// does not lend its hand: not to the server's own subjects, and not to Hooklane's.
pub(crate) fn may_go_to(subject: &str) -> bool {
    const OURS: [&str; 8] = [
        "intake",
        "events",
        "deliveries",
        "records",
        "dlq",
        "inbox",
        "room",
        "hooklane",
    ];
    let mut tokens = subject.split('.');
    let first = tokens.clone().next().unwrap_or_default();
    subject.len() <= MAX_SUBJECT
        && !first.starts_with('$')
        && !OURS.contains(&first)
        && tokens.all(|token| {
            !token.is_empty()
                && !token.contains(['*', '>'])
                && token.bytes().all(|b| (0x21..0x7f).contains(&b))
        })
}

#[cfg(test)]
mod tests {
    use hooklane_proto::id::MessageId;
    use hooklane_store::accept::{Reason, Rejection};

    use super::*;

    #[test]
    fn receipts_say_what_became_of_it() {
        let receipt = Receipt {
            message: MessageId::for_test(7),
            accepted_at: chrono::DateTime::from_timestamp_micros(1_790_000_000_000_001)
                .unwrap_or_default(),
        };
        let text = String::from_utf8(of(&Outcome::Accepted(receipt), "k")).unwrap_or_default();
        assert_eq!(
            text,
            r#"{"outcome":"accepted","message":"msg_00000000-0000-7000-8000-000000000007","accepted_at":"2026-09-21T14:13:20.000001Z","key":"k"}"#
        );
        let rejection = Rejection {
            reason: Reason::UnknownConsumer,
            detail: "no".to_owned(),
        };
        let text = String::from_utf8(of(&Outcome::Rejected(rejection), "k")).unwrap_or_default();
        assert_eq!(
            text,
            r#"{"outcome":"waiting","reason":"unknown_consumer","detail":"no","key":"k"}"#
        );
    }

    #[test]
    fn receipts_go_to_the_producers_own_subjects_only() {
        for good in ["_INBOX.abc.1", "receipts.shop", "a-b"] {
            assert!(may_go_to(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "a..b",
            "a b",
            "a.*",
            "a.>",
            "$JS.API.STREAM.DELETE.EVENTS",
            "$SYS.x",
            "events.acme.x",
            "intake.acme.x",
            "a\r\nPUB x",
            &"x".repeat(256),
        ] {
            assert!(!may_go_to(bad), "{bad}");
        }
    }
}
