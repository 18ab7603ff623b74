//! The catalogue of what can happen.
//!
//! Owns adding, reading, changing and deprecating event types. They are never removed: messages refer to
//! them, and an unknown one is refused at acceptance.

use chrono::{DateTime, Utc};
use hooklane_proto::token::EventType as Name;
use serde_json::json;
use serde_json::value::RawValue;

use crate::audit_log::{self, Action, Change};
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
    /// Grows with every change.
    pub version: i64,
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
    version: i64,
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
            version,
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
            version,
        })
    }
}

/// Refuses what can't be kept.
fn check(
    description: Option<&str>,
    schema: Option<&RawValue>,
    example: Option<&RawValue>,
) -> Result<(), Error> {
    if description.is_some_and(|text| text.len() > MAX_DESCRIPTION || text.contains('\0')) {
        return Err(Error::Invalid(format!(
            "the description is too long or not text; give at most {MAX_DESCRIPTION} bytes"
        )));
    }
    for (what, json) in [("schema", schema), ("example", example)] {
        let text = json.map_or("", RawValue::get);
        if text.len() > MAX_JSON || text.contains("\\u0000") {
            return Err(Error::Invalid(format!(
                "the {what} is too large or holds \\u0000; give at most {MAX_JSON} bytes"
            )));
        }
    }
    Ok(())
}

fn check_own(name: &Name, what: &str) -> Result<(), Error> {
    if name.as_str().starts_with(operational::PREFIX) {
        return Err(Error::Invalid(format!(
            "event types below `{}` are Hooklane's own; {what}",
            operational::PREFIX
        )));
    }
    Ok(())
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
    check_own(name, "choose another name")?;
    check(Some(description), schema.as_deref(), example.as_deref())?;
    let fault = || Fault::doing("adding an event type");
    let mut tx = store.pool().begin().await.map_err(fault())?;
    let added = sqlx::query_as!(
        Row,
        r#"INSERT INTO hooklane.event_types (name, description, schema, example)
           VALUES ($1, $2, $3::text::json, $4::text::json)
           ON CONFLICT (name) DO NOTHING
           RETURNING name, description, schema::text AS schema, example::text AS example,
                     deprecated, created_at, version"#,
        name.as_str(),
        description,
        schema.as_ref().map(|json| json.get()),
        example.as_ref().map(|json| json.get()),
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(fault())?;
    let Some(row) = added else {
        return Err(Error::Exists {
            kind: Kind::EventType,
            id: name.to_string(),
        });
    };
    let change = Change::of(Action::EventTypeCreate, None, name);
    audit_log::note(&mut tx, store, change).await?;
    tx.commit().await.map_err(fault())?;
    Ok(row.event_type()?)
}

/// The event type with this name.
///
/// # Errors
/// [`Error::NotFound`], or a fault of the database.
pub async fn show(store: &Store, name: &Name) -> Result<EventType, Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT name, description, schema::text AS schema, example::text AS example,
                deprecated, created_at, version
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
                deprecated, created_at, version
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

/// What to change; `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// For people, at most 4,096 bytes.
    pub description: Option<String>,
    /// The payload's JSON Schema, at most 64 KiB; `Some(None)` takes it away.
    pub schema: Option<Option<Box<RawValue>>>,
    /// A payload as it may look, at most 64 KiB; `Some(None)` takes it away.
    pub example: Option<Option<Box<RawValue>>>,
    /// No longer to be subscribed to.
    pub deprecated: Option<bool>,
}

impl Changes {
    /// The names of what is changed.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let Self {
            description,
            schema,
            example,
            deprecated,
        } = self;
        audit_log::named([
            ("description", description.is_some()),
            ("schema", schema.is_some()),
            ("example", example.is_some()),
            ("deprecated", deprecated.is_some()),
        ])
    }
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
    let changes = Changes {
        deprecated: Some(deprecated),
        ..Changes::default()
    };
    update(store, name, &changes, None).await
}

/// Changes an event type that is at the version `expected`, or at any. Without a change, its version
/// stays. Of Hooklane's own only the mark changes.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Stale`], [`Error::Invalid`] where a text is too large or it is one of
/// Hooklane's own, or a fault of the database.
pub async fn update(
    store: &Store,
    name: &Name,
    changes: &Changes,
    expected: Option<i64>,
) -> Result<EventType, Error> {
    let schema = changes.schema.as_ref().map(Option::as_deref);
    let example = changes.example.as_ref().map(Option::as_deref);
    let description = changes.description.as_deref();
    check(description, schema.flatten(), example.flatten())?;
    let names = changes.names();
    if names.iter().any(|what| *what != "deprecated") {
        check_own(name, "they can be deprecated and no more")?;
    }
    let fault = || Fault::doing("changing an event type");
    let mut tx = store.pool().begin().await.map_err(fault())?;
    let version = sqlx::query_scalar!(
        "SELECT version FROM hooklane.event_types WHERE name = $1 FOR NO KEY UPDATE",
        name.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(fault())?;
    let version = version.ok_or_else(|| Error::not_found(Kind::EventType, name))?;
    Error::unless_current(Kind::EventType, name, version, expected)?;
    let row = sqlx::query_as!(
        Row,
        "UPDATE hooklane.event_types
            SET description = coalesce($2, description),
                schema = CASE WHEN $3 THEN $4::text::json ELSE schema END,
                example = CASE WHEN $5 THEN $6::text::json ELSE example END,
                deprecated = coalesce($7, deprecated),
                version = version + CASE WHEN $8 THEN 1 ELSE 0 END
          WHERE name = $1
         RETURNING name, description, schema::text AS schema, example::text AS example,
                   deprecated, created_at, version",
        name.as_str(),
        description,
        schema.is_some(),
        schema.flatten().map(RawValue::get),
        example.is_some(),
        example.flatten().map(RawValue::get),
        changes.deprecated,
        !names.is_empty(),
    )
    .fetch_one(&mut *tx)
    .await
    .map_err(fault())?;
    if !names.is_empty() {
        let change = Change::of(Action::EventTypeUpdate, None, name);
        let change = change.with(json!({ "changed": names }));
        audit_log::note(&mut tx, store, change).await?;
    }
    tx.commit().await.map_err(fault())?;
    Ok(row.event_type()?)
}
