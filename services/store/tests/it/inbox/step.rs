//! What a step decides, and that it does so whole or not at all.

use std::time::Duration;

use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{Filter, Incoming, Mode, Reason, Status, StepLimits};

use super::{Shop, incoming, order, shop};
use crate::ledger::{Ledger, at};

#[tokio::test]
async fn what_comes_too_early_is_applied_right_after_what_it_waited_for() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.received(1, order("2", "order.shipped", "A")).await;
    let first = ledger.stepped(2, &shop).await;
    assert_eq!((first.applied, first.deferred), (1, 1));
    assert_eq!(ledger.inbox().await, "1:PROCESSED:1 2:DEFERRED");
    assert_eq!(ledger.why("2").await, "missing: order.paid (to `paid`)");
    assert_eq!(ledger.state("A").await, "created:1:1");
    // Nothing to do until it comes.
    assert_eq!(ledger.stepped(2, &shop).await.claimed, 0);
    ledger.received(2, order("3", "order.paid", "A")).await;
    let second = ledger.stepped(2, &shop).await;
    assert_eq!((second.applied, second.woken, second.handed), (1, 1, 1));
    assert!(second.more());
    let third = ledger.stepped(2, &shop).await;
    assert_eq!((third.applied, third.deferred, third.more()), (1, 0, false));
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:3 3:PROCESSED:2"
    );
    assert_eq!(ledger.state("A").await, "shipped:3:0");
    let order: Vec<String> = ledger
        .published()
        .await
        .into_iter()
        .map(|one| one.1)
        .collect();
    assert_eq!(order, ["1", "3", "2"]);
    let shown = ledger
        .store
        .inbox_event(ledger.id_of("2").await)
        .await
        .unwrap();
    let trail: Vec<_> = shown
        .trail
        .iter()
        .map(|one| {
            (
                one.action.as_str(),
                one.from.as_deref(),
                one.to.as_deref(),
                one.sequence,
            )
        })
        .collect();
    let applied = ("applied", Some("paid"), Some("shipped"), Some(3));
    assert_eq!(trail, [("deferred", Some("created"), None, None), applied]);
    assert!(shown.trail[1].machine.is_some());
}

#[tokio::test]
async fn what_arrives_together_is_applied_together() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    let types = ["closed", "delivered", "shipped", "paid", "created"];
    for name in types {
        ledger
            .received(0, order(name, &format!("order.{name}"), "A"))
            .await;
    }
    let stepped = ledger.stepped(1, &shop).await;
    assert_eq!(
        (stepped.applied, stepped.deferred, stepped.woken),
        (5, 0, 0)
    );
    assert_eq!(ledger.state("A").await, "closed:5:0");
    let order: Vec<String> = ledger
        .published()
        .await
        .into_iter()
        .map(|one| one.1)
        .collect();
    assert_eq!(order, ["created", "paid", "shipped", "delivered", "closed"]);
}

#[tokio::test]
async fn a_deferral_ends_in_quarantine_and_names_what_is_missing() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.shipped", "A")).await;
    ledger.stepped(0, &shop).await;
    // Looked at after 1, 2, 4, … seconds, and every five minutes from then on.
    let mut now = at(0);
    let mut pauses = Vec::new();
    let id = ledger.id_of("1").await;
    let day = 24 * 60 * 60;
    loop {
        let row = ledger.store.inbox_event(id).await.unwrap().row;
        let Some(next) = row.next_at else { break };
        assert_eq!(row.deadline_at, Some(at(day)));
        pauses.push((next - now).num_seconds());
        now = next;
        ledger.step_at(now, &shop).await;
    }
    assert_eq!(pauses[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(now, at(day));
    assert_eq!(
        ledger.why("1").await,
        "deferral_expired: still missing: order.created (to `created`), then order.paid (to `paid`)"
    );
    assert_eq!(ledger.inbox().await, "1:QUARANTINED");
    assert_eq!(
        ledger
            .sql("SELECT deferred FROM hooklane.inbox_entities")
            .await,
        "0"
    );
    let told = "SELECT payload->'data'->>'reason', payload->'data'->>'event', consumer_id
                  FROM hooklane.operational_events WHERE event_type = 'hooklane.inbox.quarantined'";
    assert_eq!(
        ledger.sql(told).await,
        format!("deferral_expired|{id}|hooklane")
    );
}

#[tokio::test]
async fn late_and_impossible_events_have_no_effect() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    for (id, name) in [("1", "created"), ("2", "paid"), ("3", "refunded")] {
        ledger
            .received(0, order(id, &format!("order.{name}"), "A"))
            .await;
    }
    ledger.received(1, order("4", "order.paid", "A")).await;
    ledger.received(1, order("5", "order.closed", "A")).await;
    let stepped = ledger.stepped(2, &shop).await;
    assert_eq!((stepped.applied, stepped.superseded), (3, 1));
    let impossible = [(super::shop(), Reason::ImpossibleTransition)];
    assert_eq!(stepped.quarantined, impossible);
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PROCESSED:3 4:SUPERSEDED 5:QUARANTINED"
    );
    assert_eq!(ledger.published().await.len(), 3);
    let why = ledger.why("5").await;
    assert!(
        why.starts_with("impossible_transition: no way leads from `refunded`"),
        "{why}"
    );
    assert_eq!(ledger.state("A").await, "refunded:3:0");
}

