//! Events that the adopter's code is asked to handle.

use std::time::Duration;

use hooklane_store::Store;
use hooklane_store::inbox::{Answer, HandOff, Mode, Reason, Settled, Settlement};

use super::{Shop, incoming, order, shop};
use crate::ledger::{Ledger, at};

const LEASE: Duration = Duration::from_secs(30);

async fn take(store: &Store, seconds: i64) -> Vec<HandOff> {
    let (limit, bytes) = (100, 1 << 20);
    store
        .inbox_take(at(seconds), &[shop()], limit, bytes, LEASE)
        .await
        .unwrap()
}

fn names(taken: &[HandOff]) -> Vec<&str> {
    taken
        .iter()
        .map(|one| one.partner_event_id.as_str())
        .collect()
}

async fn answer(ledger: &Ledger, seconds: i64, to: &HandOff, answer: Answer) -> Settlement {
    let settled = Settled {
        id: to.id,
        attempt: to.attempt,
        answer,
    };
    ledger
        .store
        .inbox_settle(at(seconds), &[settled])
        .await
        .unwrap()
}

/// Three events of one order and one of another, decided.
async fn decided() -> (Ledger, Shop) {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Request);
    for (id, name, key) in [
        ("1", "created", "A"),
        ("2", "paid", "A"),
        ("3", "shipped", "A"),
        ("4", "created", "B"),
    ] {
        ledger
            .received(0, order(id, &format!("order.{name}"), key))
            .await;
    }
    ledger.settled(0, &reader).await;
    (ledger, reader)
}

#[tokio::test]
async fn events_of_one_entity_are_handed_out_one_at_a_time_and_in_order() {
    let (ledger, _) = decided().await;
    assert_eq!(
        ledger.inbox().await,
        "1:PENDING:1 2:PENDING:2 3:PENDING:3 4:PENDING:1"
    );
    let first = take(&ledger.store, 1).await;
    assert_eq!(names(&first), ["1", "4"]);
    assert!(take(&ledger.store, 1).await.is_empty());
    let settlement = answer(&ledger, 2, &first[0], Answer::Processed).await;
    assert_eq!(settlement.processed, 1);
    let second = take(&ledger.store, 2).await;
    assert_eq!(names(&second), ["2"]);
    answer(&ledger, 3, &second[0], Answer::Processed).await;
    assert_eq!(names(&take(&ledger.store, 3).await), ["3"]);
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PENDING:3 4:PENDING:1"
    );
}

#[tokio::test]
async fn many_takers_never_have_two_events_of_one_entity() {
    let (ledger, _) = decided().await;
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(ledger.another_store().await);
    }
    let taken = futures::future::join_all(stores.iter().map(|store| take(store, 1))).await;
    let mut names: Vec<String> = taken
        .into_iter()
        .flatten()
        .map(|one| one.partner_event_id)
        .collect();
    names.sort();
    assert_eq!(names, ["1", "4"]);
}

#[tokio::test]
async fn an_event_without_an_answer_is_handed_out_again_and_the_old_answer_ignored() {
    let (ledger, _) = decided().await;
    let first = take(&ledger.store, 0).await;
    assert_eq!(names(&take(&ledger.store, 29).await), Vec::<&str>::new());
    let again = take(&ledger.store, 30).await;
    assert_eq!(names(&again), ["1", "4"]);
    assert_eq!((first[0].attempt, again[0].attempt), (1, 2));
    let late = answer(&ledger, 31, &first[0], Answer::Failed("late".to_owned())).await;
    assert_eq!((late.stale, late.again), (1, 0));
    let shown = ledger.store.inbox_event(first[0].id).await.unwrap();
    assert_eq!(shown.row.failures, 0);
    assert_eq!(
        answer(&ledger, 31, &again[0], Answer::Processed)
            .await
            .processed,
        1
    );
    assert_eq!(
        answer(&ledger, 31, &again[0], Answer::Processed)
            .await
            .stale,
        1
    );
}

#[tokio::test]
async fn a_failure_comes_again_after_1_5_and_15_minutes_and_blocks_nobody() {
    let (ledger, _) = decided().await;
    let failed = || Answer::Failed("boom".to_owned());
    let first = take(&ledger.store, 0).await;
    assert_eq!(answer(&ledger, 0, &first[0], failed()).await.again, 1);
    answer(&ledger, 0, &first[1], Answer::Processed).await;
    // Those behind it go on.
    for expected in ["2", "3"] {
        let next = take(&ledger.store, 1).await;
        assert_eq!(names(&next), [expected]);
        answer(&ledger, 1, &next[0], Answer::Processed).await;
    }
    let mut now = 0;
    for minutes in [1, 5, 15] {
        assert!(take(&ledger.store, now + minutes * 60 - 1).await.is_empty());
        now += minutes * 60;
        let again = take(&ledger.store, now).await;
        assert_eq!(names(&again), ["1"]);
        let settlement = answer(&ledger, now, &again[0], failed()).await;
        let last = minutes == 15;
        assert_eq!(settlement.again, u32::from(!last));
        assert_eq!(settlement.quarantined.len(), usize::from(last));
    }
    assert_eq!(ledger.why("1").await, "handler_failed: boom");
    let id = ledger.id_of("1").await;
    ledger.store.inbox_replay(at(now), &[id]).await.unwrap();
    let replayed = take(&ledger.store, now).await;
    assert_eq!((names(&replayed), replayed[0].attempt), (vec!["1"], 5));
    answer(&ledger, now, &replayed[0], Answer::Processed).await;
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PROCESSED:3 4:PROCESSED:1"
    );
    let told = "SELECT count(*) FROM hooklane.operational_events
                 WHERE event_type = 'hooklane.inbox.quarantined'";
    assert_eq!(ledger.sql(told).await, "1");
}

