//! Carries out the blows: to processes, servers and the links between them; and notes for each what
//! was under way, where it excuses anything.
//!
//! What a dispatcher may repeat was not settled when it was struck, so that is read from the broker
//! at that moment. Where the broker itself is struck, all links to it are held meanwhile: nobody
//! works on what is being read. A fault of any other process, or of PostgreSQL, excuses nothing, nor
//! does a full stream.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hooklane_core::error::ErrorCode;
use hooklane_local::Psql;
use hooklane_proto::id::MessageId;
use hooklane_store::audit;
use hooklane_testkit::proxy::{Cut, Proxy};
use tokio::time::Instant;

use super::notes::{Dealt, Notes};
use super::pace::Span;
use super::schedule::{Blow, Ending, Planned, Server};
use crate::bench::Bench;
use crate::broker::{self, Pair};
use crate::judge::Crash;

/// How long processes are looked after when all is over.
const LAST: Duration = Duration::from_secs(3);
/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A process may give up on a server that is away only while it starts, for which it has 10 s for
/// either.
const STARTING: Duration = Duration::from_secs(30);

/// Deals the blows of one run.
pub(super) struct Striker<'a> {
    bench: &'a Bench,
    /// When the load began, in microseconds since the run did.
    begun: u64,
    names: Vec<String>,
    attempts: Vec<bool>,
    started: Vec<Instant>,
    notes: Notes,
}

impl<'a> Striker<'a> {
    pub(super) fn new(bench: &'a Bench, begun: u64) -> Self {
        let members = bench.system.members();
        let (names, attempts): (Vec<_>, Vec<_>) = members
            .map(|member| (member.name.clone(), member.attempts()))
            .unzip();
        Self {
            bench,
            begun,
            started: vec![Instant::now(); names.len()],
            names,
            attempts,
            notes: Notes::default(),
        }
    }

    /// Deals them all, each not before its time.
    pub(super) async fn run(mut self, blows: &[Planned<Blow>]) -> Result<Notes> {
        // The dispatcher that started first hands over a partition at a time, into the load.
        let (from, to) = (0, self.begun);
        self.notes.moves.push(Span { from, to });
        for planned in blows {
            let due = self.bench.epoch.instant(self.begun) + planned.at;
            self.wait(due.saturating_duration_since(Instant::now()))
                .await?;
            let text = planned.fault.text(|member| self.names[member].clone());
            self.bench.progress.step(&text);
            let from = self.bench.epoch.micros();
            let dealt = self.strike(planned.fault).await;
            let to = self.bench.epoch.micros();
            dealt.with_context(|| text.clone())?;
            self.notes.dealt.push(Dealt {
                at: from.saturating_sub(self.begun) as f64 / 1e6,
                took: (to - from) as f64 / 1e6,
                what: text,
            });
            if self.may_move(planned.fault) {
                self.notes.moves.push(Span { from, to });
            }
        }
        // What was starting when the last blow fell may have given up on a server.
        self.wait(LAST).await?;
        Ok(self.notes)
    }

    /// Whether partitions may change hands by it.
    fn may_move(&self, blow: Blow) -> bool {
        match blow {
            Blow::Kill(member, _)
            | Blow::Suspend(member, _)
            | Blow::Restart(member)
            | Blow::Cut(member, Server::Nats, _)
            | Blow::Stall(member, Server::Nats, ..) => self.attempts[member],
            Blow::Down(Server::Nats, ..) | Blow::Wipe | Blow::Isolate(..) => true,
            Blow::Down(Server::Postgres, ..)
            | Blow::ReadOnly(_)
            | Blow::Full(..)
            | Blow::Cut(_, Server::Postgres, _)
            | Blow::Stall(_, Server::Postgres, ..) => false,
        }
    }

