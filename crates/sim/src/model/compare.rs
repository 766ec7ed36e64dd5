//! The simulator's own fsck: the records against the reference tree. Each name leads to its node, each
//! inode is at exactly one place (invariant 5, one place), counts and link lists recount (invariant 11, counts agree).
//!
//! Absent: repair; order of events.

use crate::model::records::{Key, Records};
use crate::model::tree::{Node, Tree};
use proto::Ino;
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::ids::{Frag, NameHash, RankId, Version};
use proto::inode::{InodeCore, InodeRecord, Policies, flags};
use proto::name::name_hash;
use std::collections::{BTreeMap, BTreeSet};
use stdx::hash::HashSeed;

/// Compares everything.
///
/// # Errors
/// The first difference, in words.
pub fn compare(records: &Records, tree: &Tree, seed: &HashSeed) -> Result<(), String> {
    let mut walk =
        Walk { records, tree, seed, homes: BTreeMap::new(), names: BTreeMap::new(), counts: BTreeMap::new() };
    for (dir, hash, name, value) in records.dentries() {
        if name_hash(seed, name) != hash {
            return Err(format!("dentry {}/{} has the wrong hash", dir.0, name.escape_ascii()));
        }
        walk.dentry(dir, hash, name, value)
            .map_err(|error| format!("dentry {}/{}: {error}", dir.0, name.escape_ascii()))?;
    }
    walk.nodes()
}

struct Walk<'a> {
    records: &'a Records,
    tree: &'a Tree,
    seed: &'a HashSeed,
    /// Where each inode's primary dentry is.
    homes: BTreeMap<Ino, Ino>,
    /// Names of each inode, as (directory, hash).
    names: BTreeMap<Ino, Vec<(Ino, NameHash)>>,
    counts: BTreeMap<Ino, (u64, u64)>,
}

