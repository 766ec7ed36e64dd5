//! Where directories are placed, as callers and operators ask for it: the file system's placement, policies of directories, weights of
//! ranks and the balancer's mask; and what that comes to in the end.
//!
//! Absent: whether it is right (`judge/placing.rs`, `judge/policies.rs`).

use super::faults::Fault;
use super::judge::placing::misplaced;
use super::judge::policies::{Policy, is_change, policy_of};
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use mds::coordinator::{Command, Subject};
use proto::cluster::{ClusterMap, Mask, Policy as EntryPolicy, SLOTS, Unit, WEIGHT, WEIGHT_MAX};
use proto::ids::RankId;
use proto::reply::Outcome;
use proto::request::{Request, XattrMode};
use proto::{Cred, Errno, Frag, Ino, Name, NodeRef};
use std::collections::BTreeMap;
use std::ops::Range;
use stdx::Prng;
use stdx::time::SECOND;

/// Its own dice, so that runs without it are as they were.
const DICE: u64 = 0x706c_6163_696e_6721;
/// Ranks above those that there are, to which directories are pinned.
const BEYOND: u64 = 3;
/// A pin that is due is looked for so often: it comes about when its inode comes into its home's cache.
const LOOKS_NS: u64 = SECOND;
/// A slot goes to its place by one move, an entry by few: what asks for it may still be on its way when nothing goes wrong any more.
const MOVES_MAX: u32 = 3;

/// What a seed decides about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Placing {
    /// Slots place what is made, from the beginning.
    hash: bool,
    /// One call of so many is about a policy, one of so many makes or removes a directory; 0: none is.
    policy_one_in: u64,
    dir_one_in: u64,
    /// Only what slots place is spread by itself.
    pub(super) only_placed: bool,
    /// What operators do besides.
    pub(super) kinds: Vec<Fault>,
}

impl Placing {
    /// In half of the seeds. `faults`: anything goes wrong at all.
    pub(super) fn any(seed: u64, faults: bool) -> Self {
        let mut rng = Prng::new(seed ^ DICE);
        if rng.chance(1, 2) {
            return Self::default();
        }
        let kinds = [
            Fault::Placement,
            Fault::Mask,
            Fault::Weight,
            Fault::MoveDir,
            Fault::MoveSlots,
            Fault::CancelMove,
        ];
        let wanted = faults || rng.chance(1, 2);
        Self {
            hash: rng.chance(1, 2),
            policy_one_in: [0, 8, 20, 60][rng.index(4)],
            dir_one_in: [0, 10, 20][rng.index(3)],
            only_placed: rng.chance(1, 2),
            kinds: kinds.into_iter().filter(|_| wanted && rng.chance(2, 3)).collect(),
        }
    }
}

/// What becomes of placement in a run.
#[derive(Default)]
pub(super) struct Placed {
    /// Moves of each entry since the last client went, and of each slot since the last fault.
    moves: BTreeMap<Unit, u32>,
    slots: BTreeMap<u16, u32>,
    /// When a client last looked for a pin that is due.
    looked: u64,
}

impl Ranks {
    /// The file system is asked for hash placement before anything is made.
    pub(super) fn placing_begins(&mut self) -> Verdict {
        if self.plan.placing.hash { self.command(Command::SetHashPlacement(true)) } else { Ok(()) }
    }

    /// An operator changes his mind.
    pub(super) fn operator_places(&mut self, fault: Fault) -> Verdict {
        let ranks = u64::from(self.plan.ranks);
        let command = match fault {
            Fault::Placement => Command::SetHashPlacement(self.rng.chance(2, 3)),
            Fault::Mask => Command::SetBalRankMask(self.any_mask()),
            _ => {
                let weight = [1, 50, WEIGHT, WEIGHT_MAX][self.rng.index(4)];
                Command::SetRankWeight { rank: RankId(self.rng.below(ranks) as u16), weight }
            }
        };
        self.trace.event(self.now, "command", 0, || format!("{command:?}"));
        self.command(command)
    }

