//! Adding endpoints, and changing their settings.

use std::time::Duration;

use hooklane_core::rules::address::{self, Policy};
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::signing::Secret;
use hooklane_core::rules::subscription::Filter;
use hooklane_core::secrets::{MasterKeys, generate_signing_secret};
use hooklane_proto::id::EndpointId;
use hooklane_proto::route::State;
use hooklane_proto::token::ConsumerId;
use serde_json::json;

use super::{Endpoint, MAX_PER_CONSUMER, Rate, filters, read, seal_headers, seal_secret};
use crate::audit_log::{self, Action, Change};
use crate::manage::{Error, Kind};
use crate::{Error as Fault, Store};

/// Longest description, in bytes.
const MAX_DESCRIPTION: usize = 1024;

/// What a new endpoint says. [`New::to`] has the defaults.
#[derive(Debug, Clone)]
pub struct New {
    /// Whose it is.
    pub consumer: ConsumerId,
    /// Where attempts go.
    pub url: String,
    /// For people, at most 1,024 bytes.
    pub description: String,
    /// Which event types it wants.
    pub filter: Filter,
    /// Attempts a second.
    pub rate: Rate,
    /// Attempts at once after a pause, 1 to 1,000; `None` is the rate.
    pub burst: Option<u16>,
    /// Attempts in flight, 1 to 256.
    pub concurrency: u16,
    /// An attempt's total time, 1 to 60 s.
    pub timeout: Duration,
    /// Whether it is disabled once it has failed for long; `None` takes the deployment's setting.
    pub auto_disable: Option<bool>,
    /// Headers to put on every attempt.
    pub headers: CustomHeaders,
    /// The signing secret, where the customer brings one; otherwise one is made.
    pub secret: Option<Secret>,
}

impl New {
    /// An endpoint of this consumer with everything else at its default.
    #[must_use]
    pub fn to(consumer: ConsumerId, url: impl Into<String>, filter: Filter) -> Self {
        Self {
            consumer,
            url: url.into(),
            description: String::new(),
            filter,
            rate: Rate::Inherited,
            burst: None,
            concurrency: 16,
            timeout: Duration::from_secs(15),
            auto_disable: None,
            headers: CustomHeaders::default(),
            secret: None,
        }
    }
}

/// An endpoint that was added.
#[derive(Debug)]
pub struct Added {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its signing secret, to be shown once.
    pub secret: Secret,
    /// What the person who added it should know.
    pub warnings: Vec<String>,
}

/// Adds an endpoint. It gets every event that is accepted after this has answered.
///
/// # Errors
/// [`Error::Address`], [`Error::UnknownEventTypes`], [`Error::Invalid`] for a number out of range,
/// [`Error::NotFound`] for the consumer, [`Error::Limit`] where it has
/// [`MAX_PER_CONSUMER`] already, or a fault of the database.
pub async fn add(
    store: &Store,
    new: &New,
    policy: &Policy,
    keys: &MasterKeys,
) -> Result<Added, Error> {
    let url = address::check_url(&new.url, policy)?;
    let numbers = Numbers::check(new.rate, new.burst, new.concurrency, new.timeout)?;
    check_description(&new.description)?;
    let id = EndpointId::generate();
    let secret = new.secret.clone().unwrap_or_else(generate_signing_secret);
    let sealed = seal_secret(&secret, id, keys)?;
    let headers = seal_headers(&new.headers, id, keys)?;

    let mut tx = store
        .pool()
        .begin()
        .await
        .map_err(Fault::doing("adding an endpoint"))?;
    // The lock makes the count below hold until the commit, and the consumer stay.
    let consumer = sqlx::query_scalar!(
        "SELECT id FROM hooklane.consumers WHERE id = $1 AND deleted_at IS NULL
            FOR NO KEY UPDATE",
        new.consumer.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(Fault::doing("reading a consumer"))?;
    if consumer.is_none() {
        return Err(Error::not_found(Kind::Consumer, &new.consumer));
    }
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM hooklane.endpoints
            WHERE consumer_id = $1 AND state <> 'deleted'"#,
        new.consumer.as_str(),
    )
    .fetch_one(&mut *tx)
    .await
    .map_err(Fault::doing("counting endpoints"))?;
    if count >= MAX_PER_CONSUMER {
        return Err(Error::Limit(format!(
            "the consumer `{}` has {count} endpoints, which is the most one may have; delete some first",
            new.consumer
        )));
    }
    let warnings = filters::check(&mut tx, &new.filter).await?;
    sqlx::query!(
        "INSERT INTO hooklane.endpoints
             (id, consumer_id, url, description, filters, rate, burst, concurrency, timeout_ms, headers,
              auto_disable)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        id.uuid(),
        new.consumer.as_str(),
        url.as_str(),
        new.description,
        &new.filter.to_strings(),
        new.rate.column(),
        numbers.burst,
        numbers.concurrency,
        numbers.timeout_ms,
        headers,
        new.auto_disable,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing("adding an endpoint"))?;
    sqlx::query!(
        "INSERT INTO hooklane.endpoint_secrets (endpoint_id, sealed) VALUES ($1, $2)",
        id.uuid(),
        sealed,
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing("adding an endpoint's secret"))?;
    let endpoint = read::lock(&mut tx, id).await?;
    let change = Change::of(Action::EndpointCreate, Some(new.consumer.as_str()), id);
    audit_log::note(&mut tx, store, change).await?;
    tx.commit()
        .await
        .map_err(Fault::doing("adding an endpoint"))?;
    Ok(Added {
        endpoint,
        secret,
        warnings,
    })
}

