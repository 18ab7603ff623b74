//! The commands, one file a group: its arguments, what it calls, and the shape of its answers.

pub(crate) mod api_key;
pub(crate) mod audit;
pub(crate) mod check_url;
pub(crate) mod configuration;
pub(crate) mod consumer;
pub(crate) mod decode;
pub(crate) mod delivery;
pub(crate) mod dlq;
pub(crate) mod endpoint;
pub(crate) mod event_type;
pub(crate) mod inbox;
mod input;
mod known;
pub(crate) mod master_key;
pub(crate) mod message;
pub(crate) mod migrate;
pub(crate) mod nats;
pub(crate) mod outbox;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod task;
mod when;

use hooklane_core::telemetry::{self, Guard};

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::failure::Failure;

/// Does what the command line asks for.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let context = Context::new(cli.config, cli.json);
    if !cli.command.is_service() {
        // Kept to the end; it exports nothing.
        let _guard = quiet_logs()?;
        return Box::pin(once(cli.command, &context)).await;
    }
    match cli.command {
        Command::Up(command) => command.run(&context).await,
        Command::Relay(command) => command.run(&context).await,
        Command::Dispatch => serve::one(&context, serve::Role::Dispatch).await,
        Command::Record => serve::one(&context, serve::Role::Record).await,
        Command::Schedule => serve::one(&context, serve::Role::Schedule).await,
        Command::Api => serve::one(&context, serve::Role::Api).await,
        Command::Dlq(command) => command.run(&context).await,
        Command::Inbox(command) => command.run(&context).await,
        other => Box::pin(once(other, &context)).await,
    }
}

async fn once(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Migrate(command) => command.run(context).await,
        Command::Nats(command) => command.run(context).await,
        Command::CheckConfig => configuration::check(context),
        Command::DumpConfig(command) => command.run(context),
        Command::Decode(command) => command.run(),
        Command::CheckUrl(command) => command.run(context).await,
        Command::Sign(command) => command.run(context),
        Command::Verify(command) => command.run(context),
        Command::Consumer(command) => command.run(context).await,
        Command::EventType(command) => command.run(context).await,
        Command::Endpoint(command) => command.run(context).await,
        Command::Message(command) => command.run(context).await,
        Command::Delivery(command) => command.run(context).await,
        Command::Dlq(command) => command.run(context).await,
        Command::Inbox(command) => command.run(context).await,
        Command::Task(command) => command.run(context).await,
        Command::Outbox(command) => command.run(context).await,
        Command::ApiKey(command) => command.run(context).await,
        Command::Audit(command) => command.run(context).await,
        Command::MasterKey(command) => command.run(context).await,
        Command::Up(_)
        | Command::Relay(_)
        | Command::Dispatch
        | Command::Record
        | Command::Schedule
        | Command::Api => Err(Failure::internal("a service is not run as a command")),
    }
}

impl Command {
    /// Whether it runs until it is told to stop, and sets up its own telemetry.
    fn is_service(&self) -> bool {
        matches!(
            self,
            Self::Up(_)
                | Self::Relay(_)
                | Self::Dispatch
                | Self::Record
                | Self::Schedule
                | Self::Api
                | Self::Dlq(dlq::Dlq::Run)
                | Self::Inbox(inbox::Inbox::Run)
        )
    }
}

/// A command answers by itself; its log says only what went wrong on the way. What the libraries of
/// the stores have to say comes as the error of what was asked of them.
fn quiet_logs() -> Result<Guard, Failure> {
    let config = telemetry::Config {
        log: "warn,async_nats=off,sqlx=off".to_owned(),
        format: telemetry::Format::Human,
        ..telemetry::Config::default()
    };
    Ok(telemetry::init(&config)?)
}
