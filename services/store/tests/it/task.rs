//! Tasks: what they find, what they make due, and that nothing is driven twice whatever happens.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hooklane_core::clock;
use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{EndpointId, MessageId, TaskId};
use hooklane_proto::record::{Drive, FailureReason, Record, SkipReason};
use hooklane_store::Store;
use hooklane_store::dead_letter::{Refusal, Series, Terms};
use hooklane_store::manage::Error;
use hooklane_store::task::{self, Counted, Listing, Refused, Span, Status, Stepped, Task, Work};
use hooklane_testkit::wait::until;

use crate::ledger::{Ledger, drive, failed, retry, sent, skipped};

const TERMS: Terms = Terms {
    deadline: Duration::from_secs(48 * 3600),
    retention_days: 35,
};
const BUDGET: Duration = Duration::from_secs(20);
const STATES: &str =
    "SELECT string_agg(status || ':' || series, ' ' ORDER BY endpoint_id, message_id)
                        FROM hooklane.deliveries";
const COUNTS: &str = "SELECT status || ':' || series || ':' || count(*) FROM hooklane.deliveries
                       GROUP BY status, series ORDER BY 1";

fn hour() -> Span {
    Span {
        since: clock::now() - TimeDelta::hours(1),
        until: None,
    }
}

fn missing(endpoint: EndpointId) -> Work {
    Work::ReplayMissing {
        endpoint,
        span: hour(),
    }
}

fn recover(endpoint: EndpointId) -> Work {
    Work::Recover {
        endpoint,
        span: hour(),
    }
}

impl Ledger {
    /// Deliveries that were skipped while their endpoint was paused, one after the other.
    async fn skipped(&self, numbers: std::ops::Range<u64>, endpoint: EndpointId) {
        let keys = self.deliveries(numbers, endpoint, clock::now()).await;
        self.skip(&keys).await;
    }

    /// Records that a lane skipped them.
    async fn skip(&self, keys: &[DeliveryKey]) {
        let records: Vec<Record> = keys
            .iter()
            .map(|key| skipped(drive(*key, 1), SkipReason::Paused))
            .collect();
        self.store.apply(&records).await.unwrap();
    }

    /// Deliveries that failed for good, the first the longest ago.
    async fn failed(
        &self,
        numbers: std::ops::Range<u64>,
        endpoint: EndpointId,
    ) -> Vec<DeliveryKey> {
        let keys = self.deliveries(numbers, endpoint, clock::now()).await;
        let records: Vec<Record> = keys
            .iter()
            .map(|key| failed(drive(*key, 1), number(*key), 1, FailureReason::Exhausted))
            .collect();
        self.store.apply(&records).await.unwrap();
        self.sql(
            "UPDATE hooklane.deliveries SET settled_at = clock_timestamp() - interval '1 minute'
              WHERE status = 'failed'",
        )
        .await;
        keys
    }

    /// Makes a task that waits for no lane to know of anything.
    async fn make(&self, work: Work) -> Task {
        let made = task::create(&self.store, work, TERMS).await.unwrap();
        self.sql(
            "UPDATE hooklane.tasks SET turn_at = least(turn_at, clock_timestamp()),
                                       until = least(until, clock_timestamp())",
        )
        .await;
        made
    }

    async fn step(&self, limit: u32) -> Option<Stepped> {
        self.store.step_task(TERMS, limit).await.unwrap()
    }

    /// Takes steps until no task is open.
    async fn finish(&self, limit: u32) -> Vec<Stepped> {
        let mut steps = Vec::new();
        while let Some(step) = self.step(limit).await {
            steps.push(step);
        }
        steps
    }

    async fn count(&self, work: Work) -> Counted {
        task::count(&self.store, &work, TERMS).await.unwrap()
    }

    async fn task(&self, id: TaskId) -> Task {
        task::show(&self.store, id).await.unwrap()
    }
}

/// The number that a delivery's message was made from.
fn number(key: DeliveryKey) -> u64 {
    let (_, low) = key.message.uuid().as_u64_pair();
    low & 0xffff_ffff
}

