//! The configured sources, and what each one's signature covers.

use hooklane_core::config::Faults;
use hooklane_inbox::Sources;
use serde::Serialize;

use crate::config::{Config, Section};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{or_dash, table};

#[derive(Debug, Serialize)]
struct List {
    sources: Vec<View>,
}

#[derive(Debug, Serialize)]
struct View {
    partner: String,
    enabled: bool,
    /// Where the partner sends to, behind the proxy's own address.
    path: String,
    preset: Option<String>,
    /// How events are handed on: `stream`, `request` or `sql`.
    hand_off: &'static str,
    integrity: Integrity,
    entities: Vec<String>,
    /// What is worth a look.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Integrity {
    /// Whether the signature covers every byte of the body.
    full: bool,
    covers: String,
    not_covered: String,
}

/// All sources; what they need, such as files of secrets, is read.
pub(super) fn compiled(config: &Config) -> Result<Sources, Failure> {
    let mut faults = Faults::new();
    let mut sources = Sources::default();
    faults.within("inbox", |faults| {
        faults.within("sources", |faults| {
            sources = Sources::compile(&config.inbox.sources, faults);
        });
    });
    faults.into_result()?;
    Ok(sources)
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let config = context.config(&[Section::Inbox])?;
    let compiled = compiled(&config)?;
    let sources = compiled.iter().map(|(partner, source)| {
        let block = config.inbox.sources.get(partner.as_str());
        let integrity = source.integrity();
        View {
            partner: partner.to_string(),
            enabled: source.enabled(),
            path: format!("/in/{partner}"),
            preset: block.and_then(|block| block.preset.clone()),
            hand_off: source.hand_off().mode.as_str(),
            integrity: Integrity {
                full: integrity.full,
                covers: integrity.covers.clone(),
                not_covered: integrity.not_covered.clone(),
            },
            entities: block.map_or_else(Vec::new, |block| {
                block
                    .entities
                    .iter()
                    .map(|e| e.entity_type.clone())
                    .collect()
            }),
            warnings: source.warnings().to_vec(),
        }
    });
    let answer = List {
        sources: sources.collect(),
    };
    for source in &answer.sources {
        for warning in &source.warnings {
            context
                .output
                .note(&format!("{}: {warning}", source.partner));
        }
    }
    context.output.print(&answer, || human(&answer.sources))
}

fn human(sources: &[View]) -> String {
    let rows = sources.iter().map(|source| {
        let integrity = match source.integrity.full {
            true => "full",
            false => "partial",
        };
        [
            source.partner.clone(),
            if source.enabled { "yes" } else { "no" }.to_owned(),
            source.path.clone(),
            or_dash(source.preset.as_deref()),
            source.hand_off.to_owned(),
            integrity.to_owned(),
            source.integrity.not_covered.clone(),
        ]
    });
    let head = [
        "PARTNER",
        "ENABLED",
        "PATH",
        "PRESET",
        "HAND-OFF",
        "INTEGRITY",
        "NOT COVERED",
    ];
    table(head, rows.collect())
}
