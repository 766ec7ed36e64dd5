//! Operations that this client performs by itself: in directories delegated to it, on names and inodes that it knows, and on
//! files delegated to it. The caller is answered at once, the rank hears of it in the stream, before anything that is sent later.
//!
//! What is not certain goes to the rank: whatever this client tells must be what the rank will make of it.
//!
//! Absent: what is known (`delegations.rs`), and the rules for attributes (`made.rs`).

use super::{Client, Out, early};
use crate::delegations::MovedTo;
use crate::input::CallId;
use crate::kept::{self, Kept};
use crate::made::{self, Counts, Making};
use crate::names::Known;
use crate::newborns::Newborn;
use crate::output::Output;
use crate::validity::{Validities, Validity};
use proto::caps::{Bits, Grants};
use proto::every_request;
use proto::message::Told;
use proto::reply::{Outcome, Reply};
use proto::request::rename_flags::NOREPLACE;
use proto::request::{IO_BYTES_MAX, Request, open_flags};
use proto::{Attr, Cred, Errno, FileKind, Ino, Name, NodeRef, SetAttr, Tid};
use stdx::{Mono, Wall};

/// What the rank has not said anything about yet.
const UNANSWERED_MAX: usize = 1024;

impl Client {
    /// Answers a call here, if that is certain to be right. `Some`: the rank has to be asked.
    pub(super) fn perform(
        &mut self,
        now: Mono,
        call: CallId,
        cred: Cred,
        mut request: Request,
        out: &mut Out,
    ) -> Option<(Cred, Request)> {
        if !self.is_certain(now) {
            return Some((cred, request));
        }
        if let Some((outcome, validity)) = self.known_answer(now, &request) {
            out.push(Output::Answer { call, outcome, validity });
            return None;
        }
        if !self.has_room(&request) {
            return Some((cred, request));
        }
        let concerned = self.concerned(&request);
        let done = match &request {
            Request::Create { .. }
            | Request::MkNod { .. }
            | Request::MkDir { .. }
            | Request::Symlink { .. } => self.make(now, &cred, &request),
            Request::Unlink { parent, name } => self.unlink(now, *parent, name),
            Request::RmDir { parent, name } => self.rmdir(now, *parent, name),
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.rename(now, (parent.ino, name), (new_parent.ino, new_name), *flags)
            }
            Request::Link { node, parent, name } if self.may_link() => {
                self.link(now, node.ino, (parent.ino, name))
            }
            Request::SetAttr { node, set } if self.may_set(node.ino, set) => {
                let change = |attr: &Attr, wall| made::set(attr, set, wall);
                self.change(now, *node, change).map(|done| done.with(Reply::Attr))
            }
            Request::Write { .. } => self.write(now, &mut request),
            every_request!() => None,
        };
        let Some(Done { tid, ino, wall, reply, validity, opened }) = done else {
            return Some((cred, request));
        };
        // Their answers may be on the way from before.
        self.validities.outdate(concerned.into_iter(), tid, self.window.unanswered());
        kept::own(&mut request);
        let outcome = Ok(reply);
        self.held.on_answer(&request, &outcome);
        self.note_unsynced(tid, Tid(tid.0 + 1), &request, &outcome);
        self.performed_in(now, &request, ino);
        let told = Told { ino, wall, heard: false };
        let bytes = request.payload_bytes();
        let kept = Kept { cred, request, told, opened, bytes, position: None };
        let message = early::performed(tid, self.window.floor(), &kept);
        debug_assert_eq!(tid, self.window.next(), "nothing was sent meanwhile");
        self.negatives.changed(&kept.request, Tid(tid.0 + 1));
        self.window.perform(kept);
        out.push(Output::Send { rank: self.rank(), message });
        out.push(Output::Answer { call, outcome, validity });
        None
    }

    /// The inodes that performing a request would change.
    fn concerned(&self, request: &Request) -> Vec<Ino> {
        if self.window.unanswered() == self.window.next()
            || stdx::mutant!("client_answer_overtakes_performed")
        {
            return Vec::new();
        }
        let mut inos = Vec::new();
        for (dir, name) in request.changed_names() {
            inos.push(dir);
            if let Known::File(ino) | Known::Dir(ino) = self.delegations.known(dir, name) {
                inos.push(ino);
            }
        }
        if let Request::SetAttr { node, .. } | Request::Write { node, .. } | Request::Link { node, .. } =
            request
        {
            inos.push(node.ino);
        }
        inos
    }

    fn has_room(&self, request: &Request) -> bool {
        let limits = &self.config.limits;
        self.window.kept.unanswered() < UNANSWERED_MAX
            && self.window.span() < limits.tid_span()
            && self.window.bytes() + request.payload_bytes() < limits.bytes_max
    }

    /// What needs no operation at all.
    fn known_answer(&mut self, now: Mono, request: &Request) -> Option<(Outcome, Validity)> {
        let ino = match request {
            Request::Lookup { parent, name } => match self.delegations.known(parent.ino, name) {
                Known::Absent => return Some((Err(Errno::ENOENT), Validity::default())),
                Known::File(ino) | Known::Dir(ino) => ino,
                Known::Unknown => return None,
            },
            Request::GetAttr { node } => node.ino,
            every_request!() => return None,
        };
        // A kernel asks for them before each change of a name, unless it may keep them; for that the rank has to know.
        if matches!(request, Request::GetAttr { .. })
            && let Some(delegation) = self.delegations.get_mut(ino)
            && let Some(attr) = delegation.exact().copied()
        {
            return delegation.shows(now).map(|validity| (Ok(Reply::Attr(attr)), validity));
        }
        let newborn = self.delegations.newborns.get(ino)?;
        // Paths lead through directories again and again: one question to the rank, and the kernel may keep them for a while.
        if self.delegations.get(ino).is_some() && !newborn.granted.is_fresh(now) {
            return None;
        }
        Some((Ok(Reply::Attr(newborn.attr)), newborn.granted.validity(now)))
    }

    fn make(&mut self, now: Mono, cred: &Cred, request: &Request) -> Option<Done> {
        let making = Making::of(request)?;
        let delegation = self.delegations.get(making.parent).filter(|delegation| delegation.is_clear())?;
        let (parent, absent) = (delegation.attr, delegation.names.get(making.name) == Known::Absent);
        if !absent && !stdx::mutant!("client_makes_unknown_names") {
            return None;
        }
        let hash = making.name.hash(self.numbers.seed()?);
        let numbers = self.numbers.take()?;
        let (ino, wall) = (numbers.0, self.time.tell(now, parent.ctime));
        let attr = making.attr(&parent, numbers, hash, cred, wall);
        let tids = self.window.tids();
        let tid = tids.next;
        let known = if making.is_dir() { Known::Dir(ino) } else { Known::File(ino) };
        let counts = Counts { names: 1, dirs: i32::from(making.is_dir()) };
        self.delegations.performed((making.parent, making.name), known, counts, wall, tids);
        let validity = self.leave_made(now, tid, ino, making.flags);
        self.delegations.newborns.insert(Newborn::new(attr, &validity));
        if making.is_dir() {
            self.delegations.made(attr, &validity, tid);
        }
        let node = NodeRef { ino, parent: making.parent, hash };
        let (reply, opened) = match making.flags {
            Some(_) => (Reply::Created { attr, new: true }, Some(node)),
            None => (Reply::Attr(attr), None),
        };
        Some(Done { tid, ino, wall, reply, validity, opened })
    }

    /// What the rank will grant with it: nobody else can hold anything of a new inode.
    fn leave_made(&mut self, now: Mono, tid: Tid, ino: Ino, flags: Option<u32>) -> Validity {
        let wants = self.config.wants;
        let mut bits = if wants.has(Bits::ATTRS) { Bits::ATTRS } else { Bits::NONE };
        if flags.is_some_and(|flags| flags & open_flags::ACCMODE != open_flags::WRONLY) {
            bits = bits.with(wants.and(Bits::FC));
        }
        if bits.is_empty() {
            return Validity::default();
        }
        let until = Validities::limit(now, now, false);
        self.may_keep_pages(now, ino, bits);
        self.validities.of(tid, Grants::One(bits), std::iter::once(ino), until)
    }

    fn unlink(&mut self, now: Mono, parent: NodeRef, name: &Name) -> Option<Done> {
        let Known::File(ino) = self.delegations.known(parent.ino, name) else { return None };
        if self.delegations.may_be_linked(ino) {
            return None;
        }
        let done = self.remove(now, parent.ino, name, 0)?;
        self.delegations.newborns.remove(ino);
        self.keeps_no_pages(ino);
        Some(done)
    }

    fn rmdir(&mut self, now: Mono, parent: NodeRef, name: &Name) -> Option<Done> {
        let Known::Dir(ino) = self.delegations.known(parent.ino, name) else { return None };
        if !self.delegations.is_empty_dir(ino) {
            return None;
        }
        let done = self.remove(now, parent.ino, name, -1)?;
        self.delegations.newborns.remove(ino);
        self.delegations.end(ino);
        Some(done)
    }

    fn remove(&mut self, now: Mono, dir: Ino, name: &Name, dirs: i32) -> Option<Done> {
        let delegation = self.delegations.get(dir).filter(|delegation| delegation.is_clear())?;
        let wall = self.time.tell(now, delegation.attr.ctime);
        let tids = self.window.tids();
        let counts = Counts { names: -1, dirs };
        self.delegations.performed((dir, name), Known::Absent, counts, wall, tids);
        Some(Done::of(tids.next, wall, Reply::Ok))
    }

    fn rename(&mut self, now: Mono, from: (Ino, &Name), to: (Ino, &Name), flags: u32) -> Option<Done> {
        if flags & !NOREPLACE != 0 {
            return None;
        }
        // Of several ranks none moves a directory from below one entry of the map to below another: what is above them it may not
        // know. Nor does this client.
        let is_dir = || matches!(self.delegations.known(from.0, from.1), Known::Dir(_));
        let apart = !self.seat.alone && from.0 != to.0;
        if apart && is_dir() && !stdx::mutant!("client_moves_dirs_of_several") {
            return None;
        }
        let plan = self.delegations.plan_move(from, to, flags == 0)?;
        let target = MovedTo { dir: to.0, name: to.1, hash: to.1.hash(self.numbers.seed()?) };
        let wall = self.time.tell(now, plan.changed);
        let tids = self.window.tids();
        self.delegations.moved(plan, from, target, wall, tids);
        Some(Done::of(tids.next, wall, Reply::Ok))
    }

    /// Of a file that was there before others may ask who may do what with it, and be refused, without asking for the file.
    fn may_set(&self, ino: Ino, set: &SetAttr) -> bool {
        let rights = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_suidgid;
        !rights || !self.delegations.newborns.is_delegated(ino)
    }

    fn may_link(&self) -> bool {
        self.seat.links || stdx::mutant!("client_links_anywhere")
    }

    /// A second name of a newborn: its first may be anywhere.
    fn link(&mut self, now: Mono, ino: Ino, to: (Ino, &Name)) -> Option<Done> {
        let delegation = self.delegations.get(to.0).filter(|delegation| delegation.is_clear())?;
        let newborn = self.delegations.newborns.get(ino).filter(|newborn| !newborn.delegated)?.attr;
        let certain = newborn.kind() != FileKind::Directory && newborn.nlink == 1;
        if !certain || delegation.names.get(to.1) != Known::Absent {
            return None;
        }
        let changed = delegation.attr.ctime.max(newborn.ctime);
        let seed = self.numbers.seed()?;
        let wall = self.time.tell(now, changed);
        let attr = made::linked(&newborn, seed, wall);
        let tids = self.window.tids();
        self.delegations.linked(&attr, to, wall, tids);
        Some(Done::of(tids.next, wall, Reply::Attr(attr)))
    }

    /// Changes a newborn. Its edge may keep nothing more of it than before.
    fn change(
        &mut self,
        now: Mono,
        node: NodeRef,
        change: impl FnOnce(&Attr, Wall) -> Option<Attr>,
    ) -> Option<Changed> {
        let newborn = self.delegations.newborns.get(node.ino)?;
        if self.delegations.get(node.ino).is_some_and(|delegation| !delegation.is_clear()) {
            return None;
        }
        let before = newborn.attr;
        let wall = self.time.tell(now, before.ctime);
        let (attr, tid) = (change(&before, wall)?, self.window.next());
        self.delegations.changed(attr, tid);
        Some(Changed { tid, wall, attr })
    }

    /// What is appended goes to where the end is now: the rank is told the place.
    fn write(&mut self, now: Mono, request: &mut Request) -> Option<Done> {
        let Request::Write { node, offset, append, kill_suidgid, data } = request else { return None };
        let (len, kill) = (data.len(), *kill_suidgid);
        let size = self.delegations.newborns.get(node.ino)?.attr.size;
        if len > IO_BYTES_MAX as u64 {
            return None;
        }
        let at = if *append { size } else { *offset };
        let change = |attr: &Attr, wall| made::write(attr, at, len, kill, wall);
        let done = self.change(now, *node, change)?;
        (*offset, *append) = (at, false);
        Some(done.with(|attr| Reply::Written { count: len, attr }))
    }
}

/// What was performed.
struct Done {
    tid: Tid,
    /// The inode it made.
    ino: Ino,
    wall: Wall,
    reply: Reply,
    validity: Validity,
    opened: Option<NodeRef>,
}

impl Done {
    /// It made no inode, opened none, and leaves nothing to be kept.
    fn of(tid: Tid, wall: Wall, reply: Reply) -> Self {
        Self { tid, ino: Ino::NONE, wall, reply, validity: Validity::default(), opened: None }
    }
}

struct Changed {
    tid: Tid,
    wall: Wall,
    attr: Attr,
}

impl Changed {
    fn with(self, reply: impl FnOnce(Attr) -> Reply) -> Done {
        let Self { tid, wall, attr } = self;
        Done::of(tid, wall, reply(attr))
    }
}
