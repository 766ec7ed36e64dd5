//! The namespace as a whole: every count right, every inode at one place and reachable, links and backptrs agree.
//!
//! Absent: single records (`tree.rs`), file data (`data`).

use crate::bytes::Bytes;
use crate::finding::{Found, Kind};
use crate::fix::{At, Edit, Fix};
use crate::folder::Folder;
use crate::journal::Overlay;
use crate::record::{
    self, DIRECTORY, FIRST_COUNTER, FLAG_BACKPTR, FLAG_NEWBORN, Frag, LINKS, ORPHANS, RANKS, ROOT, SYSTEM,
    is_orphans, orphans_of, rank_of,
};
use crate::tables::{Table, Tables, place};
use crate::tree::{Hint, Listing, Node, Tree, name_hash};
use std::collections::BTreeSet;

/// Numbers are reserved in blocks of this many.
const INO_BLOCK: u64 = 65_536;

/// Checks everything that takes more than one record. `ranks`: those that live or lived.
pub(crate) fn check(
    folder: &Folder,
    tables: &Tables,
    overlay: &Overlay,
    ranks: &BTreeSet<u16>,
    tree: &mut Tree,
    found: &mut Found,
) {
    check_declared(folder, tree, ranks, found);
    check_backptrs((folder, ranks), tables, overlay, tree, found);
    check_twice(tree, found);
    check_listings(tree, ranks, found);
    check_reachable(tree, found);
    check_remotes(tree, found);
    check_linked(tree, found);
    check_counter(overlay, tree, found);
    let directories = tree.nodes.iter().filter(|node| node.kind == DIRECTORY).count() as u64;
    let system = tree.nodes.iter().filter(|node| node.dir == SYSTEM && node.ino != ROOT).count() as u64;
    found.report.files = tree.nodes.len() as u64 - directories;
    found.report.directories = directories.saturating_sub(system);
}

/// An earlier version must not take a folder with several ranks for one of its own.
fn check_declared(folder: &Folder, tree: &Tree, ranks: &BTreeSet<u16>, found: &mut Found) {
    let named = tree.nodes.iter().filter(|node| node.dir == SYSTEM).filter_map(|node| orphans_of(node.ino));
    let highest = ranks.iter().copied().chain(named).max().unwrap_or(0);
    if highest > 0 && !folder.ranks {
        found.add(Kind::RanksUndeclared, "pando.fs", format!("rank {highest}"));
        found.fix(Fix::DeclareRanks);
    }
}

/// Whether it is what a crash leaves while the first life of a rank is prepared: records of its `//orphans`, which has no name yet.
fn is_being_made(tree: &Tree, ranks: &BTreeSet<u16>, ino: u64) -> bool {
    tree.node(ino).is_none() && orphans_of(ino).is_some_and(|rank| !ranks.contains(&rank))
}

fn check_backptrs(
    (folder, ranks): (&Folder, &BTreeSet<u16>),
    tables: &Tables,
    overlay: &Overlay,
    tree: &mut Tree,
    found: &mut Found,
) {
    tables.walk(Table::Backptr, &overlay.backptr, found, |found, environment, key, value| {
        let at = || At { environment, table: Table::Backptr, key: key.into() };
        let mut b = Bytes(key);
        let (Some(ino), true) = (b.u64_be(), b.is_empty()) else {
            found.add(Kind::KeyInvalid, place(environment, Table::Backptr, key), "");
            return found.fix(Fix::Delete(at()));
        };
        if tables.home(Table::Backptr, key) != environment {
            found.add(Kind::EnvironmentWrong, place(environment, Table::Backptr, key), "");
            return found.fix(Fix::Rehome(at()));
        }
        let Some(backptr) = record::backptr(value) else {
            found.add(Kind::BackptrUnreadable, place(environment, Table::Backptr, key), "");
            return found.fix(Fix::Delete(at()));
        };
        let from = tree.nodes.partition_point(|node| node.ino < ino);
        let places = tree.nodes[from..].iter_mut().take_while(|node| node.ino == ino);
        let named = name_hash(folder, backptr.name) == backptr.hash;
        let mut exists = false;
        for node in places {
            exists = true;
            let right = named && (node.dir, node.hash) == (backptr.parent, backptr.hash);
            node.backptr = if right { Hint::Right } else { Hint::Wrong };
        }
        if !exists {
            let place = place(environment, Table::Backptr, key);
            if is_being_made(tree, ranks, ino) {
                found.note(Kind::BackptrDangling, place, "");
            } else {
                found.add(Kind::BackptrDangling, place, "");
            }
            found.fix(Fix::Delete(at()));
        }
    });
    let mut places = tree.nodes.chunk_by(|a, b| a.ino == b.ino);
    let mut check = |places: &[Node]| {
        let node = &places[0];
        // A backptr is not written when an inode becomes an orphan, nor is one needed then.
        let orphan = places.iter().any(|node| is_orphans(node.dir));
        if orphan || places.iter().any(|node| node.backptr == Hint::Right) {
            return;
        }
        let kind = match node.backptr {
            Hint::Wrong => Kind::BackptrWrong,
            Hint::None if node.kind == DIRECTORY || node.flags & FLAG_BACKPTR != 0 => Kind::BackptrMissing,
            Hint::None | Hint::Right => return,
        };
        found.add(kind, format!("inode {:x}", node.ino), "");
        let &Node { ino, dir, hash, change, .. } = keep(places);
        found.fix(Fix::Backptr { ino, version: change, parent: dir, hash });
    };
    places.by_ref().for_each(&mut check);
}