fn refused(counts: &[(Refusal, u64)]) -> Refused {
    counts.iter().copied().collect()
}

#[tokio::test]
async fn what_was_missed_is_made_due_page_by_page() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let other = ledger.endpoint(2).await;
    ledger.skipped(1..26, endpoint).await;
    ledger.skipped(30..33, other).await;
    let would = ledger.count(missing(endpoint)).await;
    assert_eq!((would.found, would.due), (25, 25));
    let made = ledger.make(missing(endpoint)).await;
    assert_eq!((made.status, made.total), (Status::Waiting, None));
    assert_eq!(ledger.sql(COUNTS).await, "skipped:1:28");

    let steps = ledger.finish(10).await;
    let seen: Vec<(u64, u64, Status)> = steps
        .iter()
        .map(|step| (step.due, step.task.found, step.task.status))
        .collect();
    let running = Status::Running;
    assert_eq!(
        seen,
        [
            (0, 0, running),
            (10, 10, running),
            (10, 20, running),
            (5, 25, Status::Done)
        ]
    );
    let done = ledger.task(made.id).await;
    assert_eq!((done.total, done.found, done.due), (Some(25), 25, 25));
    assert!(done.started_at >= Some(made.created_at) && done.ended_at >= done.started_at);
    assert_eq!(steps[3].task, done);
    assert_eq!(ledger.sql(COUNTS).await, "skipped:1:3\nstalled:2:25");
    let due =
        "SELECT count(*) FROM hooklane.deliveries d JOIN hooklane.backlogs b USING (endpoint_id)
                WHERE d.series = 2 AND d.counted = 0 AND d.next_attempt_at <= clock_timestamp()
                  AND d.failure_reason IS NULL AND b.due_at <= d.next_attempt_at
                  AND d.deadline > clock_timestamp() + '47 h' AND b.accepted_from <= d.accepted_at";
    assert_eq!(ledger.sql(due).await, "25");
}

#[tokio::test]
async fn a_step_that_is_killed_anywhere_is_taken_again_and_drives_nothing_twice() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..31, endpoint).await;
    let id = ledger.make(missing(endpoint)).await.id;
    ledger.step(10).await;
    ledger.step(10).await;
    let before = ledger.task(id).await;
    assert_eq!(before.due, 10);
    // The step has changed its deliveries when it comes to their backlog, which is held.
    let held = ledger
        .database
        .psql("BEGIN; SELECT FROM hooklane.backlogs FOR UPDATE; SELECT pg_sleep(120)");
    let sleeping = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let stepping = async {
        ledger.database.until(sleeping, "1", BUDGET).await.unwrap();
        ledger.store.step_task(TERMS, 10).await
    };
    let killing = async {
        ledger.database.until(waiting, "1", BUDGET).await.unwrap();
        let kill = |what: &str| {
            format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND {what}"
            )
        };
        ledger.sql(&kill("wait_event_type = 'Lock'")).await;
        ledger.sql(&kill("wait_event = 'PgSleep'")).await;
    };
    let (_killed, stepped, ()) = tokio::join!(held, stepping, killing);
    assert!(stepped.unwrap_err().is_transient());
    assert_eq!(ledger.sql(COUNTS).await, "skipped:1:20\nstalled:2:10");
    let after = ledger.task(id).await;
    assert_eq!((after.found, after.due), (10, 10));
    assert!(after.error.is_some(), "what happened is told");
    // It waits a second or two before it goes on.
    ledger
        .database
        .until(
            "SELECT count(*) FROM hooklane.tasks WHERE turn_at <= clock_timestamp()",
            "1",
            BUDGET,
        )
        .await
        .unwrap();
    ledger.finish(10).await;
    let done = ledger.task(id).await;
    assert_eq!((done.status, done.found, done.due), (Status::Done, 30, 30));
    assert_eq!(done.error, None);
    assert_eq!(ledger.sql(COUNTS).await, "stalled:2:30");
}

