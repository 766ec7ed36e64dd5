//! The small rank: one session, a tree, and somebody else who changes names now and then.
//!
//! Absent: everything that the test does not look at.

use super::*;
use proto::caps::Recalled;
use proto::message::Delegated;
use proto::reply::DirEntry;
use proto::{NodeRef, Position};
use stdx::hash::HashSeed;
use stdx::{Mono, Wall};

const SEED: HashSeed = HashSeed([9; 16]);
/// The rank's clock shows so much more.
const AHEAD: u64 = 1_000 * SECOND;

/// What a crash takes back to what is durable.
#[derive(Clone, Default)]
struct Disk {
    inodes: BTreeMap<Ino, Attr>,
    names: BTreeMap<(Ino, Name), Ino>,
    results: BTreeMap<Tid, Outcome>,
    next: u64,
}

#[derive(Clone, Default)]
pub(super) struct Rank {
    disk: Disk,
    durable: Disk,
    position: u64,
    pub(super) wall: Wall,
    known: bool,
    /// Which life it is. It began without the session: opens are claimed, and come with results of former lives.
    life: u64,
    absent: bool,
    former: BTreeSet<Tid>,
    opens: BTreeMap<Ino, u32>,
    delegated: BTreeSet<Ino>,
    /// The session keeps nothing of an earlier connection.
    settled: bool,
    /// Where somebody else waits to change a name, and which.
    foreign: Option<(Ino, Name)>,
    number: u32,
    numbers: u64,
    /// Does not delegate every time.
    toggle: u64,
}

impl Rank {
    pub(super) fn at(&mut self, now: Mono) {
        self.wall = Wall((now.0 + AHEAD) as i64);
    }

    pub(super) fn inodes(&self) -> Vec<(Ino, bool)> {
        let is_dir = |attr: &Attr| attr.kind() == FileKind::Directory;
        self.disk.inodes.iter().map(|(ino, attr)| (*ino, is_dir(attr))).collect()
    }

    pub(super) fn opens(&self, ino: Ino) -> u32 {
        self.opens.get(&ino).copied().unwrap_or(0)
    }

    pub(super) fn disconnected(&mut self) {
        (self.settled, self.foreign) = (false, None);
    }

    pub(super) fn crash(&mut self) {
        // Numbers of what was taken back are not given again: their inodes come again.
        let next = self.disk.next;
        self.disk = Disk { next, ..self.durable.clone() };
        self.life += 1;
        self.absent = true;
        self.former = self.disk.results.keys().copied().collect();
        self.opens.clear();
        self.delegated.clear();
    }

    pub(super) fn sync(&mut self) -> Option<ServerMsg> {
        self.durable = self.disk.clone();
        Some(ServerMsg::Durable { position: Position(self.position) })
    }

    /// Somebody else wants to change a name.
    pub(super) fn begin_foreign(&mut self, prng: &mut Prng) -> Option<ServerMsg> {
        if self.foreign.is_some() || !self.settled {
            return None;
        }
        let dirs: Vec<Ino> = self.inodes().into_iter().filter(|(_, dir)| *dir).map(|(ino, _)| ino).collect();
        let dir = dirs[prng.index(dirs.len())];
        self.foreign = Some((dir, name(NAMES[prng.index(NAMES.len())])));
        if !self.delegated.contains(&dir) {
            self.end_foreign();
            return None;
        }
        self.number += 1;
        let list = vec![Recalled { ino: dir, bits: Bits::DX, number: self.number, name: None }];
        Some(ServerMsg::Recall { list })
    }

    fn end_foreign(&mut self) {
        let Some((dir, name)) = self.foreign.take() else { return };
        let (parent, wall) = (NodeRef::bare(dir), self.wall);
        let new = NewNode { mode: 0o600, umask: 0, rdev: 0 };
        let gone = self.execute(&Request::Unlink { parent, name: name.clone() }, Ino::NONE, wall);
        if gone == Err(Errno::ENOENT) {
            let made = Request::MkNod { parent, name, new };
            assert!(self.execute(&made, Ino::NONE, wall).is_ok() || !self.disk.inodes.contains_key(&dir));
        }
        // What others see is durable first.
        self.durable = self.disk.clone();
    }

