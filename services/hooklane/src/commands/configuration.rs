//! `hooklane check-config` and `hooklane dump-config`.

mod comments;

use clap::Args;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Serialize)]
struct Checked {
    valid: bool,
    file: Option<String>,
}

/// Reports everything that is wrong with the configuration.
pub(crate) fn check(context: &Context) -> Result<(), Failure> {
    let (_, faults) = context.inspect();
    faults.into_result()?;
    let file = context.file().map(|file| file.display().to_string());
    let answer = Checked { valid: true, file };
    context.output.print(&answer, || match &answer.file {
        Some(file) => format!("the configuration is sound ({file} and the environment)"),
        None => "the configuration is sound (the environment alone; there is no file)".to_owned(),
    })
}

/// Print the configuration in force, without its secrets.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// Print the defaults instead, as a file to begin with.
    #[arg(long)]
    defaults: bool,
}

impl Dump {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = if self.defaults {
            crate::config::Config::default()
        } else {
            context.config(&[])?
        };
        if context.output.json {
            return context.output.print(&config, String::new);
        }
        let text = toml::to_string_pretty(&config).map_err(|error| {
            Failure::internal(format!("the configuration has no TOML form: {error}"))
        })?;
        output::line(&match self.defaults {
            true => comments::commented(&text),
            false => text,
        })
    }
}