/// What to change; `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Where attempts go.
    pub url: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Which event types it wants. Holds for events accepted from now on.
    pub filter: Option<Filter>,
    /// Attempts a second.
    pub rate: Option<Rate>,
    /// Attempts at once after a pause; `Some(None)` is the rate.
    pub burst: Option<Option<u16>>,
    /// Attempts in flight.
    pub concurrency: Option<u16>,
    /// An attempt's total time.
    pub timeout: Option<Duration>,
    /// Whether it is disabled once it has failed for long; `Some(None)` takes the deployment's
    /// setting.
    pub auto_disable: Option<Option<bool>>,
    /// All custom headers anew.
    pub headers: Option<CustomHeaders>,
}

impl Changes {
    /// The names of the settings that are changed.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let Self {
            url,
            description,
            filter,
            rate,
            burst,
            concurrency,
            timeout,
            auto_disable,
            headers,
        } = self;
        audit_log::named([
            ("url", url.is_some()),
            ("description", description.is_some()),
            ("event_types", filter.is_some()),
            ("rate", rate.is_some()),
            ("burst", burst.is_some()),
            ("concurrency", concurrency.is_some()),
            ("timeout", timeout.is_some()),
            ("auto_disable", auto_disable.is_some()),
            ("headers", headers.is_some()),
        ])
    }

    /// Whether everything is left as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names().is_empty()
    }
}

/// An endpoint after its change.
#[derive(Debug)]
pub struct Updated {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// What the person who changed it should know.
    pub warnings: Vec<String>,
}

