//! The catalogue of what can happen.
//!
//! Owns adding, reading and deprecating event types. They are never removed: messages refer to
//! them, and an unknown one is refused at acceptance.

use chrono::{DateTime, Utc};
use hooklane_proto::token::EventType as Name;
use serde_json::value::RawValue;

use crate::manage::{Error, Kind, Page};
use crate::{Error as Fault, Store, operational};

/// Longest description, in bytes.
const MAX_DESCRIPTION: usize = 4096;
/// Largest schema or example, in bytes.
const MAX_JSON: usize = 64 * 1024;

/// An entry of the catalogue.
#[derive(Debug, Clone)]
pub struct EventType {
    /// Its name, such as `invoice.paid`.
    pub name: Name,
    /// For people.
    pub description: String,
    /// The payload's JSON Schema, as it was given.
    pub schema: Option<Box<RawValue>>,
    /// A payload as it may look, as it was given.
    pub example: Option<Box<RawValue>>,
    /// No longer to be subscribed to; still accepted.
    pub deprecated: bool,
    /// When it was added.
    pub created_at: DateTime<Utc>,
}

/// What a new entry says.
#[derive(Debug, Clone, Default)]
pub struct New {
    /// For people.
    pub description: String,
    /// The payload's JSON Schema.
    pub schema: Option<Box<RawValue>>,
    /// A payload as it may look.
    pub example: Option<Box<RawValue>>,
}

struct Row {
    name: String,
    description: String,
    schema: Option<String>,
    example: Option<String>,
    deprecated: bool,
    created_at: DateTime<Utc>,
}

impl Row {
    fn event_type(self) -> Result<EventType, Fault> {
        let Self {
            name,
            description,
            schema,
            example,
            deprecated,
            created_at,
        } = self;
        let doing = "reading an event type";
        let json = |text: Option<String>| {
            text.map(RawValue::from_string)
                .transpose()
                .map_err(Fault::unreadable(doing))
        };
        Ok(EventType {
            name: Name::new(&name).map_err(Fault::unreadable(doing))?,
            description,
            schema: json(schema)?,
            example: json(example)?,
            deprecated,
            created_at,
        })
    }
}

/// Adds an event type.
///
/// # Errors
/// [`Error::Exists`], [`Error::Invalid`] where a text is too large, or a fault of the database.
pub async fn add(store: &Store, name: &Name, new: &New) -> Result<EventType, Error> {
    let New {
        description,
        schema,
        example,
    } = new;
    if name.as_str().starts_with(operational::PREFIX) {
        return Err(Error::Invalid(format!(
            "event types below `{}` are Hooklane's own; choose another name",
            operational::PREFIX
        )));
    }
    let schema = schema.as_ref().map(|json| json.get());
    let example = example.as_ref().map(|json| json.get());
    if description.len() > MAX_DESCRIPTION || description.contains('\0') {
        return Err(Error::Invalid(format!(
            "the description is too long or not text; give at most {MAX_DESCRIPTION} bytes"
        )));
    }
    for (what, text) in [("schema", schema), ("example", example)] {
        if text.is_some_and(|text| text.len() > MAX_JSON || text.contains("\\u0000")) {
            return Err(Error::Invalid(format!(
                "the {what} is too large or holds \\u0000; give at most {MAX_JSON} bytes"
            )));
        }
    }
    let added = sqlx::query_as!(
        Row,
        r#"INSERT INTO hooklane.event_types (name, description, schema, example)
           VALUES ($1, $2, $3::text::json, $4::text::json)
           ON CONFLICT (name) DO NOTHING
           RETURNING name, description, schema::text AS schema, example::text AS example,
                     deprecated, created_at"#,
        name.as_str(),
        description,
        schema,
        example,
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("adding an event type"))?;
    match added {
        Some(row) => Ok(row.event_type()?),
        None => Err(Error::Exists {
            kind: Kind::EventType,
            id: name.to_string(),
        }),
    }
}

/// The event type with this name.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, name: &Name) -> Result<EventType, Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT name, description, schema::text AS schema, example::text AS example,
                deprecated, created_at
           FROM hooklane.event_types WHERE name = $1",
        name.as_str(),
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("reading an event type"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::EventType, name))?;
    Ok(row.event_type()?)
}

/// Event types in the order of their names, `limit` of them, behind `after`.
///
/// # Errors
/// A fault of the database.
pub async fn list(
    store: &Store,
    after: Option<&Name>,
    limit: u32,
) -> Result<Page<EventType, Name>, Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT name, description, schema::text AS schema, example::text AS example,
                deprecated, created_at
           FROM hooklane.event_types WHERE name > $1 ORDER BY name LIMIT $2",
        after.map_or("", Name::as_str),
        i64::from(limit) + 1,
    )
    .fetch_all(store.pool())
    .await
    .map_err(Fault::doing("listing event types"))?;
    let types: Result<Vec<EventType>, Fault> = rows.into_iter().map(Row::event_type).collect();
    Ok(Page::cut(types?, limit, |event_type| {
        event_type.name.clone()
    }))
}

/// Marks an event type as deprecated, or no longer so.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn set_deprecated(
    store: &Store,
    name: &Name,
    deprecated: bool,
) -> Result<EventType, Error> {
    let row = sqlx::query_as!(
        Row,
        "UPDATE hooklane.event_types SET deprecated = $2 WHERE name = $1
         RETURNING name, description, schema::text AS schema, example::text AS example,
                   deprecated, created_at",
        name.as_str(),
        deprecated,
    )
    .fetch_optional(store.pool())
    .await
    .map_err(Fault::doing("changing an event type"))?;
    let row = row.ok_or_else(|| Error::not_found(Kind::EventType, name))?;
    Ok(row.event_type()?)
}
