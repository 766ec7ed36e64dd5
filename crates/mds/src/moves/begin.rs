//! Which move begins next, whether it may, and with which phase.
//!
//! Absent: in what order they wait (`turns.rs`).

use super::holders::Found;
use super::{Goal, LEASES, Move, Phase, Wanted, gathered};
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::territory::{Part, Side};
use proto::Ino;
use proto::cluster::Unit;
use stdx::{Now, Outbox};

/// Whether the next one begins.
enum Begin {
    At(Phase),
    Later,
    /// Things are not any more as they were when it was asked for.
    Moot,
    Refused(String),
}

impl Rank {
    /// Takes the next one that there is something to be done for.
    pub(super) fn begin_next(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.moves.waited_for_first();
        for _ in 0..self.moves.queue.len() {
            let Some(Wanted { part, unit, goal, ops }) = self.moves.queue.pop_front() else { return };
            let phase = match self.how_to_begin((part, unit), goal) {
                Begin::At(phase) => phase,
                Begin::Later => {
                    self.moves.queue.push_back(Wanted { part, unit, goal, ops });
                    continue;
                }
                Begin::Moot => {
                    self.look_again(ops);
                    continue;
                }
                Begin::Refused(why) => {
                    self.say_refused(part, &why, out);
                    if let Goal::Carry(id, _) = goal {
                        out.push(Output::Wish(MapWish::Abort { unit, id }));
                    }
                    self.fail_moves(ops);
                    continue;
                }
            };
            let (id, to) = match goal {
                Goal::Carry(id, to) => (Some(id), Some(to)),
                Goal::Pin(to) => (None, Some(to).filter(|to| *to != self.view.config.rank)),
                Goal::Move(to) => (None, Some(to)),
                Goal::Unpin => (None, None),
            };
            let until = now.mono.after(LEASES * self.view.config.lease_ns);
            self.moves.unreadable = None;
            self.view.moving = Some(unit);
            self.moves.current = Some(Move {
                part,
                unit,
                goal,
                to,
                id,
                asked: 0,
                phase,
                until,
                names_over: None,
                unnamed: false,
                sealed_until: None,
                sealed_at: None,
                settled: 0,
                ops,
                found: Found::default(),
                held: None,
            });
            return;
        }
    }

    fn how_to_begin(&mut self, (part, unit): (Part, Unit), goal: Goal) -> Begin {
        let me = self.view.config.rank;
        let dir = match part {
            Part::Of(dir) => dir,
            Part::Slots { first, .. } => {
                let slot = self.view.territory.map().map(|map| map.slots.get(first));
                let moving = slot.filter(|slot| slot.rank == me).and_then(|slot| slot.moving);
                let announced = moving.is_some_and(|moving| goal == Goal::Carry(moving.id, moving.to));
                return if announced { self.carry_out() } else { Begin::Moot };
            }
        };
        let entry = self.view.territory.entry_of(unit).copied();
        if entry.is_some_and(|entry| entry.rank != me) {
            return Begin::Moot;
        }
        match goal {
            // The coordinator has announced another move of it.
            Goal::Pin(_) | Goal::Move(_) | Goal::Unpin
                if entry.is_some_and(|entry| entry.moving.is_some()) =>
            {
                Begin::Later
            }
            Goal::Move(to) if to == me => Begin::Moot,
            Goal::Move(to) if !self.view.serves(to) => {
                Begin::Refused(format!("rank {} can be given nothing now", to.0))
            }
            // Its place was looked for by whoever asked, and is cached.
            Goal::Move(_) if self.owner(dir) != Some(me) => Begin::Moot,
            Goal::Pin(to) if to == me && self.is_pinned(unit) => Begin::Moot,
            // Its slot went elsewhere while this one waited for its turn: who asked looks for it again.
            Goal::Pin(_)
                if entry.is_none()
                    && self.owner(dir).is_some_and(|owner| owner != me)
                    && !stdx::mutant!("mds_pins_what_went") =>
            {
                Begin::Moot
            }
            Goal::Pin(_) => Begin::At(Phase::Name),
            Goal::Unpin if entry.is_none() || !self.inherits_here(dir) => Begin::Moot,
            // It may be about to get another home.
            Goal::Unpin if self.view.transactions.is_reserved(dir) => Begin::Later,
            // Without its entry no map says any more that it came. The rank's next life would take the move for one that was not made, and
            // what is open for closed.
            Goal::Unpin if !self.is_settled() && !stdx::mutant!("mds_entry_goes_before_what_came") => {
                self.journal.want_durable();
                Begin::Later
            }
            Goal::Unpin => Begin::At(Phase::Unname),
            Goal::Carry(id, _)
                if entry.and_then(|entry| entry.moving).is_none_or(|moving| moving.id != id) =>
            {
                Begin::Moot
            }
            Goal::Carry(..) if self.is_gathered(unit, goal) => Begin::Refused(gathered::WHY.to_owned()),
            Goal::Carry(..) | Goal::Move(_) => self.carry_out(),
        }
    }

    /// Whether the directory's inode is in what is this rank's; of a unit, whether its directory's content is.
    pub(super) fn is_at_home(&mut self, dir: Ino) -> bool {
        let of = self.view.cache.outer(dir);
        if of != dir {
            return self.owner(of) == Some(self.view.config.rank);
        }
        let Some(node) = self.view.cache.by_ino(dir) else { return false };
        let home = self.view.cache.node(node).dir;
        self.view.side(home) == Some(Side::Mine)
    }

    /// Whether a directory's content, or a unit, would be this rank's if it had no entry.
    fn inherits_here(&mut self, dir: Ino) -> bool {
        match self.view.is_placed(dir) {
            true => self.view.territory.of_slot(dir) == Side::Mine,
            false => self.is_at_home(dir),
        }
    }

    fn carry_out(&self) -> Begin {
        match self.nothing_moves() {
            Some(why) => Begin::Refused(why),
            None => Begin::At(Phase::Seek { announced: false }),
        }
    }
}