    /// Mostly some of the ranks, seldom none.
    fn any_mask(&mut self) -> Mask {
        let ranks = self.plan.ranks;
        match self.rng.below(12) {
            0..4 => Mask::ALL,
            4 => Mask::NONE,
            _ => {
                let drawn = 1 + self.rng.below((1 << ranks) - 1);
                let some = (0..ranks).filter(|rank| drawn >> rank & 1 == 1).map(RankId);
                some.fold(Mask::NONE, Mask::with)
            }
        }
    }

    /// A directory is to have its content at some rank; what governs it counts as it is now.
    pub(super) fn operator_moves_a_directory(&mut self) -> Verdict<bool> {
        let tree = self.judge.tree();
        let dirs: Vec<Ino> = tree.nodes.values().filter(|node| node.is_dir()).map(|node| node.ino).collect();
        let dir = dirs[self.rng.index(dirs.len())];
        let Some(governing) = self.judge.governing(dir) else { return Ok(false) };
        let unit = Unit { dir, frag: Frag::WHOLE };
        self.operator_moves(Subject::Unit { unit, governing })
    }

    /// A few neighbouring slots of one rank, of which one places a directory.
    pub(super) fn operator_moves_slots(&mut self) -> Verdict<bool> {
        let placed = self.judge.placed_slots();
        let Some(first) = placed.get(self.rng.index(placed.len())).copied() else { return Ok(false) };
        let Some(map) = self.seat.map.clone() else { return Ok(false) };
        let run = map.slots.runs().find(|(range, _)| range.contains(&first));
        let Some((range, slot)) = run else { return Ok(false) };
        let count = (1 + self.rng.below(4) as u16).min(range.end - first);
        self.operator_moves(Subject::Slots { first, count, version: slot.version })
    }

    fn operator_moves(&mut self, moved: Subject) -> Verdict<bool> {
        let to = RankId(self.rng.below(u64::from(self.plan.ranks)) as u16);
        self.trace.event(self.now, "command", to.0.into(), || format!("move {moved:?} to rank {}", to.0));
        self.command(Command::Move { moved, to })?;
        Ok(true)
    }

    pub(super) fn operator_gives_up(&mut self) -> Verdict<bool> {
        let Some(map) = self.seat.map.clone() else { return Ok(false) };
        let entries = map.entries.values().filter_map(|entry| entry.moving);
        let slots = map.slots.runs().filter_map(|(_, slot)| slot.moving);
        let moves: Vec<_> = entries.chain(slots).map(|moving| moving.id).collect();
        let Some(id) = moves.get(self.rng.index(moves.len())).copied() else { return Ok(false) };
        self.trace.event(self.now, "command", id.0, || format!("cancel move {}", id.0));
        self.command(Command::CancelMove(id))?;
        Ok(true)
    }

    /// A call about placement instead of any other.
    pub(super) fn placing_call(&mut self, client: usize) -> Option<(&'static str, Cred, Request)> {
        let (policies, dirs) = (self.plan.placing.policy_one_in, self.plan.placing.dir_one_in);
        if policies > 0 && self.rng.chance(1, policies) {
            let request = self.policy(client)?;
            let cred =
                if self.rng.chance(1, 16) { Cred { uid: 1, gid: 2, groups: Vec::new() } } else { Cred::ROOT };
            return Some(("policy", cred, request));
        }
        if dirs > 0 && self.rng.chance(1, dirs) {
            let kind = ["mkdir", "mkdir", "rmdir"][self.rng.index(3)];
            let known = &mut self.clients[client].known;
            let request = self.workload.only(kind, known, self.judge.tree())?;
            return Some((kind, Cred::ROOT, request));
        }
        None
    }

