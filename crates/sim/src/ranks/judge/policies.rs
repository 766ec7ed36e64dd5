//! Policies of directories as callers set them, read them and take them away: what each request does to the reference tree, and how it
//! may end. docs/PROTOCOL.md, "Policies" and "Pins".
//!
//! Absent: what follows for directories that are made (`placing.rs`), and for whose a directory is (`owners.rs`).

use crate::model::rules::{Answer, Op};
use crate::model::tree::{Node, Tree};
use proto::cluster::Mask;
use proto::ids::RankId;
use proto::inode::{Chance, Placement, Policies};
use proto::request::Request;
use proto::{Errno, Ino, NodeRef, every_request};

/// Ranks that there can be.
const RANKS_MAX: u64 = 256;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ranks) enum Policy {
    Pin,
    Distributed,
    Random,
    Mask,
    Placement,
}

/// What a request wants of it.
enum Wish<'a> {
    Get,
    Set(&'a [u8]),
    Remove,
}

/// The policy that a request is about.
pub(in crate::ranks) fn policy_of(request: &Request) -> Option<Policy> {
    wish_of(request).map(|(_, policy, _)| policy)
}

/// Whether a request changes whose a directory is: how that may end is said in `refusals.rs`.
pub(in crate::ranks) fn is_change(request: &Request) -> bool {
    matches!(wish_of(request), Some((_, _, Wish::Set(_) | Wish::Remove)))
}

fn wish_of(request: &Request) -> Option<(NodeRef, Policy, Wish<'_>)> {
    let (node, name, wish) = match request {
        Request::GetXattr { node, name } => (*node, name, Wish::Get),
        Request::SetXattr { node, name, value, .. } => (*node, name, Wish::Set(value)),
        Request::RemoveXattr { node, name } => (*node, name, Wish::Remove),
        every_request!() => return None,
    };
    let policy = match name.as_bytes() {
        b"pando.dir.pin" | b"ceph.dir.pin" => Policy::Pin,
        b"pando.dir.pin.distributed" | b"ceph.dir.pin.distributed" => Policy::Distributed,
        b"pando.dir.pin.random" | b"ceph.dir.pin.random" => Policy::Random,
        b"pando.dir.bal.mask" | b"ceph.dir.bal.mask" => Policy::Mask,
        b"pando.dir.placement" => Policy::Placement,
        _ => return None,
    };
    Some((node, policy, wish))
}

/// Executes a request that is about a policy; none: it is about something else.
pub(super) fn run(tree: &mut Tree, op: &Op<'_>) -> Option<Result<Answer, Vec<Errno>>> {
    let (node, policy, wish) = wish_of(op.request)?;
    let Some(node) = tree.node(node.ino) else { return Some(Err(vec![Errno::ESTALE, Errno::ENOENT])) };
    let done = match wish {
        Wish::Get => get(node, policy).map(|text| Answer::Xattr(text.into_bytes().into())),
        Wish::Set(value) => {
            let set = changed(node, policy, |policies| set(policies, policy, value));
            put(tree, op, set)
        }
        Wish::Remove => {
            let gone = changed(node, policy, |policies| remove(policies, policy));
            put(tree, op, gone)
        }
    };
    Some(done)
}

fn get(node: &Node, policy: Policy) -> Result<String, Vec<Errno>> {
    if !node.is_dir() {
        return Err(vec![Errno::EINVAL]);
    }
    let Policies { pin, distributed, own, .. } = &node.policies;
    let text = match policy {
        Policy::Pin => pin.map(|rank| rank.0.to_string()),
        Policy::Distributed => distributed.then(|| "1".to_owned()),
        Policy::Random => own.random.map(|chance| chance.value().to_string()),
        Policy::Mask => own.mask.map(Mask::list),
        Policy::Placement => Some(match own.placement {
            None => "inherit".to_owned(),
            Some(Placement::Subtree) => "subtree".to_owned(),
            Some(Placement::Hash) => "hash".to_owned(),
        }),
    };
    text.ok_or(vec![Errno::ENODATA])
}

