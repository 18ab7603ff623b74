//! Logs and traces of the process: set up once, flushed at the end.
//!
//! Logs go to standard error, as lines for people or as JSON. Spans go to an OpenTelemetry
//! collector where one is configured; where none is, spans are disabled at their call site and
//! cost next to nothing. Metrics are not part of this yet.

use std::io::IsTerminal as _;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, Targets, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{ConnectionUrl, Faults};

/// How long the end of the process waits for the collector.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// What is logged and traced, and where to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which log lines are written: a level, or levels by module such as
    /// `info,hooklane_relay=debug`.
    pub log: String,
    /// The log's form.
    pub format: Format,
    /// The collector's base address for OTLP over HTTP, such as `http://localhost:4318`;
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` sets it too. None: no traces.
    pub otlp_endpoint: Option<ConnectionUrl>,
    /// The name under which spans appear.
    pub service_name: String,
    /// The share of traces kept that start here, 0 to 1. One that comes in keeps its own choice.
    pub sample_ratio: f64,
}

/// The log's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people on a terminal, JSON elsewhere.
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log: "info,async_nats=warn,sqlx=warn".to_owned(),
            format: Format::Auto,
            otlp_endpoint: None,
            service_name: "hooklane".to_owned(),
            sample_ratio: 1.0,
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        if EnvFilter::try_new(&self.log).is_err() {
            faults.add(
                "log",
                "is not a log filter",
                "give a level, or levels by module such as `info,hooklane_relay=debug`",
            );
        }
        faults.range("sample_ratio", self.sample_ratio, 0.0..=1.0);
        if let Some(endpoint) = &self.otlp_endpoint {
            let known = url::Url::parse(endpoint.expose())
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            if !known {
                faults.add(
                    "otlp_endpoint",
                    "is not an http or https address",
                    "give the collector's base address, such as http://localhost:4318",
                );
            }
        }
        if self.service_name.is_empty() {
            faults.add(
                "service_name",
                "is empty",
                "give a name, such as `hooklane`",
            );
        }
    }
}

/// What can go wrong at the start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exporter could not be built.
    #[error("the trace exporter can't be set up: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The log filter can't be read.
    #[error("the log filter can't be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Something else set up telemetry before.
    #[error("telemetry is set up twice")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps the exporter alive; [`Guard::flush`] sends what is left.
#[derive(Debug)]
#[must_use = "spans are exported while the guard lives"]
pub struct Guard(Option<SdkTracerProvider>);

impl Guard {
    /// Sends what is left to the collector and stops exporting. Blocks for 3 s at most.
    pub fn flush(self) {
        drop(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // A collector that is away must not keep the process from ending.
            let _ = provider.shutdown_with_timeout(FLUSH_WITHIN);
        }
    }
}

/// Sets up logs and traces for the whole process.
///
/// # Errors
/// [`Error`] where the filter or the exporter can't be built, or on a second call.
pub fn init(config: &Config) -> Result<Guard, Error> {
    let human = match config.format {
        Format::Human => true,
        Format::Json => false,
        Format::Auto => std::io::stderr().is_terminal(),
    };
    // Log lines read alone, so spans are not for them: only events pass, and a span that
    // nothing exports is disabled where it would be made.
    let logged = || -> Result<_, Error> {
        Ok(EnvFilter::try_new(&config.log)?.and(filter_fn(|meta| meta.is_event())))
    };
    let lines = if human {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(logged()?)
            .boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .with_filter(logged()?)
            .boxed()
    };
    let provider = config
        .otlp_endpoint
        .as_ref()
        .map(|endpoint| provider(config, endpoint))
        .transpose()?;
    let spans = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("hooklane"))
            .with_location(false)
            .with_threads(false)
            .with_filter(
                // The exporter's own HTTP client must not be traced.
                Targets::new()
                    .with_target("hooklane", LevelFilter::INFO)
                    .and(filter_fn(|meta| meta.is_span())),
            )
    });
    tracing_subscriber::registry()
        .with(lines)
        .with(spans)
        .try_init()?;
    Ok(Guard(provider))
}

fn provider(config: &Config, endpoint: &ConnectionUrl) -> Result<SdkTracerProvider, Error> {
    crate::tls::install_provider();
    let base = endpoint.expose().trim_end_matches('/');
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{base}/v1/traces"))
        .with_timeout(Duration::from_secs(5))
        .build()?;
    let resource = Resource::builder()
        .with_service_name(config.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource)
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_each_fault_is_named() {
        let mut faults = Faults::new();
        Config::default().validate(&mut faults);
        assert!(faults.is_empty(), "{faults}");
        let bad = Config {
            log: "a=b=c".to_owned(),
            otlp_endpoint: Some(ConnectionUrl::new("localhost")),
            sample_ratio: f64::NAN,
            service_name: String::new(),
            ..Config::default()
        };
        bad.validate(&mut faults);
        let keys: Vec<_> = faults.found().iter().map(|f| f.key.as_str()).collect();
        assert_eq!(
            keys,
            ["log", "sample_ratio", "otlp_endpoint", "service_name"]
        );
    }
}
