//! What other ranks ask: a directory's record, its totals and times, who has it open, its content.
//!
//! Absent: who asks, and what becomes of it there (`peers/answers.rs`, `replicas.rs`); the move itself (`moves.rs`).

use crate::cache::dir;
use crate::moves::Goal;
use crate::op::{Learned, LoadKey, Op, Park, Plan, Stop};
use crate::ops::pin;
use crate::ops::setattr::timed_header;
use crate::perm;
use crate::territory::Side;
use crate::units::whole;
use crate::view::{Found, View, park};
use proto::cluster::Unit;
use proto::dentry::encode_primary;
use proto::reply::Reply;
use proto::{Errno, Frag, Ino, NameHash, NodeRef, RankId, SessionId, Writer};
use stdx::Wall;

/// The record of a directory whose home is here; the answer makes it a copy that is recalled before it changes.
pub(crate) fn replicate(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    let found = view.cache.node(slot);
    if !found.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let copies = op.place.is_some_and(|place| view.book.may_copy(place, node.ino));
    // Its home is about to be another.
    let leaves = view.territory.leaving().is_some_and(|part| view.is_inode_below(node.ino, part));
    if !copies || leaves {
        return Err(Errno::EAGAIN.into());
    }
    record(view, slot)
}

/// The same for what never changes in it: it is no copy, and nobody is in its way.
pub(crate) fn facts(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    record(view, slot)
}

fn record(view: &View, slot: u32) -> Found<Plan> {
    let node = view.cache.node(slot);
    let mut value = Writer::new();
    encode_primary(&node.core, view.cache.ext(slot), &mut value);
    let place = NodeRef { ino: node.ino(), parent: view.cache.parent_of(slot), hash: node.hash };
    Plan::reply(Reply::Record { place, name: node.name.as_bytes().into(), value: value.0.into() })
}

/// Whose the content of a directory, or a unit of it, is that another rank takes for this one's.
fn side(view: &View, op: &Op, number: Ino, unit: Unit) -> Found<Side> {
    let of_unit = if number == unit.dir { None } else { view.territory.of_unit(number, unit) };
    match of_unit.or_else(|| view.of_itself(unit.dir)) {
        Some(side) => Ok(side),
        None if view.territory.has_slot(unit.dir) && !op.inherits(unit.dir) => {
            Err(Stop::Park(Park::Facts { node: NodeRef::bare(unit.dir), home: op.of_rank }))
        }
        None => Err(Stop::NotMine(None)),
    }
}

/// By which number that is called here. Who asks for a unit may know of how its directory was spread before it was merged: he is to
/// look again, at whoever has the directory.
fn number_of(view: &View, op: &Op, unit: Unit) -> Found<Ino> {
    if unit.frag == Frag::WHOLE {
        return Ok(unit.dir);
    }
    let found = view.unit_at(unit.dir, NameHash(unit.frag.prefix))?;
    if let Some((number, _)) = found.filter(|(_, known)| *known == unit) {
        return Ok(number);
    }
    if view.territory.is_gone(unit.dir) {
        return Err(Errno::ESTALE.into());
    }
    match side(view, op, unit.dir, whole(unit.dir))? {
        Side::Mine if found.is_some() || is_known(view, unit.dir) => Err(Errno::ESTALE.into()),
        Side::Mine => park(LoadKey::Header { dir: unit.dir }),
        Side::Sealed => Err(Stop::Park(Park::Move)),
        Side::Other(rank) => Err(Stop::NotMine(rank)),
    }
}

/// Whether a directory's header is here, or it is known that there is none.
fn is_known(view: &View, dir: Ino) -> bool {
    let is_here = view.cache.find_dir(dir).is_some_and(|slot| view.cache.dir(slot).has(dir::HEADER));
    is_here || matches!(view.learned.as_deref(), Some(Learned::NoHeader(of)) if *of == dir)
}