/// What becomes of a directory's policies; all clients here may act for anyone, so that no rank asks who wants it: all errors that apply, or the new ones.
fn changed(
    node: &Node,
    policy: Policy,
    change: impl FnOnce(&mut Policies) -> Result<(), Errno>,
) -> Result<(Ino, Policies), Vec<Errno>> {
    let mut policies = node.policies.clone();
    let mut errors: Vec<Errno> = change(&mut policies).err().into_iter().collect();
    let not_of_root = match policy {
        Policy::Pin | Policy::Distributed | Policy::Random => true,
        Policy::Mask | Policy::Placement => false,
    };
    // The root directory stays with rank 0.
    let without_zero = policies.own.mask.is_some_and(|mask| !mask.has(RankId(0)));
    let is_refused = not_of_root || (policy == Policy::Mask && without_zero);
    if !node.is_dir() || (is_refused && node.ino == Ino::ROOT) {
        errors.push(Errno::EINVAL);
    }
    if errors.is_empty() { Ok((node.ino, policies)) } else { Err(errors) }
}

/// What is as it was changes no time.
fn put(
    tree: &mut Tree,
    op: &Op<'_>,
    changed: Result<(Ino, Policies), Vec<Errno>>,
) -> Result<Answer, Vec<Errno>> {
    let (ino, policies) = changed?;
    if tree.node(ino).is_some_and(|node| node.policies != policies) {
        let node = tree.change(ino);
        (node.policies, node.ctime) = (policies, op.wall);
    }
    Ok(Answer::Ok)
}

fn set(policies: &mut Policies, policy: Policy, value: &[u8]) -> Result<(), Errno> {
    let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?.trim();
    match policy {
        Policy::Pin => {
            policies.pin = match text.parse::<i64>().map_err(|_| Errno::EINVAL)? {
                -1 => None,
                rank => Some(rank_of(u64::try_from(rank).map_err(|_| Errno::EDOM)?)?),
            };
        }
        Policy::Distributed => {
            policies.distributed = match text {
                "1" => true,
                "0" => false,
                _ => return Err(Errno::EINVAL),
            }
        }
        Policy::Random => {
            let value: f64 = text.parse().map_err(|_| Errno::EINVAL)?;
            policies.own.random = Some(Chance::new(value).ok_or(Errno::EDOM)?).filter(|_| value > 0.0);
        }
        Policy::Mask => policies.own.mask = Some(mask(text)?),
        Policy::Placement => {
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

fn rank_of(number: u64) -> Result<RankId, Errno> {
    if number < RANKS_MAX { Ok(RankId(number as u16)) } else { Err(Errno::EDOM) }
}

/// `0x3`, `0,1` or `all`, and never none.
fn mask(text: &str) -> Result<Mask, Errno> {
    if text == "all" {
        return Ok(Mask::ALL);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        // The callers say none of more digits.
        let bits = u128::from_str_radix(digits, 16).map_err(|_| Errno::EINVAL)?;
        let some = (0..128).filter(|bit| bits >> bit & 1 == 1).map(RankId);
        let mask = some.fold(Mask::NONE, Mask::with);
        return if bits == 0 { Err(Errno::EINVAL) } else { Ok(mask) };
    }
    text.split(',').try_fold(Mask::NONE, |mask, number| {
        let number = number.trim().parse::<u64>().map_err(|_| Errno::EINVAL)?;
        Ok(mask.with(rank_of(number)?))
    })
}

fn remove(policies: &mut Policies, policy: Policy) -> Result<(), Errno> {
    let before = policies.clone();
    match policy {
        Policy::Pin => policies.pin = None,
        Policy::Distributed => policies.distributed = false,
        Policy::Random => policies.own.random = None,
        Policy::Mask => policies.own.mask = None,
        Policy::Placement => policies.own.placement = None,
    }
    if *policies == before { Err(Errno::ENODATA) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_documented() {
        let with = |ranks: &[u16]| ranks.iter().fold(Mask::NONE, |mask, rank| mask.with(RankId(*rank)));
        assert_eq!(
            (mask("0x5"), mask("0, 2"), mask("all")),
            (Ok(with(&[0, 2])), Ok(with(&[0, 2])), Ok(Mask::ALL))
        );
        assert_eq!(
            (mask("0x0"), mask("x"), mask("1,256")),
            (Err(Errno::EINVAL), Err(Errno::EINVAL), Err(Errno::EDOM))
        );
        let mut policies = Policies::default();
        assert_eq!(set(&mut policies, Policy::Pin, b"7"), Ok(()));
        assert_eq!(policies.pin, Some(RankId(7)));
        assert_eq!(set(&mut policies, Policy::Pin, b"256"), Err(Errno::EDOM));
        assert_eq!(set(&mut policies, Policy::Pin, b"-1"), Ok(()));
        assert_eq!(remove(&mut policies, Policy::Pin), Err(Errno::ENODATA));
    }
}
