//! What goes wrong, and when: power failures (between events and inside a disk operation), deaths of
//! the rank's process, also during replay, cut connections, dying clients, full disks.
//!
//! Absent: bit rot (its own scenario), errors of a healthy disk.

use super::owed::Owed;
use super::{Event, Kind, Phase, Plan, World};
use crate::model::judge::Verdict;
use mds::input::Input;
use proto::Ino;
use stdx::Prng;
use stdx::time::{MS, SECOND};

/// The faults of a run.
pub(super) struct Faults {
    pub(super) crashes: u64,
    /// The next crash comes when this many operations were issued and then this many events passed.
    crash_at: u64,
    crash_in: Option<u64>,
    crash_every: u64,
    /// Chances in a million per event.
    cut: u64,
    client: u64,
    evict: u64,
    hang: u64,
    /// A client goes in order, with whatever it has under way; the rank's wall clock is set.
    close: u64,
    wall: u64,
    checkpoint: u64,
    drop_cache: u64,
    pub(super) injected_io: bool,
    full: bool,
}

impl Faults {
    pub(super) fn new(plan: &Plan, rng: &mut Prng) -> Self {
        let every = plan.operations / (plan.crashes + 1);
        Self {
            crashes: 0,
            crash_at: every / 2 + rng.below(every.max(1)),
            crash_in: None,
            crash_every: every,
            cut: if plan.cut_often {
                5000
            } else if plan.cut_connections {
                300
            } else {
                0
            },
            client: if plan.kill_clients { 100 } else { 0 },
            evict: if plan.evict { 50 } else { 0 },
            hang: if plan.hangs { 300 } else { 0 },
            close: if plan.closes { 300 } else { 0 },
            wall: if plan.clocks { 300 } else { 0 },
            checkpoint: [0, 200, 2000][rng.index(3)],
            drop_cache: [0, 100, 3000][rng.index(3)],
            injected_io: false,
            full: false,
        }
    }

    /// Nothing goes wrong.
    pub(super) fn quiet(&mut self) {
        self.crash_at = u64::MAX;
        (self.cut, self.client, self.evict, self.hang) = (0, 0, 0, 0);
        (self.close, self.wall) = (0, 0);
    }
}

impl World {
    /// The disk is full: the driver gives up what it kept back for what frees space, and tells the rank.
    pub(super) fn release_ballast(&mut self) {
        self.disk.set_capacity(u64::MAX);
        self.meta.set_capacity(u64::MAX);
        self.tell_space(true);
    }

    fn tell_space(&mut self, full: bool) {
        let input = Box::new(Input::Space { full });
        self.after(MS, Event::Rank { life: self.lives, input });
    }

    /// Dice after each event.
    pub(super) fn maybe_fault(&mut self) -> Verdict {
        if let Some(left) = &mut self.faults.crash_in {
            if *left == 0 {
                self.faults.crash_in = None;
                let power = self.rng.chance(2, 3);
                return self.crash(power, "between two events");
            }
            *left -= 1;
        } else if self.readers.is_none()
            && self.issued >= self.faults.crash_at.min(self.plan.operations)
            && self.life.is_some()
        {
            let every = self.faults.crash_every;
            self.faults.crash_at = self.issued.saturating_add(every / 2 + self.rng.below(every.max(1)));
            let last = self.issued >= self.plan.operations;
            if self.rng.chance(1, 2) && !last {
                self.disk.die_after(self.rng.below(40));
            } else {
                self.faults.crash_in = Some(self.rng.below(60));
            }
        }
        if self.is_rank_hung() {
            return Ok(());
        }
        let dice = self.rng.below(1_000_000);
        let (cut, client) = (self.faults.cut, self.faults.client);
        let (evict, hang) = (self.faults.evict, self.faults.hang);
        let (checkpoint, drop_cache) = (self.faults.checkpoint, self.faults.drop_cache);
        if dice < cut {
            self.cut();
        } else if dice < cut + client {
            self.kill_client();
        } else if dice < cut + client + evict {
            return self.evict();
        } else if dice < cut + client + evict + checkpoint {
            return self.step_rank(Input::Checkpoint);
        } else if dice < cut + client + evict + checkpoint + drop_cache {
            self.step_rank(Input::DropCache)?;
            if self.plan.warm {
                return self.step_rank(Input::Warmup { dir: Some(Ino::ROOT) });
            }
        } else if dice >= 1_000_000 - hang {
            self.hang();
        } else if dice >= 1_000_000 - hang - self.faults.wall {
            self.set_wall();
        } else if dice >= 1_000_000 - hang - self.faults.wall - self.faults.close {
            return self.close();
        }
        Ok(())
    }

