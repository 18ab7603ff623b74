//! `cargo xtask demo inbox`: partners' webhooks on real parts, told step by step.
//!
//! Three stories with their checks: an event that comes ten times while the inbox is killed is kept and
//! handed on once; what comes too early waits for what it needs; and what a handler can't take is tried
//! again, set aside, and replayed once the handler is mended. The partner is played with requests signed
//! as Stripe signs them; the adopter reads the stream with the `nats` command, or is a handler over HTTP.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hooklane_testkit::{Receiver, Reply, wait};
use serde_json::{Value, json};

use self::partner::Partner;
use self::stream::Stream;
use super::{say, step};
use crate::system::{System, free_address};

mod partner;
mod stream;

/// For what takes moments on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests with the same event at a time.
const COPIES: usize = 10;
/// When a failed hand-off is tried again, in seconds after the failure.
const AGAIN: [i64; 3] = [60, 300, 900];
/// How much of such a wait may be over before it is looked at, in seconds.
const LOOKED_AT_WITHIN: i64 = 40;

pub(super) async fn run() -> Result<()> {
    let handler = Receiver::start().await?;
    let inbox = free_address()?;
    let shop = Partner::new("shop", inbox);
    let billing = Partner::new("billing", inbox);
    let config = config(&inbox.to_string(), &shop, &billing, &handler);
    let mut system = System::start_service(&["inbox", "run"], &config).await?;
    let stream = Stream::of(&system).await?;

    let once = once(&mut system, &shop, &stream).await?;
    let order = in_order(&system, &shop, &stream).await?;
    let quarantine = set_aside(&system, &billing, &handler).await?;

    step("hooklane inbox sources");
    eprint!("{}", system.hooklane(&["inbox", "sources"]).await?);
    system.stop().await?;
    println!(
        "{}",
        json!({ "once": once, "in_order": order, "quarantine": quarantine })
    );
    Ok(())
}

/// Two partners that sign as Stripe does: one whose events go to the stream in the order of a state
/// machine, and one whose events a handler is asked about.
fn config(listen: &str, shop: &Partner, billing: &Partner, handler: &Receiver) -> String {
    format!(
        r#"
[inbox]
listen = "{listen}"

[inbox.sources.shop]
preset = "stripe"
secrets = ["{shop}"]

[[inbox.sources.shop.entities]]
type = "order"
match = ["order.*"]
key = "{{json:/data/object/id}}"

[inbox.sources.shop.entities.machine]
initial = "new"
terminal = ["shipped"]
transitions = [
  {{ event = "order.paid", from = ["new"], to = "paid" }},
  {{ event = "order.shipped", from = ["paid"], to = "shipped" }},
]

[inbox.sources.billing]
preset = "stripe"
secrets = ["{billing}"]
hand_off = {{ mode = "request", url = "{url}", within = "5s" }}
"#,
        shop = shop.secret(),
        billing = billing.secret(),
        url = handler.url("/handler"),
    )
}