/// The place of several that an inode keeps: where its backptr leads, else the newest record.
fn keep(places: &[Node]) -> &Node {
    let rank = |node: &&Node| (node.backptr == Hint::Right, node.change);
    places.iter().max_by_key(rank).unwrap_or(&places[0])
}

fn check_twice(tree: &Tree, found: &mut Found) {
    for places in tree.nodes.chunk_by(|a, b| a.ino == b.ino).filter(|places| places.len() > 1) {
        let kept = keep(places);
        for node in places.iter().filter(|node| (node.dir, node.hash) != (kept.dir, kept.hash)) {
            let place = format!("inode {:x} in directory {:x}", node.ino, node.dir);
            found.add(Kind::InodeTwice, place, format!("also in directory {:x}", kept.dir));
            found.fix(Fix::Remove(node.spot()));
        }
    }
}

fn check_listings(tree: &Tree, ranks: &BTreeSet<u16>, found: &mut Found) {
    for ino in [ROOT, LINKS].into_iter().chain(ranks.iter().map(|rank| ORPHANS + u64::from(*rank))) {
        let there = tree.places(ino).iter().any(|node| node.dir == SYSTEM && node.kind == DIRECTORY);
        if !there {
            found.add(Kind::SystemDirectoryMissing, format!("inode {ino:x}"), "");
            found.fix(Fix::SystemDirectory { ino });
        }
    }
    for listing in &tree.listings {
        check_listing(tree, ranks, listing, found);
    }
    let directories = tree.nodes.iter().filter(|node| node.kind == DIRECTORY);
    let directories = directories.map(|node| (node.ino, node.flags & FLAG_NEWBORN != 0));
    for (ino, newborn) in directories.chain([(SYSTEM, false)]) {
        let listing = tree.listings.binary_search_by_key(&ino, |listing| listing.dir);
        let listing = listing.map(|at| tree.listings[at]).unwrap_or_default();
        // Whoever has its content has changed nothing in it yet.
        let unborn = newborn && listing.entries == 0 && !listing.unreadable;
        if listing.header.is_none() && !unborn {
            if !listing.unreadable {
                found.add(Kind::HeaderMissing, format!("directory {ino:x}"), "");
            }
            let Listing { entries, subdirs, .. } = listing;
            found.fix(Fix::Header { dir: ino, frag: Frag::WHOLE, entries, subdirs });
        }
    }
}

fn check_listing(tree: &Tree, ranks: &BTreeSet<u16>, listing: &Listing, found: &mut Found) {
    let &Listing { dir, header, entries, subdirs, .. } = listing;
    let place = format!("directory {dir:x}");
    let node = tree.node(dir);
    let system = [ROOT, LINKS, SYSTEM].contains(&dir);
    match node {
        None if entries == 0 && is_being_made(tree, ranks, dir) => {
            found.note(Kind::HeaderOrphaned, place, "");
            return found.fix(Fix::DropHeader { dir, frag: Frag::WHOLE });
        }
        // What a rank above 0 needs is missing: entries of its directory are there.
        None if !system && is_being_made(tree, ranks, dir) => {
            found.add(Kind::SystemDirectoryMissing, format!("inode {dir:x}"), "");
            return found.fix(Fix::SystemDirectory { ino: dir });
        }
        _ if system || is_orphans(dir) => {}
        Some(node) if node.kind == DIRECTORY => {}
        Some(node) if entries > 0 => {
            found.add(Kind::Unreachable, place, format!("{entries} entries below what is no directory"));
            return found.fix(Fix::Inode(node.spot(), Edit::Kind(DIRECTORY)));
        }
        None if entries > 0 => {
            found.add(Kind::Unreachable, place, format!("{entries} entries"));
            return found.fix(Fix::Adopt { dir });
        }
        _ => {
            found.add(Kind::HeaderOrphaned, place, "");
            return found.fix(Fix::DropHeader { dir, frag: Frag::WHOLE });
        }
    }
    let Some(header) = header else { return };
    if header.entries != entries {
        found.add(Kind::EntriesWrong, place.clone(), format!("{}, counted {entries}", header.entries));
    }
    if header.subdirs != subdirs {
        found.add(Kind::SubdirsWrong, place, format!("{}, counted {subdirs}", header.subdirs));
    }
    if (header.entries, header.subdirs) != (entries, subdirs) {
        found.fix(Fix::Header { dir, frag: Frag::WHOLE, entries, subdirs });
    }
}

