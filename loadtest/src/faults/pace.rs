//! I2 by the receiver's own log: no endpoint sees more than its rate and its concurrency.
//!
//! That holds for one owner of its partition. A fault that may move the partition, and the start, at
//! which the shares are evened out, excuses, while its consequences last, one burst and one set of
//! attempts in flight for each time that it may change hands: away from an owner that is gone, and
//! back when the shares are evened out. What passes an endpoint's own link while that is stalled comes
//! in a heap afterwards and is left out.
//!
//! The rate is held against every stretch of time at once: a level that rises by one with each
//! request and falls with time is, at each request, the most by which any stretch that ends there
//! exceeds what the rate allows.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::receiver::Seen;

/// For how long after a fault a partition may still change hands, in microseconds: a lease runs out,
/// the other takes it, the first one comes back and asks for its share.
const AFTERMATH: u64 = 30_000_000;
/// Requests that were cut off are seen to end a moment late.
const NOTICE: u64 = 100_000;

/// What an endpoint may see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Attempts a second, and as many at once after a pause; `None` is no limit.
    pub rate: Option<f64>,
    /// Attempts in flight.
    pub concurrency: u32,
    /// How many owners there may be at a time, when a fault is to blame.
    pub owners: u32,
    /// How often one fault may make a partition change hands.
    pub hands: u32,
}

/// A time from its first microsecond to its last, since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl Span {
    fn has(self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// Requests of one endpoint as the receiver saw them: when they arrived and ended, and whether they
/// were answered. In order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it had been read, in microseconds since the run began.
    pub arrived: u64,
    /// When it was answered or cut off.
    pub ended: u64,
    /// Whether it was answered.
    pub is_answered: bool,
}

impl From<Seen> for Request {
    fn from(seen: Seen) -> Self {
        Self {
            arrived: seen.arrived,
            ended: seen.ended,
            is_answered: seen.status != 0,
        }
    }
}

/// The requests of each endpoint.
#[must_use]
pub fn by_endpoint(plan: &Plan, log: &[Seen]) -> BTreeMap<u32, Vec<Request>> {
    let mut all: BTreeMap<u32, Vec<Request>> = BTreeMap::new();
    for seen in log {
        let (_, endpoint) = plan.pair(seen.slot);
        all.entry(endpoint).or_default().push((*seen).into());
    }
    for requests in all.values_mut() {
        requests.sort_unstable_by_key(|request| request.arrived);
    }
    all
}

/// What was too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// Requests beyond the rate.
    pub beyond_rate: u64,
    /// Requests beyond the concurrency.
    pub beyond_concurrency: u64,
    /// When the first of them arrived.
    pub first: u64,
}

/// How far requests exceed the limits; `None` where they don't.
#[must_use]
pub fn excess(requests: &[Request], limits: Limits, moves: &[Span]) -> Option<Excess> {
    let rate = limits
        .rate
        .map(|rate| beyond_rate(requests, rate, limits, moves))
        .unwrap_or_default();
    let concurrency = beyond_concurrency(requests, limits, moves);
    let first = rate.first().into_iter().chain(concurrency.first()).min()?;
    Some(Excess {
        beyond_rate: rate.len() as u64,
        beyond_concurrency: concurrency.len() as u64,
        first: *first,
    })
}

/// The times of requests beyond the rate.
fn beyond_rate(requests: &[Request], rate: f64, limits: Limits, moves: &[Span]) -> Vec<u64> {
    // A burst, and as many as may be on their way may arrive together with it.
    let together = rate + f64::from(limits.concurrency);
    let mut credits: Vec<u32> = moves.iter().map(|_| limits.hands).collect();
    let (mut level, mut last) = (0.0_f64, 0);
    let mut beyond = Vec::new();
    for request in requests {
        let at = request.arrived;
        let passed = (at - last) as f64 / 1e6;
        level = (level - rate * passed).max(0.0) + 1.0;
        last = at;
        if level <= together {
            continue;
        }
        let spent = moves
            .iter()
            .zip(&mut credits)
            .find(|(span, left)| **left > 0 && (span.from..=span.to + AFTERMATH).contains(&at));
        if let Some((_, left)) = spent {
            *left -= 1;
            level = (level - together).max(0.0);
        } else {
            beyond.push(at);
            level -= 1.0;
        }
    }
    beyond
}