#[tokio::test]
async fn too_many_that_wait_for_one_entity_are_quarantined() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    for n in 0..7 {
        ledger
            .received(n, order(&n.to_string(), "order.shipped", "A"))
            .await;
    }
    let stepped = ledger.stepped(10, &shop).await;
    assert_eq!((stepped.deferred, stepped.quarantined.len()), (5, 2));
    assert_eq!(
        ledger.why("6").await,
        "too_many_deferred: 5 events wait already"
    );
    assert_eq!(ledger.state("A").await, "0:5");
}

#[tokio::test]
async fn unreadable_bodies_are_quarantined_at_once() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, incoming("a", "no json")).await;
    ledger.received(0, incoming("b", "[1]")).await;
    ledger.received(0, order("c", "order.created", "A")).await;
    let stepped = ledger.stepped(1, &shop).await;
    assert_eq!((stepped.applied, stepped.quarantined.len()), (1, 2));
    assert_eq!(ledger.why("a").await, "unparseable: it is no JSON");
    let filter = Filter {
        status: Some(Status::Quarantined),
        reason: Some(Reason::Unparseable),
        ..Filter::default()
    };
    let page = ledger.store.inbox_events(&filter, None, 10).await.unwrap();
    assert_eq!(page.items.len(), 2);
}

#[tokio::test]
async fn a_reading_that_panics_three_times_is_poison_and_blocks_nobody() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, incoming("a", r#"{"panic":true}"#)).await;
    ledger.received(1, order("b", "order.created", "A")).await;
    let stepped = ledger.stepped(1, &shop).await;
    assert_eq!((stepped.panicked, stepped.applied), (1, 1));
    for seconds in [10, 20] {
        assert_eq!(ledger.stepped(seconds, &shop).await.panicked, 1);
    }
    assert_eq!(ledger.inbox().await, "a:QUARANTINED b:PROCESSED:1");
    assert_eq!(ledger.why("a").await, "poison: reading it fails each time");
}

#[tokio::test]
async fn what_the_database_refuses_of_one_event_harms_no_other() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    let items = r#"{"items":[{"id":"LONG"}]}"#;
    let items = items.replace("LONG", &"x".repeat(101));
    ledger.received(0, incoming("a", &items)).await;
    ledger.received(0, order("b", "order.created", "A")).await;
    let stepped = ledger.stepped(1, &shop).await;
    assert_eq!((stepped.applied, stepped.panicked), (1, 1));
    for seconds in [10, 20] {
        ledger.stepped(seconds, &shop).await;
    }
    assert_eq!(ledger.inbox().await, "a:QUARANTINED b:PROCESSED:1");
    let why = ledger.why("a").await;
    assert!(why.starts_with("poison: the ledger refuses"), "{why}");
}

#[tokio::test]
async fn a_deferred_event_that_turns_out_to_be_poison_waits_no_more() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.received(0, order("2", "order.shipped", "A")).await;
    ledger.settled(0, &shop).await;
    assert_eq!(ledger.state("A").await, "created:1:1");
    ledger
        .sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'data_exception'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON hooklane.inbox_trail FOR EACH ROW
                 WHEN (NEW.to_state = 'shipped') EXECUTE FUNCTION refuse()",
        )
        .await;
    ledger.received(1, order("3", "order.paid", "A")).await;
    ledger.received(1, order("4", "order.created", "B")).await;
    for seconds in [1, 10, 20, 30] {
        ledger.settled(seconds, &shop).await;
    }
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:QUARANTINED 3:PROCESSED:2 4:PROCESSED:1"
    );
    assert_eq!(ledger.state("A").await, "paid:2:0");
    assert_eq!(ledger.state("B").await, "created:1:0");
}