impl Walk<'_> {
    fn dentry(&mut self, dir: Ino, hash: NameHash, name: &[u8], value: &DentryValue) -> Result<(), String> {
        let ino = value.ino();
        if dir == Ino::SYSTEM {
            return self.system(name, value);
        }
        let count = self.counts.entry(dir).or_default();
        count.0 += 1;
        if let DentryValue::Primary(inode) = value {
            let node = self.tree.node(ino).ok_or("leads to an inode that is gone")?;
            count.1 += u64::from(node.is_dir());
            if self.homes.insert(ino, dir).is_some() {
                return Err(format!("inode {} has two homes", ino.0));
            }
            self.inode(node, inode)?;
        }
        if dir == Ino::LINKS || is_orphans(dir) {
            let wanted = format!("{:016x}", ino.0);
            return if name == wanted.as_bytes() {
                Ok(())
            } else {
                Err("has a name that is not its inode".into())
            };
        }
        let parent = self.tree.node(dir).ok_or("is in a directory that is gone")?;
        match parent.entries.get(name) {
            Some(found) if *found == ino => {}
            Some(found) => return Err(format!("leads to {} instead of {}", ino.0, found.0)),
            None => return Err("should not be there".into()),
        }
        if let DentryValue::Remote { kind, .. } = value
            && self.tree.node(ino).is_some_and(|node| node.kind() != *kind)
        {
            return Err("remote dentry with another type".into());
        }
        self.names.entry(ino).or_default().push((dir, hash));
        Ok(())
    }

    fn system(&mut self, name: &[u8], value: &DentryValue) -> Result<(), String> {
        if name != b"root" {
            return Ok(());
        }
        let (DentryValue::Primary(inode), Some(node)) = (value, self.tree.node(Ino::ROOT)) else {
            return Err("the root directory is not where it belongs".into());
        };
        self.homes.insert(Ino::ROOT, Ino::SYSTEM);
        self.inode(node, inode)
    }

    fn inode(&self, node: &Node, inode: &InodeRecord) -> Result<(), String> {
        let core = &inode.core;
        same("mode", node.mode, core.mode)?;
        same("uid", node.uid, core.uid)?;
        same("gid", node.gid, core.gid)?;
        same("generation", node.generation, core.generation)?;
        same("btime", node.btime, core.btime)?;
        let (mut mtime, mut ctime) = (core.mtime, core.ctime);
        if node.is_dir() {
            let header = self.records.totals(node.ino).or_else(|| newborn(core));
            let header = header.ok_or_else(|| format!("directory {} has no header", node.ino.0))?;
            (mtime, ctime) = (mtime.max(header.mtime), ctime.max(header.mtime));
        } else {
            same("nlink", node.nlink, core.nlink)?;
            same("size", node.size, core.size)?;
        }
        same("mtime", node.mtime, mtime)?;
        same("ctime", node.ctime, ctime)?;
        let ext = inode.ext.as_deref();
        let xattrs = ext.map_or(&[][..], |ext| &ext.xattrs);
        let found: Vec<(&[u8], &[u8])> = xattrs.iter().map(|(name, value)| (&**name, &**value)).collect();
        let wanted: Vec<(&[u8], &[u8])> =
            node.xattrs.iter().map(|(name, value)| (&**name, &**value)).collect();
        if found != wanted {
            return Err(format!("xattrs {found:?} instead of {wanted:?}"));
        }
        let none = Policies::default();
        same("policies", &node.policies, ext.map_or(&none, |ext| &ext.policies))?;
        same("target", node.target.as_deref(), ext.and_then(|ext| ext.symlink.as_deref()))?;
        same("rdev", node.rdev, ext.map_or(0, |ext| ext.rdev))
    }

    fn nodes(&self) -> Result<(), String> {
        for (ino, node) in &self.tree.nodes {
            let home = *self.homes.get(ino).ok_or_else(|| format!("inode {} has no home", ino.0))?;
            let names = self.names.get(ino).map_or(&[][..], Vec::as_slice);
            if node.is_dir() {
                self.directory(node)?;
                if *ino != Ino::ROOT && (names.len() != 1 || home != node.parent) {
                    return Err(format!("directory {} is not where it belongs", ino.0));
                }
                continue;
            }
            if names.len() != node.nlink as usize {
                return Err(format!("inode {} has {} names and nlink {}", ino.0, names.len(), node.nlink));
            }
            if is_orphans(home) != (node.nlink == 0) {
                return Err(format!("inode {} with nlink {} has its home in {}", ino.0, node.nlink, home.0));
            }
            if node.nlink > 1 && home != Ino::LINKS {
                return Err(format!("inode {} with nlink {} has its home in {}", ino.0, node.nlink, home.0));
            }
            if home == Ino::LINKS {
                self.links(*ino, names)?;
            }
        }
        Ok(())
    }

    fn directory(&self, node: &Node) -> Result<(), String> {
        let (entries, subdirs) = self.counts.get(&node.ino).copied().unwrap_or_default();
        if (entries, subdirs) != (node.entries.len() as u64, u64::from(self.tree.subdirs(node))) {
            return Err(format!("directory {} has {entries} entries, {subdirs} subdirectories", node.ino.0));
        }
        if node.newborn && self.records.header(node.ino).is_none() {
            return same("names of a newborn directory", 0, entries);
        }
        let Some(spread) = self.records.spread(node.ino) else {
            return self.header((node.ino, Frag::WHOLE), (entries, subdirs));
        };
        self.header((node.ino, Frag::WHOLE), (0, 0))?;
        let mut counts: BTreeMap<Frag, (u64, u64)> = spread.all().map(|(_, frag)| (frag, (0, 0))).collect();
        for (name, ino) in &node.entries {
            let count = counts.entry(spread.of(name_hash(self.seed, name)).1).or_default();
            count.0 += 1;
            count.1 += u64::from(self.tree.node(*ino).is_some_and(Node::is_dir));
        }
        counts.into_iter().try_for_each(|(frag, counts)| self.header((node.ino, frag), counts))
    }

    /// A header counts what there is.
    fn header(&self, (dir, frag): (Ino, Frag), (entries, subdirs): (u64, u64)) -> Result<(), String> {
        let header = self.records.0.get(&Key::Header { dir, frag }).and_then(|record| record.header.as_ref());
        let header = header.ok_or_else(|| format!("directory {} has no header for {frag:?}", dir.0))?;
        if (header.entries, header.subdirs) != (entries, subdirs) {
            return Err(format!(
                "header of directory {} {frag:?} counts {} entries, {} subdirectories instead of {entries}, {subdirs}",
                dir.0, header.entries, header.subdirs
            ));
        }
        Ok(())
    }

    fn links(&self, ino: Ino, names: &[(Ino, NameHash)]) -> Result<(), String> {
        let value = self.records.dentries().find_map(|(dir, _, _, value)| match value {
            DentryValue::Primary(inode) if dir == Ino::LINKS && inode.core.ino == ino => Some(inode),
            _ => None,
        });
        let listed: BTreeSet<(Ino, NameHash)> = value
            .and_then(|inode| inode.ext.as_deref())
            .map(|ext| ext.links.iter().copied().collect())
            .unwrap_or_default();
        let names: BTreeSet<(Ino, NameHash)> = names.iter().copied().collect();
        if listed == names {
            Ok(())
        } else {
            Err(format!("link list of {}: {listed:?} instead of {names:?}", ino.0))
        }
    }
}

/// Whether that is where a rank keeps files without a name.
#[must_use]
pub fn is_orphans(dir: Ino) -> bool {
    dir.is_reserved() && dir >= Ino::orphans(RankId(0))
}

/// What a directory shows that was made where its content is not, as long as nobody has changed anything in it.
#[must_use]
pub fn newborn(core: &InodeCore) -> Option<FragHeader> {
    let born = FragHeader { version: Version(1), change: 1, mtime: core.btime, ..FragHeader::default() };
    (core.flags & flags::NEWBORN != 0).then_some(born)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, wanted: T, found: T) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what} {found:?} instead of {wanted:?}")) }
}
