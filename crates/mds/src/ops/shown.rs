//! What a directory shows of its content's place and load: `dir.owner` and `dir.load`.
//!
//! Absent: other read-only values (`xattr.rs`).

use crate::op::Plan;
use crate::territory::Side;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::{Errno, RankId};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Owner,
    Load,
}

/// Which one a name means. They are known where there is a cluster map.
pub(crate) fn kind_of(view: &View, name: &[u8]) -> Option<Shown> {
    view.territory.map()?;
    match name {
        b"pando.dir.owner" => Some(Shown::Owner),
        b"pando.dir.load" => Some(Shown::Load),
        _ => None,
    }
}

/// Who has the content of a directory that is at home here, as far as that is known.
fn owner(view: &View, slot: u32) -> Option<RankId> {
    match view.of_itself(view.cache.node(slot).ino()) {
        Some(Side::Other(owner)) => owner,
        // It inherits from where its inode is.
        Some(Side::Mine | Side::Sealed) | None => Some(view.config.rank),
    }
}

pub(crate) fn get(view: &View, slot: u32, shown: Shown) -> Found<Plan> {
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::EINVAL.into());
    }
    let owner = owner(view, slot).ok_or(Errno::ENODATA)?;
    let text = match shown {
        Shown::Owner => format!("0x0/0={}", owner.0),
        // Only its rank counts.
        Shown::Load if owner != view.config.rank => return Err(Errno::ENODATA.into()),
        Shown::Load => {
            let load = view.load_of(view.cache.node(slot).ino());
            format!(
                "reads={:.2} writes={:.2} misses={:.2} fetched={:.2} cpu={:.6}",
                load.reads, load.writes, load.misses, load.fetched, load.cpu
            )
        }
    };
    Plan::reply(Reply::Xattr(text.into_bytes().into()))
}