/// Walks up from each directory; what was walked is not walked again.
fn check_reachable(tree: &Tree, found: &mut Found) {
    let mut walked = vec![0_u32; tree.nodes.len()];
    for start in 0..tree.nodes.len() {
        if tree.nodes[start].kind != DIRECTORY || walked[start] != 0 {
            continue;
        }
        let round = start as u32 + 1;
        let mut at = start;
        loop {
            walked[at] = round;
            let parent = tree.nodes[at].dir;
            let next = tree.nodes.partition_point(|node| node.ino < parent);
            // A parent that does not exist is told of where its entries are.
            if parent == SYSTEM || tree.nodes.get(next).is_none_or(|node| node.ino != parent) {
                break;
            }
            if walked[next] == round {
                let node = &tree.nodes[next];
                found.add(Kind::Loop, format!("directory {:x}", node.ino), "");
                found.fix(Fix::Rescue(node.spot()));
            }
            if walked[next] != 0 {
                break;
            }
            at = next;
        }
    }
}

fn check_remotes(tree: &Tree, found: &mut Found) {
    for remote in &tree.remotes {
        let place = || format!("inode {:x} named in directory {:x}", remote.ino, remote.dir);
        match tree.linked.binary_search_by_key(&remote.ino, |linked| linked.ino) {
            Err(_) => {
                let elsewhere = tree.node(remote.ino).is_some();
                found.add(Kind::RemoteDangling, place(), if elsewhere { "it is not in //links" } else { "" });
                found.fix(Fix::Delete(remote.at.clone()));
            }
            Ok(at) if tree.linked[at].kind != remote.kind => {
                let kind = tree.linked[at].kind;
                found.add(Kind::RemoteTypeWrong, place(), format!("{}, not {kind}", remote.kind));
                let value = [&[2][..], &remote.ino.to_le_bytes(), &[kind]].concat();
                found.fix(Fix::Put(remote.at.clone(), value));
            }
            Ok(_) => {}
        }
    }
}

fn check_linked(tree: &Tree, found: &mut Found) {
    for linked in &tree.linked {
        let place = || format!("inode {:x}", linked.ino);
        let from = tree.remotes.partition_point(|remote| remote.ino < linked.ino);
        let names = tree.remotes[from..].iter().take_while(|remote| remote.ino == linked.ino);
        let mut named: Vec<(u64, u64)> = names.map(|remote| (remote.dir, remote.hash)).collect();
        if named.is_empty() {
            found.add(Kind::LinkWithoutNames, place(), "");
            // The count and the list follow when the name is there.
            found.fix(Fix::Name { ino: linked.ino, kind: linked.kind });
            continue;
        }
        let Some(node) = tree.places(linked.ino).iter().find(|node| node.dir == LINKS) else { continue };
        if named.len() as u64 != u64::from(linked.nlink) {
            let detail = format!("{}, counted {}", linked.nlink, named.len());
            found.add(Kind::LinkCountWrong, place(), detail);
            found.fix(Fix::Inode(node.spot(), Edit::Nlink(named.len() as u32)));
        }
        let mut listed = linked.links.clone();
        listed.sort_unstable();
        named.sort_unstable();
        if listed != named {
            found.add(Kind::LinkListWrong, place(), "");
            found.fix(Fix::Inode(node.spot(), Edit::Links(named)));
        }
    }
}

fn check_counter(overlay: &Overlay, tree: &Tree, found: &mut Found) {
    for (rank, highest) in tree.highest.range(..RANKS) {
        let next = overlay.system.counter_of(*rank).unwrap_or(FIRST_COUNTER).max(FIRST_COUNTER);
        if *highest < next {
            continue;
        }
        let ino = u64::from(*rank) << 48 | highest;
        let place = if *rank == 0 { "inode counter".into() } else { format!("inode counter of rank {rank}") };
        found.add(Kind::CounterBehind, place, format!("{next}, but inode {ino:x} exists"));
        // In whole blocks, as the rank counts.
        let blocks = (highest - next) / INO_BLOCK + 1;
        found.fix(Fix::Counter { rank: *rank, next: next + blocks * INO_BLOCK });
    }
}

/// Whether data of an inode that does not exist can be what a crash left: data may reach the disk before
/// the journal says that its file exists. Numbers are given out in the order of the journal, each life of
/// a rank beginning a new block, so what such a crash lost is above all that exists in its block. What is delegated to a session that gives
/// out by itself, after a restart of the rank, too: others have higher ones by then.
pub(crate) fn may_be_lost_create(tree: &Tree, overlay: &Overlay, ino: u64) -> bool {
    if overlay.system.is_delegated(ino) {
        return true;
    }
    // The number of the rank is above all bits of a block's.
    let base = overlay.system.counter_of(rank_of(ino)).unwrap_or(FIRST_COUNTER) % INO_BLOCK;
    let block = |ino: u64| ino.wrapping_sub(base) / INO_BLOCK;
    let above = tree.nodes.partition_point(|node| node.ino <= ino);
    tree.nodes.get(above).is_none_or(|node| block(node.ino) != block(ino))
}
