//! Definitions, the plan, and what the server makes of them.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use futures::TryStreamExt as _;
use futures::future::join_all;
use hooklane_core::rules::partition::partition;
use hooklane_local::{Install, NatsOptions, nats_cli, quiet};
use hooklane_nats::topology::{self, Kind};
use hooklane_nats::{Client, Config, Error};
use hooklane_testkit::nats::Server;

use crate::broker::{Broker, config, in_time, outgoing};

#[tokio::test]
async fn our_partitions_are_the_brokers() -> Result<()> {
    for partitions in [16, 7] {
        let broker = Broker::start_with(|config| config.partitions = partitions).await?;
        let ids: Vec<String> = (0..150)
            .map(|n| format!("{}-{n}", ["acme", "Ü".trim_matches('Ü'), "x_Y"][n % 3]))
            .collect();
        let messages = ids.iter().zip(0..).flat_map(|(id, n)| {
            [
                outgoing(&format!("events.{id}.invoice.paid"), n),
                outgoing(&format!("deliveries.{id}.ep_1"), n),
            ]
        });
        let results = broker
            .publisher()
            .publish_all(messages.collect(), in_time())
            .await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");

        let count = NonZeroU16::new(partitions).unwrap();
        let expected = |prefix: &str, rest: &str| {
            let mut subjects: Vec<String> = ids
                .iter()
                .map(|id| format!("{prefix}.{}.{id}.{rest}", partition(count, id)))
                .collect();
            subjects.sort();
            subjects
        };
        assert_eq!(
            stored(&broker, "EVENTS").await?,
            expected("events", "invoice.paid")
        );
        assert_eq!(
            stored(&broker, "DELIVERIES").await?,
            expected("deliveries", "ep_1")
        );
    }
    Ok(())
}

async fn stored(broker: &Broker, stream: &str) -> Result<Vec<String>> {
    let stream = broker.jetstream().await?.get_stream(stream).await?;
    let subjects = stream.info_with_subjects(">").await?;
    let mut subjects: Vec<(String, usize)> = subjects.try_collect().await?;
    subjects.sort();
    Ok(subjects.into_iter().map(|(subject, _)| subject).collect())
}

#[tokio::test]
async fn what_was_made_needs_no_change() -> Result<()> {
    let broker = Broker::start().await?;
    assert_eq!(topology::plan(&broker.client).await?, []);
    topology::ensure(&broker.client).await.map_err(Into::into)
}

#[tokio::test]
async fn all_may_start_at_once_on_a_broker_with_room_for_everything_once() -> Result<()> {
    // All streams are 3,176 MiB, and the largest is 1,024.
    let server = Server::start_with(NatsOptions {
        max_file_store: 3_300 << 20,
        ..NatsOptions::default()
    })
    .await?;
    let starting = (0..8).map(|_| async {
        let client = Client::connect(&config(&server)).await?;
        topology::ensure(&client).await
    });
    for started in join_all(starting).await {
        started?;
    }
    let client = Client::connect(&config(&server)).await?;
    assert_eq!(topology::plan(&client).await?, []);
    Ok(())
}

#[tokio::test]
async fn the_plan_shows_what_is_missing_and_what_differs() -> Result<()> {
    let broker = Broker::start().await?;
    let jetstream = broker.jetstream().await?;
    let mut events = jetstream
        .get_stream("EVENTS")
        .await?
        .get_info()
        .await?
        .config;
    events.max_bytes = 1 << 20;
    events.description = Some("an operator's".to_owned());
    events
        .metadata
        .insert("team".to_owned(), "billing".to_owned());
    jetstream.update_stream(events).await?;
    let deliveries = jetstream.get_stream("DELIVERIES").await?;
    deliveries.delete_consumer("lanes-1").await?;

    let changes = topology::plan(&broker.client).await?;
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 2, "{text:?}");
    assert!(text[0].starts_with("~ stream EVENTS\n"), "{text:?}");
    assert!(
        text[0].contains("\n    max_bytes: 1 MiB -> 512 MiB"),
        "{text:?}"
    );
    assert_eq!(text[1], "+ consumer DELIVERIES/lanes-1");

    topology::apply(&broker.client, &changes).await?;
    assert_eq!(topology::plan(&broker.client).await?, []);
    let events = jetstream
        .get_stream("EVENTS")
        .await?
        .get_info()
        .await?
        .config;
    assert_eq!(
        events.metadata.get("team").map(String::as_str),
        Some("billing")
    );
    Ok(())
}

#[tokio::test]
async fn a_stream_that_lacks_subjects_gets_them_at_the_start() -> Result<()> {
    let broker = Broker::start().await?;
    let jetstream = broker.jetstream().await?;
    let advisories = jetstream.get_stream("ADVISORIES").await?;
    advisories.delete_consumer("inbox").await?;
    let mut config = advisories.get_info().await?.config;
    config.subjects.retain(|subject| !subject.contains("INBOX"));
    config.description = Some("an operator's".to_owned());
    jetstream.update_stream(config).await?;

    topology::ensure(&broker.client).await?;
    let changes = topology::plan(&broker.client).await?;
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 1, "{text:?}");
    assert!(
        text[0].contains("description") && !text[0].contains("subjects"),
        "{text:?}"
    );
    Ok(())
}

