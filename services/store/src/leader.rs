//! Being the only one of several processes that does something.
//!
//! An advisory lock on a session of its own, outside the pool. The server gives it back when the
//! session ends, and keep-alives and an idle limit end the session of a host that vanished or a
//! process that was suspended. Two leaders for a moment are possible all the same (a lost session is
//! noticed late), so what a leader does must be harmless when two do it.

use sqlx::PgConnection;

use crate::{Error, Store};

/// First part of the locks' key; the second names what is led.
const LOCK: i32 = 7_261_004;

/// What there is one leader of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Led {
    /// Putting work back.
    Scheduler,
    /// Publishing what the inbox hands off.
    Inbox,
}

impl Led {
    const fn key(self) -> i32 {
        match self {
            Self::Scheduler => 1,
            Self::Inbox => 2,
        }
    }
}

/// The lead, as long as its session lasts; dropping it gives it up.
#[derive(Debug)]
pub struct Leadership {
    session: PgConnection,
}

impl Store {
    /// Takes the lead where nobody has it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn lead(&self, what: Led) -> Result<Option<Leadership>, Error> {
        let mut session = self
            .session(&[
                ("tcp_keepalives_idle", "5"),
                ("tcp_keepalives_interval", "2"),
                ("tcp_keepalives_count", "3"),
                ("idle_session_timeout", "30s"),
            ])
            .await?;
        let leads: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1, $2)")
            .bind(LOCK)
            .bind(what.key())
            .fetch_one(&mut session)
            .await
            .map_err(Error::doing("taking the lead"))?;
        Ok(leads.then_some(Leadership { session }))
    }
}

impl Leadership {
    /// Whether the session is still there, and the lock with it. Call it more often than every 30 s:
    /// the server ends a session that is idle for longer.
    ///
    /// # Errors
    /// Where the session is lost: the lead is too.
    pub async fn check(&mut self) -> Result<(), Error> {
        sqlx::query("SELECT 1")
            .execute(&mut self.session)
            .await
            .map(|_done| ())
            .map_err(Error::doing("checking that the lead is still ours"))
    }
}