#[tokio::test]
async fn a_batch_becomes_an_event_for_each_item() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("i1", "order.created", "A")).await;
    let batch = r#"{"items":[
        {"id":"i1","type":"order.created","key":"A"},
        {"id":"i2","type":"order.created","key":"B"},
        {"id":"i2","type":"order.created","key":"B"},
        {"id":"i3","bad":true},
        {"id":"i4","items":[]}]}"#;
    ledger.received(1, incoming("batch", batch)).await;
    let stepped = ledger.stepped(1, &shop).await;
    assert_eq!((stepped.split, stepped.items, stepped.more()), (1, 5, true));
    ledger.settled(1, &shop).await;
    assert_eq!(
        ledger.inbox().await,
        "batch:PROCESSED i1:PROCESSED:1 i2:PROCESSED:1 i3:QUARANTINED i4:QUARANTINED"
    );
    let parent = ledger
        .store
        .inbox_event(ledger.id_of("batch").await)
        .await
        .unwrap();
    assert_eq!(parent.items.len(), 3);
    assert_eq!(
        parent.trail[0].detail.as_deref(),
        Some("5 items, 3 of them new")
    );
    // The same item with another body is a conflict with the first.
    let first = ledger
        .store
        .inbox_event(ledger.id_of("i1").await)
        .await
        .unwrap();
    assert_eq!(first.conflicts.len(), 1);
    let item = ledger
        .store
        .inbox_event(ledger.id_of("i2").await)
        .await
        .unwrap();
    assert_eq!(item.row.parent, Some(parent.row.id));
    assert_eq!(item.headers, parent.headers);
    assert_eq!(ledger.published().await.len(), 2);
}

#[tokio::test]
async fn a_step_that_is_cut_off_leaves_everything_as_it_was() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.created", "A")).await;
    ledger.received(0, order("2", "order.paid", "A")).await;
    // The trail can't be written, so the step waits there with everything else done.
    let mut busy = ledger.connect().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE hooklane.inbox_trail IN ACCESS EXCLUSIVE MODE")
        .execute(&mut busy)
        .await
        .unwrap();
    let limits = StepLimits::default();
    let mut step = Box::pin(ledger.store.inbox_step(at(1), &limits, &shop));
    let waits = "SELECT count(*) FROM pg_locks
                  WHERE relation = 'hooklane.inbox_trail'::regclass AND NOT granted";
    let mut tries = 0;
    while ledger.sql(waits).await == "0" {
        tries += 1;
        assert!(tries < 200, "the step does not get there");
        let _ = tokio::time::timeout(Duration::from_millis(20), &mut step).await;
    }
    drop(step);
    sqlx::raw_sql("COMMIT").execute(&mut busy).await.unwrap();
    assert_eq!(ledger.inbox().await, "1:PENDING 2:PENDING");
    assert_eq!(ledger.published().await.len(), 0);
    ledger.settled(2, &shop).await;
    assert_eq!(ledger.inbox().await, "1:PROCESSED:1 2:PROCESSED:2");
}

/// Every order of five things.
fn permutations() -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..5 {
        let longer = |before: Vec<usize>| {
            let left: Vec<usize> = (0..5).filter(|n| !before.contains(n)).collect();
            let with = move |n| [before.as_slice(), &[n]].concat();
            left.into_iter().map(with)
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

#[tokio::test]
async fn every_order_of_arrival_with_repetitions_and_cut_off_steps_ends_in_the_same_state() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    let types = ["created", "paid", "shipped", "delivered", "closed"];
    let all = permutations();
    assert_eq!(all.len(), 120);
    let limits = StepLimits {
        events: 40,
        ..StepLimits::default()
    };
    let mut patience = 0;
    for round in 0..5 {
        let arrive = |(key, permutation): (usize, &Vec<usize>)| {
            // What came in the round before comes again.
            let events = permutation[round.max(1) - 1..=round].to_vec();
            events.into_iter().map(move |n| {
                let event_type = format!("order.{}", types[n]);
                order(&format!("{key}-{n}"), &event_type, &key.to_string())
            })
        };
        let items: Vec<_> = all.iter().enumerate().flat_map(arrive).collect();
        ledger.store.inbox_receive(at(0), &items).await.unwrap();
        for _ in 0..12 {
            // Some end in time, others are dropped in the middle.
            patience = (patience + 7) % 40;
            let step = ledger.store.inbox_step(at(0), &limits, &shop);
            let _ = tokio::time::timeout(Duration::from_millis(patience), step).await;
        }
    }
    ledger.settled(0, &shop).await;
    let entities = "SELECT string_agg(DISTINCT concat_ws(':', state, sequence, deferred), ' ')
                      FROM hooklane.inbox_entities";
    assert_eq!(ledger.sql(entities).await, "closed:5:0");
    assert_eq!(
        ledger.sql(PUBLISHED).await,
        "order.created1,order.paid2,order.shipped3,order.delivered4,order.closed5"
    );
    let rows = "SELECT count(*), count(DISTINCT event_id) FROM hooklane.inbox_handoffs";
    assert_eq!(ledger.sql(rows).await, "600|600");
}

/// The orders in which entities' events are published.
const PUBLISHED: &str = "SELECT string_agg(DISTINCT s, ' ') FROM (
    SELECT string_agg(w.event_type || w.sequence, ',' ORDER BY h.position) s
      FROM hooklane.inbox_handoffs h JOIN hooklane.webhook_inbox w ON w.id = h.event_id
     GROUP BY w.entity_key) t";

