//! Rmdir: an empty directory goes, with its header and backptr.
//!
//! Absent: trees; what another rank does whose content it is (`transactions/part.rs`).

use crate::op::{Op, Park, Plan, Stop};
use crate::ops::Headers;
use crate::ops::destroy::end_holders;
use crate::perm;
use crate::territory::Side;
use crate::transactions::across;
use crate::txn::Delta;
use crate::units::whole;
use crate::view::{Found, View};
use proto::mutation::Mutation;
use proto::reply::Reply;
use proto::{Errno, Ino, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name) -> Found<Plan> {
    let hash = view.name_hash(name);
    let (parent, dir) = view.directory(parent, hash, op)?;
    perm::access(view, op, parent, perm::EXEC)?;
    let slot = view.lookup(dir, hash, name.as_bytes())?.ok_or(Errno::ENOENT)?;
    perm::access(view, op, parent, perm::WRITE)?;
    // One of several names, whose inode is another rank's: no directory has several.
    let node = view.cache.node(slot);
    if !node.primary() && !node.is_dir() && view.is_boundary(Ino::LINKS) {
        return Err(Errno::ENOTDIR.into());
    }
    let target = view.target(slot, op)?;
    perm::sticky(view, op, parent, target)?;
    let ends_there = across::ends_content(view, op, target)?;
    if !ends_there {
        is_empty_here(view, target)?;
        end_units(view, target)?;
    }
    let core = view.changed_core(target);
    end_holders(view, core.ino);
    view.txn.delete(view.place_in(dir, hash, name.as_bytes()));
    if ends_there {
        Mutation::DelPlace { ino: core.ino, version: core.change }.encode(&mut view.txn.muts);
    } else {
        view.txn.no_backptr(core.ino, core.change);
    }
    let mut headers = Headers::new();
    headers.add(dir, -1, -1, Some(view.wall()));
    headers.emit(view);
    Plan::commit(Reply::Ok)
}

/// A directory that is to go is empty, and its content is here.
pub(crate) fn is_empty_here(view: &View, target: u32) -> Found<()> {
    let ino = view.cache.node(target).ino();
    // What others decide may empty it: that is waited for with the header.
    if view.header_of(target)?.entries > 0 && !stdx::mutant!("mds_rmdir_not_empty") {
        return Err(Errno::ENOTEMPTY.into());
    }
    // What is empty there now may be filled before it is here: then it stays, and is here.
    if view.is_boundary(ino) {
        return Err(Stop::Park(Park::Hand(ino, whole(ino))));
    }
    Ok(())
}

/// Plans the end of what a directory that goes is spread over: all of it has to be here.
pub(crate) fn end_units(view: &mut View, target: u32) -> Found<()> {
    let entries = view.entries_of(target)?;
    let units = view.units_of(entries);
    for (number, unit) in &units {
        if matches!(view.side_of_unit((*number, *unit)), Some(Side::Other(_))) {
            return Err(Stop::Park(Park::Hand(*number, *unit)));
        }
        view.unit_here((*number, *unit))?;
    }
    for (number, unit) in units {
        if stdx::mutant!("mds_units_outlive_directory") {
            break;
        }
        let slot = view.unit_here((number, unit))?;
        // A replay may know nothing else of it: the header says what the number means.
        view.txn.header(view.cache.dirs.get(slot), Delta::default());
        view.txn.no_backptr(number, 1);
    }
    Ok(())
}
