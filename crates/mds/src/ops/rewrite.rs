//! Rewrite: bytes that were written before the rank ended, again: within the file as it is, and nothing else of it changes.
//!
//! Absent: whether they may be written (`tail.rs`).

use crate::op::{Claim, Next, Op, Plan, Stop};
use crate::ops::data::{check_claim, file};
use crate::ops::setattr::cut_of;
use crate::perm;
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::storeio::{DataOp, Payload};
use proto::{Errno, NodeRef};

pub(crate) fn plan(
    view: &mut View,
    op: &mut Op,
    node: NodeRef,
    offset: u64,
    data: &mut Payload,
) -> Found<Plan> {
    let core = match file(view, op, node, perm::WRITE) {
        Ok((_, core)) => core,
        // Nobody can look at them.
        Err(Stop::Fail(Errno::ENOENT | Errno::ESTALE) | Stop::NotMine(None)) => {
            return Plan::reply(Reply::Ok);
        }
        Err(stop) => return Err(stop),
    };
    if op.lost {
        return Err(Stop::Fail(Errno::EIO));
    }
    // What was beyond was cut off, or comes with what makes the file longer again.
    let len = data.len().min(core.size.saturating_sub(offset));
    if len == 0 {
        return Plan::reply(Reply::Ok);
    }
    // Alone: what others write at the same time is noted only when it is done.
    let claim = Claim::Exclusive(core.ino);
    check_claim(view, op, claim)?;
    let mut data = std::mem::replace(data, Payload::Owned(Vec::new()));
    if len < data.len() {
        data = data.bytes()[..len as usize].to_vec().into();
    }
    let cut = cut_of(&core);
    let write = DataOp::Write { file: file_id(&core), cut, offset, data };
    Ok(Plan::Data(write, claim, Next::Rewrite { ino: core.ino, len, cut }))
}