    fn policy(&mut self, client: usize) -> Option<Request> {
        let node = self.any_directory(client)?;
        let (key, values): (&str, &[&str]) = match self.rng.below(16) {
            0..4 => ("dir.pin.distributed", &["1", "1", "1", "0", "2"]),
            4..6 => ("dir.pin.random", &["1", "1", "0.5", "0.5", "0", "0.001", "2", "often"]),
            6 => ("dir.bal.mask", &["0x3", "0,1", "all", "0x0", "1,256", "1"]),
            7..11 => ("dir.placement", &["hash", "hash", "hash", "subtree", "inherit", "else"]),
            11..14 => ("dir.pin", &["", "", "", "-1", "-1", "-1", "256", "x"]),
            _ => ("dir.pin", &["-1"]),
        };
        // One of them has this name alone.
        let space = if key != "dir.placement" && self.rng.chance(1, 3) { "ceph" } else { "pando" };
        let name = Name::new(format!("{space}.{key}").as_bytes()).ok()?;
        let value = match values[self.rng.index(values.len())] {
            "" => (u64::from(self.plan.ranks) + self.rng.below(BEYOND)).to_string(),
            text => text.to_owned(),
        };
        Some(match self.rng.below(8) {
            0..2 => Request::RemoveXattr { node, name },
            2 => Request::GetXattr { node, name },
            _ => Request::SetXattr { node, name, value: value.into_bytes().into(), mode: XattrMode::Either },
        })
    }

    /// The root among them; seldom a file.
    fn any_directory(&mut self, client: usize) -> Option<NodeRef> {
        let file = self.rng.chance(1, 32);
        let tree = self.judge.tree();
        let is_it = |place: &&NodeRef| tree.node(place.ino).is_some_and(|node| node.is_dir() != file);
        let mut all: Vec<NodeRef> =
            self.clients[client].known.places.values().filter(is_it).copied().collect();
        if !file && all.iter().all(|node| node.ino != Ino::ROOT) {
            all.push(NodeRef::bare(Ino::ROOT));
        }
        all.get(self.rng.index(all.len())).copied()
    }