#[tokio::test]
async fn several_schedulers_at_once_take_other_tasks_and_drive_nothing_twice() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..101, endpoint).await;
    // Two about the same: what the one made due is under way for the other.
    let first = ledger.make(missing(endpoint)).await.id;
    let second = ledger.make(missing(endpoint)).await.id;
    let until_done = async |store: Store| {
        let done = async || {
            let tasks = task::list(&store, &Listing::default(), 9).await.unwrap();
            tasks.items.iter().all(|task| task.status == Status::Done)
        };
        while !done().await {
            match store.step_task(TERMS, 7).await {
                Ok(_) => {}
                // They wait for each other's rows; one of them may have to give way.
                Err(fault) => assert!(fault.is_transient(), "{fault}"),
            }
        }
    };
    let (one, two) = (ledger.another_store().await, ledger.another_store().await);
    tokio::join!(until_done(one), until_done(two));
    assert_eq!(ledger.sql(COUNTS).await, "stalled:2:100");
    let (first, second) = (ledger.task(first).await, ledger.task(second).await);
    assert_eq!(first.due + second.due, 100);

    // And one task is not taken by two.
    ledger.skipped(200..201, endpoint).await;
    ledger.make(missing(endpoint)).await;
    let held = ledger
        .database
        .psql("BEGIN; SELECT FROM hooklane.tasks FOR UPDATE; SELECT pg_sleep(120)");
    let looking = async {
        let sleeping = "SELECT count(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND wait_event = 'PgSleep'";
        ledger.database.until(sleeping, "1", BUDGET).await.unwrap();
        let stepped = ledger.step(10).await;
        ledger
            .sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event = 'PgSleep'",
            )
            .await;
        stepped
    };
    let (_ended, stepped) = tokio::join!(held, looking);
    assert_eq!(stepped, None);
    assert_eq!(ledger.finish(10).await.len(), 2);
}

#[tokio::test]
async fn recovering_takes_what_failed_in_time_once_and_leaves_what_was_discarded() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let other = ledger.endpoint(2).await;
    let keys = ledger.failed(1..7, endpoint).await;
    ledger.failed(20..22, other).await;
    ledger.skipped(30..31, endpoint).await;
    let series = |key| Series { key, series: 1 };
    ledger.store.discard(&[series(keys[0])]).await.unwrap();
    let filed = [(series(keys[2]), Some(7))];
    let at = clock::now();
    ledger.store.mark_dead_lettered(&filed, at).await.unwrap();
    // Failed before the time that is meant.
    ledger
        .sql(&format!(
            "UPDATE hooklane.deliveries SET settled_at = now() - interval '2 h' WHERE message_id = '{}'",
            keys[1].message.uuid()
        ))
        .await;
    assert_eq!(ledger.count(recover(endpoint)).await.due, 4);
    let id = ledger.make(recover(endpoint)).await.id;
    ledger.step(3).await;
    let first = ledger.step(3).await.unwrap();
    assert_eq!(first.due, 3);
    let gone: Vec<u64> = first.gone.iter().map(|(_, filed)| filed.sequence).collect();
    assert_eq!(gone, [7]);
    // What is due fails again at once, by a dispatcher's clock that is behind.
    ledger
        .sql(
            "UPDATE hooklane.deliveries SET status = 'failed', failure_reason = 'gone', drive = 2,
                    driven_at = clock_timestamp(), settled_at = clock_timestamp() - interval '10 s'
              WHERE series = 2",
        )
        .await;
    ledger.finish(3).await;
    let done = ledger.task(id).await;
    assert_eq!((done.total, done.found, done.due), (Some(4), 4, 4));
    assert_eq!(
        ledger.sql(STATES).await,
        "failed:1 failed:1 failed:2 failed:2 failed:2 stalled:2 skipped:1 failed:1 failed:1"
    );
}

