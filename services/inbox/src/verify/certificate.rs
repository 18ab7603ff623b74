//! Certificates that requests name: where they may be, and whether they are the partner's.
//!
//! Whoever can choose where a certificate is fetched from can have this process call any address,
//! and whoever can choose the certificate can sign. So the address must be below the partner's
//! domain before anything is fetched, and the certificate must lead to a root that is trusted and
//! be for a name below that domain before anything is checked with it. Fetching is not done here.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use url::{Host, Url};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::Reject;
use super::place::{Parts, Place};

/// Most certificates of a chain.
const MAX_CHAIN: usize = 8;
/// Longest address, in bytes.
const MAX_URL: usize = 500;

/// Roots that a signing certificate must lead to.
#[derive(Clone, Default)]
pub(crate) struct Roots(Vec<TrustAnchor<'static>>);

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}

impl Roots {
    /// Those of a PEM file, or the system's. None where there is not a single one.
    pub(crate) fn load(file: Option<&Path>) -> Option<Self> {
        let certificates = match file {
            Some(file) => CertificateDer::pem_file_iter(file)
                .ok()?
                .collect::<Result<_, _>>()
                .ok()?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        Self::new(&certificates)
    }

    fn new(certificates: &[CertificateDer<'_>]) -> Option<Self> {
        let anchors: Vec<_> = certificates
            .iter()
            .filter_map(|der| Some(anchor_from_trusted_cert(der).ok()?.to_owned()))
            .collect();
        (!anchors.is_empty()).then_some(Self(anchors))
    }
}

/// A scheme's certificates.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Where the address is.
    pub(crate) address: Place,
    /// The domain that the address and the certificate must be in.
    pub(crate) domain: String,
    pub(crate) roots: Roots,
}

impl Certificates {
    /// The address of the certificate that signed a request.
    ///
    /// # Errors
    /// [`Reject::CertificateAddress`] for every address outside the domain, or written in a way
    /// that two readers may read differently.
    pub(crate) fn url(&self, parts: &Parts<'_>) -> Result<Url, Reject> {
        let text = match parts.text(&self.address) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(Reject::MissingPart),
            Err(_) => return Err(Reject::CertificateAddress),
        };
        let refused = || Reject::CertificateAddress;
        // What the parser would repair, such as a backslash or a third slash, is not for us to guess.
        let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'@');
        let host = text.strip_prefix("https://");
        let named = host.is_some_and(|host| !host.starts_with('/'));
        if text.len() > MAX_URL || !text.bytes().all(plain) || !named {
            return Err(refused());
        }
        let url = Url::parse(&text).map_err(|_| refused())?;
        let inside = matches!(url.host(), Some(Host::Domain(host)) if self.covers(host));
        if inside && url.port().is_none() && url.username().is_empty() && url.password().is_none() {
            Ok(url)
        } else {
            Err(refused())
        }
    }

    fn covers(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let rest = host.strip_suffix(&*self.domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Whether one of the signatures is the content's by the first certificate of a chain in PEM.
    ///
    /// # Errors
    /// [`Reject::InvalidCertificate`] where the chain doesn't lead to a root, is not valid now, or is
    /// for another name.
    pub(crate) fn verifies(
        &self,
        pem: &[u8],
        now: DateTime<Utc>,
        content: &[u8],
        signatures: &[Vec<u8>],
    ) -> Result<bool, Reject> {
        let invalid = |_| Reject::InvalidCertificate;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .take(MAX_CHAIN)
            .collect::<Result<_, _>>()
            .map_err(|_| Reject::InvalidCertificate)?;
        let (leaf, rest) = chain.split_first().ok_or(Reject::InvalidCertificate)?;
        let leaf = EndEntityCert::try_from(leaf).map_err(invalid)?;
        let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.roots.0,
            rest,
            time,
            KeyUsage::server_auth(),
            None,
            None,
        )
        .map_err(invalid)?;
        if !leaf.valid_dns_names().any(|name| self.covers(name)) {
            return Err(Reject::InvalidCertificate);
        }
        let algorithm = webpki::ring::RSA_PKCS1_2048_8192_SHA256;
        let verify = |s: &Vec<u8>| leaf.verify_signature(algorithm, content, s).is_ok();
        Ok(signatures.iter().any(verify))
    }
}
