//! `hooklane event-type`: the catalogue of what can happen.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use hooklane_api::intake::schema;
use hooklane_proto::token::EventType as Name;
use hooklane_store::event_type;
use serde::Serialize;
use serde_json::value::RawValue;

use super::input;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{fields, short, table, time};

/// The catalogue of what can happen.
#[derive(Debug, Subcommand)]
pub(crate) enum EventType {
    /// Add an event type; events of other types are not accepted.
    Add {
        /// Dot-separated words, such as `invoice.paid`.
        name: Name,
        /// For people.
        #[arg(long, default_value = "")]
        description: String,
        /// A file with the payload's JSON Schema.
        #[arg(long, value_name = "FILE")]
        schema: Option<PathBuf>,
        /// A file with a payload as it may look.
        #[arg(long, value_name = "FILE")]
        example: Option<PathBuf>,
    },
    /// List event types by name.
    List {
        /// Start behind this one.
        #[arg(long)]
        after: Option<Name>,
        /// How many at the most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Show one event type with its schema and example.
    Show {
        /// The event type.
        name: Name,
    },
    /// Mark an event type as deprecated: still accepted, but whoever subscribes is warned.
    Deprecate {
        /// The event type.
        name: Name,
        /// Take the mark away.
        #[arg(long)]
        undo: bool,
    },
}

/// An event type, as JSON has it.
#[derive(Debug, Serialize)]
struct View {
    name: String,
    description: String,
    schema: Option<Box<RawValue>>,
    example: Option<Box<RawValue>>,
    deprecated: bool,
    version: i64,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct List {
    event_types: Vec<View>,
    next: Option<String>,
}

impl From<event_type::EventType> for View {
    fn from(event_type: event_type::EventType) -> Self {
        let event_type::EventType {
            name,
            description,
            schema,
            example,
            deprecated,
            created_at,
            version,
        } = event_type;
        Self {
            name: name.to_string(),
            description,
            schema: schema.map(one_line),
            example: example.map(one_line),
            deprecated,
            version,
            created_at: time(created_at),
        }
    }
}

/// Without the line breaks that pretty JSON has between its parts: an answer is one line. Inside
/// its strings JSON has none.
fn one_line(json: Box<RawValue>) -> Box<RawValue> {
    let text = json.get().replace(['\r', '\n'], " ");
    RawValue::from_string(text).unwrap_or(json)
}

impl View {
    fn human(&self) -> String {
        let json = |value: &Option<Box<RawValue>>| {
            value
                .as_ref()
                .map_or_else(String::new, |json| json.get().to_owned())
        };
        fields(vec![
            ("event type", self.name.clone()),
            ("description", self.description.clone()),
            ("deprecated", self.deprecated.to_string()),
            ("schema", json(&self.schema)),
            ("example", json(&self.example)),
            ("created", self.created_at.clone()),
        ])
    }
}

fn json_file(path: Option<&Path>) -> Result<Option<Box<RawValue>>, Failure> {
    path.map(|path| {
        RawValue::from_string(input::text(path)?.trim().to_owned())
            .map_err(|error| Failure::data(format!("{} is not JSON: {error}", path.display())))
    })
    .transpose()
}

/// A schema that payloads can be held against.
fn schema_file(path: Option<&Path>) -> Result<Option<Box<RawValue>>, Failure> {
    let schema = json_file(path)?;
    if let (Some(path), Some(schema)) = (path, &schema) {
        let refused = |why| Failure::data(format!("{}: {why}", path.display()));
        let parsed =
            serde_json::from_str(schema.get()).map_err(|error| refused(error.to_string()))?;
        schema::check(&parsed).map_err(refused)?;
    }
    Ok(schema)
}

impl EventType {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let one = match self {
            Self::Add {
                name,
                description,
                schema,
                example,
            } => {
                let new = event_type::New {
                    description,
                    schema: schema_file(schema.as_deref())?,
                    example: json_file(example.as_deref())?,
                };
                event_type::add(&context.store().await?, &name, &new).await?
            }
            Self::Show { name } => event_type::show(&context.store().await?, &name).await?,
            Self::Deprecate { name, undo } => {
                event_type::set_deprecated(&context.store().await?, &name, !undo).await?
            }
            Self::List { after, limit } => {
                let store = context.store().await?;
                let page = event_type::list(&store, after.as_ref(), limit).await?;
                let rows = page
                    .items
                    .iter()
                    .map(|event_type| {
                        let state = if event_type.deprecated {
                            "deprecated"
                        } else {
                            ""
                        };
                        [
                            event_type.name.to_string(),
                            state.to_owned(),
                            short(Some(event_type.created_at)),
                            event_type.description.clone(),
                        ]
                    })
                    .collect();
                let human = table(["EVENT TYPE", "STATE", "CREATED", "DESCRIPTION"], rows);
                let list = List {
                    event_types: page.items.into_iter().map(View::from).collect(),
                    next: page.next.map(|name| name.to_string()),
                };
                context.output.print(&list, || human)?;
                context.output.more(list.next.as_deref());
                return Ok(());
            }
        };
        let view = View::from(one);
        context.output.print(&view, || view.human())
    }
}
