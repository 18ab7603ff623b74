//! `cargo xtask demo`: the main job on real parts, told step by step.
//!
//! Owns the story and its checks; every step that does not come out as told ends the demo with an
//! error. It uses what a user has: psql, the `hooklane` command, and the reference library for
//! verifying signatures. Steps go to standard error; the last line of standard output is one JSON
//! object with the counts.

use std::time::Duration;

use anyhow::{Result, ensure};
use hooklane_testkit::Receiver;
use hooklane_testkit::receiver::Reply;
use serde_json::{Value, json};

use self::customer::Customer;
use crate::system::System;

mod customer;
mod inbox;
mod wipe;

/// From a commit to the last attempt, with the retries of the failing endpoint; generous, since
/// the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Leave everything running until Ctrl-C, and print what to try next.
    #[arg(long)]
    keep: bool,
    #[command(subcommand)]
    story: Option<Story>,
}

#[derive(Debug, clap::Subcommand)]
enum Story {
    /// Delete everything that JetStream keeps, under load: everything accepted is delivered.
    Wipe,
    /// Receive partners' webhooks: once, in a legal order, and what a failing handler can't take set
    /// aside and replayed.
    Inbox,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    match args.story {
        None => main_job(args.keep).await,
        Some(Story::Wipe) => wipe::run().await,
        Some(Story::Inbox) => inbox::run().await,
    }
}

async fn main_job(keep: bool) -> Result<()> {
    let system = System::start().await?;

    step("register the event type order.paid and the customers acme and globex");
    for words in [
        &["event-type", "add", "order.paid"][..],
        &["consumer", "add", "acme", "--name", "Acme Inc."],
        &["consumer", "add", "globex", "--name", "Globex Corp."],
    ] {
        system.hooklane(words).await?;
    }

    step("acme has two endpoints, of which one fails twice; globex has one");
    let receiver = Receiver::start().await?;
    receiver.script("/acme/warehouse", Reply::statuses([500, 503]));
    let accounting = Customer::subscribe(&system, &receiver, "acme", "/acme/accounting").await?;
    let warehouse = Customer::subscribe(&system, &receiver, "acme", "/acme/warehouse").await?;
    let globex = Customer::subscribe(&system, &receiver, "globex", "/globex").await?;

    step("commit an order and its event in one transaction");
    let payload = r#"{"order": "6f1e0a52", "amount": 12.50, "currency": "EUR"}"#;
    system
        .sql("CREATE TABLE orders (id text PRIMARY KEY, status text NOT NULL)")
        .await?;
    let sent = system.sql(&order("6f1e0a52", payload, "COMMIT")).await?;
    say(&format!("outbox row {sent}"));

    step("roll another one back: its event must never be sent");
    let rolled_back = system
        .sql(&order("0badc0de", r#"{"order": "0badc0de"}"#, "ROLLBACK"))
        .await?;
    let orders = system.sql("SELECT string_agg(id, ',') FROM orders").await?;
    ensure!(orders == "6f1e0a52", "the table of orders holds {orders}");

    step("wait for the webhooks: one attempt here, three there");
    receiver
        .wait_for_path("/acme/accounting", 1, PATIENCE)
        .await?;
    receiver
        .wait_for_path("/acme/warehouse", 3, PATIENCE)
        .await?;
    let message = system.message(&sent, PATIENCE).await?;

    step("verify signatures with the standardwebhooks crate, and the bytes with ours");
    let mut verified = 0;
    for customer in [&accounting, &warehouse] {
        verified += customer.verify(&receiver, &sent, payload.as_bytes())?;
    }
    say(&format!("{verified} attempts verify, over the exact bytes"));

    step("nobody else got anything");
    let others = receiver.counts_of(globex.path()).arrived;
    ensure!(others == 0, "globex got {others} webhooks");
    let strangers = receiver
        .requests()
        .iter()
        .filter(|request| {
            request
                .header("webhook-id")
                .is_some_and(|id| id.contains(&rolled_back))
        })
        .count();
    ensure!(
        strangers == 0,
        "the rolled-back event was sent {strangers} times"
    );

    step(&format!("hooklane message show {sent}"));
    eprint!("{}", system.hooklane(&["message", "show", &sent]).await?);

    let counts = counts(&message, &receiver, verified);
    if keep {
        system.invite(&receiver, &sent)?;
        println!("{counts}");
        std::future::pending::<()>().await;
    }
    system.stop().await?;
    println!("{counts}");
    Ok(())
}

/// A business change and its outbox row in one transaction; answers the row's id.
fn order(id: &str, payload: &str, end: &str) -> String {
    format!(
        "BEGIN;
         INSERT INTO orders VALUES ('{id}', 'paid');
         INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, aggregate_type)
         VALUES ('acme', 'order.paid', '{payload}', 'Order')
         RETURNING id;
         {end};"
    )
}

fn counts(message: &Value, receiver: &Receiver, verified: usize) -> Value {
    let deliveries = message["deliveries"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let attempts: usize = deliveries
        .iter()
        .map(|delivery| delivery["tries"].as_array().map_or(0, Vec::len))
        .sum();
    json!({
        "committed": 1,
        "rolled_back": 1,
        "deliveries": deliveries.len(),
        "sent": deliveries.iter().filter(|d| d["status"] == "sent").count(),
        "attempts": attempts,
        "requests": receiver.counts().arrived,
        "signatures_verified": verified,
    })
}

fn step(text: &str) {
    eprintln!("\n── {text}");
}

fn say(text: &str) {
    eprintln!("   {text}");
}