#[tokio::test]
async fn a_message_goes_to_everybody_it_was_for_and_what_is_open_is_left() {
    let ledger = Ledger::new().await;
    let now = clock::now();
    let mut keys = Vec::new();
    for n in 1..=7 {
        let endpoint = ledger.endpoint(n).await;
        keys.push(ledger.delivery(1, endpoint, now).await);
    }
    let records = [
        sent(drive(keys[0], 1), 1, 1),
        failed(drive(keys[1], 1), 2, 1, FailureReason::Gone),
        skipped(drive(keys[2], 1), SkipReason::Paused),
        retry(drive(keys[4], 1), 5, 1, now + TimeDelta::hours(1)),
        sent(drive(keys[6], 1), 7, 1),
    ];
    ledger.store.apply(&records).await.unwrap();
    let endpoint = |n: usize| keys[n].endpoint;
    let message = keys[0].message;
    // The endpoint that answered 410 is disabled by that.
    ledger
        .sql(&format!(
            "UPDATE hooklane.endpoints SET state = 'active' WHERE id = '{}';
             UPDATE hooklane.endpoints SET state = 'deleted' WHERE id = '{}'",
            endpoint(1).uuid(),
            endpoint(6).uuid()
        ))
        .await;
    hooklane_store::delivery::cancel(&ledger.store, message, Some(endpoint(3)))
        .await
        .unwrap();
    // Another message's is nobody's business here, nor is an endpoint made later.
    ledger.skipped(2..3, endpoint(0)).await;
    ledger.endpoint(8).await;

    let work = Work::Replay { message };
    let would = ledger.count(work).await;
    let id = ledger.make(work).await.id;
    ledger.finish(2).await;
    let done = ledger.task(id).await;
    let open = refused(&[(Refusal::Open, 2), (Refusal::Deleted, 1)]);
    assert_eq!((done.total, done.found, done.due), (Some(7), 7, 4));
    assert_eq!(done.refused, open);
    assert_eq!((would.found, would.due, would.refused), (7, 4, open));
    assert_eq!(
        ledger.sql(STATES).await,
        "stalled:2 skipped:1 stalled:2 stalled:2 stalled:2 stalled:1 received:1 sent:1"
    );
    let unknown = Work::Replay {
        message: MessageId::for_test(99),
    };
    let fault = task::create(&ledger.store, unknown, TERMS).await;
    assert!(matches!(fault, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn one_delivery_is_attempted_at_once_or_in_a_new_series() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let now = clock::now();
    let keys = ledger.deliveries(1..5, endpoint, now).await;
    let later = now + TimeDelta::hours(5);
    let records = [
        retry(drive(keys[0], 1), 1, 3, later),
        sent(drive(keys[1], 1), 2, 1),
        retry(drive(keys[3], 1), 3, 1, later),
    ];
    ledger.store.apply(&records).await.unwrap();
    let work = |n: usize| Work::Retry {
        message: keys[n].message,
        endpoint,
    };
    for n in [0, 1] {
        let would = ledger.count(work(n)).await;
        assert_eq!((would.found, would.due), (1, 1));
        ledger.make(work(n)).await;
    }
    let steps = ledger.finish(10).await;
    assert_eq!(steps.iter().map(|step| step.due).sum::<u64>(), 2);
    assert_eq!(
        ledger.sql(STATES).await,
        "stalled:1 stalled:2 received:1 stalled:1"
    );
    // The schedule of the one that waited goes on where it was.
    let due = "SELECT string_agg(counted::text, ' ' ORDER BY message_id)
                 FROM hooklane.deliveries d JOIN hooklane.backlogs b USING (endpoint_id)
                WHERE status = 'stalled' AND next_attempt_at <= clock_timestamp()
                  AND b.due_at <= next_attempt_at";
    assert_eq!(ledger.sql(due).await, "3 0");

    let refused = async |n: usize| match task::create(&ledger.store, work(n), TERMS).await {
        Err(Error::Conflict(why)) => why,
        other => panic!("{other:?}"),
    };
    let why = refused(2).await;
    assert!(why.contains("under way"), "{why}");
    ledger
        .sql("UPDATE hooklane.endpoints SET state = 'disabled'")
        .await;
    for n in [1, 3] {
        let why = refused(n).await;
        let fix = format!("hooklane endpoint resume {endpoint}");
        assert!(why.contains(&fix), "{why}");
    }
    let unknown = Work::Retry {
        message: keys[0].message,
        endpoint: EndpointId::for_test(9),
    };
    let fault = task::create(&ledger.store, unknown, TERMS).await;
    assert!(matches!(fault, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn of_tasks_queued_together_the_second_drives_nothing_that_the_first_one_drove() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..3, endpoint, clock::now()).await;
    let records: Vec<Record> = keys
        .iter()
        .map(|key| sent(drive(*key, 1), number(*key), 1))
        .collect();
    ledger.store.apply(&records).await.unwrap();
    let replay = Work::Replay {
        message: keys[0].message,
    };
    let retry = Work::Retry {
        message: keys[1].message,
        endpoint,
    };
    for work in [replay, retry] {
        let first = ledger.make(work).await.id;
        let second = ledger.make(work).await.id;
        // Both begin, and the first one goes on.
        for _ in 0..3 {
            ledger.step(10).await;
        }
        ledger
            .sql(
                "UPDATE hooklane.deliveries SET status = 'sent', drive = 2,
                        driven_at = clock_timestamp(), settled_at = clock_timestamp()
                  WHERE series = 2",
            )
            .await;
        ledger.finish(10).await;
        let (first, second) = (ledger.task(first).await, ledger.task(second).await);
        assert_eq!((first.due, first.moved_on()), (1, Some(0)));
        assert_eq!((second.status, second.found), (Status::Done, 0));
        assert_eq!((second.moved_on(), second.was_refused()), (Some(1), false));
        // One that is made afterwards is another wish.
        let third = ledger.make(work).await.id;
        ledger.finish(10).await;
        assert_eq!(ledger.task(third).await.due, 1);
    }
    assert_eq!(ledger.sql(COUNTS).await, "stalled:3:2");
}

#[tokio::test]
async fn a_message_of_which_everything_would_be_refused_makes_no_task() {
    let ledger = Ledger::new().await;
    let now = clock::now();
    let mut keys = Vec::new();
    for n in 1..=2 {
        let endpoint = ledger.endpoint(n).await;
        keys.push(ledger.delivery(1, endpoint, now).await);
    }
    ledger.skip(&keys[1..]).await;
    ledger
        .sql(&format!(
            "UPDATE hooklane.endpoints SET state = 'paused' WHERE id = '{}'",
            keys[1].endpoint.uuid()
        ))
        .await;
    let work = Work::Replay {
        message: keys[0].message,
    };
    let why = match task::create(&ledger.store, work, TERMS).await {
        Err(Error::Conflict(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("under way") && why.contains("paused"), "{why}");
    ledger
        .sql("UPDATE hooklane.endpoints SET state = 'active'")
        .await;
    let id = ledger.make(work).await.id;
    ledger.finish(10).await;
    let done = ledger.task(id).await;
    assert_eq!((done.due, done.was_refused()), (1, false));
}

#[tokio::test]
async fn what_would_expire_is_refused_and_its_neighbours_are_not() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let old = clock::now() - TimeDelta::days(35);
    let keys = ledger.deliveries(1..4, endpoint, old).await;
    let records: Vec<Record> = keys
        .iter()
        .map(|key| skipped(drive(*key, 1), SkipReason::Disabled))
        .collect();
    ledger.store.apply(&records).await.unwrap();
    ledger.skipped(10..12, endpoint).await;
    let would = ledger.count(missing(endpoint)).await;
    let expire = refused(&[(Refusal::Expires, 3)]);
    assert_eq!((would.due, &would.refused), (2, &expire));
    let id = ledger.make(missing(endpoint)).await.id;
    let steps = ledger.finish(2).await;
    assert_eq!(steps.iter().map(|step| step.refused).sum::<u64>(), 3);
    let done = ledger.task(id).await;
    assert_eq!((done.found, done.due, done.refused), (5, 2, expire));
    assert_eq!(ledger.sql(COUNTS).await, "skipped:1:3\nstalled:2:2");
}

#[tokio::test]
async fn an_endpoint_that_takes_nothing_is_refused_before_and_counted_afterwards() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..5, endpoint).await;
    let id = ledger.make(missing(endpoint)).await.id;
    ledger.step(2).await;
    ledger.step(2).await;
    for (state, refusal) in [
        ("paused", Refusal::Paused),
        ("disabled", Refusal::Disabled),
        ("deleted", Refusal::Deleted),
    ] {
        ledger
            .sql(&format!("UPDATE hooklane.endpoints SET state = '{state}'"))
            .await;
        for work in [missing(endpoint), recover(endpoint)] {
            let fault = task::create(&ledger.store, work, TERMS).await;
            assert!(matches!(fault, Err(Error::Conflict(_))), "{fault:?}");
        }
        let would = ledger.count(missing(endpoint)).await;
        assert_eq!(would.refused, refused(&[(refusal, 2)]));
    }
    ledger.finish(2).await;
    let done = ledger.task(id).await;
    assert_eq!((done.status, done.due), (Status::Done, 2));
    assert_eq!(done.refused, refused(&[(Refusal::Deleted, 2)]));
    assert!(!done.was_refused(), "a part of it is due");

    let unknown = task::create(&ledger.store, missing(EndpointId::for_test(9)), TERMS).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })));
    let ends_before = Span {
        until: Some(clock::now() - TimeDelta::hours(2)),
        ..hour()
    };
    let still_to_come = Span {
        since: clock::now() + TimeDelta::hours(1),
        until: None,
    };
    for span in [ends_before, still_to_come] {
        let nothing = Work::Recover { endpoint, span };
        let fault = task::create(&ledger.store, nothing, TERMS).await;
        assert!(matches!(fault, Err(Error::Invalid(_))));
    }
}

