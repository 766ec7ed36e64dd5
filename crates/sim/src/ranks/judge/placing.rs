//! Where directories are placed: what one takes when it is made, what slots and policies must have come to in the end. By
//! docs/PROTOCOL.md, "Policies" and "Slots", in words of its own.
//!
//! Absent: whose a directory is (`owners.rs`); how policies are set (`policies.rs`).

use super::Judge;
use super::owners::unit_of;
use crate::model::judge::Verdict;
use crate::model::tree::{Node, Tree};
use proto::attr::FileKind;
use proto::cluster::{ClusterMap, Entry, Mask, Policy, RankState, SLOTS, Unit, WEIGHT};
use proto::dentry::DentryValue;
use proto::ids::{Frag, RankId};
use proto::inode::{InodeRecord, Placement, Policies, Rules, flags};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Ino, NodeRef};
use std::collections::BTreeMap;

/// How often something was made so.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ranks) struct Made {
    /// Directories that slots place, those of which the content was another rank's at once, and those that took something.
    pub(in crate::ranks) placed: u64,
    pub(in crate::ranks) newborn: u64,
    pub(in crate::ranks) taken: u64,
}

/// What counts for directories that are made in one: the nearest. A pin that only the map knows of, because it is being set, or could not
/// be, counts where nothing else was asked for.
fn rules(policies: &Policies, is_pinned_by_map: bool) -> Rules {
    let Policies { pin, own, taken, .. } = policies;
    let mask = own.mask.or(taken.mask);
    if own.placement.is_some() || own.random.is_some() {
        return Rules { mask, ..*own };
    }
    let nothing = taken.placement.is_none() && taken.random.is_none();
    if pin.is_some() || (is_pinned_by_map && nothing) {
        return Rules { placement: Some(Placement::Subtree), random: None, mask };
    }
    Rules { mask, ..*taken }
}

/// Whether slots place what is made there; none: either may be.
fn is_placed(policies: &Policies, rules: &Rules, map: &ClusterMap) -> Option<bool> {
    if !map.slots_used {
        return Some(false);
    }
    if policies.distributed {
        return Some(true);
    }
    match (rules.placement, rules.random) {
        (Some(Placement::Hash), _) => Some(true),
        // Its number decides, by a rule of the rank's own.
        (_, Some(chance)) if chance.value() < 1.0 => None,
        (_, Some(_)) => Some(true),
        (Some(Placement::Subtree), None) => Some(false),
        (None, None) => Some(map.hash_placement),
    }
}

impl Judge {
    /// Directories that a transaction makes take what they should; what was given to others with their making never changes.
    /// `told`: somebody was told of them before.
    pub(super) fn check_made(
        &mut self,
        (rank, told): (RankId, bool),
        mutations: &[u8],
        before: &Tree,
    ) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            let Mutation::PutDentry { dir, value, .. } = mutation else { continue };
            let Ok(DentryValue::Primary(inode)) = DentryValue::decode(value) else { continue };
            if FileKind::of_mode(inode.core.mode) != Some(FileKind::Directory) || inode.core.ino.is_reserved()
            {
                continue;
            }
            let judged = match before.node(inode.core.ino) {
                Some(node) => is_as_made(node, &inode),
                None => self.check_new((rank, told), before.node(dir), &inode),
            };
            judged.map_err(|error| format!("directory {} {error}", inode.core.ino.0))?;
        }
        Ok(())
    }

    fn check_new(
        &mut self,
        (rank, told): (RankId, bool),
        parent: Option<&Node>,
        inode: &InodeRecord,
    ) -> Verdict {
        let (Some(parent), Some(map)) = (parent, self.owners.heard(rank)) else { return Ok(()) };
        let entry = map.entries.get(&unit_of(parent.ino));
        let pinned = entry.is_some_and(|entry| entry.policy == Policy::Pin);
        let wanted = rules(&parent.policies, pinned);
        let found = taken(inode);
        if found != wanted {
            return Err(format!("takes {found:?} instead of {wanted:?}"));
        }
        let (placed, newborn) =
            (inode.core.flags & flags::SLOTS != 0, inode.core.flags & flags::NEWBORN != 0);
        // What a client performed has its names where it is.
        let by_rules = if told { Some(false) } else { is_placed(&parent.policies, &wanted, map) };
        if by_rules.is_some_and(|wanted| wanted != placed) {
            return Err(format!(
                "is placed by slots: {placed}, by {:?} and map {}",
                parent.policies, map.version
            ));
        }
        if newborn && !placed {
            return Err("is newborn, and not placed by slots".to_owned());
        }
        if placed {
            self.owners.placed.insert(inode.core.ino);
        }
        self.made.placed += u64::from(placed);
        self.made.newborn += u64::from(newborn);
        self.made.taken += u64::from(!found.is_empty());
        Ok(())
    }

    /// A directory that is pinned to a rank that there is, and is not its own yet.
    pub(in crate::ranks) fn pin_due(&self, map: &ClusterMap) -> Option<NodeRef> {
        let is_due = |node: &&Node| {
            let Some(rank) = node.policies.pin.filter(|rank| rank.0 < map.max_mds) else { return false };
            let entry = map.entries.get(&unit_of(node.ino));
            entry.is_none_or(|entry| entry.rank != rank || entry.policy != Policy::Pin)
        };
        let due = self.tree().nodes.values().map(std::rc::Rc::as_ref).find(is_due)?;
        Some(NodeRef { ino: due.ino, parent: due.home.0, hash: due.home.1 })
    }
}

