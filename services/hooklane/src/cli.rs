//! The command line's top: global options and the groups of commands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    api_key, audit, check_url, configuration, consumer, decode, delivery, dlq, endpoint,
    event_type, inbox, master_key, message, migrate, nats, outbox, serve, sign, task,
};

/// Webhooks that survive failure.
///
/// Exit codes: 0 done, 64 bad usage or configuration, 65 bad data, 69 a service is unavailable,
/// 70 a fault of Hooklane itself.
#[derive(Debug, Parser)]
#[command(name = "hooklane", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The configuration file; hooklane.toml is read where it is there.
    #[arg(long, global = true, value_name = "FILE", env = "HOOKLANE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Answer in JSON, one object a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run every service in one process.
    Up(serve::Up),
    /// Run the relay: takes events from outboxes and INTAKE into the ledger.
    Relay(serve::Relay),
    /// Run the dispatcher: delivers to endpoints.
    Dispatch,
    /// Run the recorder: writes down what happened.
    Record,
    /// Run the scheduler: puts back what is due or was lost.
    Schedule,
    /// Serve the REST API.
    Api,
    /// Bring the database's schema up to date.
    Migrate(migrate::Migrate),
    /// Streams and JetStream consumers.
    #[command(subcommand)]
    Nats(nats::Nats),
    /// Report everything that is wrong with the configuration.
    CheckConfig,
    /// Print the configuration in force, without its secrets.
    DumpConfig(configuration::Dump),
    /// Read records (MessagePack) and print them as JSON lines.
    Decode(decode::Decode),
    /// Say whether an endpoint's URL would be accepted and connected to.
    CheckUrl(check_url::CheckUrl),
    /// Sign a payload as an attempt is signed.
    Sign(sign::Sign),
    /// Verify a signature as a receiver does.
    Verify(sign::Verify),
    /// The customers whose endpoints get events.
    #[command(subcommand)]
    Consumer(consumer::Consumer),
    /// The catalogue of what can happen.
    #[command(subcommand)]
    EventType(event_type::EventType),
    /// The customers' endpoints.
    #[command(subcommand)]
    Endpoint(endpoint::Endpoint),
    /// Accepted events.
    #[command(subcommand)]
    Message(message::Message),
    /// Messages on their way to endpoints.
    #[command(subcommand)]
    Delivery(delivery::Delivery),
    /// Deliveries that failed for good, and the service that moves them.
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Partners' events, and the service that receives them.
    #[command(subcommand)]
    Inbox(inbox::Inbox),
    /// What is delivered again in the background.
    #[command(subcommand)]
    Task(task::Task),
    /// The outboxes, and what could not be taken from them.
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// The keys for the HTTP API.
    #[command(subcommand)]
    ApiKey(api_key::ApiKey),
    /// Who changed what by hand.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// The key that endpoint secrets are sealed with.
    #[command(subcommand)]
    MasterKey(master_key::MasterKey),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
