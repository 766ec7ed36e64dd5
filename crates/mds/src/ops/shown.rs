//! What a directory shows of its content's place and load: `dir.owner` and `dir.load`.
//!
//! Absent: other read-only values (`xattr.rs`).

use crate::op::Plan;
use crate::territory::Side;
use crate::view::{Found, View};
use proto::cluster::Unit;
use proto::reply::Reply;
use proto::{Errno, Frag, RankId};

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

/// Who has something of a directory that is at home here, as far as that is known.
fn owner(view: &View, side: Option<Side>) -> Option<RankId> {
    match side {
        Some(Side::Other(owner)) => owner,
        // It inherits from where its inode is.
        Some(Side::Mine | Side::Sealed) | None => Some(view.config.rank),
    }
}

/// Each part of a directory, in the order of hashes, and who has it.
fn owners(view: &View, slot: u32) -> Found<Vec<(Frag, RankId)>> {
    let dir = view.cache.node(slot).ino();
    let one = |frag, side| Ok((frag, owner(view, side).ok_or(Errno::ENODATA)?));
    let Some(spread) = view.own_header_of(slot)?.spread() else {
        return Ok(vec![one(Frag::WHOLE, view.of_itself(dir))?]);
    };
    spread.all().map(|(number, frag)| one(frag, view.side_of_unit((number, Unit { dir, frag })))).collect()
}

pub(crate) fn get(view: &View, slot: u32, shown: Shown) -> Found<Plan> {
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::EINVAL.into());
    }
    let text = match shown {
        Shown::Owner => {
            let parts = owners(view, slot)?;
            let parts =
                parts.iter().map(|(frag, rank)| format!("{:#x}/{}={}", frag.prefix, frag.depth, rank.0));
            parts.collect::<Vec<_>>().join(",")
        }
        // Only its rank counts.
        Shown::Load if owner(view, view.of_itself(view.cache.node(slot).ino())) != Some(view.config.rank) => {
            return Err(Errno::ENODATA.into());
        }
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