/// What of the map is not where weights and the mask want it, when every rank serves.
pub(in crate::ranks) fn misplaced(map: &ClusterMap) -> Option<String> {
    if let Some((unit, _)) = map.entries.iter().find(|(_, entry)| entry.moving.is_some()) {
        return Some(format!("{unit:?} moves"));
    }
    if let Some((range, _)) = map.slots.runs().find(|(_, slot)| slot.moving.is_some()) {
        return Some(format!("slots {range:?} move"));
    }
    if map.hash_placement && !map.slots_used {
        return Some("slots are to place what is made, and are not used".to_owned());
    }
    if map.bal_rank_mask == Mask::NONE {
        return None;
    }
    let counts = |rank: &RankId| rank.0 < map.max_mds && map.bal_rank_mask.has(*rank) && map.made.has(*rank);
    let active = map.ranks.iter().filter(|(_, info)| info.state == RankState::Active);
    let members: Vec<RankId> = active.map(|(rank, _)| *rank).filter(counts).collect();
    let is_free = |(unit, entry): &(&Unit, &Entry)| {
        entry.policy != Policy::Pin && !(unit.dir == Ino::ROOT && unit.frag == Frag::WHOLE)
    };
    let astray = |entry: &Entry| !members.is_empty() && !members.contains(&entry.rank);
    if let Some((unit, entry)) = map.entries.iter().filter(is_free).find(|(_, entry)| astray(entry)) {
        return Some(format!("{unit:?} is rank {}'s, which is outside of the mask", entry.rank.0));
    }
    if map.slots_used { uneven(map, &members) } else { None }
}

/// A rank that has not its part of the slots.
fn uneven(map: &ClusterMap, members: &[RankId]) -> Option<String> {
    let mut has: BTreeMap<RankId, u32> = BTreeMap::new();
    for (range, slot) in map.slots.runs() {
        *has.entry(slot.rank).or_default() += u32::from(range.end - range.start);
    }
    let members = if members.is_empty() { &[RankId(0)] } else { members };
    let weight = |rank: &RankId| u32::from(map.weights.get(rank).copied().unwrap_or(WEIGHT));
    let all: u32 = members.iter().map(weight).sum();
    let share = |rank: &RankId| {
        if members.contains(rank) { u32::from(SLOTS) * weight(rank) / all } else { 0 }
    };
    let most = |rank: &RankId| share(rank) + u32::from(members.contains(rank));
    let ranks = members.iter().chain(has.keys());
    let wrong = |rank: &&RankId| {
        let count = has.get(*rank).copied().unwrap_or(0);
        count < share(rank) || count > most(rank)
    };
    let rank = *ranks.into_iter().find(wrong)?;
    Some(format!("rank {} has {:?} slots instead of {}", rank.0, has.get(&rank), share(&rank)))
}

fn taken(inode: &InodeRecord) -> Rules {
    inode.ext.as_deref().map_or_else(Rules::default, |ext| ext.policies.taken)
}

fn is_as_made(node: &Node, inode: &InodeRecord) -> Verdict {
    let (placed, newborn) = (inode.core.flags & flags::SLOTS != 0, inode.core.flags & flags::NEWBORN != 0);
    if (placed, newborn) != (node.placed, node.newborn) {
        return Err(format!(
            "was placed by slots {} and newborn {}, and is not so now",
            node.placed, node.newborn
        ));
    }
    if taken(inode) == node.policies.taken {
        Ok(())
    } else {
        Err(format!("took {:?}, and has {:?} now", node.policies.taken, taken(inode)))
    }
}