/// What a directory's content, or a unit of it, adds to its attributes.
pub(crate) fn totals(view: &mut View, op: &mut Op, unit: Unit) -> Found<Plan> {
    let slot = content(view, op, unit)?;
    let dir = view.cache.dir(slot);
    let mut header = Writer::new();
    // Whoever has the whole may want to merge it, if it is cold.
    match dir.header.unit() {
        Some(_) => dir.header.encode_told(dir.ino, view.heat_of(dir.ino), &mut header),
        None => dir.header.encode(&mut header),
    }
    Plan::reply(Reply::Totals(header.0.into()))
}

/// What is asked of a directory's content, or of a unit of it, of late.
pub(crate) fn heat(view: &View, op: &Op, unit: Unit) -> Found<Plan> {
    let number = number_of(view, op, unit)?;
    match side(view, op, number, unit)? {
        Side::Mine => Plan::reply(Reply::Xattr(view.load_of(number).encode().into())),
        Side::Sealed => Err(Stop::Park(Park::Move)),
        Side::Other(rank) => Err(Stop::NotMine(rank)),
    }
}

/// The time of a directory's content is set from its home, where the inode's is. The home may have decided meanwhile that the directory
/// goes: this waits while its content is reserved for that, and the content has ended then. What broke: it got a header once more, behind
/// its end in the journal; and a replay that found only that behind the last checkpoint stored it, for a directory that nobody has.
///
/// Nor does a stamp say anything of units that the home did not know of: it is to look again. What broke: a directory was divided just before
/// its time was set, with the stamp of one that has no units. If somebody had asked its home for what it had become, that put the answer
/// together with its units, which had all changed since, as far as anybody saw: their time was shown, not the one that was set.
pub(crate) fn set_times(
    view: &mut View,
    op: &mut Op,
    ino: Ino,
    mtime: Wall,
    (first, stamp): (Ino, u64),
) -> Found<Plan> {
    let dir = content(view, op, whole(ino))?;
    if view.cache.dir(dir).has(dir::REMOVED) && !stdx::mutant!("mds_times_set_of_what_is_gone") {
        return Err(Errno::ESTALE.into());
    }
    let of_another = view.cache.dir(dir).header.first_unit() != first;
    if of_another && !stdx::mutant!("mds_times_set_of_another_spread") {
        return Err(Errno::ESTALE.into());
    }
    let timed = timed_header(view, dir, mtime, stamp);
    view.txn.whole_header(ino, &timed);
    let mut header = Writer::new();
    timed.encode(&mut header);
    Plan::commit(Reply::Totals(header.0.into()))
}

/// The names of a directory, or of a unit of it, if they are here, with the header.
fn content(view: &mut View, op: &mut Op, unit: Unit) -> Found<u32> {
    let slot = content_here(view, op, unit)?;
    view.listing_is_free(unit.dir)?;
    Ok(slot)
}

/// The same, whatever is reserved in it.
pub(crate) fn content_here(view: &mut View, op: &mut Op, unit: Unit) -> Found<u32> {
    let number = number_of(view, op, unit)?;
    match side(view, op, number, unit)? {
        Side::Mine => {}
        Side::Sealed => return Err(Stop::Park(Park::Move)),
        Side::Other(rank) => return Err(Stop::NotMine(rank)),
    }
    if let Some(slot) = view.cache.find_dir(number).filter(|slot| view.cache.dir(*slot).has(dir::HEADER)) {
        return Ok(slot);
    }
    let missing = matches!(view.learned.as_deref(), Some(Learned::NoHeader(of)) if *of == number);
    if missing && op.inherits(unit.dir) {
        // Nobody who was asked has its inode: its home may have come here meanwhile. Where the record is, loading the header again tells
        // whether it may be missing.
        if stdx::mutant!("mds_home_that_came_is_damage") {
            return Err(Errno::EIO.into());
        }
        return match view.resolve(NodeRef::bare(unit.dir), op) {
            Ok(_) => park(LoadKey::Header { dir: number }),
            // It was removed, and the store has that; its entry is there yet. Else names that nobody has the header of are damage.
            Err(Stop::NotMine(_)) if op.is_gone(unit.dir) => Err(Errno::ESTALE.into()),
            Err(Stop::NotMine(_)) => Err(Errno::EIO.into()),
            Err(stop) => Err(stop),
        };
    }
    if missing {
        return Err(Stop::Park(Park::Facts { node: NodeRef::bare(unit.dir), home: op.of_rank }));
    }
    park(LoadKey::Header { dir: number })
}

