//! A certificate authority of one receiver, and its server certificate.

use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

pub(super) struct Identity {
    pub(super) ca_pem: String,
    pub(super) acceptor: TlsAcceptor,
}

impl Identity {
    pub(super) fn new() -> Result<Self> {
        let ca_key = KeyPair::generate().context("making the authority's key")?;
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).context("making the authority")?;
        let key = KeyPair::generate().context("making the server's key")?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?
            .signed_by(&key, &Issuer::from_params(&ca, &ca_key))
            .context("signing the server's certificate")?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            ca_pem: ca_certificate.pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }
}
