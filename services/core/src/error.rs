//! The closed set of error codes: what a fault is called in JSON, labels and the operator's
//! guide, and which exit code or HTTP status it becomes.
//!
//! Owns the codes alone. Every crate has its own `Error`, which says its code; what an endpoint
//! answers is an outcome and no error.

use std::fmt;

/// What kind of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The command line or request makes no sense.
    Usage,
    /// The configuration has faults.
    Config,
    /// The configured master key is not the one that sealed the ledger's secrets.
    WrongMasterKey,
    /// A stream or JetStream consumer exists with a conflicting definition.
    TopologyConflict,
    /// Streams or JetStream consumers are not as their definitions say, and were to be left alone.
    TopologyDrift,
    /// A value or input is malformed.
    InvalidData,
    /// An endpoint's address is forbidden.
    ForbiddenAddress,
    /// Nothing has this id.
    NotFound,
    /// The state of what is there does not allow it.
    Conflict,
    /// It was changed meanwhile by somebody else.
    PreconditionFailed,
    /// A limit is reached.
    LimitExceeded,
    /// Nobody said who asks, or the key is not valid.
    Unauthenticated,
    /// The key does not allow it.
    Forbidden,
    /// The address exists, but not with this method.
    MethodNotAllowed,
    /// The request came too slowly.
    RequestTimeout,
    /// The body, or a payload in it, is too large.
    PayloadTooLarge,
    /// The body is of a kind that is not read here.
    UnsupportedMediaType,
    /// It can be read, and what it asks for can't be done.
    Unprocessable,
    /// No event type has this name.
    UnknownEventType,
    /// A payload does not fit its event type's schema.
    SchemaMismatch,
    /// More is asked for than is taken at a time: later it is.
    Busy,
    /// A signature does not verify.
    BadSignature,
    /// PostgreSQL does not answer.
    PostgresUnavailable,
    /// The ledger's schema is not the one this release needs.
    SchemaOutdated,
    /// NATS does not answer.
    NatsUnavailable,
    /// Hooklane's own fault.
    Internal,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 26] = [
        Self::Usage,
        Self::Config,
        Self::WrongMasterKey,
        Self::TopologyConflict,
        Self::TopologyDrift,
        Self::InvalidData,
        Self::ForbiddenAddress,
        Self::NotFound,
        Self::Conflict,
        Self::PreconditionFailed,
        Self::LimitExceeded,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::Unprocessable,
        Self::UnknownEventType,
        Self::SchemaMismatch,
        Self::Busy,
        Self::BadSignature,
        Self::PostgresUnavailable,
        Self::SchemaOutdated,
        Self::NatsUnavailable,
        Self::Internal,
    ];

    /// The stable name: in JSON output, as a metric's label, in the operator's guide.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Config => "config",
            Self::WrongMasterKey => "wrong_master_key",
            Self::TopologyConflict => "topology_conflict",
            Self::TopologyDrift => "topology_drift",
            Self::InvalidData => "invalid_data",
            Self::ForbiddenAddress => "forbidden_address",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition_failed",
            Self::LimitExceeded => "limit_exceeded",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::PayloadTooLarge => "payload_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::Unprocessable => "unprocessable",
            Self::UnknownEventType => "unknown_event_type",
            Self::SchemaMismatch => "schema_mismatch",
            Self::Busy => "busy",
            Self::BadSignature => "bad_signature",
            Self::PostgresUnavailable => "postgres_unavailable",
            Self::SchemaOutdated => "schema_outdated",
            Self::NatsUnavailable => "nats_unavailable",
            Self::Internal => "internal",
        }
    }

    /// The process's exit code: 64 bad usage or configuration, 65 bad data, 69 a service is
    /// unavailable, 70 our own fault.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage | Self::Config | Self::WrongMasterKey | Self::TopologyConflict => 64,
            Self::TopologyDrift
            | Self::InvalidData
            | Self::ForbiddenAddress
            | Self::NotFound
            | Self::Conflict
            | Self::PreconditionFailed
            | Self::LimitExceeded
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::MethodNotAllowed
            | Self::PayloadTooLarge
            | Self::UnsupportedMediaType
            | Self::Unprocessable
            | Self::UnknownEventType
            | Self::SchemaMismatch
            | Self::BadSignature => 65,
            Self::PostgresUnavailable
            | Self::SchemaOutdated
            | Self::NatsUnavailable
            | Self::RequestTimeout
            | Self::Busy => 69,
            Self::Internal => 70,
        }
    }

    /// The HTTP status of an answer with this code.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Usage | Self::InvalidData => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::Conflict => 409,
            Self::PreconditionFailed => 412,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ForbiddenAddress
            | Self::LimitExceeded
            | Self::BadSignature
            | Self::Unprocessable
            | Self::UnknownEventType
            | Self::SchemaMismatch => 422,
            Self::Busy => 429,
            Self::PostgresUnavailable | Self::SchemaOutdated | Self::NatsUnavailable => 503,
            Self::Config
            | Self::WrongMasterKey
            | Self::TopologyConflict
            | Self::TopologyDrift
            | Self::Internal => 500,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_exits_are_documented_ones() {
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!(matches!(code.exit_code(), 64 | 65 | 69 | 70), "{code}");
        }
    }
}
