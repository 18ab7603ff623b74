//! Why a request is not a partner's: a closed set, for answers, labels and the operators' listing.

use std::fmt;

use http::StatusCode;

/// Why a request is refused. Says nothing of what the request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Nothing in it that a configured scheme looks at.
    NoScheme,
    /// No signature.
    MissingSignature,
    /// No signature that is written as it should be.
    MalformedSignature,
    /// More signatures than are looked at.
    TooManySignatures,
    /// None of the signatures is one of the partner's.
    WrongSignature,
    /// No timestamp.
    MissingTimestamp,
    /// The timestamp is not written as it should be.
    MalformedTimestamp,
    /// Signed by the partner, longer ago than is tolerated.
    TooOld,
    /// Signed by the partner, further ahead of our clock than is tolerated.
    TooNew,
    /// A header, field or parameter that is signed is not there.
    MissingPart,
    /// One of them is there twice, or holds what no text can.
    RepeatedPart,
    /// The signature is in the body or covers its fields, and the body can't be read.
    UnreadableBody,
    /// The body is not the one whose digest is signed.
    BodyDigest,
    /// It names another algorithm than the scheme has.
    RefusedAlgorithm,
    /// The certificate is not at one of the partner's addresses.
    CertificateAddress,
    /// The certificate could not be had: ours to try again.
    CertificateMissing,
    /// The certificate is not the partner's, or not valid now.
    InvalidCertificate,
}

impl Reject {
    /// Every reason.
    pub const ALL: [Self; 17] = [
        Self::NoScheme,
        Self::MissingSignature,
        Self::MalformedSignature,
        Self::TooManySignatures,
        Self::WrongSignature,
        Self::MissingTimestamp,
        Self::MalformedTimestamp,
        Self::TooOld,
        Self::TooNew,
        Self::MissingPart,
        Self::RepeatedPart,
        Self::UnreadableBody,
        Self::BodyDigest,
        Self::RefusedAlgorithm,
        Self::CertificateAddress,
        Self::CertificateMissing,
        Self::InvalidCertificate,
    ];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoScheme => "no_scheme",
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::TooManySignatures => "too_many_signatures",
            Self::WrongSignature => "wrong_signature",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MalformedTimestamp => "malformed_timestamp",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::MissingPart => "missing_part",
            Self::RepeatedPart => "repeated_part",
            Self::UnreadableBody => "unreadable_body",
            Self::BodyDigest => "body_digest",
            Self::RefusedAlgorithm => "refused_algorithm",
            Self::CertificateAddress => "certificate_address",
            Self::CertificateMissing => "certificate_missing",
            Self::InvalidCertificate => "invalid_certificate",
        }
    }

    /// What the partner is answered: 401 where the signature is at fault, 400 where the request is,
    /// 503 where we are and the partner is to come again.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::TooManySignatures
            | Self::MissingPart
            | Self::RepeatedPart
            | Self::UnreadableBody => StatusCode::BAD_REQUEST,
            Self::CertificateMissing => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoScheme
            | Self::MissingSignature
            | Self::MalformedSignature
            | Self::WrongSignature
            | Self::MissingTimestamp
            | Self::MalformedTimestamp
            | Self::TooOld
            | Self::TooNew
            | Self::BodyDigest
            | Self::RefusedAlgorithm
            | Self::CertificateAddress
            | Self::InvalidCertificate => StatusCode::UNAUTHORIZED,
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoScheme => "the request is not signed in a way that the source knows",
            Self::MissingSignature => "the request has no signature",
            Self::MalformedSignature => "the signature is not written as it should be",
            Self::TooManySignatures => "the request has more than 16 signatures",
            Self::WrongSignature => "the signature is not the partner's",
            Self::MissingTimestamp => "the request has no timestamp",
            Self::MalformedTimestamp => "the timestamp is not written as it should be",
            Self::TooOld => "the request was signed too long ago",
            Self::TooNew => "the request was signed too far ahead of our clock",
            Self::MissingPart => "a part of the request that is signed is missing",
            Self::RepeatedPart => "a part of the request that is signed is there twice",
            Self::UnreadableBody => "the body, which the signature is in, can't be read",
            Self::BodyDigest => "the body is not the one whose digest is signed",
            Self::RefusedAlgorithm => "the request names an algorithm that is not taken",
            Self::CertificateAddress => "the certificate is not at one of the partner's addresses",
            Self::CertificateMissing => "the partner's certificate can't be had at the moment",
            Self::InvalidCertificate => "the certificate is not the partner's, or not valid now",
        })
    }
}

impl std::error::Error for Reject {}
