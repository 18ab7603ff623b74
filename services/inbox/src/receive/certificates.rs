//! The certificates that some partners sign with, fetched from where a request says they are.
//!
//! Owns fetching and remembering. Where they may be is the source's to say: it has checked the address
//! before. Whether a certificate is good is the source's too; here it is bytes. What an address gave
//! is remembered for a day, that it gave nothing for a moment, so that requests can't make us fetch
//! without end. Whoever names many addresses pushes out what others named so, but nothing that a
//! signature was once good by.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, warn};
use url::Url;

/// Most bytes of an answer.
const MAX: usize = 64 << 10;
/// How long fetching may take: a part of a request's deadline.
const WITHIN: Duration = Duration::from_millis(1_500);
/// How long an answer is good.
const GOOD_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// How long nothing is fetched from an address that gave nothing.
const BAD_FOR: Duration = Duration::from_secs(30);
/// Addresses that are remembered.
const REMEMBERED: usize = 64;
/// Fetched at a time.
const AT_ONCE: usize = 4;

/// Fetches certificates and remembers them.
#[derive(Debug)]
pub(super) struct Certificates {
    client: reqwest::Client,
    known: Mutex<HashMap<Url, Known>>,
    turns: Semaphore,
}

#[derive(Debug, Clone)]
struct Known {
    pem: Option<Bytes>,
    until: Instant,
    /// Whether a signature was good by it.
    proven: bool,
}

impl Certificates {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        hooklane_core::tls::install_provider();
        Self::with(reqwest::Client::builder())
    }

    fn with(builder: reqwest::ClientBuilder) -> Result<Self, reqwest::Error> {
        let client = builder
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .timeout(WITHIN)
            .build()?;
        Ok(Self {
            client,
            known: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    // A poisoned map is as good as before: nobody leaves it half changed.
    fn known(&self) -> MutexGuard<'_, HashMap<Url, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, url: &Url) -> Option<Known> {
        let known = self.known().get(url).cloned();
        known.filter(|known| Instant::now() < known.until)
    }

    /// What is at this address; `None` where it can't be had.
    pub(super) async fn at(&self, url: &Url) -> Option<Bytes> {
        if let Some(known) = self.remembered(url) {
            return known.pem;
        }
        // Never closed, so it is there.
        let _turn = self.turns.acquire().await.ok()?;
        // Somebody else may have fetched it meanwhile.
        if let Some(known) = self.remembered(url) {
            return known.pem;
        }
        let (pem, good_for) = match self.fetch(url).await {
            Ok(pem) => {
                debug!(%url, bytes = pem.len(), "fetched a signing certificate");
                (Some(pem), GOOD_FOR)
            }
            Err(problem) => {
                warn!(%url, problem, "a signing certificate could not be fetched");
                (None, BAD_FOR)
            }
        };
        self.remember(url, pem.clone(), good_for);
        pem
    }

    fn remember(&self, url: &Url, pem: Option<Bytes>, good_for: Duration) {
        let mut known = self.known();
        if known.len() >= REMEMBERED && !known.contains_key(url) {
            // Whatever ends first: what gave nothing, before what is good; what is proven, last.
            let first = known
                .iter()
                .min_by_key(|(_, known)| (known.proven, known.until));
            if let Some(first) = first.map(|(url, _)| url.clone()) {
                known.remove(&first);
            }
        }
        let until = Instant::now() + good_for;
        let proven = known.get(url).is_some_and(|known| known.proven);
        known.insert(url.clone(), Known { pem, until, proven });
    }

    /// Notes that a signature was good by what is at this address.
    pub(super) fn prove(&self, url: &Url) {
        if let Some(known) = self.known().get_mut(url) {
            known.proven = true;
        }
    }

    async fn fetch(&self, url: &Url) -> Result<Bytes, String> {
        let asked = self.client.get(url.clone()).send().await;
        let mut answer = asked.map_err(|error| error.without_url().to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer is {}", answer.status()));
        }
        let mut pem = Vec::new();
        loop {
            let chunk = answer.chunk().await;
            match chunk.map_err(|error| error.without_url().to_string())? {
                Some(chunk) if pem.len() + chunk.len() > MAX => {
                    return Err(format!("the answer has more than {MAX} bytes"));
                }
                Some(chunk) => pem.extend_from_slice(&chunk),
                None => return Ok(pem.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn addresses_that_are_remembered_are_bounded_and_good_ones_stay() {
        let certificates = Certificates::new().unwrap();
        let url = |n: usize| Url::parse(&format!("https://www.paypal.com/{n}")).unwrap();
        certificates.remember(&url(0), Some(Bytes::from_static(b"pem")), GOOD_FOR);
        for n in 1..200 {
            certificates.remember(&url(n), None, BAD_FOR);
        }
        assert_eq!(certificates.known().len(), REMEMBERED);
        assert_eq!(
            certificates.at(&url(0)).await,
            Some(Bytes::from_static(b"pem"))
        );
        assert_eq!(certificates.at(&url(199)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_addresses_push_out_nothing_that_was_good_once() {
        let certificates = Certificates::new().unwrap();
        let url = |n: usize| Url::parse(&format!("https://www.paypal.com/cert?{n}")).unwrap();
        let pem = Bytes::from_static(b"pem");
        for n in 0..2 {
            certificates.remember(&url(n), Some(pem.clone()), GOOD_FOR);
        }
        certificates.prove(&url(0));
        for n in 2..200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            certificates.remember(&url(n), Some(pem.clone()), GOOD_FOR);
        }
        assert_eq!(certificates.known().len(), REMEMBERED);
        assert!(certificates.remembered(&url(0)).is_some());
        assert!(certificates.remembered(&url(1)).is_none());
    }

    #[tokio::test]
    async fn what_is_not_a_certificate_of_a_fair_size_is_nothing_and_nothing_is_asked_for_twice() {
        use hooklane_testkit::{Receiver, Reply};

        let receiver = Receiver::start_tls().await.unwrap();
        let roots = reqwest::Certificate::from_pem(receiver.ca_pem().unwrap().as_bytes()).unwrap();
        hooklane_core::tls::install_provider();
        let certificates = Certificates::with(reqwest::Client::builder().tls_certs_merge([roots]));
        let certificates = certificates.unwrap();
        let replies = [
            ("/good", Reply::status(200).body("pem"), Some("pem")),
            ("/gone", Reply::status(404).body("pem"), None),
            ("/large", Reply::status(200).body(vec![b'x'; MAX + 1]), None),
            (
                "/moved",
                Reply::status(302).header("location", receiver.url("/good")),
                None,
            ),
        ];
        for (path, reply, expected) in replies {
            receiver.always(path, reply);
            let url = Url::parse(&receiver.url(path)).unwrap();
            for _ in 0..3 {
                let got = certificates.at(&url).await;
                assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{path}");
            }
            assert_eq!(receiver.counts_of(path).arrived, 1, "{path}");
        }
        let plain = Receiver::start().await.unwrap();
        let url = Url::parse(&plain.url("/plain")).unwrap();
        assert_eq!(certificates.at(&url).await, None);
        assert_eq!(plain.counts().arrived, 0);
    }
}
