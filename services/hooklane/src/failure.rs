//! Why a command failed, for a person or for a program, and the exit code that goes with it.

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use hooklane_core::config::{Fault, Faults};
use hooklane_core::error::ErrorCode;
use hooklane_core::{secrets, telemetry};
use hooklane_proto::{id, token};
use hooklane_store::manage;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::output;

/// A command that did not do what it was asked.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(serialize_with = "serialize_code")]
    code: ErrorCode,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
}

fn serialize_code<S: Serializer>(code: &ErrorCode, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(code.as_str())
}

impl Failure {
    /// A failure with its code. The message says what to do.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            faults: Vec::new(),
        }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Usage, message)
    }

    /// A value or input is malformed.
    pub(crate) fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidData, message)
    }

    /// The command line can't be read: what the parser says, without its usage lines, which are for
    /// people.
    pub(crate) fn unparsed(error: &clap::Error) -> Self {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::usage("a command is missing; --help lists what there is");
        }
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let end = text.find("\n\nUsage:").unwrap_or(text.len());
        Self::usage(text[..end].trim())
    }

    /// Hooklane's own fault.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The same with what was going on in front.
    pub(crate) fn while_doing(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same with what helps behind.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.message.push_str(hint);
        self
    }

    /// The kind of fault.
    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    /// Writes it to standard error and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let mut stderr = std::io::stderr().lock();
        // Nothing is to be done about a terminal that is gone.
        let _ = if json {
            writeln!(stderr, "{}", json!({ "error": self }))
        } else {
            let faults: String = self
                .faults
                .iter()
                .map(|fault| format!("\n  {fault}"))
                .collect();
            let text = format!("error: {}{faults}", self.message);
            writeln!(stderr, "{}", output::visible(&text))
        };
        ExitCode::from(self.code.exit_code())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        let found = faults.found().to_vec();
        let message = match found.len() {
            1 => "the configuration has a fault".to_owned(),
            count => format!("the configuration has {count} faults"),
        };
        Self {
            code: ErrorCode::Config,
            message,
            faults: found,
        }
    }
}

impl From<hooklane_store::Error> for Failure {
    fn from(error: hooklane_store::Error) -> Self {
        let hint = match error.code() {
            ErrorCode::SchemaOutdated => "; bring the schema up to date with: hooklane migrate",
            _ => "",
        };
        Self::new(error.code(), format!("{error}{hint}"))
    }
}

impl From<manage::Error> for Failure {
    fn from(error: manage::Error) -> Self {
        match error {
            manage::Error::Store(error) => error.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<hooklane_nats::Error> for Failure {
    fn from(error: hooklane_nats::Error) -> Self {
        use hooklane_nats::Error;
        let code = match &error {
            Error::Config { .. } | Error::CredentialsFile { .. } => ErrorCode::Config,
            Error::Conflict(_) | Error::OtherLedger { .. } => ErrorCode::TopologyConflict,
            Error::Unauthorized { .. } | Error::TooOld { .. } | Error::Api { .. } => {
                ErrorCode::NatsUnavailable
            }
            error if error.is_transient() => ErrorCode::NatsUnavailable,
            _ => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<secrets::Error> for Failure {
    fn from(error: secrets::Error) -> Self {
        manage::Error::from(error).into()
    }
}

impl From<hooklane_local::Error> for Failure {
    fn from(error: hooklane_local::Error) -> Self {
        let code = match error {
            hooklane_local::Error::Missing { .. } => ErrorCode::Config,
            hooklane_local::Error::InUse { .. } => ErrorCode::Conflict,
            _ => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<telemetry::Error> for Failure {
    fn from(error: telemetry::Error) -> Self {
        Self::new(ErrorCode::Config, error.to_string())
    }
}

impl From<id::InvalidId> for Failure {
    fn from(error: id::InvalidId) -> Self {
        Self::data(error.to_string())
    }
}

impl From<token::InvalidToken> for Failure {
    fn from(error: token::InvalidToken) -> Self {
        Self::data(error.to_string())
    }
}
