//! Receiving: a request becomes a row of the ledger, or an answer that says why not.
//!
//! Owns the order of the steps and what each failure is answered: the source (404), the method (405),
//! the encoding (415), the body within its limits (413, 408), challenges, the signature (401), the rate
//! (429), the commit (200). Everything is under one deadline, which ends in 503: a partner sends again
//! what was not answered, and 200 means that the ledger has it, never less.
//!
//! Does not own a scheme (`source`), the statement (`hooklane-store`) or sockets (`server`). The body is
//! not parsed here any further than for its id, and nothing of the database is held while it comes in.

mod body;
mod certificates;
mod commit;
mod queue;
mod refusal;
mod rejects;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use hooklane_proto::id::InboxId;
use hooklane_proto::token::Partner;
use hooklane_store::inbox::{Incoming, Receipt, Reject, SameBody};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts as Head;
use http::{HeaderMap, Method, Response};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::config::Config;
use crate::source::{self, SameBodyPolicy, Source};
use crate::sources::{Sources, kept};
use crate::stats::{Count, Handle};
use body::NoBody;
use certificates::Certificates;
pub(crate) use commit::Committer;
use refusal::Refusal;
pub(crate) use rejects::Rejects;

/// Where sources are.
const PREFIX: &str = "/in/";
const NOSNIFF: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-content-type-options"),
    HeaderValue::from_static("nosniff"),
);

/// Answers requests; clones answer alike.
#[derive(Debug, Clone)]
pub(crate) struct Receiver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    sources: Sources,
    rates: BTreeMap<Partner, DefaultDirectRateLimiter>,
    bodies: Semaphore,
    committer: Committer,
    rejects: Rejects,
    certificates: Certificates,
    clock: Clock,
    handle: Handle,
}

impl Receiver {
    pub(crate) fn new(
        config: Config,
        sources: Sources,
        committer: Committer,
        rejects: Rejects,
        clock: Clock,
        handle: Handle,
    ) -> Result<Self, reqwest::Error> {
        let quota = config.rate_limit.and_then(NonZeroU32::new);
        let rates = sources.iter().filter_map(|(partner, _)| {
            let limiter = RateLimiter::direct(Quota::per_second(quota?));
            Some((partner.clone(), limiter))
        });
        Ok(Self(Arc::new(Shared {
            rates: rates.collect(),
            bodies: Semaphore::new(config.body_bytes as usize / body::PIECE),
            certificates: Certificates::new()?,
            config,
            sources,
            committer,
            rejects,
            clock,
            handle,
        })))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// The answer to a request, within the deadline and a moment.
    pub(crate) async fn answer(
        &self,
        request: http::Request<hyper::body::Incoming>,
        remote: SocketAddr,
    ) -> Response<Body> {
        let shared = &*self.0;
        let until = Instant::now() + shared.config.deadline;
        let (head, body) = request.into_parts();
        let mut body = Body::new(body).into_data_stream();
        let answering = shared.receive(&head, &mut body, remote, until);
        let refusal = match timeout_at(until, answering).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(refusal)) => refusal,
            Err(_elapsed) => Refusal::Overdue,
        };
        debug!(path = head.uri.path(), ?refusal, "a request is refused");
        shared.handle.add(refusal.count(), 1);
        if refusal.leaves_a_body() {
            body::throw_away(&head.headers, body).await;
        }
        refusal.response()
    }
}

impl Shared {
    async fn receive(
        &self,
        head: &Head,
        body: &mut BodyDataStream,
        remote: SocketAddr,
        until: Instant,
    ) -> Result<Response<Body>, Refusal> {
        let name = head.uri.path().strip_prefix(PREFIX);
        let Some((partner, source)) = name.and_then(|name| self.sources.open(name)) else {
            return Err(Refusal::NotFound);
        };
        if !source.methods().contains(&head.method) {
            return Err(Refusal::Method(source.methods().to_vec()));
        }
        if is_encoded(&head.headers) {
            return Err(Refusal::Encoding);
        }
        let come_by = until.min(Instant::now() + self.config.body_within);
        let read = body::read(
            &head.headers,
            body,
            source.max_body(),
            come_by,
            &self.bodies,
        );
        let read = read.await.map_err(|none| match none {
            NoBody::TooLarge => Refusal::TooLarge(source.max_body()),
            NoBody::TooSlow => Refusal::TooSlow,
            NoBody::Broken => Refusal::Broken,
            NoBody::NoRoom => Refusal::Full,
        })?;
        let request = source::Request {
            method: &head.method,
            query: head.uri.query(),
            headers: &head.headers,
            body: &read.bytes,
            certificates: None,
        };
        if let Some(answer) = source.challenge(&request, None) {
            return Ok(self.challenged(partner, answer));
        }
        let verified = self.verify(source, &request).await.map_err(|reject| {
            self.reject(partner, source, &request, remote, reject);
            Refusal::Rejected(reject)
        })?;
        if let Some(answer) = source.challenge(&request, Some(&verified)) {
            return Ok(self.challenged(partner, answer));
        }
        if head.method == Method::GET {
            let methods = source.methods().iter();
            let methods = methods.filter(|method| *method != Method::GET);
            return Err(Refusal::Method(methods.cloned().collect()));
        }
        // Not before: strangers would use up what the partner may send.
        if let Some(rate) = self.rates.get(partner) {
            rate.check().map_err(|_not_until| Refusal::TooMany)?;
        }
        let identity = source.identify(&request, &verified);
        let incoming = Incoming {
            id: InboxId::generate(),
            partner: partner.clone(),
            partner_event_id: identity.id,
            id_signed: identity.signed,
            same_body: same_body(source, identity.signed),
            signature_verified: true,
            key_label: Some(verified.key_label),
            integrity: source.integrity().to_string(),
            event_type: None,
            content_type: content_type(&head.headers),
            headers: kept(source, &head.headers),
            body: read.bytes.clone(),
        };
        self.store(incoming).await
    }

