//! Messages on `INTAKE` that can't be read.

use hooklane_nats::inspect;
use hooklane_proto::subject::{INTAKE, INTAKE_DURABLE};
use hooklane_store::accept::Reason;
use hooklane_store::rejected::Filter;
use hooklane_testkit::wait;

use crate::bench::{BUDGET, Bench, intake_only};
use crate::broker::{publish_odd, unreadable};

const SUBJECT: &str = "intake.acme.invoice.paid";

async fn settled(bench: &Bench) {
    wait::until("INTAKE has nothing left", BUDGET, async || {
        let left = inspect::unsettled(&bench.client, INTAKE, INTAKE_DURABLE, u64::MAX).await;
        let state = inspect::stream_state(&bench.client, INTAKE).await;
        matches!(left, Ok(false)) && state.is_ok_and(|state| state.messages == 0)
    })
    .await
    .unwrap();
}

async fn rejected(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let filter = Filter {
        reason: Some(Reason::Unreadable),
        ..Filter::default()
    };
    let store = &bench.ledger.store;
    let mut found = Vec::new();
    for rejected in store.rejected(&filter, 0, 100).await.unwrap() {
        assert_eq!(
            (rejected.source.as_str(), rejected.consumer.as_deref()),
            ("intake", Some("acme"))
        );
        let payload = store.rejected_payload(rejected.id).await.unwrap();
        found.push((rejected.detail, payload.unwrap().to_vec()));
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_messages_are_set_aside_and_the_others_accepted() {
    let bench = Bench::new().await;
    let all = unreadable(SUBJECT);
    // These wait for the relay; a later one comes to a relay at work.
    for odd in &all {
        bench.intake(SUBJECT, &[], b"good").await;
        publish_odd(bench.nats.url(), odd, "bad").await.unwrap();
    }
    let relay = bench.relay(intake_only());
    let accepted = "SELECT count(*) FROM hooklane.messages";
    bench.until_sql(accepted, &all.len().to_string()).await;
    settled(&bench).await;
    let seen = rejected(&bench).await;
    assert_eq!(seen.len(), all.len(), "{seen:?}");
    assert!(seen.iter().all(|(_, payload)| payload == b"bad"));
    assert_eq!(relay.handle.counted().set_aside, all.len() as u64);

    publish_odd(bench.nats.url(), &all[0], "worse")
        .await
        .unwrap();
    // The cut may hit this one on its way, and then it is published once more.
    let once = [("Nats-Msg-Id", "later")];
    bench.intake(SUBJECT, &once, b"good").await;
    bench
        .until_sql(accepted, &(all.len() + 1).to_string())
        .await;
    settled(&bench).await;
    assert_eq!(rejected(&bench).await.len(), all.len() + 1);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_message_can_be_requeued_with_its_payload() {
    let bench = Bench::new().await;
    let odd = unreadable(SUBJECT).swap_remove(0);
    publish_odd(bench.nats.url(), &odd, "bad").await.unwrap();
    let relay = bench.relay(intake_only());
    let aside = "SELECT count(*) FROM hooklane.rejected_events";
    bench.until_sql(aside, "1").await;
    let requeued = bench.ledger.store.requeue(&Filter::default()).await;
    assert_eq!(requeued.unwrap().requeued, 1);
    assert_eq!(bench.events("acme").payloads(1).await, ["bad"]);
    bench.until_sql(aside, "0").await;
    relay.stop().await;
}