#[tokio::test]
async fn a_cancelled_task_stops_where_it_is_and_what_is_due_stays_due() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..11, endpoint).await;
    let id = ledger.make(missing(endpoint)).await.id;
    ledger.step(4).await;
    ledger.step(4).await;
    let cancelled = task::cancel(&ledger.store, id).await.unwrap();
    assert_eq!((cancelled.status, cancelled.due), (Status::Cancelled, 4));
    assert!(cancelled.ended_at.is_some());
    assert_eq!(ledger.step(4).await, None);
    assert_eq!(ledger.sql(COUNTS).await, "skipped:1:6\nstalled:2:4");
    let again = task::cancel(&ledger.store, id).await;
    assert!(matches!(again, Err(Error::Conflict(_))));
    let unknown = task::cancel(&ledger.store, TaskId::for_test(1)).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })));
    // Another one finds what is left.
    ledger.make(missing(endpoint)).await;
    ledger.finish(4).await;
    assert_eq!(ledger.sql(COUNTS).await, "stalled:2:10");
}

#[tokio::test]
async fn a_task_that_cannot_go_on_fails_and_holds_up_no_other() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..4, endpoint).await;
    let broken = ledger.make(missing(endpoint)).await.id;
    ledger
        .sql(r#"UPDATE hooklane.tasks SET refused = '{"bored": 1}'"#)
        .await;
    let sound = ledger.make(missing(endpoint)).await.id;
    let fault = ledger.store.step_task(TERMS, 10).await.unwrap_err();
    assert!(fault.to_string().contains("bored"), "{fault}");
    ledger.finish(10).await;
    assert_eq!(ledger.task(sound).await.status, Status::Done);
    let status = format!(
        "SELECT status || ' ' || (ended_at IS NOT NULL) || ' ' || error FROM hooklane.tasks WHERE id = '{}'",
        broken.uuid()
    );
    let status = ledger.sql(&status).await;
    assert!(status.starts_with("failed true ") && status.contains("bored"));
}

