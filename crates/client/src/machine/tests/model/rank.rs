//! The small rank: one session, and somebody else who changes names now and then.
//!
//! Absent: its files (`tree.rs`), everything that the test does not look at.

use super::*;
use proto::caps::Recalled;
use proto::message::Delegated;
use proto::{NodeRef, Position};
use stdx::hash::HashSeed;
use stdx::{Mono, Wall};

pub(crate) const SEED: HashSeed = HashSeed([9; 16]);
/// The rank's clock shows so much more.
const AHEAD: u64 = 1_000 * SECOND;

/// What a crash takes back to what is durable.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) tree: Tree,
    pub(crate) results: BTreeMap<Tid, Outcome>,
}

#[derive(Clone, Default)]
pub(crate) struct Rank {
    /// Among several.
    id: u16,
    pub(crate) disk: Disk,
    pub(crate) durable: Disk,
    /// It delegates none of these, because they are on their way to another rank, or have replicas.
    pub(crate) barred: BTreeSet<Ino>,
    /// The inodes of these directories are another rank's than their content.
    pub(crate) bounds: BTreeSet<Ino>,
    position: u64,
    pub(crate) wall: Wall,
    known: bool,
    /// Which life it is. It began without the session: opens are claimed, and come with results of former lives.
    life: u64,
    absent: bool,
    former: BTreeSet<Tid>,
    pub(crate) opens: BTreeMap<Ino, u32>,
    pub(crate) delegated: BTreeSet<Ino>,
    /// The session keeps nothing of an earlier connection.
    pub(crate) settled: bool,
    /// Where somebody else waits to change a name, and which.
    foreign: Option<(Ino, Name)>,
    pub(crate) number: u32,
    numbers: u64,
    /// Does not delegate every time.
    toggle: u64,
}

impl Rank {
    /// One of several.
    pub(crate) fn of(id: u16) -> Self {
        Self { id, ..Self::default() }
    }

    pub(crate) fn at(&mut self, now: Mono) {
        self.wall = Wall((now.0 + AHEAD) as i64);
    }

    pub(crate) fn inodes(&self) -> Vec<(Ino, bool)> {
        let is_dir = |attr: &Attr| attr.kind() == FileKind::Directory;
        self.disk.tree.inodes.iter().map(|(ino, attr)| (*ino, is_dir(attr))).collect()
    }

    pub(crate) fn opens(&self, ino: Ino) -> u32 {
        self.opens.get(&ino).copied().unwrap_or(0)
    }

    pub(crate) fn disconnected(&mut self) {
        (self.settled, self.foreign) = (false, None);
    }

    pub(crate) fn crash(&mut self) {
        // Numbers of what was taken back are not given again: their inodes come again.
        let next = self.disk.tree.next;
        self.disk = self.durable.clone();
        self.disk.tree.next = next;
        self.life += 1;
        self.absent = true;
        self.former = self.disk.results.keys().copied().collect();
        self.opens.clear();
        self.delegated.clear();
    }

    pub(crate) fn sync(&mut self) -> Option<ServerMsg> {
        self.durable = self.disk.clone();
        Some(ServerMsg::Durable { position: Position(self.position) })
    }

    /// Whether there is a session.
    pub(crate) const fn is_known(&self) -> bool {
        self.known
    }

    /// Whether the session, if there is one, has presented everything, and uses nothing that it was granted before.
    pub(crate) const fn has_said_all(&self) -> bool {
        !self.known || (self.settled && !self.absent)
    }

    /// Somebody else wants to change a name, in one of these directories.
    pub(crate) fn begin_foreign(
        &mut self,
        prng: &mut Prng,
        whose: impl Fn(Ino) -> bool,
    ) -> Option<ServerMsg> {
        if self.foreign.is_some() || !self.settled {
            return None;
        }
        let dirs = self.inodes().into_iter().filter(|(ino, dir)| *dir && whose(*ino));
        let dirs: Vec<Ino> = dirs.map(|(ino, _)| ino).collect();
        if dirs.is_empty() {
            return None;
        }
        let dir = dirs[prng.index(dirs.len())];
        self.foreign = Some((dir, name(NAMES[prng.index(NAMES.len())])));
        if !self.delegated.contains(&dir) {
            self.end_foreign();
            return None;
        }
        Some(self.recall(dir))
    }

    /// What is delegated is asked for.
    pub(crate) fn recall(&mut self, dir: Ino) -> ServerMsg {
        self.number += 1;
        let list = vec![Recalled { ino: dir, bits: Bits::DX, number: self.number, name: None }];
        ServerMsg::Recall { list }
    }

