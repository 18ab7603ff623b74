//! Where a lane's attempts go and what signs them, made ready once for each version of an
//! endpoint's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklane_core::rules::address::{Policy, check_url};
use hooklane_core::rules::headers::CustomHeaders;
use hooklane_core::rules::outcome::ErrorClass;
use hooklane_core::rules::signing::{Secret, SigningKey};
use hooklane_core::secrets::MasterKeys;
use hooklane_proto::route::Route;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use tracing::error;
use url::Url;

use super::classify::Failure;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Hooklane/", env!("CARGO_PKG_VERSION")));

/// Opens what is sealed in settings.
#[derive(Clone)]
pub(crate) struct Opener {
    keys: Arc<MasterKeys>,
    policy: Arc<Policy>,
}

/// What attempts to one endpoint need, or why none can be made.
#[derive(Debug)]
pub(crate) struct Target(Result<Ready, (ErrorClass, String)>);

/// What attempts need.
pub(super) struct Ready {
    pub(super) url: Url,
    /// The endpoint's own headers and ours that never change.
    pub(super) headers: HeaderMap,
    pub(super) keys: Vec<SigningKey>,
    pub(super) timeout: Duration,
}

impl fmt::Debug for Ready {
    /// Neither the query nor a header's value is shown: both may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("host", &self.url.host_str())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Opener {
    /// The ids of the master keys, the current one first.
    pub(crate) fn key_ids(&self) -> Vec<String> {
        self.keys.ids().map(str::to_owned).collect()
    }

    pub(crate) fn new(keys: Arc<MasterKeys>, policy: Policy) -> Self {
        Self {
            keys,
            policy: Arc::new(policy),
        }
    }

    /// Checks the address, opens the secrets and builds the headers.
    pub(crate) fn open(&self, route: &Route) -> Target {
        let url = match check_url(&route.url, &self.policy) {
            Ok(url) => url,
            Err(refusal) => {
                return Target(Err((ErrorClass::AddressRefused, refusal.to_string())));
            }
        };
        let aad = route.endpoint.to_string();
        match self.unseal(route, aad.as_bytes()) {
            Ok((keys, headers)) => Target(Ok(Ready {
                url,
                headers,
                keys,
                timeout: Duration::from_millis(u64::from(route.timeout_ms)),
            })),
            Err(why) => {
                // Until somebody acts, no attempt to this endpoint can be made.
                error!(endpoint = %route.endpoint, version = route.version, why, "the endpoint's settings can't be opened");
                Target(Err((ErrorClass::OwnFault, why)))
            }
        }
    }

    fn unseal(&self, route: &Route, aad: &[u8]) -> Result<(Vec<SigningKey>, HeaderMap), String> {
        let mut keys = Vec::with_capacity(route.secrets.len());
        for sealed in &route.secrets {
            let bytes = self.decrypt(sealed, aad)?;
            let bytes = bytes.expose_secret();
            let secret = match std::str::from_utf8(bytes) {
                Ok(text) if text.starts_with("whsec_") => Secret::parse(text),
                _ => Secret::from_bytes(bytes.to_vec()),
            };
            keys.push(secret.map_err(|error| error.to_string())?.key());
        }
        let mut headers = HeaderMap::new();
        if let Some(sealed) = &route.headers {
            let bytes = self.decrypt(sealed, aad)?;
            let pairs: std::collections::BTreeMap<String, String> =
                serde_json::from_slice(bytes.expose_secret())
                    .map_err(|_| "the custom headers are not a JSON object".to_owned())?;
            let custom = CustomHeaders::parse(&pairs).map_err(|error| error.to_string())?;
            custom.apply(&mut headers);
        }
        headers.entry(USER_AGENT).or_insert(AGENT);
        Ok((keys, headers))
    }

    fn decrypt(&self, sealed: &str, aad: &[u8]) -> Result<secrecy::SecretSlice<u8>, String> {
        let envelope = STANDARD
            .decode(sealed)
            .map_err(|_| "a sealed value is not base64".to_owned())?;
        self.keys
            .decrypt(&envelope, aad)
            .map_err(|error| error.to_string())
    }
}

impl Target {
    pub(super) fn ready(&self) -> Result<&Ready, Failure> {
        self.0
            .as_ref()
            .map_err(|(class, detail)| Failure::new(*class, detail.clone()))
    }
}
