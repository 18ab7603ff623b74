//! The users of `nats/server/users.conf`: a producer may publish events, and nothing else.

use std::time::Duration;

use async_nats::{ConnectOptions, Event, jetstream};
use hooklane_local::NatsOptions;
use hooklane_nats::{Client, Config, topology};
use hooklane_testkit::Result;
use hooklane_testkit::nats::Server;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::broker::SOON;

const USERS: &str = include_str!("../../server/users.conf");
const SERVER: &str =
    "HOOKLANE_NATS_PASSWORD: \"of-hooklane\"\nPRODUCER_NATS_PASSWORD: \"of-producer\"\n";

/// A server with these users and all streams.
async fn start() -> Result<(Server, Client)> {
    let options = NatsOptions {
        extra_config: format!("{SERVER}{USERS}"),
        ..NatsOptions::default()
    };
    let server = Server::start_with(options).await?;
    let config = Config {
        url: server.url().replace("//", "//hooklane:of-hooklane@").into(),
        ..Config::default()
    };
    let client = Client::connect(&config).await?;
    topology::ensure(&client).await?;
    Ok((server, client))
}

/// A producer, and what the server reproaches it with.
async fn producer(server: &Server) -> Result<(async_nats::Client, mpsc::Receiver<String>)> {
    let (faults, reproaches) = mpsc::channel(64);
    let options = ConnectOptions::with_user_and_password("producer".into(), "of-producer".into())
        .custom_inbox_prefix("_INBOX_producer")
        .event_callback(move |event| {
            let faults = faults.clone();
            async move {
                if let Event::ServerError(error) = event {
                    // Full only where nobody looks any more.
                    let _ = faults.try_send(error.to_string().to_lowercase());
                }
            }
        });
    Ok((options.connect(server.url()).await?, reproaches))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_publishes_events_and_hears_that_they_are_stored() {
    let (server, client) = start().await.unwrap();
    let (producer, _) = producer(&server).await.unwrap();
    let stream = jetstream::new(producer);
    let publish = stream
        .publish("intake.acme.invoice.paid", "{}".into())
        .await
        .unwrap();
    let ack = timeout(SOON, publish).await.unwrap().unwrap();
    assert_eq!(ack.stream, "INTAKE");
    let state = hooklane_nats::inspect::stream_state(&client, "INTAKE")
        .await
        .unwrap();
    assert_eq!(state.messages, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_may_do_nothing_else() {
    let (server, client) = start().await.unwrap();
    let (producer, mut reproaches) = producer(&server).await.unwrap();
    let mut reproached = async |what: &str| {
        let text = timeout(SOON, reproaches.recv()).await.unwrap().unwrap();
        assert!(text.contains("permissions violation"), "{what}: {text}");
    };
    for subject in [
        "events.0.acme.invoice.paid",
        "events.acme.invoice.paid",
        "deliveries.acme.ep",
        "records.0",
        "dlq.acme.ep",
        "inbox.partner.paid",
        "$KV.ROUTES.acme.ep",
        "$KV.LEASES.p0",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.PURGE.INTAKE",
        "$JS.API.STREAM.DELETE.DELIVERIES",
        "$JS.API.CONSUMER.MSG.NEXT.INTAKE.relay",
        "$JS.ACK.INTAKE.relay.1.1.1.1.1",
        "$SYS.REQ.SERVER.PING",
        "room.0",
        "intake",
        "_INBOX.somebody.else",
    ] {
        producer.publish(subject, "x".into()).await.unwrap();
        producer.flush().await.unwrap();
        reproached(subject).await;
    }
    for subject in [
        ">",
        "intake.>",
        "events.>",
        "deliveries.>",
        "records.>",
        "dlq.>",
        "_INBOX.>",
        "$JS.EVENT.>",
        "$KV.ROUTES.>",
        "$SYS.>",
    ] {
        let subscribed = producer.subscribe(subject).await;
        producer.flush().await.unwrap();
        reproached(subject).await;
        drop(subscribed);
    }
    for stream in [
        "INTAKE",
        "EVENTS",
        "DELIVERIES",
        "RECORDS",
        "DLQ",
        "KV_ROUTES",
    ] {
        let state = hooklane_nats::inspect::stream_state(&client, stream)
            .await
            .unwrap();
        assert_eq!(state.messages, 0, "{stream}");
    }
    let nobody = ConnectOptions::new().connection_timeout(Duration::from_secs(5));
    assert!(
        nobody.connect(server.url()).await.is_err(),
        "without a password"
    );
}