    /// A caller has its answer to such a call.
    pub(super) fn count_policy(&mut self, request: &Request, outcome: &Outcome) {
        let Some(policy) = policy_of(request) else { return };
        let beyond = |value: &[u8]| {
            let rank = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u16>().ok());
            rank.is_some_and(|rank| rank >= self.plan.ranks)
        };
        let what = match (request, policy, outcome) {
            (Request::SetXattr { value, .. }, Policy::Pin, Ok(_)) if beyond(value) => {
                "pins to a rank that is not there"
            }
            (Request::SetXattr { value, .. }, Policy::Pin, Ok(_)) if value[..] == b"-1"[..] => "pins of -1",
            (Request::SetXattr { .. }, Policy::Pin, Ok(_)) => "pins",
            (Request::SetXattr { .. }, Policy::Pin, Err(Errno::EBUSY)) => "pins that cannot be now (EBUSY)",
            (Request::SetXattr { .. }, Policy::Pin, Err(_)) => "pins refused",
            (Request::SetXattr { .. }, Policy::Distributed, Ok(_)) => "dir.pin.distributed set",
            (Request::SetXattr { .. }, Policy::Random, Ok(_)) => "dir.pin.random set",
            (Request::SetXattr { .. }, Policy::Mask, Ok(_)) => "dir.bal.mask set",
            (Request::SetXattr { .. }, Policy::Placement, Ok(_)) => "dir.placement set",
            (Request::RemoveXattr { .. }, Policy::Pin, Ok(_)) => "pins removed",
            (Request::RemoveXattr { .. }, _, Ok(_)) => "policies removed",
            (Request::GetXattr { .. }, _, Ok(_)) => "policies read",
            (_, _, Err(_)) if is_change(request) => "policies refused",
            _ => return,
        };
        self.coverage.count(what);
    }

    /// Slots that a map gives to another rank.
    pub(super) fn slots_switched(before: &ClusterMap, map: &ClusterMap) -> Vec<(Range<u16>, RankId)> {
        if before.slots == map.slots {
            return Vec::new();
        }
        let mut switched: Vec<(Range<u16>, RankId)> = Vec::new();
        for number in 0..SLOTS {
            let to = map.slots.get(number).rank;
            if before.slots.get(number).rank == to {
                continue;
            }
            match switched.last_mut() {
                Some((range, rank)) if range.end == number && *rank == to => range.end += 1,
                Some(_) | None => switched.push((number..number + 1, to)),
            }
        }
        switched
    }

    pub(super) fn count_slots(&mut self, slots: &Range<u16>) -> Verdict {
        self.coverage.count("runs of slots switched");
        if self.judge.placed_in(slots) > 0 {
            self.coverage.count("slots switched that place a directory");
        }
        if self.phase != Phase::Heal {
            return Ok(());
        }
        for number in slots.clone() {
            let count = self.placed.slots.entry(number).or_default();
            *count += 1;
            if *count > MOVES_MAX {
                return Err(format!("slot {number} moves again and again"));
            }
        }
        // Each goes once: that they are many is no lack of progress.
        self.healed_at = self.now;
        Ok(())
    }

    pub(super) fn count_unit(
        &mut self,
        before: &ClusterMap,
        unit: Unit,
        (from, to): (RankId, RankId),
    ) -> Verdict {
        let mask = before.bal_rank_mask;
        if self.judge.tells_of_leaving(to, unit) {
            self.coverage.count("units that came back while a journal tells of their leaving");
        }
        let carved = before.entries.get(&unit).is_some_and(|entry| entry.policy == EntryPolicy::Carved);
        if carved && mask != Mask::NONE && !mask.has(from) && mask.has(to) {
            self.coverage.count("entries switched from outside of the mask");
        }
        // The inode is changed last by a pin that is carried out at once.
        if self.judge.tree().node(unit.dir).is_some_and(|node| node.policies.pin == Some(to)) {
            self.coverage.count("pins carried out later");
        }
        // Parts go to and fro while their directory is merged, and that is given up. Callers may have asked for several pins one after the
        // other.
        let quiet = self.phase == Phase::Heal && self.clients.iter().all(|slot| slot.closed);
        if !quiet || unit.frag != Frag::WHOLE {
            return Ok(());
        }
        let count = self.placed.moves.entry(unit).or_default();
        *count += 1;
        if *count > MOVES_MAX { Err(format!("{unit:?} moves again and again")) } else { Ok(()) }
    }

    /// A rank's log says that a directory is spread because it has grown, or is hot.
    pub(super) fn count_spread(&mut self, text: &str) {
        let Some((_, rest)) =
            text.split_once("directory 0x").filter(|_| text.contains("is spread by itself"))
        else {
            return;
        };
        let dir = rest.split(' ').next().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let node = dir.and_then(|dir| self.judge.tree().node(Ino(dir)));
        if node.is_some_and(|node| node.placed) {
            self.coverage.count("directories that slots place spread by themselves");
        }
    }

    /// In the end a client looks at directories whose pins are due, so that they come about.
    pub(super) fn looks_at_pins(&mut self, client: usize) -> Verdict<bool> {
        let due = self.seat.map.as_ref().and_then(|map| self.judge.pin_due(map));
        let Some(node) = due else { return Ok(false) };
        if self.now >= self.placed.looked + LOOKS_NS {
            self.placed.looked = self.now;
            self.coverage.count("pins that are due looked at in the end");
            self.start(client, "look", Cred::ROOT, Request::GetAttr { node })?;
        }
        Ok(true)
    }

    /// What is not where it is wanted. A pin that comes to be due when no client is left waits for the next one that looks (a rank had
    /// asked for the content by the pin before, and the one that has it came to that late).
    pub(super) fn not_in_place(&self) -> Option<String> {
        self.seat.map.as_ref().and_then(|map| misplaced(map))
    }
}