#[tokio::test]
async fn tasks_are_listed_the_last_made_first_and_old_ones_go() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(ledger.make(missing(endpoint)).await.id);
    }
    ids.sort_unstable();
    task::cancel(&ledger.store, ids[0]).await.unwrap();
    let list = async |listing: Listing, limit| {
        let page = task::list(&ledger.store, &listing, limit).await.unwrap();
        let found: Vec<TaskId> = page.items.iter().map(|task| task.id).collect();
        (found, page.next)
    };
    let (first, next) = list(Listing::default(), 2).await;
    assert_eq!((first, next), (vec![ids[2], ids[1]], Some(ids[1])));
    let after = Listing {
        after: next,
        ..Listing::default()
    };
    assert_eq!(list(after, 2).await, (vec![ids[0]], None));
    let cancelled = Listing {
        status: Some(Status::Cancelled),
        ..Listing::default()
    };
    assert_eq!(list(cancelled, 9).await.0, [ids[0]]);

    let forget = async |before: DateTime<Utc>| ledger.store.forget_tasks(before, 9).await.unwrap();
    let hour = TimeDelta::hours(1);
    assert_eq!(forget(clock::now() - hour).await, 0);
    assert_eq!(forget(clock::now() + hour).await, 1, "open ones stay");
    assert_eq!(list(Listing::default(), 9).await.0.len(), 2);
}

