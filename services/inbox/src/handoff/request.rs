//! Handlers that answer: one source's events go to the adopter one by one, so many at a time.
//!
//! An event is taken for a while (a lease) and its answer is written down before that ends; otherwise
//! it is taken again. That is also what becomes of events whose handler can't be reached: nobody was
//! asked, so nothing failed, and the source pauses a little longer each time. An answer that can't be
//! written down is kept and tried again, in the place of a further request.

use std::time::Duration;

use hooklane_proto::token::Partner;
use hooklane_store::inbox::{HandOff, Settled, Settlement};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::call::{Handler, Outcome, http_client};
use super::event;
use crate::pace::Pace;
use crate::source::{self, Mode};
use crate::stats::Count;
use crate::worker::alarm;
use crate::{Error, Parts};

/// How much longer than a request an event is ours, for writing the answer down.
const SPARE: Duration = Duration::from_secs(10);
/// Bytes of bodies taken together.
const BYTES: u32 = 16 << 20;
/// How long requests that are under way may take once the service stops.
const GRACE: Duration = Duration::from_secs(10);

/// One source's handler, and what is under way to it.
pub(crate) struct Requests {
    parts: Parts,
    partner: Partner,
    handler: Handler,
    within: Duration,
    under_way: JoinSet<Option<Settled>>,
    answers: Vec<Settled>,
    /// Nothing is taken before.
    not_before: Instant,
    unreached: Pace,
    ledger: Pace,
}

impl Requests {
    /// The handlers of all sources that have one.
    ///
    /// # Errors
    /// Where the HTTP client can't be set up.
    pub(crate) fn all(parts: &Parts) -> Result<Vec<Self>, Error> {
        let http = http_client().map_err(Error::Client)?;
        let sources = parts.sources.iter();
        let handlers = sources.filter_map(|(partner, source)| {
            let source::HandOff {
                mode: Mode::Request,
                subject,
                url,
                within,
            } = source.hand_off()
            else {
                return None;
            };
            let handler = match (subject, url) {
                (Some(subject), _) => Handler::Nats {
                    client: parts.client.clone(),
                    subject: subject.clone(),
                },
                (None, Some(url)) => Handler::Http {
                    client: http.clone(),
                    url: url.clone(),
                },
                // The configuration was checked: one of them is there.
                (None, None) => return None,
            };
            Some(Self {
                parts: parts.clone(),
                partner: partner.clone(),
                handler,
                within: *within,
                under_way: JoinSet::new(),
                answers: Vec::new(),
                not_before: Instant::now(),
                unreached: Pace::new(),
                ledger: Pace::new(),
            })
        });
        Ok(handlers.collect())
    }

    /// Hands on until `term`; then what is under way is finished, within a few seconds.
    pub(crate) async fn run(mut self, term: CancellationToken) {
        let Some(bell) = self.parts.bells.handler(&self.partner) else {
            return;
        };
        while !term.is_cancelled() {
            let look_at = if Instant::now() < self.not_before {
                self.not_before
            } else {
                self.settle().await;
                self.take().await;
                self.not_before
                    .max(Instant::now() + self.parts.config.hand_off.poll)
            };
            tokio::select! {
                biased;
                () = term.cancelled() => {}
                Some(ended) = self.under_way.join_next() => {
                    self.ended(ended);
                    while let Some(ended) = self.under_way.try_join_next() {
                        self.ended(ended);
                    }
                    self.settle().await;
                }
                () = bell.notified() => {}
                () = sleep_until(look_at) => {}
            }
        }
        let finishing = async {
            while let Some(ended) = self.under_way.join_next().await {
                self.ended(ended);
            }
            self.settle().await;
        };
        if timeout(GRACE, finishing).await.is_err() {
            warn!(partner = %self.partner, "requests are cut off, and made again later");
        }
    }

    fn ended(&mut self, ended: Result<Option<Settled>, JoinError>) {
        match ended {
            Ok(Some(answer)) => {
                self.unreached.good();
                self.answers.push(answer);
            }
            Ok(None) => {
                self.parts.handle.add(Count::Unreached, 1);
                let now = Instant::now();
                if self.not_before <= now {
                    let partner = &self.partner;
                    let reason = format!("the handler of {partner} can't be reached");
                    let wait = self.unreached.broker("handing events on", &reason);
                    self.not_before = now + wait;
                }
            }
            // It is handed out again after its lease.
            Err(error) => error!(partner = %self.partner, %error, "a request ended early"),
        }
    }

    /// Takes as many events as there is room for, and asks about them.
    async fn take(&mut self) {
        let at_once = self.parts.config.hand_off.requests_at_once as usize;
        let taken = self.under_way.len() + self.answers.len();
        let Some(room) = at_once.checked_sub(taken).filter(|&room| room > 0) else {
            return;
        };
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        let partners = std::slice::from_ref(&self.partner);
        let lease = self.within + SPARE;
        let now = self.parts.clock.now();
        let taking = self
            .parts
            .store
            .inbox_take(now, partners, limit, BYTES, lease);
        match taking.await {
            Ok(events) => {
                self.ledger.good();
                for event in events {
                    self.ask(event);
                }
            }
            Err(fault) => {
                let wait = self.ledger.bad("taking what is to be handed on", &fault);
                self.not_before = Instant::now() + wait;
            }
        }
    }

    fn ask(&mut self, hand_off: HandOff) {
        let (handler, within) = (self.handler.clone(), self.within);
        self.under_way.spawn(async move {
            let (id, attempt) = (hand_off.id, hand_off.attempt);
            match handler.ask(event(hand_off), within).await {
                Outcome::Answered(answer) => Some(Settled {
                    id,
                    attempt,
                    answer,
                }),
                Outcome::Unreached(reason) => {
                    debug!(event = %id, reason, "a handler can't be reached");
                    None
                }
            }
        });
    }

    /// Writes answers down. Those that can't be are kept.
    async fn settle(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let now = self.parts.clock.now();
        match self.parts.store.inbox_settle(now, &self.answers).await {
            Ok(settlement) => {
                self.ledger.good();
                self.answers.clear();
                self.note(&settlement);
            }
            Err(fault) => {
                let wait = self.ledger.bad("writing handlers' answers down", &fault);
                self.not_before = Instant::now() + wait;
                if fault.is_data_fault() {
                    // They would hold the others for ever; their events are handed out again.
                    self.answers.clear();
                }
            }
        }
    }

    fn note(&self, settlement: &Settlement) {
        let Settlement {
            processed,
            deferred,
            again,
            quarantined,
            stale: _,
            woken,
        } = settlement;
        let handle = &self.parts.handle;
        handle.add(Count::Answered, u64::from(processed + deferred + again));
        handle.add(Count::Failed, u64::from(*again));
        if *woken > 0 {
            self.parts.bells.arrived.notify_one();
        }
        alarm(&self.parts, quarantined);
    }
}