/// Whether a session has a directory open for reading whose content is at the rank that asks.
pub(crate) fn opened(view: &mut View, op: &mut Op, node: NodeRef, session: SessionId) -> Found<Plan> {
    view.resolve(node, op)?;
    if view.has_open(session, node.ino, perm::READ) {
        return Plan::reply(Reply::Ok);
    }
    // Its client may be about to say so.
    Err(if view.reconnecting { Errno::EAGAIN } else { Errno::EACCES }.into())
}

/// The content of a directory, or a unit of it, becomes another rank's, or stays; either way the entry of a directory says that it was
/// asked for.
pub(crate) fn hand(view: &View, op: &Op, unit: Unit, to: RankId) -> Found<Plan> {
    let number = number_of(view, op, unit)?;
    match side(view, op, number, unit)? {
        Side::Mine if to == view.config.rank && (unit.frag != Frag::WHOLE || pin::is_named(view, unit)) => {
            Plan::reply(Reply::Ok)
        }
        // It lives again soon, or the map of here is old.
        Side::Mine if to != view.config.rank && view.is_coming(to) => Err(Errno::EAGAIN.into()),
        // Soon it is known what those keep who had something of a former life. Who removes a directory waits for that.
        Side::Mine
            if to != view.config.rank && view.stands_still && !stdx::mutant!("mds_hand_does_not_wait") =>
        {
            Err(Errno::EAGAIN.into())
        }
        Side::Mine if to != view.config.rank && !view.serves(to) => Err(Errno::EBUSY.into()),
        Side::Mine if unit.frag != Frag::WHOLE => Err(Stop::Park(Park::Pin(number, Goal::Move(to)))),
        Side::Mine => Err(Stop::Park(Park::Pin(number, Goal::Pin(to)))),
        Side::Sealed => Err(Stop::Park(Park::Move)),
        Side::Other(Some(rank)) if rank == to => Plan::reply(Reply::Ok),
        Side::Other(rank) => Err(Stop::NotMine(rank)),
    }
}

/// The entry of a directory goes: who asks is its home, and says that slots place it. What is not so by the map of here the home finds in
/// its own.
pub(crate) fn unpin(view: &mut View, op: &mut Op, dir: Ino) -> Found<Plan> {
    if !pin::is_named(view, whole(dir)) {
        return Plan::reply(Reply::Ok);
    }
    match side(view, op, dir, whole(dir))? {
        Side::Mine => {}
        Side::Sealed => return Err(Stop::Park(Park::Move)),
        Side::Other(rank) => return Err(Stop::NotMine(rank)),
    }
    match view.territory.of_slot(dir) {
        Side::Mine if view.is_placed(dir) => Err(Stop::Park(Park::Pin(dir, Goal::Unpin))),
        // Nobody who was asked has its inode: its home may have come here meanwhile, and who asks sends his own caller here.
        Side::Mine if op.inherits(dir) => match view.resolve(NodeRef::bare(dir), op) {
            Ok(_) if view.is_placed(dir) => Err(Stop::Park(Park::Pin(dir, Goal::Unpin))),
            // Without its entry nothing else would say whose it is.
            Ok(_) | Err(Stop::NotMine(_)) => Err(Errno::ESTALE.into()),
            Err(stop) => Err(stop),
        },
        Side::Mine => Err(Stop::Park(Park::Facts { node: NodeRef::bare(dir), home: op.of_rank })),
        Side::Sealed => Err(Stop::Park(Park::Move)),
        Side::Other(_) => Plan::reply(Reply::Ok),
    }
}
