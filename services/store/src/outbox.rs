//! Outbox sources: tables in which producers leave events, in the transaction of their business
//! change, and how they are read without skipping, hurrying or blocking any.
//!
//! Owns what a source is ([`Source`]), who reads it (one [`Reader`] per table, by an advisory lock
//! on a session of its own), which rows it takes and in which order, and what is done to a row
//! once the ledger has it. Does not own acceptance itself ([`crate::accept`]) nor when to poll and
//! where to publish (the relay).
//!
//! # Which rows
//!
//! Ids are not handed out in the order of commits, so "everything above the last id" skips rows:
//! a transaction that got a low id may commit after one with a high id. Reading everything that is
//! pending, from the start, is right, but slows down while an old snapshot keeps dead rows alive.
//! The *horizon* (`horizon`) is right and stays fast: it is a position below which no
//! writer is under way any more. It comes from the sequence's last value and from the transactions
//! that hold the table's insert lock; an insert takes that lock before it draws its position and
//! keeps it to the end. Reading starts there. Once a minute everything is read from the start all
//! the same, which finds what the reasoning does not cover: prepared transactions, a row that
//! somebody reset by hand.
//!
//! Where the table has no identity column with `CACHE 1`, or the server hides other sessions'
//! locks, every read starts at the start.
//!
//! # In which order
//!
//! A batch that fits is taken as it stands. A source that is behind takes turns among consumers
//! (`turns`): it notes the keys of what is pending, some thousands per consumer and some
//! ten thousand in all, and takes one row of each consumer after the other. What it can't note it
//! knows how to find again.
//!
//! # Afterwards
//!
//! Rows are marked or deleted in the transaction that accepts them, where the table is in the
//! ledger's database; elsewhere right after it, and a crash in between costs a repetition, which
//! the idempotency key turns into the first receipt.

mod grants;
mod horizon;
mod pending;
mod reader;
mod rows;
mod session;
mod source;
mod status;
mod table;
mod turns;
mod unique;
mod wake;

pub use grants::grants;
pub use pending::{Pending, pending};
pub use reader::{Batch, Reader, Taken};
pub use source::{Columns, OnPublished, Source};
pub use status::{Status, status};
pub use table::Scan;
pub use wake::{CHANNEL, Wake};
