//! The phases of the move that is under way: what each does, and which one follows.
//!
//! Absent: the seal and what follows it (`seal.rs`), what is open or locked below (`holders.rs`).

use super::below::{Granted, InUse, Slice};
use super::holders::Told;
use super::{Phase, RECALLS, SEALED_MAX};
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::territory::Part;
use crate::units::whole;
use proto::caps::{KEEP_ASKED_MS, KEEP_MARGIN_MS};
use proto::cluster::{Policy, Unit};
use proto::mutation::Mutation;
use proto::{Frag, Ino, SessionId};
use stdx::time::MS;
use stdx::{Now, Outbox};

impl Rank {
    /// The phase after this one, if this one is over.
    pub(super) fn move_on(
        &mut self,
        now: Now,
        phase: Phase,
        part: Part,
        out: &mut Outbox<Output>,
    ) -> Option<Phase> {
        let unit = self.moves.current.as_ref()?.unit;
        match phase {
            Phase::Name => self.name_entry(part, unit, out),
            Phase::Named => self.is_pinned(unit).then_some(Phase::Name),
            Phase::Unname => self.unname_entry(part, unit, out),
            Phase::Dropping => None,
            Phase::Seek { announced } => match self.seek_unseen(now, part, out) {
                Slice::More(()) => Some(phase),
                Slice::Wait | Slice::No(_) => None,
                Slice::Done if announced => Some(Phase::Note(InUse::FIRST)),
                Slice::Done => Some(Phase::Look(InUse::FIRST)),
            },
            Phase::Look(at) => match self.in_use_below(part, at, false) {
                Slice::More(at) => Some(Phase::Look(at)),
                Slice::Wait | Slice::Done => Some(Phase::PreFlush { until: self.next_checkpoint() }),
                Slice::No(why) => self.no_move(&why, out),
            },
            Phase::PreFlush { until } if self.is_held_back(until) => None,
            Phase::PreFlush { .. } if self.moves.current.as_ref()?.id.is_some() => Some(Phase::Announce),
            Phase::PreFlush { .. } => self.announce(part, unit, out),
            Phase::Announce => self.announced(part, unit, out),
            Phase::Recall { part: at, found } => self.recall_below(now, part, at, found),
            Phase::Note(at) => self.note_holders(part, at, out),
            Phase::Join => self.sessions_joined(out),
            Phase::Settle { until } if self.checkpoint.last < until => None,
            // Somebody may have opened something meanwhile.
            Phase::Settle { .. } => Some(Phase::Seek { announced: true }),
            Phase::Drain(at) => match self.in_use_below(part, at, true) {
                Slice::More(at) => Some(Phase::Drain(at)),
                Slice::Wait => None,
                Slice::Done => Some(Phase::List(InUse::FIRST)),
                Slice::No(why) => self.no_move(&why, out),
            },
            Phase::List(at) => self.list_holders(now, part, at, out),
            Phase::Flush { .. } if stdx::mutant!("mds_move_unflushed") => self.seal(now, part, out),
            Phase::Flush { until, thin } if self.checkpoint.last < until => {
                thin.map(|from| Phase::Flush { until, thin: self.thin_below(from) })
            }
            Phase::Flush { .. } => Some(Phase::Places(0, Ino(0))),
            Phase::Places(list, from) => match self.places_stored(part, (list, from)) {
                Slice::More((list, from)) => Some(Phase::Places(list, from)),
                Slice::Wait | Slice::Done => Some(Phase::Empty(0)),
                Slice::No(_) => Some(self.flush_sealed(now, out)),
            },
            Phase::Empty(_) if stdx::mutant!("mds_moved_stays_cached") => self.tell_holders(),
            Phase::Empty(from) => match self.empty_below(from) {
                Slice::More(from) => Some(Phase::Empty(from)),
                Slice::Wait | Slice::Done => self.tell_holders(),
                Slice::No(_) => Some(self.flush_sealed(now, out)),
            },
            Phase::Tell(at) => match self.chunk_told(at, out)? {
                Told::More(next) => Some(next),
                Told::All => self.seal(now, part, out),
            },
            Phase::Journal(position) if self.journal.durable < position => None,
            Phase::Journal(_) => self.wish_switch(now, out).then_some(Phase::Switch),
            Phase::Switch => {
                if self.moves.current.as_ref()?.until <= now.mono {
                    self.wish_switch(now, out);
                }
                None
            }
        }
    }

