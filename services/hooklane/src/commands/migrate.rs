//! `hooklane migrate`: the ledger's schema, and what an outbox in another database needs.

use clap::Args;
use hooklane_store::outbox;
use serde::Serialize;

use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;

/// Bring the database's schema up to date.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Print the SQL that prepares this outbox source's own database instead: its table and the
    /// least privileges. Nothing is run.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// The role that the relay logs in with there.
    #[arg(long, default_value = "hooklane_relay", requires = "source")]
    relay_role: String,
    /// The role that producers log in with there.
    #[arg(long, default_value = "hooklane_producer", requires = "source")]
    producer_role: String,
}

#[derive(Debug, Serialize)]
struct Migrated {
    migrated: bool,
}

#[derive(Debug, Serialize)]
struct Grants {
    source: String,
    sql: String,
}

impl Migrate {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Some(name) = self.source else {
            context.store().await?.migrate().await?;
            return context.output.print(&Migrated { migrated: true }, || {
                "the schema is up to date".to_owned()
            });
        };
        let config = context.config(&[Section::Relay])?;
        let source = super::outbox::source(&config, &name)?;
        let answer = Grants {
            source: name,
            sql: outbox::grants(source, &self.relay_role, &self.producer_role),
        };
        context.output.print(&answer, || answer.sql.clone())
    }
}
