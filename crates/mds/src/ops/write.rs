//! Write: the rank chooses the offset of an append, the data store writes, then the inode changes.
//!
//! Absent: a size that only the rank's memory knows; each write journals it (`finish.rs`).

use crate::op::{Hold, Next, Op, Plan};
use crate::ops::data::{claim, end_of, file};
use crate::ops::setattr::{clean_end, cut_of};
use crate::perm;
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::NodeRef;
use proto::reply::Reply;
use proto::storeio::{DataOp, Payload};

/// Where and how.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub offset: u64,
    pub append: bool,
}

pub(crate) fn plan(view: &mut View, op: &mut Op, node: NodeRef, how: How, data: &mut Payload) -> Found<Plan> {
    let (slot, core) = file(view, op, node, perm::WRITE)?;
    if data.is_empty() {
        let attr = view.attr(slot)?;
        return Plan::reply(Reply::Written { count: 0, attr });
    }
    view.space()?;
    view.writable(slot)?;
    let hold = if how.append { Hold::Exclusive(core.ino) } else { Hold::Shared(core.ino) };
    claim(view, op, hold)?;
    let offset = if how.append { core.size } else { how.offset };
    if end_of(offset, data.len())? > core.size
        && let Some(plan) = clean_end(view, op, core.ino)?
    {
        return Ok(plan);
    }
    let data = std::mem::replace(data, Payload::Owned(Vec::new()));
    let write = DataOp::Write { file: file_id(&core), cut: cut_of(&core), offset, data };
    Ok(Plan::Data(write, hold, Next::Write { ino: core.ino, offset }))
}
