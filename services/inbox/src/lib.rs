//! The inbox: partners' webhooks, received once, verified, and handed on in a legal order.
//!
//! Owns what a partner's block of configuration means: [`source`], and behind it `verify` for
//! signatures and `read` for what events are about. All of it is pure.

mod read;
pub mod source;
mod verify;