/// The times of requests beyond the concurrency.
fn beyond_concurrency(requests: &[Request], limits: Limits, moves: &[Span]) -> Vec<u64> {
    let mut ends: Vec<u64> = Vec::new();
    let mut beyond = Vec::new();
    for request in requests {
        let at = request.arrived;
        ends.retain(|end| *end > at);
        let seen = match request.is_answered {
            true => request.ended,
            false => request.ended.saturating_sub(NOTICE),
        };
        ends.push(seen);
        let moved = moves
            .iter()
            .any(|span| (span.from..=span.to + AFTERMATH).contains(&at));
        let owners = if moved { limits.owners } else { 1 };
        if ends.len() as u64 > u64::from(limits.concurrency * owners) {
            beyond.push(at);
        }
    }
    beyond
}

/// Leaves out what an endpoint's own link held back.
#[must_use]
pub fn without(mut requests: Vec<Request>, stalls: &[Span]) -> Vec<Request> {
    requests.retain(|request| {
        !stalls
            .iter()
            .any(|stall| stall.has(request.arrived) || stall.has(request.ended))
    });
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const LIMITS: Limits = Limits {
        rate: Some(10.0),
        concurrency: 2,
        owners: 2,
        hands: 2,
    };

    /// `count` requests, `every` microseconds apart, each answered at once.
    fn requests(from: u64, every: u64, count: u64) -> Vec<Request> {
        (0..count)
            .map(|n| Request {
                arrived: from + n * every,
                ended: from + n * every + 1_000,
                is_answered: true,
            })
            .collect()
    }

    #[test]
    fn a_burst_and_the_rate_are_fine_for_ever() {
        let mut all = requests(0, 2_000, 10);
        all.extend(requests(SECOND / 10, SECOND / 10, 1_000));
        assert_eq!(excess(&all, LIMITS, &[]), None);
    }

    #[test]
    fn twice_the_rate_is_too_much_however_it_is_spread() {
        let all = requests(0, SECOND / 20, 200);
        let excess = excess(&all, LIMITS, &[]).unwrap();
        assert!((75..100).contains(&excess.beyond_rate), "{excess:?}");
    }

    #[test]
    fn a_move_excuses_a_burst_and_no_more() {
        let moved = [Span {
            from: SECOND,
            to: SECOND,
        }];
        let mut all = requests(0, SECOND / 10, 20);
        all.extend(requests(2 * SECOND, 2_000, 20));
        assert!(excess(&all, LIMITS, &[]).is_some());
        assert_eq!(excess(&all, LIMITS, &moved), None);
        // Another owner at work for ten seconds beside the first.
        let double = requests(2 * SECOND, SECOND / 20, 200);
        assert!(excess(&double, LIMITS, &moved).unwrap().beyond_rate > 40);
    }

    #[test]
    fn more_in_flight_than_allowed_is_seen_and_a_move_excuses_as_much_again() {
        let open = |count: u64| -> Vec<Request> {
            (0..count)
                .map(|n| Request {
                    arrived: n,
                    ended: SECOND,
                    is_answered: true,
                })
                .collect()
        };
        let moved = [Span { from: 0, to: 0 }];
        assert_eq!(excess(&open(2), LIMITS, &[]), None);
        assert_eq!(excess(&open(3), LIMITS, &[]).unwrap().beyond_concurrency, 1);
        assert_eq!(excess(&open(4), LIMITS, &moved), None);
        assert!(excess(&open(5), LIMITS, &moved).is_some());
    }

    #[test]
    fn what_a_stalled_link_held_back_is_left_out() {
        let stall = [Span {
            from: SECOND,
            to: 2 * SECOND,
        }];
        let all = requests(0, SECOND / 2, 6);
        assert_eq!(without(all, &stall).len(), 3);
    }
}
