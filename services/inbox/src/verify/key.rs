//! Keys and algorithms: how a secret of the configuration becomes a key, and how a key checks a
//! signature.
//!
//! *ring* does all of the cryptography. A key that is public (Ed25519, ECDSA, RSA) is treated
//! like a secret all the same: what is configured is never shown.

use std::borrow::Cow;
use std::fmt;

use ring::{digest, hmac, signature};
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use webpki::RawPublicKeyEntity;

use super::encoding::Encoding;

/// How a signature is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// HMAC with SHA-1, which is still sound as an HMAC.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// Ed25519.
    Ed25519,
    /// ECDSA on P-256 with SHA-256; signatures in ASN.1.
    EcdsaP256,
    /// RSA, PKCS #1 version 1.5, with SHA-256.
    RsaPkcs1Sha256,
    /// No signature: the header holds the secret itself.
    Token,
}

/// How a secret is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyForm {
    /// The text's own bytes.
    Utf8,
    /// Hex.
    Hex,
    /// Base64.
    Base64,
    /// Base64 after `whsec_`, which may be missing.
    Whsec,
    /// Base64 after `whpk_`: a public key of Standard Webhooks.
    Whpk,
    /// A public key as SubjectPublicKeyInfo: PEM, or its base64 alone.
    Spki,
    /// The key of the certificate that the request names.
    X509,
}

impl Algorithm {
    /// The name in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha1 => "hmac-sha1",
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha512 => "hmac-sha512",
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256 => "ecdsa-p256",
            Self::RsaPkcs1Sha256 => "rsa-pkcs1-sha256",
            Self::Token => "token",
        }
    }

    /// The forms that its keys may have.
    pub(crate) fn forms(self) -> &'static [KeyForm] {
        use KeyForm::{Base64, Hex, Spki, Utf8, Whpk, Whsec, X509};
        match self {
            Self::HmacSha1 | Self::HmacSha256 | Self::HmacSha512 => &[Utf8, Hex, Base64, Whsec],
            Self::Ed25519 => &[Hex, Base64, Whpk, Spki],
            Self::EcdsaP256 => &[Spki],
            Self::RsaPkcs1Sha256 => &[Spki, X509],
            Self::Token => &[Utf8],
        }
    }
}