#[tokio::test]
async fn an_event_that_is_put_off_is_due_again_when_another_of_its_entity_is_done() {
    let (ledger, _) = decided().await;
    let later = || Answer::Deferred("the customer is not there yet".to_owned());
    let first = take(&ledger.store, 0).await;
    assert_eq!(answer(&ledger, 0, &first[0], later()).await.deferred, 1);
    assert_eq!(ledger.inbox().await.split(' ').next(), Some("1:PENDING:1"));
    let second = take(&ledger.store, 0).await;
    assert_eq!(names(&second), ["2"]);
    let settlement = answer(&ledger, 0, &second[0], Answer::Processed).await;
    assert_eq!((settlement.processed, settlement.woken), (1, 1));
    let again = take(&ledger.store, 0).await;
    assert_eq!(names(&again), ["1"]);
    // Without anything happening it comes again by itself, and not for ever.
    answer(&ledger, 0, &again[0], later()).await;
    assert_eq!(names(&take(&ledger.store, 0).await), ["3"]);
    let day = 24 * 60 * 60;
    let late = take(&ledger.store, day).await;
    let late: Vec<_> = late
        .iter()
        .filter(|one| one.partner_event_id == "1")
        .collect();
    let settlement = answer(&ledger, day, late[0], later()).await;
    assert_eq!(settlement.quarantined, [(shop(), Reason::DeferralExpired)]);
}

#[tokio::test]
async fn events_without_an_entity_wait_for_nobody() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Request);
    for id in ["1", "2", "3"] {
        ledger.received(0, incoming(id, r#"{"type":"ping"}"#)).await;
    }
    ledger.settled(0, &reader).await;
    assert_eq!(names(&take(&ledger.store, 0).await), ["1", "2", "3"]);
}

#[tokio::test]
async fn what_waits_goes_the_new_way_after_the_configuration_was_changed() {
    let (ledger, reader) = decided().await;
    let first = take(&ledger.store, 0).await;
    answer(&ledger, 0, &first[1], Answer::Failed("boom".to_owned())).await;
    reader.modes.lock().unwrap().insert(shop(), Mode::Stream);
    let stream = [(shop(), Mode::Stream)];
    let turned = ledger.store.inbox_align(at(1), &stream).await.unwrap();
    assert_eq!(turned, 4);
    // Whoever has it already is not heard any more, and what failed waits on.
    let done = answer(&ledger, 1, &first[0], Answer::Processed).await;
    assert_eq!((done.processed, done.stale), (0, 1));
    ledger.received(1, order("5", "order.delivered", "A")).await;
    assert_eq!(ledger.stepped(1, &reader).await.handed, 1);
    let published = ledger.published().await;
    let order: Vec<_> = published.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(order, ["1", "2", "3", "5"]);
    assert_eq!(ledger.stepped(60, &reader).await.handed, 1);
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PROCESSED:3 4:PROCESSED:1 5:PROCESSED:4"
    );
    assert_eq!(ledger.store.inbox_align(at(61), &stream).await.unwrap(), 0);
}

#[tokio::test]
async fn what_goes_to_the_stream_now_keeps_the_order_in_which_it_took_effect() {
    let ledger = Ledger::new().await;
    let mut reader = Shop::new(Mode::Request);
    for name in ["delivered", "shipped", "paid", "created"] {
        ledger
            .received(0, order(name, &format!("order.{name}"), "A"))
            .await;
    }
    ledger.settled(0, &reader).await;
    *reader.modes.get_mut().unwrap() = [(shop(), Mode::Stream)].into();
    let stream = [(shop(), Mode::Stream)];
    assert_eq!(ledger.store.inbox_align(at(1), &stream).await.unwrap(), 4);
    ledger.settled(1, &reader).await;
    let published = ledger.published().await;
    let order: Vec<_> = published.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(order, ["created", "paid", "shipped", "delivered"]);
}

#[tokio::test]
async fn what_is_in_quarantine_goes_the_new_way_after_a_replay() {
    let (ledger, reader) = decided().await;
    for minutes in [0, 1, 6, 21] {
        let taken = take(&ledger.store, minutes * 60).await;
        for one in taken.iter().filter(|one| one.partner_event_id == "4") {
            answer(
                &ledger,
                minutes * 60,
                one,
                Answer::Failed("boom".to_owned()),
            )
            .await;
        }
    }
    assert_eq!(ledger.why("4").await, "handler_failed: boom");
    reader.modes.lock().unwrap().insert(shop(), Mode::Stream);
    let stream = [(shop(), Mode::Stream)];
    ledger.store.inbox_align(at(9000), &stream).await.unwrap();
    let id = ledger.id_of("4").await;
    ledger.store.inbox_replay(at(9000), &[id]).await.unwrap();
    ledger.settled(9000, &reader).await;
    let published = ledger.published().await;
    assert!(
        published
            .iter()
            .any(|(_, event, attempt)| event == "4" && *attempt == 5)
    );
}
