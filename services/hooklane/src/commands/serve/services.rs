//! Which services run, and what each of them is given.

use std::fmt;
use std::sync::Arc;

use hooklane_core::secrets::MasterKeys;
use hooklane_nats::Client;
use hooklane_relay::Counted;
use hooklane_store::Store;
use serde::Serialize;
use tracing::warn;

use super::Role;
use crate::config::Config;
use crate::failure::Failure;
use crate::run::supervisor::Supervisor;

/// What services share.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) store: Store,
    pub(super) client: Client,
    /// For `INTAKE` alone: a message there that can't be read ends its connection.
    pub(super) intake: Client,
    pub(super) keys: Arc<MasterKeys>,
}

/// Starts the services of a role.
///
/// # Errors
/// Where one of them can't be set up.
pub(super) async fn start(
    supervisor: &mut Supervisor,
    parts: Parts,
    role: Role,
) -> Result<(), Failure> {
    let Parts {
        config,
        store,
        client,
        intake,
        keys,
    } = parts;
    let relay = relay(&config);
    let inbox = (role.runs(Role::Inbox) && (config.inbox.enabled || role == Role::Inbox))
        .then(|| (config.inbox.clone(), store.clone(), client.clone()));
    if inbox.is_none() && role == Role::All && !config.inbox.sources.is_empty() {
        warn!("inbox.sources are configured, and inbox.enabled is false: nothing is received");
    }
    let terms = config.terms();
    let api = (role.runs(Role::Api) && (config.api.enabled || role == Role::Api)).then(|| {
        let parts = hooklane_api::Parts {
            store: store.clone(),
            client: client.clone(),
            keys: Arc::clone(&keys),
            addresses: config.addresses.clone(),
            terms,
        };
        (api(&config), parts)
    });
    // The recorder first and the relay last: what writes down is there before what delivers, and
    // that before what brings more.
    if role.runs(Role::Record) {
        let recording = hooklane_recorder::Config {
            health: config.endpoints.health,
            ..config.recorder
        };
        let recorder = hooklane_recorder::Service::new(recording, store.clone(), client.clone());
        supervisor.start("recorder", |shutdown| run(recorder.run(shutdown)));
    }
    if role.runs(Role::Dlq) {
        let mover = hooklane_dlq::Service::new(config.dlq, store.clone(), client.clone());
        supervisor.start("dlq", |shutdown| run(mover.run(shutdown)));
    }
    if role.runs(Role::Dispatch) {
        let parts = hooklane_dispatcher::Parts {
            nats: client.clone(),
            keys,
            addresses: config.addresses,
            schedule: config.retry,
        };
        let dispatcher = hooklane_dispatcher::Service::new(config.dispatcher, parts)
            .map_err(|error| Failure::new(error.code(), error.to_string()))?;
        supervisor.start("dispatcher", |shutdown| run(dispatcher.run(shutdown)));
    }
    if role.runs(Role::Schedule) {
        let scheduler = hooklane_scheduler::Service::new(
            config.scheduler,
            terms,
            store.clone(),
            client.clone(),
        );
        supervisor.start("scheduler", |shutdown| run(scheduler.run(shutdown)));
    }
    if role.runs(Role::Relay) {
        let relay = hooklane_relay::Service::new(relay, store, client).with_intake_client(intake);
        supervisor.start("relay", |shutdown| run(relay.run(shutdown)));
    }
    if let Some((config, parts)) = api {
        let api = hooklane_api::Service::bind(config, parts)
            .await
            .map_err(|error| Failure::new(error.code(), error.to_string()))?;
        supervisor.start("api", |shutdown| run(api.run(shutdown)));
    }
    if let Some((config, store, client)) = inbox {
        let inbox = hooklane_inbox::Service::bind(config, store, client)
            .await
            .map_err(|error| Failure::new(error.code(), error.to_string()))?;
        supervisor.start("inbox", |shutdown| run(inbox.run(shutdown)));
    }
    Ok(())
}

/// What one round of the relay did.
#[derive(Debug, Serialize)]
pub(super) struct Once {
    accepted: u64,
    repeated: u64,
    set_aside: u64,
    published: u64,
    /// Accepted but not published in time: the scheduler drives it.
    left: u64,
    routed: u64,
    /// The outboxes that were read.
    read: Vec<String>,
    /// The outboxes left to another relay.
    led_elsewhere: Vec<String>,
    /// Whether these are all that are configured.
    #[serde(skip)]
    all_led_elsewhere: bool,
}

impl fmt::Display for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accepted, {} repeated, {} set aside",
            self.accepted, self.repeated, self.set_aside
        )?;
        let names = self.led_elsewhere.join(", ");
        if self.all_led_elsewhere {
            write!(
                f,
                "\nno configured outbox was read, another relay reads them: {names}"
            )
        } else if names.is_empty() {
            Ok(())
        } else {
            write!(f, "\nleft to another relay: {names}")
        }
    }
}

/// Runs the relay until nothing is left to take.
///
/// # Errors
/// At the first fault of PostgreSQL or NATS.
pub(super) async fn relay_once(
    config: Config,
    store: Store,
    client: Client,
) -> Result<Once, Failure> {
    use hooklane_relay::Error;

    let configured = config.relay.sources.clone();
    let relay = hooklane_relay::Service::new(relay(&config), store, client);
    let done = relay.run_once().await.map_err(|error| match error {
        Error::Store(error) => error.into(),
        Error::Nats(error) => error.into(),
        Error::Task(_) => Failure::internal(error.to_string()),
    })?;
    let led = |name: &String| done.led_elsewhere.contains(name);
    let all_led_elsewhere =
        !configured.is_empty() && configured.iter().all(|source| led(&source.name));
    let Counted {
        accepted,
        repeated,
        set_aside,
        published,
        left,
        routed,
    } = done.counted;
    Ok(Once {
        accepted,
        repeated,
        set_aside,
        published,
        left,
        routed,
        read: done.read,
        led_elsewhere: done.led_elsewhere,
        all_led_elsewhere,
    })
}

/// The relay's section, with the deadline that it writes into what it accepts.
fn relay(config: &Config) -> hooklane_relay::Config {
    hooklane_relay::Config {
        deliver_within: config.retry.deadline,
        ..config.relay.clone()
    }
}

/// The API's section, with what it takes from others.
fn api(config: &Config) -> hooklane_api::Config {
    hooklane_api::Config {
        rotation_grace: config.endpoints.rotation_grace,
        deliver_within: config.retry.deadline,
        ..config.api.clone()
    }
}

async fn run<E: fmt::Display>(service: impl Future<Output = Result<(), E>>) -> Result<(), Failure> {
    service
        .await
        .map_err(|error| Failure::internal(error.to_string()))
}
