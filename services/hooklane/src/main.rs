//! The `hooklane` binary: every service in one process or one each, and the operator's commands.
//!
//! Owns the command line, the composed configuration, starting and stopping, and output. What the
//! commands do is in the crates that they call; what a command group says is in its file under
//! [`commands`].

mod cli;
mod commands;
mod config;
mod context;
mod failure;
mod output;
mod progress;
mod run;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use hooklane_core::error::ErrorCode;

use crate::cli::Cli;
use crate::failure::Failure;

/// Gives memory back after bursts better than the system's allocator does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    hooklane_core::tls::install_provider();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    let json = cli.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::internal(format!("the runtime can't start: {error}"));
            return failure.report(json);
        }
    };
    let done = runtime.block_on(Box::pin(commands::run(cli)));
    // A look-up by the system's resolver can't be cut off, and must not keep the process.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Ends a process whose command line asks for help or can't be read.
fn unparsed(error: &clap::Error) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let mut words = std::env::args_os().take_while(|word| word != "--");
    if !asked && words.any(|word| word == "--json") {
        return Failure::unparsed(error).report(true);
    }
    // Nothing is to be done about a terminal that is gone.
    if asked {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // It quotes the command line, in which there may be anything.
    let text = output::visible(&error.render().to_string());
    let _ = write!(std::io::stderr().lock(), "{text}");
    ExitCode::from(ErrorCode::Usage.exit_code())
}