#[tokio::test]
async fn what_the_adopters_durables_gave_up_is_told_to_the_inbox_alone() -> Result<()> {
    use async_nats::jetstream::consumer::{AckPolicy, pull};

    let broker = Broker::start().await?;
    let sent = outgoing("inbox.stripe.invoice.paid", 1);
    broker.publisher().publish(sent, in_time()).await?;
    let inbox = broker.jetstream().await?.get_stream("INBOX").await?;
    let durable = inbox
        .create_consumer(pull::Config {
            durable_name: Some("billing".to_owned()),
            ack_policy: AckPolicy::Explicit,
            max_deliver: 1,
            ..Default::default()
        })
        .await?;
    let mut batch = durable.fetch().max_messages(1).messages().await?;
    let message = batch.try_next().await.map_err(anyhow::Error::msg)?;
    let nak = async_nats::jetstream::AckKind::Nak(None);
    message
        .unwrap()
        .ack_with(nak)
        .await
        .map_err(anyhow::Error::msg)?;

    // The broker finds out when it looks for something to deliver.
    let looking = durable.fetch().expires(std::time::Duration::from_secs(1));
    let _none = looking.messages().await?;

    let pull = |durable: &str| {
        let config = hooklane_nats::PullConfig::default();
        hooklane_nats::Puller::new(&broker.client, "ADVISORIES", durable, config)
    };
    let mut told = pull("inbox");
    let incoming = tokio::time::timeout_at(in_time(), told.next()).await?;
    let advisory = hooklane_nats::Advisory::read(&incoming.payload).unwrap();
    assert_eq!((advisory.stream.as_str(), advisory.sequence), ("INBOX", 1));
    incoming.token.ack().await;
    let advisories = broker.jetstream().await?.get_stream("ADVISORIES").await?;
    let movers = advisories.consumer_info("dlq").await?;
    assert_eq!(
        (movers.num_pending, movers.delivered.stream_sequence),
        (0, 0)
    );
    Ok(())
}

#[tokio::test]
async fn a_conflict_is_shown_and_nothing_is_touched() -> Result<()> {
    let broker = Broker::start().await?;
    let three = Client::connect(&Config {
        partitions: 3,
        ..config(&broker.server)
    })
    .await?;
    let changes = topology::plan(&three).await?;
    let conflicts: Vec<_> = changes
        .iter()
        .filter(|change| matches!(change.kind, Kind::Conflict { .. }))
        .map(ToString::to_string)
        .collect();
    assert_eq!(conflicts.len(), 2, "{conflicts:?}");
    assert!(
        conflicts[0].contains("{{partition(2,1)}}") && conflicts[0].contains("{{partition(3,1)}}")
    );

    for refused in [
        topology::ensure(&three).await,
        topology::apply(&three, &changes).await,
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Conflict(_)), "{error}");
        assert!(error.to_string().contains("stream EVENTS"), "{error}");
    }
    assert_eq!(topology::plan(&broker.client).await?, []);
    Ok(())
}

#[tokio::test]
async fn another_retention_is_a_conflict() -> Result<()> {
    let broker = Broker::start().await?;
    let jetstream = broker.jetstream().await?;
    jetstream.delete_stream("RECORDS").await?;
    jetstream
        .create_stream(async_nats::jetstream::stream::Config {
            name: "RECORDS".to_owned(),
            subjects: vec!["records.*".to_owned()],
            ..Default::default()
        })
        .await?;
    let error = topology::ensure(&broker.client).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("retention: \"limits\" -> \"workqueue\""),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn two_processes_may_make_everything_at_once() -> Result<()> {
    let server = hooklane_testkit::nats::Server::start().await?;
    let (one, two) = (
        Client::connect(&config(&server)).await?,
        Client::connect(&config(&server)).await?,
    );
    let (first, second) = tokio::join!(topology::ensure(&one), topology::ensure(&two));
    first?;
    second?;
    assert_eq!(topology::plan(&one).await?, []);
    Ok(())
}

#[tokio::test]
async fn the_nats_command_takes_the_definitions() -> Result<()> {
    let server = hooklane_testkit::nats::Server::start().await?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cli = nats_cli(&root.join("../.hooklane"), Install::Never, &quiet)?;
    let run = |args: &[&str], file: &Path| {
        let output = Command::new(&cli)
            .env("NATS_URL", server.url())
            .args(args)
            .arg("--config")
            .arg(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {output:?}", file.display());
    };
    for file in json_files(&root.join("streams"))? {
        run(&["stream", "add", "--validate"], &file);
        run(&["stream", "add"], &file);
    }
    for file in json_files(&root.join("consumers"))? {
        let stream = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("relay") => "INTAKE",
            Some("fanout") => "EVENTS",
            Some("lanes") => "DELIVERIES",
            Some("dlq" | "inbox") => "ADVISORIES",
            _ => "RECORDS",
        };
        run(&["consumer", "add", "--validate", stream], &file);
        run(&["consumer", "add", stream], &file);
    }
    // What it made is what we would have made, but for the other partitions' durables.
    let client = Client::connect(&Config {
        partitions: 16,
        ..config(&server)
    })
    .await?;
    let changes = topology::plan(&client).await?;
    assert_eq!(changes.len(), 2 * 15, "{changes:?}");
    assert!(changes.iter().all(|change| change.kind == Kind::Create));
    Ok(())
}

fn json_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        files.push(entry?.path());
    }
    files.sort();
    assert!(!files.is_empty());
    Ok(files)
}