    async fn strike(&mut self, blow: Blow) -> Result<()> {
        let system = &self.bench.system;
        match blow {
            Blow::Kill(member, down) => {
                system.kill(member);
                if self.attempts[member] {
                    let open = self.under_way().await?;
                    self.crashed(open);
                }
                self.wait(down).await?;
                self.start(member)
            }
            Blow::Suspend(member, time) => {
                system.suspend(member);
                let held = self.held(member, time).await;
                // Whatever went wrong meanwhile, nobody is left suspended.
                system.resume(member);
                held
            }
            Blow::Restart(member) => {
                if let Err(error) = system.stop(member).await {
                    self.notes.breaches.push(format!("{error:#}"));
                }
                self.start(member)
            }
            Blow::Down(Server::Nats, ending, down) => self.nats_down(ending, down).await,
            Blow::Down(Server::Postgres, ending, down) => {
                system
                    .with_postgres(move |postgres| {
                        match ending {
                            Ending::Stop => postgres.stop(),
                            Ending::Kill => postgres.kill9(),
                        }
                        std::thread::sleep(down);
                        postgres.restart().context("starting PostgreSQL again")
                    })
                    .await
            }
            Blow::Wipe => self.wipe().await,
            Blow::ReadOnly(time) => {
                self.read_only(true).await?;
                self.wait(time).await?;
                self.read_only(false).await
            }
            Blow::Cut(member, Server::Postgres, cut) => {
                self.link(member, Server::Postgres)?.cut(cut);
                Ok(())
            }
            Blow::Cut(member, Server::Nats, cut) => {
                self.stall(&[member], Duration::ZERO, Some(cut)).await
            }
            Blow::Stall(member, Server::Nats, time, end) => self.stall(&[member], time, end).await,
            Blow::Stall(member, Server::Postgres, time, end) => {
                let link = self.link(member, Server::Postgres)?;
                link.stall();
                self.wait(time).await?;
                let_go(self.link(member, Server::Postgres)?, end);
                Ok(())
            }
            Blow::Isolate(time, end) => self.stall(&self.everybody(), time, end).await,
            Blow::Full(stream, time) => self.full(stream, time).await,
        }
    }

    /// A process does nothing for a while.
    async fn held(&mut self, member: usize, time: Duration) -> Result<()> {
        if !self.attempts[member] {
            return self.wait(time).await;
        }
        let until = Instant::now() + time;
        let mut open = self.under_way().await?;
        self.wait(until.saturating_duration_since(Instant::now()))
            .await?;
        open.extend(self.under_way().await?);
        self.crashed(open);
        Ok(())
    }

    /// Nothing passes between processes and nats-server for a while.
    async fn stall(&mut self, members: &[usize], time: Duration, end: Option<Cut>) -> Result<()> {
        let attempts = members.iter().any(|member| self.attempts[*member]);
        let until = Instant::now() + time;
        for member in members {
            self.link(*member, Server::Nats)?.stall();
        }
        let mut open = HashSet::new();
        if attempts {
            open = self.under_way().await?;
        }
        self.wait(until.saturating_duration_since(Instant::now()))
            .await?;
        if attempts {
            open.extend(self.under_way().await?);
            self.crashed(open);
        }
        for member in members {
            let_go(self.link(*member, Server::Nats)?, end);
        }
        Ok(())
    }

    /// nats-server ends and is back after a while, with what its store holds.
    async fn nats_down(&mut self, ending: Ending, down: Duration) -> Result<()> {
        for member in self.everybody() {
            self.link(member, Server::Nats)?.stall();
        }
        self.bench
            .system
            .with_nats(move |nats| {
                match ending {
                    Ending::Stop => nats.stop(),
                    Ending::Kill => nats.kill9(),
                }
                std::thread::sleep(down);
                nats.restart().context("starting nats-server again")
            })
            .await?;
        let client = self.bench.system.broker().await?;
        let open = match ending {
            Ending::Stop => broker::under_way(&client, &self.bench.store).await?,
            Ending::Kill => {
                let unsettled = broker::unsettled(&client).await?;
                let mut open = unsettled.deliveries;
                open.extend(self.all_of(&unsettled.events));
                open
            }
        };
        self.crashed(open);
        self.reconnect()
    }

    /// Every delivery of some events, ended or not. A nats-server that is killed may forget what was
    /// acknowledged last, and which copies it had: such an event comes again as if for the first time.
    fn all_of(&self, events: &HashSet<MessageId>) -> Vec<Pair> {
        let endpoints = &self.bench.endpoints;
        events
            .iter()
            .flat_map(|message| endpoints.iter().map(|endpoint| (*message, *endpoint)))
            .collect()
    }

