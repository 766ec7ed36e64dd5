//! Fsync, syncfs, statfs.
//!
//! Absent: what makes the journal durable; `hold.rs` waits for it.

use crate::cache::node::{self, Node};
use crate::op::{Claim, Next, Op, Park, Plan, Stop, Syncing};
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::NodeRef;
use proto::reply::Reply;
use proto::storeio::DataOp;

pub(crate) fn fsync(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
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

pub(crate) fn syncfs() -> Plan {
    Plan::Data(DataOp::SyncAll, Claim::None, Next::SyncFs)
}

pub(crate) fn statfs() -> Plan {
    Plan::Data(DataOp::StatFs, Claim::None, Next::StatFs)
}