/// The same event on ten connections, and the process killed in the middle.
async fn once(system: &mut System, shop: &Partner, stream: &Stream) -> Result<Value> {
    step(
        "a partner sends one event ten times at once; the inbox is killed in the middle (kill -9)",
    );
    let event = shop.event("evt_ten_times", "order.paid", "ten");
    let held = COPIES / 2;
    // So many requests are all there but for their last byte when the process dies.
    let mut waiting = Vec::new();
    for _ in 0..held {
        waiting.push(event.begin().await?);
    }
    let mut answered = event.send_many(COPIES - held).await?;
    say(&format!(
        "{answered} were answered 200, {held} were not yet"
    ));
    system.kill().await?;
    let mut broken = 0;
    for request in waiting {
        broken += usize::from(request.finish().await.is_err());
    }
    ensure!(broken == held, "{broken} of {held} requests broke off");
    system.start_again().await?;
    say("killed and started again; the partner sends again what was not answered");
    answered += event.send_many(held).await?;
    ensure!(
        answered == COPIES,
        "{answered} of {COPIES} were answered 200"
    );
    let row = settled(system, shop, "evt_ten_times", "PROCESSED").await?;
    stream.wait_for(1).await?;
    let rows = system
        .sql("SELECT count(*) FROM hooklane.webhook_inbox WHERE partner_name = 'shop'")
        .await?;
    let waiting = system
        .sql("SELECT count(*) FROM hooklane.inbox_handoffs")
        .await?;
    let handed = stream.messages().await?;
    say(&format!("{rows} row, {} message on INBOX", handed.len()));
    ensure!(rows == "1", "there are {rows} rows of one event");
    ensure!(waiting == "0", "{waiting} hand-offs are still to come");
    ensure!(handed.len() == 1, "it was handed on {} times", handed.len());
    ensure!(
        handed[0].header("Hooklane-Inbox-Event") == row["id"].as_str(),
        "INBOX has another event: {:?}",
        handed[0]
    );
    ensure!(
        handed[0].body == event.body(),
        "other bytes than the partner's are on INBOX"
    );
    Ok(json!({
        "sent": COPIES,
        "answered_200": answered,
        "rows": rows.parse::<u64>()?,
        "hand_offs": handed.len(),
        "kills": 1,
    }))
}

/// What comes too early waits, and goes on at once when what it needs has come.
async fn in_order(system: &System, shop: &Partner, stream: &Stream) -> Result<Value> {
    step("`shipped` comes before `paid`");
    shop.event("evt_shipped", "order.shipped", "early")
        .deliver()
        .await?;
    let deferred = settled(system, shop, "evt_shipped", "DEFERRED").await?;
    let missing = deferred["detail"].as_str().unwrap_or_default().to_owned();
    say(&format!("`shipped` waits, {missing}"));
    let id = deferred["id"].as_str().context("an event without an id")?;
    let dry = system.hooklane_json(&["inbox", "dry-run", id]).await?;
    ensure!(dry["outcome"] == "defer", "a dry run says otherwise: {dry}");
    shop.event("evt_paid", "order.paid", "early")
        .deliver()
        .await?;
    settled(system, shop, "evt_paid", "PROCESSED").await?;
    settled(system, shop, "evt_shipped", "PROCESSED").await?;
    stream.wait_for(3).await?;
    let handed = stream.messages().await?;
    let order: Vec<(&str, &str)> = handed
        .iter()
        .filter(|message| message.header("Hooklane-Entity") == Some("order/early"))
        .map(|message| {
            let header = |name| message.header(name).unwrap_or_default();
            (
                header("Hooklane-Event-Type"),
                header("Hooklane-Entity-Sequence"),
            )
        })
        .collect();
    say(&format!("on INBOX: {order:?}"));
    ensure!(
        order == [("order.paid", "1"), ("order.shipped", "2")],
        "INBOX has them in the order {order:?}"
    );
    let entity = system
        .hooklane_json(&["inbox", "entity", "shop", "order/early"])
        .await?;
    ensure!(entity["state"] == "shipped", "the order stands at {entity}");
    eprint!("{}", system.hooklane(&["inbox", "show", id]).await?);
    Ok(json!({
        "sent": ["order.shipped", "order.paid"],
        "handed_on": order.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        "state": entity["state"],
    }))
}

