//! Fsync, syncfs, statfs.
//!
//! Absent: what makes the journal durable; `hold.rs` waits for it.

use crate::cache::node::{self, Node};
use crate::op::{Claim, Next, Op, Park, Plan, Stop, Syncing};
use crate::territory::Side;
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::NodeRef;
use proto::reply::Reply;
use proto::storeio::DataOp;

pub(crate) fn fsync(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    // Of a directory's content, wherever its inode is: that is as durable as the journal.
    let here =
        |view: &View| view.of_itself(node.ino) == Some(Side::Mine) || view.territory.has_unit(node.ino);
    if !view.territory.is_undisputed() && here(view) {
        return Ok(Plan::Durable(Reply::Ok));
    }
    let slot = view.resolve(node, op)?;
    let node = view.cache.node(slot);
    let empty = node.core.size == 0 && node.core.truncate_seq == 0;
    if !node.is_file() || empty || node.has(node::DATA_CLEAN) {
        return Ok(Plan::Durable(Reply::Ok));
    }
    let (data, syncing) = sync_of(view, node)?;
    Ok(Plan::Data(data, Claim::User(syncing.ino), Next::Fsync(syncing)))
}

/// The sync of a file, once its cuts are carried out: content that a journaled cut has not reached yet would follow the cut
/// into the journal, and come back at replay.
pub(crate) fn sync_of(view: &View, node: &Node) -> Found<(DataOp, Syncing)> {
    let syncing = view.syncing(&node.core);
    if syncing.cutting && !stdx::mutant!("mds_redo_behind_cut") {
        return Err(Stop::Park(Park::File(syncing.ino)));
    }
    Ok((DataOp::Sync { file: file_id(&node.core) }, syncing))
}

/// What is to be synced before a file's name changes, if anything is. `leaves`: it goes to another rank, which knows nothing of its
/// bytes; else what was written since the operation had it synced is not its concern.
pub(crate) fn sync_first(view: &View, op: &Op, slot: u32, leaves: bool) -> Found<Option<Plan>> {
    let node = view.cache.node(slot);
    let done = if leaves { is_stored(view, node) } else { is_synced(node) || op.synced == node.ino() };
    if done {
        return Ok(None);
    }
    let (sync, syncing) = sync_of(view, node)?;
    // The sync of a small file would bring its content back to the journal.
    let data = if leaves && view.redone.has(syncing.ino) { DataOp::SyncAll } else { sync };
    Ok(Some(Plan::Data(data, Claim::User(syncing.ino), Next::Synced(syncing))))
}

/// Whether all bytes of an inode are durable without this rank's journal.
pub(crate) fn is_stored(view: &View, node: &Node) -> bool {
    let in_journal = node.is_file() && node.core.size > 0 && view.redone.has(node.ino());
    is_synced(node) && (!in_journal || stdx::mutant!("mds_leaves_in_journal"))
}

/// Whether no bytes of an inode are unsynced.
pub(crate) fn is_synced(node: &Node) -> bool {
    !node.is_file() || node.core.size == 0 || node.has(node::DATA_CLEAN)
}

pub(crate) fn syncfs() -> Plan {
    Plan::Data(DataOp::SyncAll, Claim::None, Next::SyncFs)
}

pub(crate) fn statfs() -> Plan {
    Plan::Data(DataOp::StatFs, Claim::None, Next::StatFs)
}
