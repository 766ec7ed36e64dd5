//! `dir.pin`: which rank is to have the content of a directory. What was asked for is kept in the inode; where the content is the
//! cluster map says. It is set when the map says so, or at once if there is no such rank yet: then it is applied when there is.
//!
//! Absent: how the map changes (`moves.rs`); the other policies.

use crate::moves::Goal;
use crate::op::{Op, Park, Plan, Stop};
use crate::ops::policies::{may_set, policies_of, put};
use crate::transactions::dirs;
use crate::units::whole;
use crate::view::{Found, View};
use proto::cluster::{Policy, RANKS_MAX, Unit};
use proto::reply::Reply;
use proto::{Errno, RankId};
use std::num::IntErrorKind;

/// Whether that is the name of the policy, and there can be one.
pub(crate) fn is_pin(view: &View, name: &[u8]) -> bool {
    view.territory.map().is_some() && matches!(name, b"ceph.dir.pin" | b"pando.dir.pin")
}

/// Whether the directory's entry says that it was asked for.
pub(crate) fn is_named(view: &View, unit: Unit) -> bool {
    view.territory.entry_of(unit).is_some_and(|entry| entry.policy == Policy::Pin)
}

fn parse(value: &[u8]) -> Result<Option<RankId>, Errno> {
    let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
    match text.trim().parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(rank) => match u16::try_from(rank) {
            Ok(rank) if rank < RANKS_MAX => Ok(Some(RankId(rank))),
            Ok(_) | Err(_) => Err(Errno::EDOM),
        },
        Err(e) if matches!(e.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            Err(Errno::EDOM)
        }
        Err(_) => Err(Errno::EINVAL),
    }
}

fn pin_of(view: &View, slot: u32) -> Option<RankId> {
    view.cache.ext(slot)?.policies.pin
}

pub(crate) fn set(view: &mut View, op: &mut Op, slot: u32, value: &[u8]) -> Found<Plan> {
    let ino = may_set(view, op, slot, false)?;
    let Some(rank) = parse(value)? else { return unset(view, op, slot, Reply::Ok) };
    let entry = view.territory.entry(ino).copied();
    let here = view.config.rank;
    // Where there is no such rank yet, it stays, and the map knows that somebody placed it.
    let to = if view.serves(rank) { rank } else { entry.map_or(here, |entry| entry.rank) };
    match entry {
        Some(entry) if entry.rank == to && entry.policy == Policy::Pin => note(view, slot, Some(rank)),
        Some(_) | None => wait(view, op, slot, Goal::Pin(to)),
    }
}

pub(crate) fn remove(view: &mut View, op: &mut Op, slot: u32) -> Found<Plan> {
    let ino = may_set(view, op, slot, false)?;
    if pin_of(view, slot).is_none() && !is_named(view, whole(ino)) {
        return Err(Errno::ENODATA.into());
    }
    unset(view, op, slot, Reply::Ok)
}

/// The content goes to the rank that has it without an entry; then the entry goes, and at last what was asked for.
fn unset(view: &mut View, op: &mut Op, slot: u32, reply: Reply) -> Found<Plan> {
    let ino = view.cache.node(slot).ino();
    let to = match view.is_placed(ino) {
        true => view.territory.rank_of_slot(ino),
        false => view.config.rank,
    };
    match view.territory.entry(ino).filter(|entry| entry.policy == Policy::Pin) {
        Some(entry) if entry.rank == to && stdx::mutant!("mds_unpin_leaves_entry") => note(view, slot, None),
        Some(entry) if entry.rank == to => wait(view, op, slot, Goal::Unpin),
        Some(_) => wait(view, op, slot, Goal::Pin(to)),
        None if pin_of(view, slot).is_none() => Plan::reply(reply),
        None => note(view, slot, None),
    }
}

/// Waits until the map says so. What governs the place is named to the coordinator: so it has to be cached.
fn wait(view: &mut View, op: &mut Op, slot: u32, goal: Goal) -> Found<Plan> {
    let (ino, parent) = (view.cache.node(slot).ino(), view.cache.parent_ino(slot));
    dirs::region(view, op, parent)?;
    Err(Stop::Park(Park::Pin(ino, goal)))
}

/// Also where there is no space: by now the map says so.
fn note(view: &mut View, slot: u32, pin: Option<RankId>) -> Found<Plan> {
    let mut policies = policies_of(view, slot);
    policies.pin = pin;
    put(view, slot, policies)
}

pub(crate) fn get(view: &View, slot: u32) -> Found<Plan> {
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::EINVAL.into());
    }
    let rank = pin_of(view, slot).ok_or(Errno::ENODATA)?;
    Plan::reply(Reply::Xattr(rank.0.to_string().into_bytes().into()))
}