#[tokio::test]
async fn many_workers_give_each_event_one_sequence_without_gaps() {
    let ledger = Ledger::new().await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(ledger.another_store().await);
    }
    let types = ["closed", "paid", "delivered", "created", "shipped"];
    let mut items = Vec::new();
    for name in types {
        for key in 0..12 {
            items.push(order(
                &format!("{key}-{name}"),
                &format!("order.{name}"),
                &key.to_string(),
            ));
        }
    }
    let shop = Shop::new(Mode::Stream);
    let limits = StepLimits {
        events: 3,
        ..StepLimits::default()
    };
    for chunk in items.chunks(10) {
        ledger.store.inbox_receive(at(0), chunk).await.unwrap();
    }
    // At one time: nobody waits for a timer.
    let work = |store: hooklane_store::Store| {
        let (shop, limits) = (&shop, &limits);
        async move {
            let mut idle = 0;
            while idle < 3 {
                match store.inbox_step(at(1), limits, shop).await {
                    Ok(stepped) if stepped.claimed == 0 => idle += 1,
                    Ok(_) => idle = 0,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        }
    };
    futures::future::join_all(stores.into_iter().map(work)).await;
    ledger.settled(1, &shop).await;
    let entities = "SELECT string_agg(DISTINCT concat_ws(':', state, sequence, deferred), ' ')
                      FROM hooklane.inbox_entities";
    assert_eq!(ledger.sql(entities).await, "closed:5:0");
    assert_eq!(
        ledger.sql(PUBLISHED).await,
        "order.created1,order.paid2,order.shipped3,order.delivered4,order.closed5"
    );
}

#[tokio::test]
async fn a_step_takes_no_more_bytes_than_it_may_but_always_one_event() {
    let ledger = Ledger::new().await;
    let shop = Shop::without_machine(Mode::Stream);
    let pad = "x".repeat(1000);
    for n in 0..3 {
        let body = format!(r#"{{"type":"a","pad":"{pad}"}}"#);
        ledger.received(n, incoming(&n.to_string(), &body)).await;
    }
    let limits = StepLimits {
        events: 10,
        bytes: 500,
    };
    for _ in 0..3 {
        let stepped = ledger
            .store
            .inbox_step(at(9), &limits, &shop)
            .await
            .unwrap();
        assert_eq!(stepped.claimed, 1);
    }
    assert_eq!(ledger.inbox().await, "0:PROCESSED 1:PROCESSED 2:PROCESSED");
}

#[tokio::test]
async fn events_of_a_source_that_is_not_configured_here_are_left_alone() {
    let ledger = Ledger::new().await;
    let reader = Shop::new(Mode::Stream);
    reader.modes.lock().unwrap().clear();
    ledger.received(0, order("1", "order.created", "A")).await;
    let stepped = ledger.stepped(0, &reader).await;
    assert_eq!(
        (stepped.claimed, stepped.unknown, stepped.more()),
        (0, 1, false)
    );
    reader.modes.lock().unwrap().insert(shop(), Mode::Stream);
    let stepped = ledger.stepped(0, &reader).await;
    assert_eq!((stepped.unknown, stepped.applied), (0, 1));
    let counts = ledger.store.inbox_counts().await.unwrap();
    assert_eq!((counts.by_status.len(), counts.publications), (0, 1));
}

#[tokio::test]
async fn a_partner_with_many_events_does_not_keep_the_others_waiting() {
    let ledger = Ledger::new().await;
    let reader = Shop::without_machine(Mode::Stream);
    let (bank, gone) = (Partner::new("bank").unwrap(), Partner::new("gone").unwrap());
    reader
        .modes
        .lock()
        .unwrap()
        .insert(bank.clone(), Mode::Stream);
    let mut items = Vec::new();
    for n in 0..40 {
        let event = order(&n.to_string(), "a", "A");
        items.push(event.clone());
        items.push(Incoming {
            id: InboxId::generate(),
            partner: gone.clone(),
            ..event
        });
    }
    ledger.store.inbox_receive(at(0), &items).await.unwrap();
    let late = Incoming {
        partner: bank,
        ..order("late", "a", "A")
    };
    ledger.received(5, late).await;
    let limits = StepLimits {
        events: 10,
        ..StepLimits::default()
    };
    let step = async || {
        let stepped = ledger.store.inbox_step(at(5), &limits, &reader).await;
        stepped.unwrap()
    };
    let first = step().await;
    assert_eq!((first.applied, first.unknown, first.more()), (6, 1, true));
    let done = "SELECT status FROM hooklane.webhook_inbox WHERE partner_event_id = 'late'";
    assert_eq!(ledger.sql(done).await, "PROCESSED");
    assert_eq!(step().await.applied, 10);
    while step().await.more() {}
    assert_eq!(ledger.published().await.len(), 41);
}

#[tokio::test]
async fn what_somebody_has_locked_and_lets_go_of_is_woken_all_the_same() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    ledger.received(0, order("1", "order.paid", "A")).await;
    ledger.stepped(0, &shop).await;
    // Like a worker that saw it due and, once it has the lock, not any more.
    let mut worker = ledger.connect().await;
    let lock = "BEGIN; SELECT FROM hooklane.webhook_inbox WHERE status = 'DEFERRED' FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut worker).await.unwrap();
    ledger.received(0, order("2", "order.created", "A")).await;
    let lets_go = async {
        let mut tries = 0;
        while ledger.state("A").await != "created:1:1" {
            tries += 1;
            assert!(tries < 2000, "the entity is not moved");
        }
        sqlx::raw_sql("COMMIT").execute(&mut worker).await.unwrap();
    };
    let (stepped, ()) = futures::future::join(ledger.stepped(0, &shop), lets_go).await;
    assert_eq!((stepped.applied, stepped.woken), (1, 1));
    assert_eq!(ledger.stepped(0, &shop).await.applied, 1);
    assert_eq!(ledger.state("A").await, "paid:2:0");
}

#[tokio::test]
async fn what_waits_and_is_due_already_is_not_written_anew() {
    let ledger = Ledger::new().await;
    let shop = Shop::new(Mode::Stream);
    for n in ["closed", "delivered", "shipped"] {
        ledger
            .received(0, order(n, &format!("order.{n}"), "A"))
            .await;
    }
    ledger.stepped(0, &shop).await;
    let one = StepLimits {
        events: 1,
        ..StepLimits::default()
    };
    let step = async || {
        let stepped = ledger.store.inbox_step(at(1), &one, &shop).await;
        stepped.unwrap()
    };
    // All of them are due again, and others of the entity before them.
    let before = "SELECT sum(xmin::text::bigint) FROM hooklane.webhook_inbox
                   WHERE status = 'DEFERRED'";
    let unmoved = ledger.sql(before).await;
    for name in ["created", "paid"] {
        ledger
            .received(0, order(name, &format!("order.{name}"), "A"))
            .await;
        let stepped = step().await;
        assert_eq!(
            (stepped.applied, stepped.woken, stepped.more()),
            (1, 0, true)
        );
    }
    assert_eq!(ledger.sql(before).await, unmoved);
    while step().await.more() {}
    assert_eq!(ledger.state("A").await, "closed:5:0");
}

#[tokio::test]
async fn without_a_machine_events_apply_as_they_come_and_are_numbered() {
    let ledger = Ledger::new().await;
    let reader = Shop::without_machine(Mode::Stream);
    let long = "k".repeat(5000);
    ledger.received(0, order("1", "b", &long)).await;
    ledger.received(1, order("2", "a", &long)).await;
    ledger.received(2, incoming("3", r#"{"type":"c"}"#)).await;
    ledger.settled(3, &reader).await;
    assert_eq!(
        ledger.inbox().await,
        "1:PROCESSED:1 2:PROCESSED:2 3:PROCESSED"
    );
    let partner: Partner = shop();
    let entity = ledger
        .store
        .inbox_entity(&partner, "order", &long)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((entity.state, entity.sequence), (None, 2));
}