    /// A client is unmounted in the middle of everything.
    fn close(&mut self) -> Verdict {
        let Some(client) = self.remote().filter(|client| self.clients[*client].is_alive()) else {
            return Ok(());
        };
        self.trace.event(self.now, "close", client as u64, || format!("client {client}"));
        self.coverage.count("clients closed at work", 1);
        self.clients[client].closing = true;
        self.step_client(client, client::Input::Close)
    }

    /// The rank has become active: now and then it dies again while clients come back, or an operator ends a session of one.
    pub(super) fn plan_again(&mut self) {
        if !(self.plan.again
            && self.phase == Phase::Faults
            && self.readers.is_none()
            && self.rng.chance(1, 2))
        {
            return;
        }
        let evicts = self.plan.evict && self.rng.chance(1, 2);
        let longest = [20 * MS, SECOND, 4 * SECOND][self.rng.index(3)];
        self.after(longest, Event::Again { life: self.lives, evicts });
    }

    pub(super) fn again(&mut self, evicts: bool) -> Verdict {
        if self.phase != Phase::Faults || self.is_rank_hung() {
            return Ok(());
        }
        self.coverage.count("faults while clients come back", 1);
        if evicts {
            return self.evict();
        }
        let power = self.rng.chance(2, 3);
        self.crash(power, "soon after it had become active")
    }

