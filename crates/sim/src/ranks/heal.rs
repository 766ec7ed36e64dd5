//! The end of a run: no more faults. Everything is answered and given back, clients end, ranks stop, and everything is in the store.
//!
//! Absent: faults (`faults.rs`).

use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use client::Input as ClientInput;
use mds::input::Input;
use proto::Cred;
use proto::request::Request;

impl Ranks {
    pub(super) fn heal(&mut self) -> Verdict {
        self.trace.event(self.now, "heal", 0, String::new);
        (self.phase, self.healed_at) = (Phase::Heal, self.now);
        self.disks.values().for_each(|disk| disk.die_after(u64::MAX));
        self.lives.values_mut().for_each(|life| life.store_dies = None);
        Ok(())
    }

    /// Gives everything back, and ends.
    pub(super) fn healing(&mut self) -> Verdict {
        for client in 0..self.clients.len() {
            let resized = self.is_resized(client);
            let slot = &self.clients[client];
            if slot.closes || slot.closed || !slot.is_ready() {
                continue;
            }
            self.interrupts_in_vain(client)?;
            // Others wait for them, also while this one waits for others.
            if self.unlocks(client)? || !self.clients[client].busy.is_empty() {
                continue;
            }
            let slot = &mut self.clients[client];
            if let Some(node) = slot.known.opens.pop() {
                self.start(client, "release", Cred::ROOT, Request::Release { node, count: 1 })?;
            } else if self.probes_locks(client)? || !resized {
                continue;
            } else if self.clients[client].probes < 3 {
                let slot = &mut self.clients[client];
                slot.probes += 1;
                let root = slot.known.root();
                let request = match slot.probes {
                    1 => Request::ReadDir { dir: root, after: 0, attrs: true, bytes_max: 65_536 },
                    2 => Request::SyncFs,
                    _ => Request::GetAttr { node: root },
                };
                self.start(client, "probe", Cred::ROOT, request)?;
            } else if client == 0 && self.looks_at_pins(client)? {
                continue;
            } else {
                self.clients[client].closes = true;
                self.step_client(client, ClientInput::Close)?;
            }
        }
        let quiet = self.clients.iter().all(|slot| slot.closed);
        // Who still hangs would not stop while the others do, and a coordinator that stands still hears nothing of them: the last faults
        // have to be over.
        let now = self.now;
        let awake = self.seat.is_awake(now) && self.lives.values().all(|life| life.hung_until <= now);
        let over = quiet && awake && self.judge.is_settled() && self.all_serve();
        // What takes longer to look at comes last: this is after each event.
        let orphans = || self.judge.tree().nodes.values().any(|node| !node.is_dir() && node.nlink == 0);
        let left = || self.outlives_its_client().is_some() || self.is_busy() || self.judge.has_sealed_any();
        if over && self.not_in_place().is_none() && !orphans() && !left() {
            self.judge.check_promises()?;
            self.phase = Phase::Stop;
            // Before its ranks, as in the server: daemons that stop say nothing any more, and it would call them dead.
            self.seat_ends();
            let lives: Vec<u64> = self.lives.keys().copied().collect();
            lives.into_iter().try_for_each(|life| self.step_rank(life, Input::Stop))?;
        }
        Ok(())
    }

    /// Whether a rank has anything under way, with nobody to ask it for anything.
    fn is_busy(&self) -> bool {
        self.lives.values().any(|life| life.machine.status().parked > 0)
    }
}