/// Changes the settings of an endpoint that is at the version `expected`, or at any, and tells the
/// lanes.
///
/// # Errors
/// As [`add`], [`Error::Stale`], and [`Error::Conflict`] where it is deleted.
pub async fn update(
    store: &Store,
    id: EndpointId,
    changes: &Changes,
    expected: Option<i64>,
    policy: &Policy,
    keys: &MasterKeys,
) -> Result<Updated, Error> {
    let url = changes
        .url
        .as_ref()
        .map(|url| address::check_url(url, policy))
        .transpose()?;
    if let Some(description) = &changes.description {
        check_description(description)?;
    }
    let mut tx = store
        .pool()
        .begin()
        .await
        .map_err(Fault::doing("changing an endpoint"))?;
    let old = read::lock(&mut tx, id).await?;
    if old.state == State::Deleted {
        return Err(Error::Conflict(format!(
            "the endpoint `{id}` is deleted; add a new one"
        )));
    }
    Error::unless_current(Kind::Endpoint, id, old.version, expected)?;
    let rate = changes.rate.unwrap_or(old.rate);
    let numbers = Numbers::check(
        rate,
        changes.burst.unwrap_or(old.burst),
        changes.concurrency.unwrap_or(old.concurrency),
        changes.timeout.unwrap_or(old.timeout),
    )?;
    let warnings = match &changes.filter {
        Some(filter) => filters::check(&mut tx, filter).await?,
        None => Vec::new(),
    };
    let headers = changes
        .headers
        .as_ref()
        .map(|headers| seal_headers(headers, id, keys))
        .transpose()?;
    sqlx::query!(
        "UPDATE hooklane.endpoints
            SET url = $2, description = $3, filters = $4, rate = $5, burst = $6, concurrency = $7,
                timeout_ms = $8, headers = CASE WHEN $9 THEN $10 ELSE headers END, auto_disable = $11,
                version = nextval('hooklane.endpoint_version'), updated_at = clock_timestamp()
          WHERE id = $1",
        id.uuid(),
        url.as_ref().map_or(old.url.as_str(), |url| url.as_str()),
        changes.description.as_ref().unwrap_or(&old.description),
        &changes.filter.as_ref().unwrap_or(&old.filter).to_strings(),
        rate.column(),
        numbers.burst,
        numbers.concurrency,
        numbers.timeout_ms,
        headers.is_some(),
        headers.flatten(),
        changes.auto_disable.unwrap_or(old.auto_disable),
    )
    .execute(&mut *tx)
    .await
    .map_err(Fault::doing("changing an endpoint"))?;
    let endpoint = read::lock(&mut tx, id).await?;
    let change = Change::of(Action::EndpointUpdate, Some(endpoint.consumer.as_str()), id);
    let change = change.with(json!({ "changed": changes.names() }));
    audit_log::note(&mut tx, store, change).await?;
    tx.commit()
        .await
        .map_err(Fault::doing("changing an endpoint"))?;
    Ok(Updated { endpoint, warnings })
}

/// Checked numbers, as the columns have them.
struct Numbers {
    burst: Option<i32>,
    concurrency: i32,
    timeout_ms: i32,
}

impl Numbers {
    fn check(
        rate: Rate,
        burst: Option<u16>,
        concurrency: u16,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if let Rate::PerSecond(rate) = rate
            && !(1..=1000).contains(&rate)
        {
            return invalid(format!(
                "a rate of {rate} a second is out of range; give 1 to 1000, or none for no limit"
            ));
        }
        if let Some(burst) = burst
            && !(1..=1000).contains(&burst)
        {
            return invalid(format!(
                "a burst of {burst} is out of range; give 1 to 1000"
            ));
        }
        if !(1..=256).contains(&concurrency) {
            return invalid(format!(
                "a concurrency of {concurrency} is out of range; give 1 to 256"
            ));
        }
        let timeout_ms = timeout.as_millis();
        if !(1000..=60_000).contains(&timeout_ms) {
            return invalid(format!(
                "a timeout of {timeout:?} is out of range; give 1 to 60 seconds"
            ));
        }
        Ok(Self {
            burst: burst.map(i32::from),
            concurrency: i32::from(concurrency),
            // Checked above.
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(60_000),
        })
    }
}

fn check_description(text: &str) -> Result<(), Error> {
    if text.len() > MAX_DESCRIPTION || text.contains('\0') {
        return Err(Error::Invalid(format!(
            "the description is too long or not text; give at most {MAX_DESCRIPTION} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_ranges_are_refused() {
        let second = Duration::from_secs(1);
        let check = |rate, burst, concurrency, timeout| {
            Numbers::check(rate, burst, concurrency, timeout).is_ok()
        };
        assert!(check(Rate::PerSecond(1000), Some(1000), 256, 60 * second));
        assert!(check(Rate::Unlimited, Some(1), 1, second));
        assert!(!check(Rate::PerSecond(0), None, 16, second));
        assert!(!check(Rate::PerSecond(1001), None, 16, second));
        assert!(!check(Rate::Inherited, Some(0), 16, second));
        assert!(!check(Rate::Inherited, Some(1001), 16, second));
        assert!(!check(Rate::Inherited, None, 0, second));
        assert!(!check(Rate::Inherited, None, 257, second));
        assert!(!check(Rate::Inherited, None, 16, second / 2));
        assert!(!check(Rate::Inherited, None, 16, 61 * second));
    }
}