    pub(super) fn receive(
        &mut self,
        message: ClientMsg,
        told: &mut BTreeMap<Tid, Outcome>,
    ) -> Vec<ServerMsg> {
        match message {
            ClientMsg::Hello { session, .. } => self.hello(session),
            ClientMsg::Renew { number } => vec![ServerMsg::Renewed { number }],
            ClientMsg::Settled => {
                self.settled = true;
                self.delegated.clear();
                Vec::new()
            }
            ClientMsg::Reclaim { node, count, .. } => {
                if self.absent {
                    self.opens.insert(node.ino, count);
                }
                Vec::new()
            }
            ClientMsg::Reclaimed => {
                self.absent = false;
                Vec::new()
            }
            ClientMsg::Returned { list } => {
                for item in list {
                    self.delegated.remove(&item.ino);
                    if self.foreign.as_ref().is_some_and(|(dir, _)| *dir == item.ino) {
                        self.end_foreign();
                    }
                }
                Vec::new()
            }
            ClientMsg::Request { tid, floor, request, .. } => vec![self.request(tid, floor, &request)],
            ClientMsg::Performed { tid, floor, told: what, request, .. } => {
                vec![self.performed((tid, floor), what, &request, told.get(&tid))]
            }
            _ => Vec::new(),
        }
    }

    fn hello(&mut self, session: SessionId) -> Vec<ServerMsg> {
        // Of the answer to an earlier greeting nobody has heard.
        self.known &= session != SessionId(0);
        self.absent &= self.known;
        if self.disk.inodes.is_empty() {
            let attr =
                Attr { ino: Ino::ROOT, mode: 0o40_755, nlink: 2, parent: Ino::SYSTEM, ..Attr::default() };
            self.disk.inodes.insert(Ino::ROOT, attr);
            self.disk.next = 5_000;
            self.durable = self.disk.clone();
        }
        let Input::Message(welcome) = welcome_in(5, self.known, self.life) else { return Vec::new() };
        self.settled = !self.known;
        self.known = true;
        self.numbers += 1;
        let (first, count) = (Ino(self.numbers << 20), 60);
        vec![welcome, ServerMsg::Numbers { first, count, generation: 1, seed: SEED }]
    }

    /// `again`: it was carried out before; what it opened is counted unless a former life did that.
    fn count(&mut self, tid: Tid, again: bool, request: &Request, outcome: &Outcome) {
        if again && !self.former.remove(&tid) {
            return;
        }
        match (request, outcome) {
            (Request::Create { .. }, Ok(Reply::Created { attr, .. })) => {
                *self.opens.entry(attr.ino).or_default() += 1;
            }
            (Request::Release { node, count }, _) => {
                let opens = self.opens.entry(node.ino).or_default();
                *opens = opens.saturating_sub(*count);
            }
            _ => {}
        }
    }

    fn remember(&mut self, (tid, floor): (Tid, Tid), request: &Request, outcome: &Outcome) {
        self.disk.results.retain(|tid, _| *tid >= floor);
        if outcome.is_ok() && matches!(request.effect(), Effect::Journal | Effect::Memory) {
            self.disk.results.insert(tid, outcome.clone());
            self.position += 1;
        }
    }

