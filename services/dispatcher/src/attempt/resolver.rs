//! Resolving host names, with the address guard between the answer and the connection.
//!
//! The addresses that are checked are those that are dialled: one look-up a connect, nothing
//! resolved again behind the check. Literals in URLs never come here; they are checked when the
//! endpoint's settings are read.
//!
//! A look-up that times out may be the zone's fault or the resolver's. The resolver is asked for
//! something it always has; if it does not answer that either, it is down, which is our own fault
//! and not the endpoint's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name as DnsName, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use hooklane_core::rules::address::{Policy, Refusal, check_ip};
use hooklane_core::rules::outcome::ErrorClass;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::config::Dns;

/// How long the resolver has to show that it is there.
const PROBE: Duration = Duration::from_secs(1);

/// A name that gives no address to connect to.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// The guard refuses every address.
    #[error(transparent)]
    Refused(Refusal),
    /// The zone gives none.
    #[error("the name does not resolve: {0}")]
    Zone(NetError),
    /// The zone does not answer.
    #[error("the name servers of the name do not answer")]
    Silent,
    /// The name is known and has no addresses.
    #[error("the name has no addresses")]
    Empty,
    /// Our resolver is down.
    #[error("the resolver does not answer")]
    Down,
}

impl ResolveError {
    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(_) => ErrorClass::AddressRefused,
            Self::Zone(_) | Self::Silent | Self::Empty => ErrorClass::Dns,
            Self::Down => ErrorClass::OwnFault,
        }
    }
}

/// Name servers that can't be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SetUpError(#[from] NetError);

/// A resolver whose answers have passed the guard.
#[derive(Clone)]
pub(super) struct Guarded(Arc<Inner>);

struct Inner {
    resolver: TokioResolver,
    /// Without a cache, so that an answer proves something.
    prober: TokioResolver,
    policy: Policy,
    timeout: Duration,
    max_addresses: usize,
}

impl Guarded {
    pub(super) fn new(config: &Dns, policy: Policy) -> Result<Self, SetUpError> {
        let resolver = build(config, |opts| {
            opts.cache_size = config.cache_size;
            opts.positive_min_ttl = Some(config.min_ttl);
            opts.negative_min_ttl = Some(config.min_ttl);
            opts.positive_max_ttl = Some(config.max_ttl);
            opts.negative_max_ttl = Some(config.max_ttl.min(Duration::from_secs(30)));
        })?;
        let prober = build(config, |opts| opts.cache_size = 0)?;
        Ok(Self(Arc::new(Inner {
            resolver,
            prober,
            policy,
            timeout: config.timeout,
            max_addresses: config.max_addresses,
        })))
    }
}

fn build(config: &Dns, adjust: impl Fn(&mut ResolverOpts)) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if config.servers.is_empty() {
        // A host without a resolver configuration still has its hosts file; anything else is
        // then answered with "no resolver".
        Resolver::builder(provider.clone()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the system's resolver configuration can't be read");
            let none = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
            Resolver::builder_with_config(none, provider)
        })
    } else {
        let servers = config.servers.iter().map(name_server).collect();
        let servers = ResolverConfig::from_parts(None, Vec::new(), servers);
        Resolver::builder_with_config(servers, provider)
    };
    let opts = builder.options_mut();
    opts.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    opts.timeout = (config.timeout / 2).max(Duration::from_millis(10));
    // One repetition, so that a lost packet costs no attempt.
    opts.attempts = 1;
    adjust(opts);
    builder.build()
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let addresses = inner.lookup(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl Inner {
    async fn lookup(&self, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
        // Names of endpoints are absolute: the host's search list is not for them.
        let absolute = match host.strip_suffix('.') {
            Some(_) => host.to_owned(),
            None => format!("{host}."),
        };
        let looked_up = tokio::time::timeout(self.timeout, self.resolver.lookup_ip(absolute));
        let found = match looked_up.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(self.blame(error).await),
            Err(_elapsed) => return Err(self.blame(NetError::Timeout).await),
        };
        let mut refused = None;
        let mut addresses = Vec::new();
        for ip in found.iter() {
            match check_ip(ip, &self.policy) {
                Ok(()) if addresses.len() < self.max_addresses => {
                    addresses.push(SocketAddr::new(ip, 0));
                }
                Ok(()) => {}
                Err(refusal) => refused = Some(refusal),
            }
        }
        match (addresses.is_empty(), refused) {
            (false, _) => Ok(addresses),
            (true, Some(refusal)) => Err(ResolveError::Refused(refusal)),
            (true, None) => Err(ResolveError::Empty),
        }
    }

    /// Whose fault an error is.
    async fn blame(&self, error: NetError) -> ResolveError {
        if error.is_no_records_found() && !error.is_nx_domain() {
            return ResolveError::Empty;
        }
        match error {
            error @ NetError::Dns(_) => ResolveError::Zone(error),
            NetError::NoConnections | NetError::Io(_) | NetError::Busy => ResolveError::Down,
            NetError::Timeout => match self.is_up().await {
                true => ResolveError::Silent,
                false => ResolveError::Down,
            },
            error => ResolveError::Zone(error),
        }
    }

    /// Whether the resolver answers anything at all.
    async fn is_up(&self) -> bool {
        let asked = self.prober.lookup(DnsName::root(), RecordType::NS);
        match tokio::time::timeout(PROBE, asked).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => matches!(error, NetError::Dns(_) | NetError::Proto(_)),
            Err(_elapsed) => false,
        }
    }
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}