    async fn wipe(&mut self) -> Result<()> {
        for member in self.everybody() {
            self.link(member, Server::Nats)?.stall();
        }
        self.bench.system.stop_nats().await?;
        // With the broker down, the ledger takes no more than what the recorder has in hand.
        let open = audit::not_ended(&self.bench.store).await?;
        self.crashed(open.into_iter().collect());
        self.bench.system.wipe_jetstream().await?;
        self.reconnect()
    }

    /// A stream takes nothing more for a while. What it holds stays, and may be taken out.
    async fn full(&mut self, stream: &str, time: Duration) -> Result<()> {
        const LEAST: u64 = 1;
        let client = self.bench.system.broker().await?;
        let until = Instant::now() + STARTING;
        // After a wipe somebody makes it anew.
        let limit = loop {
            if let Some(limit) = broker::limit(&client, stream).await? {
                break limit;
            }
            ensure!(Instant::now() < until, "nobody made {stream} anew");
            self.wait(LOOK).await?;
        };
        broker::resize(&client, stream, LEAST).await?;
        let waited = self.wait(time).await;
        // Whatever went wrong meanwhile, it has room again.
        broker::resize(&client, stream, limit).await?;
        waited
    }

    fn reconnect(&self) -> Result<()> {
        for member in self.everybody() {
            let_go(self.link(member, Server::Nats)?, Some(Cut::Reset));
        }
        Ok(())
    }

    async fn read_only(&self, is: bool) -> Result<()> {
        let value = if is { "on" } else { "off" };
        let url = self.bench.system.database_url().to_owned();
        self.bench
            .system
            .with_postgres(move |postgres| {
                let psql = Psql::new(postgres.bin(), &url);
                psql.run(&format!(
                    "ALTER SYSTEM SET default_transaction_read_only = {value}"
                ))?;
                psql.run("SELECT pg_reload_conf()")?;
                Ok(())
            })
            .await
    }

    fn link(&self, member: usize, server: Server) -> Result<&'a Proxy> {
        let links = self.bench.system.links(member);
        let links = links.context("the process has no links of its own")?;
        Ok(match server {
            Server::Nats => &links.nats,
            Server::Postgres => &links.postgres,
        })
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.names.len()).collect()
    }

    async fn under_way(&self) -> Result<HashSet<Pair>> {
        under_way(self.bench).await
    }

    fn crashed(&mut self, open: HashSet<Pair>) {
        let at = self.bench.epoch.micros();
        self.notes.crashes.push(Crash { at, open });
    }

    fn start(&mut self, member: usize) -> Result<()> {
        self.bench.system.start_member(member)?;
        self.started[member] = Instant::now();
        Ok(())
    }

    /// Waits, and meanwhile starts again what has ended by itself, as whatever runs the processes in
    /// the field would.
    async fn wait(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.revive()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.bench.pause(left.min(LOOK)).await?;
        }
    }

    /// Starts again what has ended by itself. It may have done so only because a server was away
    /// while it started.
    fn revive(&mut self) -> Result<()> {
        for member in self.everybody() {
            let Some(status) = self.bench.system.ended(member) else {
                continue;
            };
            let ran = self.started[member].elapsed();
            let unavailable = i32::from(ErrorCode::NatsUnavailable.exit_code());
            let text = format!(
                "{} ended by itself with {status} after {:.1} s",
                self.names[member],
                ran.as_secs_f64()
            );
            if status.code() == Some(unavailable) && ran <= STARTING {
                self.notes.ended.push(text);
            } else {
                self.notes.breaches.push(text);
            }
            self.start(member)?;
        }
        Ok(())
    }
}

/// What is under way at this moment, by a connection of its own: it may be the first one since
/// nats-server came back.
pub(super) async fn under_way(bench: &Bench) -> Result<HashSet<Pair>> {
    let client = bench.system.broker().await?;
    broker::under_way(&client, &bench.store).await
}

pub(super) fn let_go(link: &Proxy, end: Option<Cut>) {
    if let Some(cut) = end {
        link.cut(cut);
    }
    link.resume();
}