    async fn verify(
        &self,
        source: &Source,
        request: &source::Request<'_>,
    ) -> Result<source::Verified, source::Reject> {
        let now = self.clock.now();
        let Some(url) = source.certificate_url(request)? else {
            return source.verify(request, now);
        };
        let certificates = self.certificates.at(&url).await;
        let request = source::Request {
            certificates: certificates.as_deref(),
            ..*request
        };
        let verified = source.verify(&request, now);
        if verified.is_ok() {
            self.certificates.prove(&url);
        }
        verified
    }

    async fn store(&self, incoming: Incoming) -> Result<Response<Body>, Refusal> {
        let (partner, id) = (incoming.partner.clone(), incoming.id);
        let receipt = self.committer.commit(incoming).await?;
        let count = match &receipt {
            Receipt::New | Receipt::Flagged(_) => Count::Received,
            Receipt::Duplicate(_) | Receipt::BodySeen(_) => Count::Repeated,
            Receipt::ReArmed(_) => Count::ReArmed,
            Receipt::Conflict(other) => {
                info!(%partner, event = %other, "another body came under the id of an event, and is kept beside it");
                Count::Conflicts
            }
            Receipt::Refused(state) => {
                warn!(%partner, state, "an event can't be stored");
                return Err(unstored(state));
            }
        };
        self.handle.add(count, 1);
        debug!(%partner, event = %id, receipt = receipt.as_str(), "an event is received");
        // Without a body: to some partners a body is a message to their users.
        Ok(Response::new(Body::empty()))
    }

    fn challenged(&self, partner: &Partner, answer: source::Answer) -> Response<Body> {
        let source::Answer {
            status,
            content_type,
            body,
        } = answer;
        let count = match status.is_success() {
            true => Count::Challenges,
            false => Count::Refused,
        };
        self.handle.add(count, 1);
        debug!(%partner, %status, "a challenge is answered");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.extend([NOSNIFF]);
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        response
    }

    fn reject(
        &self,
        partner: &Partner,
        source: &Source,
        request: &source::Request<'_>,
        remote: SocketAddr,
        reject: source::Reject,
    ) {
        debug!(%partner, reason = reject.as_str(), "a signature is not accepted");
        let kept = self.rejects.keep(Reject {
            partner: partner.clone(),
            reason: reject.as_str().to_owned(),
            remote: Some(remote.ip().to_string()),
            headers: kept(source, request.headers),
            body: rejects::beginning(request.body),
            bytes: request.body.len() as u64,
        });
        self.handle.add(Count::RejectsLost, u64::from(!kept));
    }
}

/// Whether the body is not what was signed, or can't be told to be: nothing is decoded here.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    })
}

/// A SQLSTATE of data (22), of a limit (54) or none at all is about this event, and so it would be the next
/// time. Any other is about the ledger: a constraint or a damaged index is nothing that a partner can
/// mend, and what is sent again may be stored then.
fn unstored(state: &str) -> Refusal {
    if state.is_empty() || state.starts_with("22") || state.starts_with("54") {
        Refusal::Unstorable
    } else {
        Refusal::Ledger
    }
}

fn same_body(source: &Source, signed: bool) -> Option<SameBody> {
    let source::SameBody { within, policy } = source.same_body();
    (!signed && !within.is_zero()).then_some(SameBody {
        within: *within,
        drop: matches!(policy, SameBodyPolicy::Drop),
    })
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    Some(text.chars().take(200).collect())
}