    fn note_holders(&mut self, part: Part, at: InUse, out: &mut Outbox<Output>) -> Option<Phase> {
        match self.find_holders(part, at, false) {
            Slice::More(at) => Some(Phase::Note(at)),
            Slice::Wait => None,
            Slice::Done => self.ask_sessions(0, out),
            Slice::No(why) => self.no_move(&why, out),
        }
    }

    fn list_holders(&mut self, now: Now, part: Part, at: InUse, out: &mut Outbox<Output>) -> Option<Phase> {
        match self.find_holders(part, at, true) {
            Slice::More(at) => Some(Phase::List(at)),
            // What a session has that has ended stays until nothing is sealed any more.
            Slice::Wait if stdx::mutant!("mds_sealed_with_ended") => None,
            Slice::Wait => {
                self.unseal("a session that has something open there has ended", out);
                None
            }
            Slice::Done => Some(self.flush_sealed(now, out)),
            Slice::No(why) => self.no_move(&why, out),
        }
    }

    /// All know that it moves.
    fn announced(&mut self, part: Part, unit: Unit, out: &mut Outbox<Output>) -> Option<Phase> {
        self.moves.current.as_ref()?.id?;
        if self.moves.unreadable.take() == Some(unit.dir) {
            return self.no_move("how the directory is spread cannot be read", out);
        }
        if !self.is_sorted(unit) {
            return None;
        }
        self.hold_group(unit);
        self.view.territory.leave(Some((part, false)), unit.dir);
        let (lease_ns, one) = (self.view.config.lease_ns, self.moves.current.as_mut()?);
        let names_over = self.view.now.mono.after((KEEP_ASKED_MS + KEEP_MARGIN_MS) * MS);
        one.names_over = Some(names_over);
        // What broke: with leases of a second no move lasted until then.
        if !stdx::mutant!("mds_short_leases_end_moves") {
            one.until = one.until.max(names_over.after(lease_ns));
        }
        Some(Phase::Recall { part: 0, found: false })
    }

    fn announce(&mut self, part: Part, unit: Unit, out: &mut Outbox<Output>) -> Option<Phase> {
        let to = self.moves.current.as_ref()?.to?;
        let Some(governing) = self.governing_part(part, false) else {
            return self.place_forgotten(out);
        };
        if self.moves.carves.is_asked() {
            return None;
        }
        let asked = self.view.territory.version();
        self.moves.current.as_mut()?.asked = asked;
        out.push(Output::Wish(MapWish::Begin { unit, to, governing }));
        Some(Phase::Announce)
    }

    /// The entry gets the policy of a pin; then the content moves, if it is to.
    fn name_entry(&mut self, part: Part, unit: Unit, out: &mut Outbox<Output>) -> Option<Phase> {
        if self.moves.carves.is_asked() {
            return None;
        }
        let wish = match self.view.territory.entry_of(unit).copied() {
            Some(entry) if entry.policy == Policy::Pin => {
                if self.moves.current.as_ref()?.to.is_none() {
                    self.end_move(true, out);
                    return None;
                }
                return match self.nothing_moves() {
                    Some(why) => self.no_move(&why, out),
                    None => Some(Phase::Seek { announced: false }),
                };
            }
            Some(entry) => MapWish::SetPolicy { unit, version: entry.version, policy: Policy::Pin },
            None => match self.governing_part(part, false) {
                Some(governing) => MapWish::Make { unit, policy: Policy::Pin, governing },
                None => return self.place_forgotten(out),
            },
        };
        out.push(Output::Wish(wish));
        Some(Phase::Named)
    }