#[tokio::test]
async fn a_fan_out_durable_made_anew_does_not_start_a_day_back() -> Result<()> {
    let broker = Broker::start().await?;
    let jetstream = broker.jetstream().await?;
    let events = jetstream.get_stream("EVENTS").await?;
    events.delete_consumer("fanout-0").await?;
    topology::ensure(&broker.client).await?;
    let made = events.consumer_info("fanout-0").await?;
    let async_nats::jetstream::consumer::DeliverPolicy::ByStartTime { start_time } =
        made.config.deliver_policy
    else {
        panic!("{:?}", made.config.deliver_policy);
    };
    let before = made.created.unix_timestamp() - start_time.unix_timestamp();
    assert!((15..=30).contains(&before), "{before} s");
    assert_eq!(topology::plan(&broker.client).await?, []);
    Ok(())
}

/// Another client on the broker, for the ledger with this number.
async fn of_ledger(broker: &Broker, number: u128) -> Result<Client> {
    let config = Config {
        ledger: Some(uuid::Uuid::from_u128(number)),
        ..config(&broker.server)
    };
    Ok(Client::connect(&config).await?)
}

#[tokio::test]
async fn streams_are_one_ledgers_until_another_adopts_them() -> Result<()> {
    // Made with no ledger's id, as by an earlier version, and by then not all as defined.
    let broker = Broker::start().await?;
    let jetstream = broker.jetstream().await?;
    let stream = async |name: &str| -> Result<async_nats::jetstream::stream::Config> {
        Ok(jetstream.get_stream(name).await?.get_info().await?.config)
    };
    let mut events = stream("EVENTS").await?;
    events.max_bytes = 1 << 20;
    let team = ("team".to_owned(), "billing".to_owned());
    events.metadata.extend([team]);
    jetstream.update_stream(events).await?;

    let (one, two) = (of_ledger(&broker, 1).await?, of_ledger(&broker, 2).await?);
    topology::ensure(&one).await?;
    let id = uuid::Uuid::from_u128(1).to_string();
    for name in ["INTAKE", "EVENTS", "KV_ROUTES", "KV_LEASES"] {
        let marked = stream(name).await?;
        assert_eq!(marked.metadata.get("hooklane_ledger"), Some(&id), "{name}");
    }
    let events = stream("EVENTS").await?;
    assert_eq!(events.max_bytes, 1 << 20);
    assert!(events.metadata.contains_key("team"), "{events:?}");
    topology::ensure(&one).await?;

    let changes = topology::plan(&two).await?;
    let foreign = |change: &&topology::Change| matches!(change.kind, Kind::Foreign { .. });
    assert_eq!(changes.iter().filter(foreign).count(), 9, "{changes:?}");
    for refused in [
        topology::ensure(&two).await,
        topology::ensure_stream(&two, "INTAKE").await,
        topology::apply(&two, &changes).await,
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::OtherLedger { .. }), "{error}");
        assert!(error.to_string().contains(&id), "{error}");
    }

    let changes = topology::plan_adopting(&two).await?;
    topology::apply(&two, &changes).await?;
    assert_eq!(topology::plan(&two).await?, []);
    let error = topology::ensure(&one).await.unwrap_err();
    assert!(matches!(error, Error::OtherLedger { .. }), "{error}");

    // What was wiped is made anew, by whoever comes first.
    jetstream.delete_stream("INTAKE").await?;
    topology::ensure_stream(&two, "INTAKE").await?;
    assert_eq!(
        stream("INTAKE").await?.metadata.get("hooklane_ledger"),
        Some(&uuid::Uuid::from_u128(2).to_string())
    );
    Ok(())
}

#[tokio::test]
async fn of_two_ledgers_that_start_at_once_one_is_refused() -> Result<()> {
    let broker = Broker::start().await?;
    broker.jetstream().await?.delete_stream("INTAKE").await?;
    let (one, two) = (of_ledger(&broker, 1).await?, of_ledger(&broker, 2).await?);
    let (first, second) = tokio::join!(
        topology::ensure_stream(&one, "INTAKE"),
        topology::ensure_stream(&two, "INTAKE")
    );
    let refused = first.and(second).unwrap_err();
    assert!(matches!(refused, Error::OtherLedger { .. }), "{refused}");
    Ok(())
}
