//! What a directory shows of its content's place and load: `dir.owner` and `dir.load`.
//!
//! Absent: other read-only values (`xattr.rs`).

use crate::heat::Load;
use crate::op::{Op, Park, Plan, Stop};
use crate::territory::Side;
use crate::view::{Found, View};
use proto::cluster::Unit;
use proto::reply::Reply;
use proto::{Errno, Frag, Ino, RankId};

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

/// A part of a directory, by which number it is called here, and who has it.
type Owned = (Ino, Unit, RankId);

/// Each part of a directory, in the order of hashes.
fn parts(view: &View, slot: u32) -> Found<Vec<Owned>> {
    let dir = view.cache.node(slot).ino();
    let one = |(number, frag)| {
        let unit = Unit { dir, frag };
        let rank = owner(view, view.side_of_unit((number, unit)));
        Ok((number, unit, rank.ok_or(Errno::ENODATA)?))
    };
    match view.own_header_of(slot)?.spread() {
        Some(spread) => spread.all().map(one).collect(),
        None => Ok(vec![one((dir, Frag::WHOLE))?]),
    }
}

/// What is asked of all parts of a directory. Only their ranks count, and are asked.
fn load(view: &View, op: &Op, slot: u32) -> Found<Load> {
    let (mut sum, mut missing) = (Load::default(), Vec::new());
    for (number, unit, rank) in parts(view, slot)? {
        let heard = op.heard.as_ref().and_then(|heard| heard.loads.get(&number));
        let is_here = rank == view.config.rank || stdx::mutant!("mds_load_of_one_rank");
        match heard.copied().or_else(|| is_here.then(|| view.load_of(number))) {
            Some(load) => sum = sum.plus(load),
            None => missing.push((number, unit)),
        }
    }
    if missing.is_empty() { Ok(sum) } else { Err(Stop::Park(Park::Heats(missing))) }
}

pub(crate) fn get(view: &View, op: &Op, slot: u32, shown: Shown) -> Found<Plan> {
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::EINVAL.into());
    }
    let text = match shown {
        Shown::Owner => {
            let parts = parts(view, slot)?;
            let parts = parts
                .iter()
                .map(|(_, unit, rank)| format!("{:#x}/{}={}", unit.frag.prefix, unit.frag.depth, rank.0));
            parts.collect::<Vec<_>>().join(",")
        }
        Shown::Load => {
            let load = load(view, op, slot)?;
            format!(
                "reads={:.2} writes={:.2} misses={:.2} fetched={:.2} cpu={:.6}",
                load.reads, load.writes, load.misses, load.fetched, load.cpu
            )
        }
    };
    Plan::reply(Reply::Xattr(text.into_bytes().into()))
}
