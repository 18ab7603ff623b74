//! The settings that `add` and `update` share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::subscription::Filter;
use hooklane_store::endpoint::Rate;

use crate::commands::input;
use crate::failure::Failure;

/// An endpoint's settings.
#[derive(Debug, Args)]
pub(super) struct Settings {
    /// An event type, a prefix such as `invoice.*`, or `*`; may be repeated. [default for new
    /// endpoints: *]
    #[arg(long = "event-type", value_name = "TYPE")]
    event_types: Vec<String>,
    /// For people.
    #[arg(long)]
    pub(super) description: Option<String>,
    /// Attempts a second: 1 to 1000, `none` for no limit, `default` for the consumer's.
    #[arg(long, value_parser = input::rate)]
    pub(super) rate: Option<Rate>,
    /// Attempts at once after a pause: 1 to 1000, or `default` for the rate.
    #[arg(long, value_parser = input::number_or_default)]
    pub(super) burst: Option<std::option::Option<u16>>,
    /// Attempts in flight: 1 to 256. [default for new endpoints: 16]
    #[arg(long)]
    pub(super) concurrency: Option<u16>,
    /// An attempt's total time: 1s to 60s. [default for new endpoints: 15s]
    #[arg(long, value_parser = input::duration)]
    pub(super) timeout: Option<Duration>,
    /// Whether it is disabled once it has failed for long: `on`, `off`, or `default` for the
    /// deployment's setting.
    #[arg(long, value_parser = input::switch_or_default, value_name = "on|off|default")]
    pub(super) auto_disable: Option<std::option::Option<bool>>,
    /// A custom header, `Name: value`; may be repeated and replaces all there were. Others on
    /// this machine can read a command line: credentials belong into --header-file.
    #[arg(long, value_name = "HEADER", conflicts_with = "header_file")]
    header: Vec<String>,
    /// A file with one custom header a line (- for standard input).
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
}

impl Settings {
    /// The filter, where one is given.
    pub(super) fn filter(&self) -> Result<Option<Filter>, Failure> {
        if self.event_types.is_empty() {
            return Ok(None);
        }
        Filter::parse(&self.event_types)
            .map(Some)
            .map_err(|error| Failure::data(error.to_string()))
    }
}

/// The filter of an endpoint that names none.
pub(super) fn everything() -> Filter {
    Filter::all()
}

/// No custom headers.
pub(super) fn no_headers() -> CustomHeaders {
    CustomHeaders::default()
}

/// The custom headers, where some are given.
pub(super) fn headers(settings: &Settings) -> Result<Option<CustomHeaders>, Failure> {
    let file;
    let lines: Vec<&str> = match &settings.header_file {
        Some(path) => {
            file = input::text(path)?;
            file.lines()
                .filter(|line| !line.trim().is_empty())
                .collect()
        }
        None => settings.header.iter().map(String::as_str).collect(),
    };
    if lines.is_empty() && settings.header_file.is_none() {
        return Ok(None);
    }
    let mut pairs = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        // The line itself may hold a credential and is not shown.
        let (name, value) = line.split_once(':').ok_or_else(|| {
            Failure::data(format!(
                "custom header {} has no colon; give `Name: value`",
                number + 1
            ))
        })?;
        pairs.push((name.trim(), value.trim()));
    }
    CustomHeaders::parse(pairs)
        .map(Some)
        .map_err(|error| Failure::data(error.to_string()))
}
