//! Policies of directories as xattrs: `dir.pin.distributed`, `dir.pin.random`, `dir.bal.mask`, `dir.placement`. They are kept in the
//! inode, and count for directories that are made from then on.
//!
//! Absent: `dir.pin` (`pin.rs`); what follows (`placing.rs`); directories that are there already.

use crate::op::{Op, Park, Plan, Stop};
use crate::view::{Found, View};
use proto::cluster::{Mask, MaskError};
use proto::inode::{Chance, Placement, Policies};
use proto::reply::Reply;
use proto::{Errno, Ino, RankId};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Distributed,
    Random,
    Mask,
    Placement,
}

impl Kind {
    /// Whether the root directory may have it.
    const fn is_of_root(self) -> bool {
        match self {
            Self::Distributed | Self::Random => false,
            Self::Mask | Self::Placement => true,
        }
    }
}

/// Which one a name means. They are known where there is a cluster map.
pub(crate) fn kind_of(view: &View, name: &[u8]) -> Option<Kind> {
    view.territory.map()?;
    match name {
        b"ceph.dir.pin.distributed" | b"pando.dir.pin.distributed" => Some(Kind::Distributed),
        b"ceph.dir.pin.random" | b"pando.dir.pin.random" => Some(Kind::Random),
        b"ceph.dir.bal.mask" | b"pando.dir.bal.mask" => Some(Kind::Mask),
        b"pando.dir.placement" => Some(Kind::Placement),
        _ => None,
    }
}

/// What is set of a directory.
pub(super) fn policies_of(view: &View, slot: u32) -> Policies {
    view.cache.ext(slot).map(|ext| ext.policies.clone()).unwrap_or_default()
}

fn is_directory(view: &View, slot: u32) -> Result<(), Errno> {
    if view.cache.node(slot).is_dir() { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Who may, and of what. Not `of_root`: where everything begins there is nothing to be put elsewhere.
pub(super) fn may_set(view: &View, op: &Op, slot: u32, of_root: bool) -> Result<Ino, Errno> {
    if op.check && op.cred.uid != 0 {
        return Err(Errno::EPERM);
    }
    is_directory(view, slot)?;
    let ino = view.cache.node(slot).ino();
    if ino == Ino::ROOT && !of_root { Err(Errno::EINVAL) } else { Ok(ino) }
}

/// A set of ranks: `0x3`, `0,1` or `all`. EDOM: one that there cannot be.
fn parse_mask(text: &str) -> Result<Mask, Errno> {
    let mask = match text {
        "all" => return Ok(Mask::ALL),
        hex if hex.starts_with("0x") || hex.starts_with("0X") => Mask::from_hex(hex),
        list => Mask::from_list(list),
    };
    mask.map_err(|error| match error {
        MaskError::Text => Errno::EINVAL,
        MaskError::Rank => Errno::EDOM,
    })
}

/// Sets what the text says.
fn take(policies: &mut Policies, kind: Kind, text: &str, random_max: f64) -> Result<(), Errno> {
    match kind {
        Kind::Distributed => {
            policies.distributed = match text {
                "0" => false,
                "1" => true,
                _ => return Err(Errno::EINVAL),
            }
        }
        Kind::Random => {
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or(Errno::EINVAL)?;
            let chance = Chance::new(value).ok_or(Errno::EDOM)?;
            if value > random_max {
                return Err(Errno::EINVAL);
            }
            policies.own.random = Some(chance).filter(|_| value > 0.0);
        }
        Kind::Mask => {
            let mask = parse_mask(text)?;
            // No rank at all could have it.
            policies.own.mask = Some(mask).filter(|mask| *mask != Mask::NONE);
            if policies.own.mask.is_none() {
                return Err(Errno::EINVAL);
            }
        }
        Kind::Placement => {
            policies.own.placement = match text {
                "inherit" => None,
                "subtree" => Some(Placement::Subtree),
                "hash" => Some(Placement::Hash),
                _ => return Err(Errno::EINVAL),
            }
        }
    }
    Ok(())
}

pub(crate) fn set(view: &mut View, op: &Op, slot: u32, kind: Kind, value: &[u8]) -> Found<Plan> {
    let ino = may_set(view, op, slot, kind.is_of_root())?;
    let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
    let mut policies = policies_of(view, slot);
    take(&mut policies, kind, text.trim(), view.config.limits.random_max)?;
    // The root directory stays with rank 0.
    let without_zero = policies.own.mask.is_some_and(|mask| !mask.has(RankId(0)));
    if kind == Kind::Mask && ino == Ino::ROOT && without_zero {
        return Err(Errno::EINVAL.into());
    }
    if policies.places() && !view.has_slots() {
        return Err(Stop::Park(Park::Slots));
    }
    put_if_space(view, slot, policies)
}

pub(crate) fn remove(view: &mut View, op: &Op, slot: u32, kind: Kind) -> Found<Plan> {
    may_set(view, op, slot, kind.is_of_root())?;
    let mut policies = policies_of(view, slot);
    let before = policies.clone();
    match kind {
        Kind::Distributed => policies.distributed = false,
        Kind::Random => policies.own.random = None,
        Kind::Mask => policies.own.mask = None,
        Kind::Placement => policies.own.placement = None,
    }
    if policies == before {
        return Err(Errno::ENODATA.into());
    }
    put_if_space(view, slot, policies)
}

/// Where there is space for it.
fn put_if_space(view: &mut View, slot: u32, policies: Policies) -> Found<Plan> {
    if policies_of(view, slot) != policies {
        view.space()?;
    }
    put(view, slot, policies)
}

pub(super) fn put(view: &mut View, slot: u32, policies: Policies) -> Found<Plan> {
    let mut ext = view.cache.ext(slot).cloned().unwrap_or_default();
    if ext.policies == policies {
        return Plan::reply(Reply::Ok);
    }
    ext.policies = policies;
    let mut core = view.changed_core(slot);
    core.ctime = view.wall();
    view.put_inode(slot, &core, Some(&ext).filter(|ext| !ext.is_empty()))?;
    Plan::commit(Reply::Ok)
}

pub(crate) fn get(view: &View, slot: u32, kind: Kind) -> Found<Plan> {
    is_directory(view, slot)?;
    let none = Policies::default();
    let policies = view.cache.ext(slot).map_or(&none, |ext| &ext.policies);
    let text = match kind {
        Kind::Distributed => policies.distributed.then(|| "1".to_owned()),
        Kind::Random => policies.own.random.map(|chance| chance.value().to_string()),
        Kind::Mask => policies.own.mask.map(Mask::list),
        Kind::Placement => Some(
            match policies.own.placement {
                None => "inherit",
                Some(Placement::Subtree) => "subtree",
                Some(Placement::Hash) => "hash",
            }
            .to_owned(),
        ),
    };
    Plan::reply(Reply::Xattr(text.ok_or(Errno::ENODATA)?.into_bytes().into()))
}