    /// The entry goes: what it has is with the rank that it inherits from.
    fn unname_entry(&mut self, part: Part, unit: Unit, out: &mut Outbox<Output>) -> Option<Phase> {
        if self.moves.carves.is_asked() {
            return None;
        }
        let entry = self.view.territory.entry_of(unit).copied();
        let (Some(entry), Some(governing)) = (entry, self.governing_part(part, true)) else {
            return self.place_forgotten(out);
        };
        let why = crate::coordinator::Dropped::Merged(governing);
        if unit.frag == Frag::WHOLE {
            self.view.unnaming.insert(unit.dir, entry.version);
        }
        out.push(Output::Wish(MapWish::Drop { unit, version: entry.version, why }));
        Some(Phase::Dropping)
    }

    /// What governs it left the cache, while it waited for its turn or with its own checkpoint; of a part of a spread directory, what its
    /// number means. Who waits for the move looks for it again: nothing comes to a move before that is known.
    fn place_forgotten(&mut self, out: &mut Outbox<Output>) -> Option<Phase> {
        let one = self.moves.current.as_mut()?;
        let fails = stdx::mutant!("mds_forgotten_place_fails");
        let ops = if fails { Vec::new() } else { std::mem::take(&mut one.ops) };
        self.give_up_move("its place is not cached", out);
        self.look_again(ops);
        None
    }

    fn no_move(&mut self, why: &str, out: &mut Outbox<Output>) -> Option<Phase> {
        self.give_up_move(why, out);
        None
    }

    /// The journal says that it is let go.
    fn seal(&mut self, now: Now, part: Part, out: &mut Outbox<Output>) -> Option<Phase> {
        let one = self.moves.current.as_mut()?;
        // From here on only a map tells that it stays. And while the journal stands still nobody is answered anyway.
        one.sealed_until = None;
        let (id, moved) = (one.id?, one.moved());
        let unheard = std::mem::take(&mut one.found.unheard);
        let emptied = std::mem::take(&mut self.moves.emptied);
        // Before it is let go of: once that is durable, the switch may be made.
        self.unheard_of_move(now, (id, moved), &unheard, out);
        // Of slots it is said of each directory: a replay does not know which are placed.
        let dirs = match part {
            Part::Of(dir) => vec![dir],
            Part::Slots { .. } => emptied,
        };
        for some in dirs.chunks(SEALED_MAX) {
            for dir in some {
                Mutation::Sealed { id, unit: whole(*dir) }.encode(&mut self.view.txn.muts);
            }
            self.commit(now, None, out);
        }
        self.journal.want_durable();
        Some(Phase::Journal(self.journal.end))
    }

    /// Takes back what is granted below, and again until nothing is found: things that were performed meanwhile count as granted.
    fn recall_below(&mut self, now: Now, of: Part, part: usize, found: bool) -> Option<Phase> {
        let one = self.moves.current.as_mut()?;
        let names_over = one.names_over.is_none_or(|over| over <= now.mono);
        if names_over && std::mem::take(&mut one.unnamed) {
            return Some(Phase::Recall { part: 0, found });
        }
        if part == 0 {
            one.unnamed = false;
            self.moves.came = false;
        }
        let Granted { needs, unnamed, next } = self.granted_below(of, part, names_over);
        self.moves.current.as_mut()?.unnamed |= unnamed;
        if !needs.is_empty() && !stdx::mutant!("mds_move_keeps_grants") {
            self.view.book.wait(RECALLS, (SessionId(0), None), &needs, now.mono);
            return Some(Phase::Recall { part: next.unwrap_or(usize::MAX), found: true });
        }
        if let Some(part) = next {
            return Some(Phase::Recall { part, found });
        }
        if self.view.book.is_waiting(RECALLS) {
            return None;
        }
        self.view.book.operation_ended(RECALLS);
        if found {
            return Some(Phase::Recall { part: 0, found: false });
        }
        let unnamed = self.moves.current.as_ref()?.unnamed;
        (!unnamed).then_some(Phase::Seek { announced: true })
    }
}
