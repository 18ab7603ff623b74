//! The service killed in the middle of requests, and the ledger gone from under it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hooklane_testkit::postgres::Server;
use hooklane_testkit::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::bench::{BUDGET, Bench, config};
use crate::client::{Event, Partner};
use crate::ledger::Ledger;

const CONNECTIONS: usize = 10;

/// Sends until there is an answer, which is its status; what breaks is sent again.
async fn insist(address: SocketAddr, event: Event, together: Arc<Barrier>) -> u16 {
    let mut partner = Partner::connect(address).await;
    together.wait().await;
    loop {
        if let Ok(answer) = partner.try_ask(event.request()).await {
            return answer.status.as_u16();
        }
        let back = async {
            loop {
                match Partner::try_connect(address).await {
                    Ok(partner) => return partner,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        partner = timeout(BUDGET, back).await.unwrap();
    }
}

#[tokio::test]
async fn an_event_sent_ten_times_at_once_into_a_crash_is_one_row_and_one_hand_off() {
    let bench = Bench::new().await;
    let now = bench.clock.now();
    let mut served = bench.serve(config("")).await;
    let mut again = config("");
    again.listen = served.address;
    // Killed once so many requests are stored, the answers of which may be lost.
    let stored = [0, 1, 1, 2, 3, 5, 9, 10];
    for (round, stored) in (0_u64..).zip(stored) {
        let id = format!("evt_{round}");
        let event = Event::order(&id, "order.paid", &format!("o{round}"), now);
        let together = Arc::new(Barrier::new(CONNECTIONS + 1));
        let mut sending = JoinSet::new();
        for _ in 0..CONNECTIONS {
            sending.spawn(insist(served.address, event.clone(), Arc::clone(&together)));
        }
        together.wait().await;
        while served.stored() < stored {
            tokio::task::yield_now().await;
        }
        served.running.kill().await;
        served = bench.serve(again.clone()).await;
        for status in sending.join_all().await {
            assert_eq!(status, 200, "killed after {stored}");
        }
    }
    let rounds = stored.len();
    let rows = "SELECT count(*), count(DISTINCT partner_event_id) FROM hooklane.webhook_inbox
                 WHERE status = 'PROCESSED'";
    bench.until_sql(rows, &format!("{rounds}|{rounds}")).await;
    let waiting = "SELECT count(*) FROM hooklane.inbox_handoffs";
    bench.until_sql(waiting, "0").await;
    bench.published(rounds as u64).await;
    served.running.stop().await;
}

#[tokio::test]
async fn the_ledger_without_an_answer_is_503_in_time_and_the_partners_repetition_is_taken() {
    let postgres = Server::start().await.unwrap();
    let bench = Bench::with(Ledger::on(&postgres).await).await;
    let served = bench.serve(config("")).await;
    let now = bench.clock.now();
    let mut partner = served.connect().await;
    partner
        .send(&Event::order("evt_1", "order.paid", "o1", now))
        .await;
    postgres.stop().await.unwrap();
    let event = Event::order("evt_2", "order.paid", "o2", now);
    let (mut asked, started) = (JoinSet::new(), Instant::now());
    for _ in 0..CONNECTIONS {
        let (mut partner, event) = (served.connect().await, event.clone());
        asked.spawn(async move { partner.ask(event.request()).await });
    }
    for answer in asked.join_all().await {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), "5");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");

    postgres.restart().await.unwrap();
    wait::until("the repetition to be taken", BUDGET, async || {
        partner.ask(event.request()).await.status == 200
    })
    .await
    .unwrap();
    bench
        .until_statuses("evt_1=PROCESSED evt_2=PROCESSED")
        .await;
    served.running.stop().await;
}

#[tokio::test]
async fn what_a_constraint_refuses_is_503_since_no_partner_can_mend_it() {
    let bench = Bench::new().await;
    let served = bench.serve(config("")).await;
    let mut partner = served.connect().await;
    let event = Event::order("evt_1", "order.paid", "o1", bench.clock.now());
    let refuse = "ALTER TABLE hooklane.webhook_inbox ADD CONSTRAINT of_the_test \
                  CHECK (partner_event_id <> 'evt_1') NOT VALID";
    bench.ledger.sql(refuse).await;
    let answer = partner.ask(event.request()).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("retry-after"), "5");
    let allow = "ALTER TABLE hooklane.webhook_inbox DROP CONSTRAINT of_the_test";
    bench.ledger.sql(allow).await;
    partner.send(&event).await;
    bench.until_statuses("evt_1=PROCESSED").await;
    served.running.stop().await;
}

#[tokio::test]
async fn a_request_under_way_when_the_inbox_stops_is_answered_and_the_last_of_its_connection() {
    let bench = Bench::new().await;
    let served = bench
        .serve(config("deadline = \"20s\"\nbody_within = \"15s\""))
        .await;
    let event = Event::order("evt_1", "order.paid", "o1", bench.clock.now());
    let (head, body) = event.wire("expect: 100-continue\r\n");
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; 25];
    timeout(BUDGET, stream.read_exact(&mut told))
        .await
        .unwrap()
        .unwrap();
    assert!(told.starts_with(b"HTTP/1.1 100 "), "{told:?}");
    let address = served.address;
    let stopping = tokio::spawn(served.running.stop());
    wait::until("nobody to be let in", BUDGET, async || {
        TcpStream::connect(address).await.is_err()
    })
    .await
    .unwrap();
    let (next, _) = event.wire("");
    let rest = [body, next].concat();
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(BUDGET, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    stopping.await.unwrap();
    bench
        .until_sql("SELECT count(*) FROM hooklane.webhook_inbox", "1")
        .await;
}