/// A handler that fails on one event, quarantine, a mended handler, and a replay.
async fn set_aside(system: &System, billing: &Partner, handler: &Receiver) -> Result<Value> {
    step("a handler fails on an event; nothing else waits for it");
    handler.script("/handler", Reply::statuses([500, 200]));
    handler.always("/handler", Reply::status(500));
    billing
        .event("evt_bad", "invoice.paid", "in_1")
        .deliver()
        .await?;
    let bad = failed(system, billing, 1).await?;
    let id = bad["id"]
        .as_str()
        .context("an event without an id")?
        .to_owned();
    billing
        .event("evt_good", "invoice.paid", "in_1")
        .deliver()
        .await?;
    settled(system, billing, "evt_good", "PROCESSED").await?;
    say("the event behind it went through");
    for (failures, delay) in (1..).zip(AGAIN) {
        let left = wait_left(&failed(system, billing, failures).await?)?;
        ensure!(
            (delay - LOOKED_AT_WITHIN..=delay).contains(&left),
            "after failure {failures} it is tried again in {left} s, and not in {delay} s"
        );
        say(&format!(
            "failure {failures}: tried again {} min later (the demo sets the event's clock forward)",
            delay / 60
        ));
        let uuid = id.trim_start_matches("inb_");
        system
            .sql(&format!(
                "UPDATE hooklane.webhook_inbox SET next_at = clock_timestamp() WHERE id = '{uuid}'"
            ))
            .await?;
    }
    let row = settled(system, billing, "evt_bad", "QUARANTINED").await?;
    ensure!(
        row["reason"] == "handler_failed",
        "it is set aside as {row}"
    );
    let alerts = system
        .sql(
            "SELECT count(*) FROM hooklane.operational_events
              WHERE event_type = 'hooklane.inbox.quarantined'",
        )
        .await?;
    ensure!(alerts == "1", "{alerts} operational events tell of it");
    say("failure 4: in quarantine, and an operational event tells of it");
    eprint!(
        "{}",
        system
            .hooklane(&["inbox", "list", "--status", "QUARANTINED"])
            .await?
    );

    step("the handler is mended; hooklane inbox replay");
    handler.always("/handler", Reply::status(200));
    let replayed = system.hooklane_json(&["inbox", "replay", &id]).await?;
    ensure!(replayed["replayed"] == 1, "the replay did {replayed}");
    let done = settled(system, billing, "evt_bad", "PROCESSED").await?;
    let asked = handler.counts_of("/handler").arrived;
    eprint!("{}", system.hooklane(&["inbox", "show", &id]).await?);
    ensure!(asked == 6, "the handler was asked {asked} times");
    Ok(json!({
        "failures": AGAIN.len() + 1,
        "retried_after_minutes": AGAIN.map(|seconds| seconds / 60),
        "handler_asked": asked,
        "alerts": alerts.parse::<u64>()?,
        "replayed": replayed["replayed"],
        "status": done["status"],
    }))
}

/// The event that the partner calls by this name, as `inbox list` has it.
async fn find(system: &System, partner: &Partner, name: &str) -> Option<Value> {
    let words = ["inbox", "list", "--partner", partner.name()];
    let listed = system.hooklane_json(&words).await.ok()?;
    let events = listed["events"].as_array()?;
    let found = events
        .iter()
        .find(|event| event["partner_event_id"] == name);
    found.cloned()
}

async fn settled(system: &System, partner: &Partner, name: &str, status: &str) -> Result<Value> {
    let what = format!("{name} to be {status}");
    wait::until_some(&what, PATIENCE, async || {
        let event = find(system, partner, name).await?;
        (event["status"] == status).then_some(event)
    })
    .await
}

/// The event whose handler fails, once it has so often.
async fn failed(system: &System, partner: &Partner, times: u32) -> Result<Value> {
    let what = format!("failure {times}");
    wait::until_some(&what, PATIENCE, async || {
        let event = find(system, partner, "evt_bad").await?;
        (event["failures"] == times && event["status"] == "PENDING").then_some(event)
    })
    .await
}

/// In how many seconds an event is looked at again.
fn wait_left(event: &Value) -> Result<i64> {
    let next = event["next_at"]
        .as_str()
        .context("an event that is never looked at again")?;
    let next = humantime::parse_rfc3339(next).context("reading when it is looked at again")?;
    let left = next
        .duration_since(std::time::SystemTime::now())
        .unwrap_or_default();
    Ok(left.as_secs_f64().ceil() as i64)
}
