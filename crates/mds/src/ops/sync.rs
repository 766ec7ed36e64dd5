//! Fsync, syncfs, statfs.
//!
//! Absent: what makes the journal durable; `hold.rs` waits for it.

use crate::cache::node;
use crate::op::{Hold, Next, Op, Plan};
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
    let data = DataOp::Sync { file: file_id(&node.core) };
    Ok(Plan::Data(data, Hold::User(node.ino()), Next::Fsync(view.syncing(&node.core))))
}

pub(crate) fn syncfs() -> Plan {
    Plan::Data(DataOp::SyncAll, Hold::None, Next::SyncFs)
}

pub(crate) fn statfs() -> Plan {
    Plan::Data(DataOp::StatFs, Hold::None, Next::StatFs)
}
