//! `hooklane up`, and one command for each service.
//!
//! Every one of them starts the same way: configuration, logs and traces, the ledger and its
//! master key, the broker and its streams, health, then the services; and stops the same way: at
//! the first signal the services drain, within 20 s.

mod services;

use std::sync::Arc;

use clap::Args;
use hooklane_core::telemetry;
use hooklane_local::Stack;
use hooklane_nats::topology;
use hooklane_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::config::{Config, Section};
use crate::context::{Context, connect_nats, verify_keys};
use crate::failure::Failure;
use crate::run::supervisor::{STOP_WITHIN, Supervisor};
use crate::run::{descriptors, health, local, signals};
use services::Parts;

/// Run every service in one process.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Bring a nats-server and a PostgreSQL along, below .hooklane/, and allow deliveries to this
    /// machine.
    #[arg(long)]
    local: bool,
}

/// Run the relay.
#[derive(Debug, Args)]
pub(crate) struct Relay {
    /// Take what is pending, then end: for cron.
    #[arg(long)]
    once: bool,
}

/// What runs in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    All,
    Relay,
    Dispatch,
    Record,
    Schedule,
    Dlq,
    Api,
    Inbox,
}

impl Role {
    fn runs(self, service: Self) -> bool {
        self == Self::All || self == service
    }
}

impl Up {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        if !self.local {
            let config = context.config(&Section::ALL)?;
            return serve(config, Role::All, true, None).await;
        }
        // Faults of the sections that are about to be completed are looked for afterwards.
        let mut config = context.local_config()?;
        let database_given = config.database.url.is_some();
        let nats_given = config.nats.url != hooklane_nats::Config::default().url
            || hooklane_local::external_nats_url().is_some();
        let (config, stack) = tokio::task::spawn_blocking(move || {
            local::start(&mut config, database_given, nats_given).map(|stack| (config, stack))
        })
        .await
        .map_err(|error| Failure::internal(format!("starting the servers: {error}")))??;
        let mut faults = hooklane_core::config::Faults::new();
        config.validate(&Section::ALL, &mut faults);
        faults.into_result()?;
        context
            .output
            .note("local: to use other commands beside this, in another terminal: . .hooklane/env");
        let stack = Arc::new(stack);
        let served = serve(config, Role::All, true, Some(Arc::clone(&stack))).await;
        // After the services: they flush to both.
        let stopped = tokio::task::spawn_blocking(move || stack.stop()).await;
        served?;
        stopped.map_err(|error| Failure::internal(format!("stopping the servers: {error}")))
    }
}

impl Relay {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config(&Section::ALL)?;
        if !self.once {
            return serve(config, Role::Relay, false, None).await;
        }
        let store = Store::connect(&config.database).await?;
        let client = connect_nats(&config, &store).await?;
        topology::ensure(&client).await?;
        let done = Box::pin(services::relay_once(config, store, client)).await?;
        context.output.print(&done, || done.to_string())
    }
}

/// Runs one service.
pub(crate) async fn one(context: &Context, role: Role) -> Result<(), Failure> {
    let config = context.config(&Section::ALL)?;
    serve(config, role, false, None).await
}

/// `local` are the servers that end with the process, and the process with them.
async fn serve(
    config: Config,
    role: Role,
    migrate: bool,
    local: Option<Arc<Stack>>,
) -> Result<(), Failure> {
    let guard = telemetry::init(&config.telemetry)?;
    let attempts = match role.runs(Role::Dispatch) {
        true => config.dispatcher.max_in_flight,
        false => 0,
    };
    descriptors::raise(attempts, config.database.max_connections);
    let shutdown = CancellationToken::new();
    signals::watch(shutdown.clone())?;
    let served = Box::pin(until_told(config, role, migrate, local, shutdown)).await;
    // Blocks, and the exporter needs no worker of this runtime.
    let flushed = tokio::task::spawn_blocking(move || guard.flush()).await;
    served?;
    flushed.map_err(|error| Failure::internal(format!("flushing traces: {error}")))
}

async fn until_told(
    config: Config,
    role: Role,
    migrate: bool,
    local: Option<Arc<Stack>>,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    // Before anything else: a second Hooklane on the same port must not migrate first.
    let listener = health::bind(&config.health).await?;
    let address = config.health.listen;
    let starting = async {
        let store = Store::connect(&config.database).await?;
        if migrate {
            store.migrate().await?;
        }
        let keys = Arc::new(config.secrets.keys()?);
        verify_keys(&store, &keys).await?;
        let client = connect_nats(&config, &store).await?;
        topology::ensure(&client).await?;
        let intake = match role.runs(Role::Relay) && config.relay.intake.enabled {
            true => connect_nats(&config, &store).await?,
            false => client.clone(),
        };
        Ok::<_, Failure>((store, keys, client, intake))
    };
    let (store, keys, client, intake) = tokio::select! {
        started = starting => started?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let mut supervisor = Supervisor::new(shutdown.clone());
    if let Some(stack) = local {
        supervisor.start("local servers", |shutdown| local::watch(stack, shutdown));
    }
    let parts = Parts {
        config,
        store: store.clone(),
        client: client.clone(),
        intake: intake.clone(),
        keys,
    };
    services::start(&mut supervisor, parts, role).await?;
    // Ready is a process whose services listen. Until this returns, however long stopping takes.
    let _health = listener.map(|listener| {
        info!(address = %address, "serving health");
        let health = health::serve(listener, store.clone(), client.clone(), shutdown.clone());
        AbortOnDropHandle::new(tokio::spawn(health))
    });
    info!(?role, version = env!("CARGO_PKG_VERSION"), "hooklane is up");
    let outcome = supervisor.run(STOP_WITHIN).await;
    // What was published last is on its way when this returns; a broker that is gone is no fault
    // of the end.
    let _ = tokio::join!(client.flush(), intake.flush());
    store.close().await;
    outcome
}