    fn request(&mut self, tid: Tid, floor: Tid, request: &Request) -> ServerMsg {
        let stored = self.disk.results.get(&tid).cloned();
        let (wall, again) = (self.wall, stored.is_some());
        let outcome = stored.unwrap_or_else(|| self.execute(request, Ino::NONE, wall));
        self.count(tid, again, request, &outcome);
        self.remember((tid, floor), request, &outcome);
        if request.effect() != Effect::Journal || outcome.is_err() {
            return ServerMsg::Reply { tid, outcome };
        }
        self.toggle += 1;
        let made = if let Ok(Reply::Attr(attr)) = &outcome { Some(attr.ino) } else { None };
        let parent = request.subject().filter(|(_, name)| name.is_some()).map(|(node, _)| node.ino);
        let busy = self.foreign.as_ref().map(|(dir, _)| *dir);
        let wanted = |dir: &Ino| self.settled && !self.toggle.is_multiple_of(4) && busy != Some(*dir);
        let dirs: Vec<Ino> = made.into_iter().chain(parent).filter(wanted).collect();
        let mut delegated = Vec::new();
        for dir in dirs {
            let Some(attr) = self.disk.inodes.get(&dir).copied() else { continue };
            if attr.kind() == FileKind::Directory && self.delegated.insert(dir) {
                delegated.push(Delegated { dir: attr, empty: attr.size == 0 });
            }
        }
        let position = Position(self.position);
        ServerMsg::Early { tid, position, wall, outcome, grants: Grants::None, delegated }
    }

    /// The same must come of it as its caller was told.
    fn performed(
        &mut self,
        (tid, floor): (Tid, Tid),
        what: Told,
        request: &Request,
        told: Option<&Outcome>,
    ) -> ServerMsg {
        assert!(what.wall <= self.wall, "told of the future");
        let stored = self.disk.results.get(&tid).cloned();
        let again = stored.is_some();
        let outcome = stored.unwrap_or_else(|| self.execute(request, what.ino, what.wall));
        if let Some(told) = told {
            assert_eq!(&outcome, told, "{request:?}");
        }
        self.count(tid, again, request, &outcome);
        self.remember((tid, floor), request, &outcome);
        if matches!(request, Request::MkDir { .. })
            && self.settled
            && let Ok(Reply::Attr(attr)) = &outcome
        {
            self.delegated.insert(attr.ino);
        }
        match outcome {
            Ok(_) => ServerMsg::Done { tid, position: Position(self.position) },
            Err(_) => ServerMsg::Reply { tid, outcome },
        }
    }

    pub(super) fn execute(&mut self, request: &Request, made: Ino, wall: Wall) -> Outcome {
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

    pub(super) fn behind(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.disk.names.get(&(dir, name.clone())).copied()
    }

    fn find(&self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        let parent = self.attr(dir)?;
        if parent.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.disk.names.get(&(dir, name.clone())).copied().ok_or(Errno::ENOENT)
    }

    /// Two names at a time, of every third the attributes are not at hand.
    fn list(&self, dir: Ino, after: u64) -> Outcome {
        self.attr(dir)?;
        let mut all: Vec<_> = self
            .disk
            .names
            .iter()
            .filter(|((parent, _), _)| *parent == dir)
            .map(|((_, n), i)| (n, *i))
            .collect();
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

    fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        self.disk.inodes.get(&ino).copied().ok_or(Errno::ESTALE)
    }

    fn change(&mut self, ino: Ino, wall: Wall) -> Result<&mut Attr, Errno> {
        let attr = self.disk.inodes.get_mut(&ino).ok_or(Errno::ESTALE)?;
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
        self.disk.next += 1;
        let ino = if made == Ino::NONE { Ino(self.disk.next) } else { made };
        assert!(!self.disk.inodes.contains_key(&ino), "{ino:?} names two inodes");
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
        self.disk.inodes.insert(ino, attr);
        self.disk.names.insert((dir, name.clone()), ino);
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
        self.disk.names.remove(&(dir, name.clone()));
        self.drop_link(ino, wall)?;
        self.name_changed(dir, -1, -i32::from(is_dir), wall)?;
        Ok(Reply::Ok)
    }

    fn drop_link(&mut self, ino: Ino, wall: Wall) -> Result<(), Errno> {
        let attr = self.change(ino, wall)?;
        if attr.kind() == FileKind::Directory || attr.nlink == 1 {
            self.disk.inodes.remove(&ino);
            self.delegated.remove(&ino);
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
        self.disk.names.insert((dir, second.clone()), ino);
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
        self.disk.names.remove(&(from.0, from.1.clone()));
        self.disk.names.insert((to.0, to.1.clone()), ino);
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
