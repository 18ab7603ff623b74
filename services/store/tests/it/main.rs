//! The ledger on a real PostgreSQL: a database of its own for every test.

mod ledger;

mod record;