#[tokio::test]
async fn a_page_of_what_was_missed_walks_its_index() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    for days in 1..30 {
        let day = clock::now() - TimeDelta::days(days);
        ledger.store.ensure_days([day]).await.unwrap();
    }
    let plan = ledger
        .sql(&format!(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
             EXPLAIN (COSTS off) SELECT accepted_at FROM hooklane.deliveries
              WHERE status = 'skipped' AND endpoint_id = '{}' AND (settled_at, message_id) > (now(), '{}')
                AND settled_at <= now() AND driven_at <= now()
              ORDER BY settled_at, message_id LIMIT 10",
            endpoint.uuid(),
            endpoint.uuid()
        ))
        .await;
    assert!(
        plan.contains("Merge Append") && !plan.contains("Sort  "),
        "{plan}"
    );
    for scan in plan.lines().filter(|line| line.contains("Scan")) {
        assert!(
            scan.contains("_endpoint_id_settled_at_message_id_idx"),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn what_lanes_skip_until_they_know_of_a_resume_is_missed_like_the_rest() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    let keys = ledger.deliveries(1..4, endpoint, clock::now()).await;
    ledger.skip(&keys[..1]).await;
    let made = task::create(&ledger.store, missing(endpoint), TERMS).await;
    let id = made.unwrap().id;
    assert!(ledger.step(10).await.is_none());
    ledger.skip(&keys[1..]).await;
    until("the task to begin", BUDGET, async || {
        ledger.finish(10).await;
        ledger.task(id).await.status == Status::Done
    })
    .await
    .unwrap();
    assert_eq!(ledger.task(id).await.due, 3);
}

#[tokio::test]
async fn what_is_skipped_again_is_found_by_the_next_task_alone() {
    let ledger = Ledger::new().await;
    let endpoint = ledger.endpoint(1).await;
    ledger.skipped(1..4, endpoint).await;
    let first = ledger.make(missing(endpoint)).await.id;
    ledger.step(1).await;
    ledger.step(1).await;
    let key = DeliveryKey {
        accepted_at: ledger
            .one::<DateTime<Utc>>("SELECT min(accepted_at) FROM hooklane.deliveries")
            .await,
        message: MessageId::from_uuid(
            ledger
                .one("SELECT message_id FROM hooklane.deliveries WHERE series = 2")
                .await,
        ),
        endpoint,
    };
    let second = Drive {
        series: 2,
        ..drive(key, 2)
    };
    ledger
        .store
        .apply(&[skipped(second, SkipReason::Paused)])
        .await
        .unwrap();
    ledger.finish(1).await;
    assert_eq!(ledger.task(first).await.due, 3);
    assert_eq!(ledger.sql(COUNTS).await, "skipped:2:1\nstalled:2:2");
    ledger.make(missing(endpoint)).await;
    ledger.finish(1).await;
    assert_eq!(ledger.sql(COUNTS).await, "stalled:2:2\nstalled:3:1");
}
