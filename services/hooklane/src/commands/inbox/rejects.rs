//! Requests that were refused: no event came of them.

use hooklane_core::error::ErrorCode;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::Rejected;
use serde::Serialize;

use super::show::headers;
use super::unless_configured;
use super::view::{self, Header};
use crate::commands::input::shown;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{exact, fields, or_dash, short, table, time};

/// Characters of a body that a person is shown.
const BODY: usize = 2_000;

#[derive(Debug, Serialize)]
struct List {
    rejects: Vec<View>,
    next: Option<i64>,
}

#[derive(Debug, Serialize)]
struct View {
    number: i64,
    partner: String,
    at: String,
    reason: String,
    remote: Option<String>,
    /// The body's size.
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    reject: View,
    headers: Vec<Header>,
    /// The beginning of the body, where it is text.
    body: Option<String>,
    /// The same in base64 where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// How much of the body is kept.
    kept_bytes: usize,
}

impl From<&Rejected> for View {
    fn from(rejected: &Rejected) -> Self {
        Self {
            number: rejected.id,
            partner: rejected.partner.to_string(),
            at: time(rejected.at),
            reason: rejected.reason.clone(),
            remote: rejected.remote.clone(),
            bytes: rejected.bytes,
        }
    }
}

pub(super) async fn list(
    context: &Context,
    partner: Option<&Partner>,
    after: Option<i64>,
    limit: u32,
) -> Result<(), Failure> {
    let store = context.store().await?;
    let page = store.inbox_rejects(partner, after, limit).await?;
    if page.items.is_empty() {
        unless_configured(context, partner)?;
    }
    let rows = page.items.iter().map(|rejected| {
        [
            rejected.id.to_string(),
            short(Some(rejected.at)),
            rejected.partner.to_string(),
            rejected.reason.clone(),
            or_dash(rejected.remote.as_deref()),
            rejected.bytes.to_string(),
        ]
    });
    let human = table(
        ["NUMBER", "AT", "PARTNER", "REASON", "FROM", "BYTES"],
        rows.collect(),
    );
    let answer = List {
        rejects: page.items.iter().map(View::from).collect(),
        next: page.next,
    };
    context.output.print(&answer, || human)?;
    context.output.more(answer.next);
    Ok(())
}

pub(super) async fn show(context: &Context, number: i64) -> Result<(), Failure> {
    let store = context.store().await?;
    // The newest of those behind the next number.
    let page = store.inbox_rejects(None, number.checked_add(1), 1).await?;
    let found = page.items.into_iter().find(|found| found.id == number);
    let found = found.ok_or_else(|| {
        Failure::new(
            ErrorCode::NotFound,
            format!(
                "there is no refused request {number}, or not any more; list them with: hooklane \
                 inbox rejects"
            ),
        )
    })?;
    let reject = View::from(&found);
    let text = shown(&found.body, BODY);
    let (body, body_base64) = exact(found.body.to_vec());
    let whole = Whole {
        reject,
        headers: view::headers(found.headers),
        body,
        body_base64,
        kept_bytes: found.body.len(),
    };
    context.output.print(&whole, || {
        let View {
            number,
            partner,
            at,
            reason,
            remote,
            bytes,
        } = &whole.reject;
        let top = fields(vec![
            ("number", number.to_string()),
            ("partner", partner.clone()),
            ("at", at.clone()),
            ("reason", reason.clone()),
            ("from", or_dash(remote.as_deref())),
            (
                "bytes",
                format!("{bytes}, of which {} are kept", whole.kept_bytes),
            ),
        ]);
        format!(
            "{top}\n\nheaders:\n{}\n\nbody:\n{text}",
            headers(&whole.headers)
        )
    })
}