    /// The rank's process ends. `power`: the machine with it, so that unsynced writes are lost.
    pub(super) fn crash(&mut self, power: bool, why: &str) -> Verdict {
        self.faults.crashes += 1;
        self.faults.crash_in = None;
        let replaying = self.life.as_ref().is_none_or(|life| !life.active);
        let fault = if replaying {
            "replay"
        } else if power {
            "power"
        } else {
            "process"
        };
        self.trace.event(self.now, "crash", self.faults.crashes, || format!("{fault}: {why}"));
        self.cover_all(fault);
        let conns = self.life.take().map(|life| life.conns).unwrap_or_default();
        self.lives += 1;
        if power {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        self.meta.crash();
        let mut dead = Vec::new();
        for (conn, (client, session)) in conns {
            if self.clients[client].kind == Kind::Embedded {
                if let Some(session) = session {
                    self.judge.embedded_died(session);
                }
                self.end_client(client);
                self.at(self.now + 1, Event::ClientStarts { client });
            } else if power && self.plan.kill_clients && self.rng.chance(1, 16) {
                // Its host goes with the rank's.
                dead.push(client);
            } else {
                // One that is away for longer than the rank waits for it.
                let away = self.plan.late_notice && self.rng.chance(1, 8);
                self.break_client_end(client, conn, if away { 15 * SECOND } else { 100 * MS });
            }
        }
        dead.into_iter().for_each(|client| self.kill(client));
        self.hostile_lost();
        self.owed = Owed::default();
        self.positions.clear();
        let pause = [MS, 100 * MS, 3 * SECOND][self.rng.index(3)];
        self.after(pause, Event::Restart { life: self.lives });
        if self.phase == Phase::Faults && self.rng.chance(1, 3) {
            // Again, during recovery.
            if self.rng.chance(1, 2) {
                self.disk.die_after(self.rng.below(12));
            } else {
                self.faults.crash_in = Some(self.rng.below(12));
            }
        }
        Ok(())
    }

    fn cover_all(&mut self, fault: &'static str) {
        for client in 0..self.clients.len() {
            self.cover(client, fault);
        }
    }

    fn cover(&mut self, client: usize, fault: &'static str) {
        for kind in self.clients[client].kinds() {
            self.coverage.hit(kind, fault);
        }
    }

    pub(super) fn remote(&mut self) -> Option<usize> {
        let remote: Vec<usize> =
            (0..self.clients.len()).filter(|client| self.clients[*client].kind != Kind::Embedded).collect();
        (!remote.is_empty()).then(|| remote[self.rng.index(remote.len())])
    }

    fn cut(&mut self) {
        let Some(client) = self.remote() else { return };
        let Some(conn) = self.clients[client].conn else { return };
        self.trace.event(self.now, "cut", conn.0, || format!("client {client}"));
        self.cover(client, "cut");
        let late = self.plan.late_notice && self.rng.chance(1, 4);
        self.break_client_end(client, conn, if late { 15 * SECOND } else { 100 * MS });
        let input = Box::new(Input::Disconnected { conn });
        self.after(SECOND, Event::Rank { life: self.lives, input });
    }

    /// An operator ends a session that has done nothing wrong.
    fn evict(&mut self) -> Verdict {
        let Some(client) = self.remote().filter(|_| self.life.as_ref().is_some_and(|life| life.active))
        else {
            return Ok(());
        };
        let Some(session) = self.clients[client].session() else { return Ok(()) };
        self.trace.event(self.now, "evict", session.0, || format!("client {client}: {}", session.0));
        self.coverage.count("sessions ended by an operator", 1);
        self.evicted.insert(session);
        self.given_up(session);
        self.step_rank(Input::Evict { session })?;
        self.judge.evicted(session);
        // Before its client hears of it.
        self.sessions_ended()
    }

    fn kill_client(&mut self) {
        if let Some(client) = self.remote().filter(|client| self.clients[*client].is_alive()) {
            self.kill(client);
        }
    }

    fn kill(&mut self, client: usize) {
        self.trace.event(self.now, "kill", client as u64, || format!("client {client}"));
        self.cover(client, "client");
        if let Some(session) = self.clients[client].session() {
            let owed = self.judge.is_owed(session);
            self.coverage.count("clients dead with what they were told", u64::from(owed));
            self.judge.client_gone(session);
        }
        if let Some(conn) = self.end_client(client) {
            let input = Box::new(Input::Disconnected { conn });
            self.after(SECOND, Event::Rank { life: self.lives, input });
        }
        let pause = [10 * MS, 12 * SECOND][self.rng.index(2)];
        self.after(pause, Event::ClientStarts { client });
    }

    pub(super) fn full_disk(&mut self, on: bool) {
        if self.phase != Phase::Faults {
            return;
        }
        self.faults.full = on;
        self.trace.event(self.now, "disk", u64::from(on), || format!("full: {on}"));
        if on {
            self.cover_all("full-disk");
            self.judge.excuses.no_space = true;
            let free = self.rng.below(5) * 4096;
            let used = self.disk_used();
            self.disk.set_capacity(used + free);
            if self.rng.chance(1, 2) {
                self.meta.set_capacity(self.meta.used() + self.rng.below(2000));
            }
            self.after(SECOND, Event::FullDisk { on: false });
        } else {
            self.disk.set_capacity(u64::MAX);
            self.meta.set_capacity(u64::MAX);
            self.tell_space(false);
            self.after(3 * SECOND, Event::FullDisk { on: true });
        }
    }

    fn disk_used(&self) -> u64 {
        use store::disk::Disk;
        self.disk.space().map_or(0, |space| space.total - space.free)
    }

    /// From here on nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.trace.event(self.now, "heal", self.issued, String::new);
        self.phase = Phase::Heal;
        self.healed_at = self.now;
        self.faults.crash_in = None;
        self.disk.set_capacity(u64::MAX);
        self.meta.set_capacity(u64::MAX);
        self.tell_space(false);
        // A power failure that was planned and did not come is called off.
        self.disk.die_after(u64::MAX);
        self.interrupt_waits();
    }
}
