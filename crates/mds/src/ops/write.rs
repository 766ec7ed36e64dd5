//! Write: the rank chooses the offset of an append, the data store writes, then the inode changes.
//!
//! Absent: a size that only the rank's memory knows; each write journals it (`finish.rs`).

use crate::op::{Claim, Next, Op, Plan};
use crate::ops::data::{check_claim, end_of, file};
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
    let (slot, mut core) = file(view, op, node, perm::WRITE)?;
    if data.is_empty() {
        let attr = view.attr(slot)?;
        return Plan::reply(Reply::Written { count: 0, attr });
    }
    view.space()?;
    view.writable(slot)?;
    let seq = core.truncate_seq;
    let offset = if how.append { core.size } else { how.offset };
    if end_of(offset, data.len())? > core.size
        && let Some(plan) = clean_end(view, op, &mut core)?
    {
        return Ok(plan);
    }
    let alone = how.append || core.truncate_seq != seq;
    let claim = if alone { Claim::Exclusive(core.ino) } else { Claim::Shared(core.ino) };
    check_claim(view, op, claim)?;
    let data = std::mem::replace(data, Payload::Owned(Vec::new()));
    let (cut, len) = (cut_of(&core), data.len());
    let write = DataOp::Write { file: file_id(&core), cut, offset, data };
    Ok(Plan::Data(write, claim, Next::Write { ino: core.ino, offset, len, cut }))
}
