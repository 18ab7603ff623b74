//! Signatures: whether a request is a partner's.
//!
//! Partners sign in ways that differ in little: where the signature stands, what it is over, how
//! keys are written. Each way is data here (a [`scheme::Scheme`]), and one engine reads it. It
//! works on the bytes as they came: a body that was read and written again is another body.
//!
//! Does not own where schemes come from (see [`crate::source`]), nor any I/O: a certificate that a
//! request names is fetched by whoever asks.

pub(crate) mod certificate;
pub(crate) mod crc32;
pub(crate) mod encoding;
pub(crate) mod key;
pub(crate) mod place;
mod reject;
pub(crate) mod scheme;
pub(crate) mod signature;
pub(crate) mod template;
pub(crate) mod timestamp;

pub use reject::Reject;