/// A secret that is no key of this form. Holds nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Not written in its form.
    #[error("is not {0}")]
    Form(&'static str),
    /// The private half.
    #[error("is a private key; the partner's public one is wanted")]
    Private,
    /// No key of the algorithm.
    #[error("is no key for {0}")]
    Key(&'static str),
}

/// What checks signatures.
pub(crate) struct Key {
    /// Where the secret stands in the configuration, such as `secrets.0`.
    pub(crate) label: String,
    material: Material,
}

enum Material {
    Hmac(hmac::Key),
    /// A token, as its HMAC under a constant: only such are compared.
    Token(hmac::Tag),
    Ed25519(Vec<u8>),
    Spki(Vec<u8>, &'static dyn SignatureVerificationAlgorithm),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.label)
    }
}

impl Key {
    /// Makes a key of a secret.
    ///
    /// # Errors
    /// [`Invalid`].
    pub(crate) fn new(
        label: &str,
        secret: &str,
        algorithm: Algorithm,
        form: KeyForm,
    ) -> Result<Self, Invalid> {
        let bytes = decode(secret, form)?;
        if bytes.is_empty() {
            return Err(Invalid::Empty);
        }
        let spki = |algorithm: &'static dyn SignatureVerificationAlgorithm| {
            let der = SubjectPublicKeyInfoDer::from(&*bytes);
            // One that can't be parsed would refuse every signature later, without saying why.
            let entity = RawPublicKeyEntity::try_from(&der).ok()?;
            let tried = entity.verify_signature(algorithm, b"", b"");
            matches!(tried, Err(webpki::Error::InvalidSignatureForPublicKey))
                .then(|| Material::Spki(bytes.to_vec(), algorithm))
        };
        let material = match (algorithm, form) {
            (Algorithm::HmacSha1, _) => {
                let algorithm = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
                Some(Material::Hmac(hmac::Key::new(algorithm, &bytes)))
            }
            (Algorithm::HmacSha256, _) => {
                Some(Material::Hmac(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
            }
            (Algorithm::HmacSha512, _) => {
                Some(Material::Hmac(hmac::Key::new(hmac::HMAC_SHA512, &bytes)))
            }
            (Algorithm::Token, _) => Some(Material::Token(blind(&bytes))),
            (Algorithm::Ed25519, KeyForm::Spki) => spki(webpki::ring::ED25519),
            (Algorithm::Ed25519, _) => {
                (bytes.len() == 32).then(|| Material::Ed25519(bytes.to_vec()))
            }
            (Algorithm::EcdsaP256, _) => spki(webpki::ring::ECDSA_P256_SHA256),
            (Algorithm::RsaPkcs1Sha256, _) => spki(webpki::ring::RSA_PKCS1_2048_8192_SHA256),
        };
        let material = material.ok_or(Invalid::Key(algorithm.as_str()))?;
        Ok(Self {
            label: label.to_owned(),
            material,
        })
    }

    /// Whether one of these signatures is the content's. The time that it takes tells nothing of
    /// how much of a wrong one was right.
    pub(crate) fn verifies(&self, content: &[Cow<'_, [u8]>], signatures: &[Vec<u8>]) -> bool {
        let whole = || match content {
            [one] => Cow::Borrowed(&**one),
            pieces => Cow::Owned(pieces.concat()),
        };
        match &self.material {
            Material::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                for piece in content {
                    context.update(piece);
                }
                let expected = blind(context.sign().as_ref());
                signatures
                    .iter()
                    .any(|signature| same(signature, &expected))
            }
            Material::Token(expected) => signatures.iter().any(|token| same(token, expected)),
            Material::Ed25519(public) => {
                let public = signature::UnparsedPublicKey::new(&signature::ED25519, public);
                let content = whole();
                signatures
                    .iter()
                    .any(|signature| public.verify(&content, signature).is_ok())
            }
            Material::Spki(der, algorithm) => {
                let der = SubjectPublicKeyInfoDer::from(&**der);
                let Ok(entity) = RawPublicKeyEntity::try_from(&der) else {
                    return false;
                };
                let content = whole();
                let verify = |s: &Vec<u8>| entity.verify_signature(*algorithm, &content, s).is_ok();
                signatures.iter().any(verify)
            }
        }
    }

    /// The HMAC of a text, in bytes; none for other keys.
    pub(crate) fn hmac(&self, text: &[u8]) -> Option<hmac::Tag> {
        match &self.material {
            Material::Hmac(key) => Some(hmac::sign(key, text)),
            _ => None,
        }
    }
}

fn decode(secret: &str, form: KeyForm) -> Result<Cow<'_, [u8]>, Invalid> {
    let encoded = |encoding: Encoding, text: &str, what| match encoding.decode(text) {
        Some(bytes) => Ok(bytes.into()),
        None => Err(Invalid::Form(what)),
    };
    if [
        "whsk_",
        "-----BEGIN PRIVATE",
        "-----BEGIN EC PRIVATE",
        "-----BEGIN RSA PRIVATE",
    ]
    .iter()
    .any(|private| secret.starts_with(private))
    {
        return Err(Invalid::Private);
    }
    match form {
        KeyForm::Utf8 => Ok(secret.as_bytes().into()),
        KeyForm::Hex => encoded(Encoding::Hex, secret, "hex"),
        KeyForm::Base64 => encoded(Encoding::Base64, secret, "base64"),
        KeyForm::Whsec if secret.starts_with("whpk_") => Err(Invalid::Form("a `whsec_` secret")),
        KeyForm::Whsec => {
            let text = secret.strip_prefix("whsec_").unwrap_or(secret);
            encoded(Encoding::Base64, text, "base64 after `whsec_`")
        }
        KeyForm::Whpk => {
            let text = secret
                .strip_prefix("whpk_")
                .ok_or(Invalid::Form("a `whpk_` key"))?;
            encoded(Encoding::Base64, text, "base64 after `whpk_`")
        }
        KeyForm::Spki if secret.starts_with("-----BEGIN") => {
            let der = SubjectPublicKeyInfoDer::from_pem_slice(secret.as_bytes());
            let der = der.map_err(|_| Invalid::Form("a PEM public key"))?;
            Ok(der.as_ref().to_vec().into())
        }
        KeyForm::Spki => encoded(Encoding::Base64, secret, "a public key in PEM or base64"),
        KeyForm::X509 => Err(Invalid::Form(
            "wanted: the certificate comes with the request",
        )),
    }
}

/// Whether these bytes are the ones of a blind.
fn same(bytes: &[u8], expected: &hmac::Tag) -> bool {
    hmac::verify(&blinder(), bytes, expected.as_ref()).is_ok()
}

/// *ring* compares tags in constant time and nothing else. Two byte strings are equal exactly when
/// their HMACs under a common key are, whatever the key is.
fn blind(bytes: &[u8]) -> hmac::Tag {
    hmac::sign(&blinder(), bytes)
}

fn blinder() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &[0; digest::SHA256_OUTPUT_LEN])
}