    pub(crate) fn execute(&mut self, request: &Request, made: Ino, wall: Wall) -> Outcome {
        let outcome = self.disk.tree.execute(request, made, wall);
        for ino in std::mem::take(&mut self.disk.tree.ended) {
            self.delegated.remove(&ino);
        }
        outcome
    }

    pub(crate) fn behind(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.disk.tree.names.get(&(dir, name.clone())).copied()
    }

    fn end_foreign(&mut self) {
        let Some((dir, name)) = self.foreign.take() else { return };
        let (parent, wall) = (NodeRef::bare(dir), self.wall);
        let new = NewNode { mode: 0o600, umask: 0, rdev: 0 };
        let gone = self.execute(&Request::Unlink { parent, name: name.clone() }, Ino::NONE, wall);
        if gone == Err(Errno::ENOENT) {
            let made = Request::MkNod { parent, name, new };
            assert!(
                self.execute(&made, Ino::NONE, wall).is_ok() || !self.disk.tree.inodes.contains_key(&dir)
            );
        }
        // What others see is durable first.
        self.durable = self.disk.clone();
    }

    pub(crate) fn receive(
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
            ClientMsg::Goodbye => {
                (self.known, self.absent) = (false, false);
                self.opens.clear();
                self.delegated.clear();
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
        if self.disk.tree.inodes.is_empty() {
            let attr =
                Attr { ino: Ino::ROOT, mode: 0o40_755, nlink: 2, parent: Ino::SYSTEM, ..Attr::default() };
            self.disk.tree.inodes.insert(Ino::ROOT, attr);
            self.disk.tree.next = 5_000;
            self.durable = self.disk.clone();
        }
        let Input::Message { message: welcome, .. } = welcome_in(5, self.known, self.life + 1) else {
            return Vec::new();
        };
        self.settled = !self.known;
        self.known = true;
        self.numbers += 1;
        let (first, count) = (Ino(u64::from(self.id) << 48 | self.numbers << 20), 60);
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
        if !self.is_early(request) {
            self.durable = self.disk.clone();
            return ServerMsg::Reply { tid, outcome };
        }
        self.toggle += 1;
        let made = if let Ok(Reply::Attr(attr)) = &outcome { Some(attr.ino) } else { None };
        let parent = request.subject().filter(|(_, name)| name.is_some()).map(|(node, _)| node.ino);
        let busy = self.foreign.as_ref().map(|(dir, _)| *dir);
        let free = |dir: &Ino| busy != Some(*dir) && !self.barred.contains(dir);
        let wanted = |dir: &Ino| self.settled && !self.toggle.is_multiple_of(4) && free(dir);
        let dirs: Vec<Ino> = made.into_iter().chain(parent).filter(wanted).collect();
        let mut delegated = Vec::new();
        for dir in dirs {
            let Some(attr) = self.disk.tree.inodes.get(&dir).copied() else { continue };
            if attr.kind() == FileKind::Directory && self.delegated.insert(dir) {
                delegated.push(Delegated { dir: attr, empty: attr.size == 0 });
            }
        }
        let position = Position(self.position);
        ServerMsg::Early { tid, position, wall, outcome, grants: Grants::None, delegated }
    }

    /// Whether the caller hears of it before it is durable (`committed_by` in `mds`). Not of what directories hand down, where another rank
    /// may change that before this is presented, nor of how they change.
    fn is_early(&self, request: &Request) -> bool {
        let attr = |ino: Ino| self.disk.tree.attr(ino).ok();
        match request {
            Request::SetAttr { node, .. } => {
                attr(node.ino).is_none_or(|attr| attr.kind() != FileKind::Directory)
            }
            Request::MkNod { parent, .. }
            | Request::MkDir { parent, .. }
            | Request::Create { parent, .. } => {
                let hands_down = attr(parent.ino).is_some_and(|attr| attr.mode & 0o2000 != 0);
                !hands_down || !self.bounds.contains(&parent.ino)
            }
            _ => true,
        }
    }

    /// What was told early of such a directory took nothing from it. By now it may have been changed, by the rank that has its inode, to
    /// hand something down: what is presented does not take that (`new_inode` in `mds`), nor does what was made below, and told of, since.
    fn takes_nothing(&mut self, parent: Ino, outcome: &mut Outcome) {
        if let Ok(Reply::Attr(attr)) = outcome
            && self.bounds.contains(&parent)
        {
            attr.mode &= !0o2000;
            self.disk.tree.inodes.insert(attr.ino, *attr);
        }
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
        let mut outcome = stored.unwrap_or_else(|| self.execute(request, what.ino, what.wall));
        if let (Request::MkDir { parent, .. }, true, false) = (request, what.heard, again) {
            self.takes_nothing(parent.ino, &mut outcome);
        }
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
}
