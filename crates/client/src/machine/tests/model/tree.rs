//! The files of the small rank: inodes and names, and what becomes of requests.
//!
//! Absent: content, permissions, whose anything is.

use super::rank::SEED;
use super::*;
use proto::reply::DirEntry;
use stdx::Wall;

/// Inodes and names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) inodes: BTreeMap<Ino, Attr>,
    pub(crate) names: BTreeMap<(Ino, Name), Ino>,
    pub(crate) next: u64,
    /// Inodes that came to their end since somebody looked.
    pub(crate) ended: Vec<Ino>,
}

impl Tree {
    pub(crate) fn execute(&mut self, request: &Request, made: Ino, wall: Wall) -> Outcome {
        match request {
            Request::Lookup { parent, name } => {
                let ino = self.find(parent.ino, name)?;
                Ok(Reply::Attr(self.attr(ino)?))
            }
            Request::GetAttr { node } => Ok(Reply::Attr(self.attr(node.ino)?)),
            Request::ReadDir { dir, after, .. } => self.list(dir.ino, *after),
            Request::Create { parent, name, new, .. } => match self.find(parent.ino, name) {
                Ok(ino) => {
                    let attr = self.attr(ino)?;
                    let dir = attr.kind() == FileKind::Directory;
                    if dir { Err(Errno::EISDIR) } else { Ok(Reply::Created { attr, new: false }) }
                }
                Err(Errno::ENOENT) => {
                    let attr = self.make(parent.ino, name, FileKind::Regular, new, made, wall)?;
                    Ok(Reply::Created { attr, new: true })
                }
                Err(errno) => Err(errno),
            },
            Request::MkNod { parent, name, new } => {
                self.make(parent.ino, name, FileKind::Regular, new, made, wall).map(Reply::Attr)
            }
            Request::MkDir { parent, name, new } => {
                self.make(parent.ino, name, FileKind::Directory, new, made, wall).map(Reply::Attr)
            }
            Request::Unlink { parent, name } => self.remove(parent.ino, name, false, wall),
            Request::RmDir { parent, name } => self.remove(parent.ino, name, true, wall),
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.rename((parent.ino, name), (new_parent.ino, new_name), *flags, wall)
            }
            Request::Link { node, parent, name } => self.link(node.ino, parent.ino, name, wall),
            Request::SetAttr { node, set } => {
                let mode = set.mode.unwrap_or_default();
                let attr = self.change(node.ino, wall)?;
                attr.mode = (attr.mode & !0o7777) | mode;
                Ok(Reply::Attr(*attr))
            }
            Request::Write { node, offset, append, data, .. } => {
                if self.attr(node.ino)?.kind() == FileKind::Directory {
                    return Err(Errno::EISDIR);
                }
                let attr = self.change(node.ino, wall)?;
                let at = if *append { attr.size } else { *offset };
                attr.size = attr.size.max(at + data.len());
                (attr.blocks, attr.mtime) = (attr.size.div_ceil(512), wall);
                Ok(Reply::Written { count: data.len(), attr: *attr })
            }
            _ => Ok(Reply::Ok),
        }
    }

    pub(crate) fn find(&self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        let parent = self.attr(dir)?;
        if parent.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.names.get(&(dir, name.clone())).copied().ok_or(Errno::ENOENT)
    }

    /// Two names at a time, of every third the attributes are not at hand.
    fn list(&self, dir: Ino, after: u64) -> Outcome {
        self.attr(dir)?;
        let mut all: Vec<_> =
            self.names.iter().filter(|((parent, _), _)| *parent == dir).map(|((_, n), i)| (n, *i)).collect();
        all.retain(|(name, _)| name.hash(&SEED).cookie() > after);
        all.sort_by_key(|(name, _)| name.hash(&SEED));
        let end = all.len() <= 2;
        let entry = |(name, ino): (&Name, Ino)| {
            let (hash, attr) = (name.hash(&SEED), self.attr(ino)?);
            let (kind, shown) = (attr.kind(), (!ino.0.is_multiple_of(3)).then_some(attr));
            Ok(DirEntry { hash, name: name.as_bytes().into(), ino, kind, attr: shown })
        };
        let entries = all.into_iter().take(2).map(entry).collect::<Result<_, Errno>>()?;
        Ok(Reply::Entries { entries, end })
    }

    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        self.inodes.get(&ino).copied().ok_or(Errno::ESTALE)
    }

    fn change(&mut self, ino: Ino, wall: Wall) -> Result<&mut Attr, Errno> {
        let attr = self.inodes.get_mut(&ino).ok_or(Errno::ESTALE)?;
        attr.ctime = wall;
        attr.change += 1;
        Ok(attr)
    }

    /// A directory gets or loses a name.
    fn name_changed(&mut self, dir: Ino, by: i64, dirs: i32, wall: Wall) -> Result<(), Errno> {
        let attr = self.change(dir, wall)?;
        attr.size = attr.size.strict_add_signed(by);
        attr.nlink = attr.nlink.strict_add_signed(dirs);
        attr.mtime = wall;
        Ok(())
    }

    fn make(
        &mut self,
        dir: Ino,
        name: &Name,
        kind: FileKind,
        new: &NewNode,
        made: Ino,
        wall: Wall,
    ) -> Result<Attr, Errno> {
        match self.find(dir, name) {
            Err(Errno::ENOENT) => {}
            Ok(_) => return Err(Errno::EEXIST),
            Err(errno) => return Err(errno),
        }
        self.next += 1;
        let ino = if made == Ino::NONE { Ino(self.next) } else { made };
        assert!(!self.inodes.contains_key(&ino), "{ino:?} names two inodes");
        let above = self.attr(dir)?;
        let is_dir = kind == FileKind::Directory;
        let setgid = if is_dir { above.mode & 0o2000 } else { 0 };
        let attr = Attr {
            ino,
            generation: 1,
            mode: kind.mode_bits() | (new.mode & !new.umask) | setgid,
            nlink: if is_dir { 2 } else { 1 },
            atime: wall,
            mtime: wall,
            ctime: wall,
            btime: wall,
            change: if is_dir { 2 } else { 1 },
            parent: dir,
            hash: name.hash(&SEED),
            ..Attr::default()
        };
        self.inodes.insert(ino, attr);
        self.names.insert((dir, name.clone()), ino);
        self.name_changed(dir, 1, i32::from(is_dir), wall)?;
        Ok(attr)
    }

    fn remove(&mut self, dir: Ino, name: &Name, is_dir: bool, wall: Wall) -> Outcome {
        let ino = self.find(dir, name)?;
        let attr = self.attr(ino)?;
        match (attr.kind() == FileKind::Directory, is_dir) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if attr.size > 0 => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.names.remove(&(dir, name.clone()));
        self.drop_link(ino, wall)?;
        self.name_changed(dir, -1, -i32::from(is_dir), wall)?;
        Ok(Reply::Ok)
    }

    fn drop_link(&mut self, ino: Ino, wall: Wall) -> Result<(), Errno> {
        let attr = self.change(ino, wall)?;
        if attr.kind() == FileKind::Directory || attr.nlink == 1 {
            self.inodes.remove(&ino);
            self.ended.push(ino);
        } else {
            attr.nlink -= 1;
        }
        Ok(())
    }

    fn link(&mut self, ino: Ino, dir: Ino, second: &Name, wall: Wall) -> Outcome {
        if self.attr(ino)?.kind() == FileKind::Directory {
            return Err(Errno::EPERM);
        }
        match self.find(dir, second) {
            Err(Errno::ENOENT) => {}
            Ok(_) => return Err(Errno::EEXIST),
            Err(errno) => return Err(errno),
        }
        self.names.insert((dir, second.clone()), ino);
        self.name_changed(dir, 1, 0, wall)?;
        let attr = self.change(ino, wall)?;
        attr.nlink += 1;
        let hex = name(&format!("{:016x}", ino.0));
        (attr.parent, attr.hash) = (Ino::LINKS, hex.hash(&SEED));
        Ok(Reply::Attr(*attr))
    }

    fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), flags: u32, wall: Wall) -> Outcome {
        let ino = self.find(from.0, from.1)?;
        let target = match self.find(to.0, to.1) {
            Ok(target) => Some(target),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        if flags != 0 && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if target == Some(ino) {
            return Ok(Reply::Ok);
        }
        let is_dir = self.attr(ino)?.kind() == FileKind::Directory;
        let mut above = to.0;
        while is_dir && above != Ino::SYSTEM {
            if above == ino {
                return Err(Errno::EINVAL);
            }
            above = self.attr(above)?.parent;
        }
        if let Some(target) = target {
            let attr = self.attr(target)?;
            match (attr.kind() == FileKind::Directory, is_dir) {
                (true, false) => return Err(Errno::EISDIR),
                (false, true) => return Err(Errno::ENOTDIR),
                (true, true) if attr.size > 0 => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
            self.drop_link(target, wall)?;
        }
        self.names.remove(&(from.0, from.1.clone()));
        self.names.insert((to.0, to.1.clone()), ino);
        let (gone, dirs) = (i32::from(target.is_some()), i32::from(is_dir));
        if from.0 == to.0 {
            self.name_changed(from.0, -i64::from(gone), -gone * dirs, wall)?;
        } else {
            self.name_changed(from.0, -1, -dirs, wall)?;
            self.name_changed(to.0, i64::from(1 - gone), (1 - gone) * dirs, wall)?;
        }
        let before = self.attr(ino)?.ctime;
        let attr = self.change(ino, wall)?;
        attr.ctime = before.max(wall);
        if attr.parent != Ino::LINKS {
            (attr.parent, attr.hash) = (to.0, to.1.hash(&SEED));
        }
        Ok(Reply::Ok)
    }
}
