//! What a session asks, one operation after the other for each caller. The longer ones are those of `sim scale`.
//!
//! Absent: sending.

use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request, open_flags};
use proto::storeio::Payload;
use proto::{Name, NodeRef};
use stdx::Prng;

/// Files of one caller in one directory, before it goes to the next one.
const FILES: u64 = 200;
const FILE: NewNode = NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 };
/// Files that a caller of `Few` makes.
const FEW: u64 = 26;
/// Files of its own that a caller of `Mixed` keeps before it removes one.
const KEPT: u64 = 16;

/// What is done to each file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Job {
    #[default]
    MkNod,
    Create,
    Write,
    Release,
    GetAttr,
    Lookup,
    Open,
    Unlink,
    /// To a new name in another directory: another rank's, if there are several.
    Rename,
    /// Look up any.
    Any,
    /// A few files in each directory.
    Few,
    /// Create, write 4 KiB, close.
    Mdtest,
    /// Look up any, open, close.
    Read,
    /// 70 of 100 as `Read`; the others make a file or remove one of these.
    Mixed,
}

/// A directory, and the rank that has its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dir {
    pub(crate) node: NodeRef,
    pub(crate) rank: usize,
}

/// A request, and the rank that it is for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) rank: usize,
    pub(crate) request: Request,
}

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    One,
    Looking,
    Making,
    Opening,
    Writing,
    Last,
}

#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    at: At,
    next: u64,
    number: u64,
    /// The rank that its operation is for.
    rank: usize,
    node: NodeRef,
    made: u64,
    removed: u64,
}

/// A session's directories and files, and how far it is.
#[derive(Default)]
pub(crate) struct Work {
    dirs: Vec<Dir>,
    files: u64,
    job: Job,
    callers: Vec<Caller>,
    /// Found when a file was made.
    nodes: Vec<NodeRef>,
    dice: Option<Prng>,
    operations: u64,
}

impl Work {
    pub(crate) fn new(dirs: Vec<Dir>, files: u64, seed: u64) -> Self {
        let nodes = vec![NodeRef::default(); files as usize];
        Self { dirs, files, nodes, dice: Some(Prng::new(seed)), ..Self::default() }
    }

    pub(crate) fn begin(&mut self, job: Job, callers: usize) {
        (self.job, self.operations) = (job, 0);
        self.callers = vec![Caller::default(); callers];
    }

    pub(crate) const fn operations(&self) -> u64 {
        self.operations
    }

    fn any(&mut self) -> u64 {
        let files = self.files;
        self.dice.as_mut().map_or(0, |dice| dice.below(files))
    }

    /// Directory and name of a file. Those of one caller are together.
    fn place(&self, number: u64) -> (Dir, Name) {
        let each = self.files.div_ceil(self.callers.len() as u64).max(1);
        let (caller, own) = (number / each, number % each);
        let dir = own / FILES * self.callers.len() as u64 + caller;
        let name = Name::new(format!("file.{number:012}").as_bytes()).expect("a plain name");
        (self.dirs[dir as usize % self.dirs.len()], name)
    }

    /// A directory that is not this one; another rank's, if there are several.
    fn other(&self, number: u64, than: Dir) -> Dir {
        let behind = |step: usize| self.dirs[(number as usize + step) % self.dirs.len()];
        let others = || (0..self.dirs.len()).map(behind);
        let found = others().find(|dir| dir.rank != than.rank);
        found.or_else(|| others().find(|dir| dir.node != than.node)).unwrap_or(than)
    }

    fn rename(&mut self, caller: usize, number: u64) -> Request {
        let (dir, name) = self.place(number);
        let to = self.other(number, dir);
        let new_name = Name::new(format!("moved.{number:012}").as_bytes()).expect("a plain name");
        // Whose the new name will be is asked.
        self.callers[caller].rank = to.rank;
        Request::Rename { parent: dir.node, name, new_parent: to.node, new_name, flags: 0 }
    }

    fn own_place(&self, caller: usize, number: u64) -> (Dir, Name) {
        let name = Name::new(format!("own.{caller:04}.{number:08}").as_bytes()).expect("a plain name");
        (self.dirs[(number as usize * 31 + caller) % self.dirs.len()], name)
    }

    /// The caller's next operation.
    pub(crate) fn start(&mut self, caller: usize) -> Option<Ask> {
        let each = self.files.div_ceil(self.callers.len() as u64).max(1);
        let own = self.callers[caller];
        let number = caller as u64 * each + own.next;
        let most = if self.job == Job::Few { FEW.min(each) } else { each };
        if own.next >= most || number >= self.files {
            return None;
        }
        self.callers[caller].next += 1;
        self.callers[caller].number = number;
        self.callers[caller].at = At::One;
        let node = self.nodes[number as usize];
        let (dir, name) = self.place(number);
        let parent = dir.node;
        self.callers[caller].rank = dir.rank;
        let flags = open_flags::WRONLY | open_flags::EXCL;
        let request = match self.job {
            Job::MkNod => Request::MkNod { parent, name, new: FILE },
            Job::Create => Request::Create { parent, name, new: FILE, flags },
            Job::Write => write(node),
            Job::Release => Request::Release { node, count: 1 },
            Job::GetAttr => Request::GetAttr { node },
            Job::Lookup => Request::Lookup { parent, name },
            Job::Open => Request::Open { node, flags: 0 },
            Job::Unlink => Request::Unlink { parent, name },
            Job::Rename => self.rename(caller, number),
            Job::Any => {
                let (dir, name) = self.any_place();
                self.callers[caller].rank = dir.rank;
                Request::Lookup { parent: dir.node, name }
            }
            Job::Few => {
                let (dir, name) = self.own_place(caller, own.next);
                self.callers[caller].rank = dir.rank;
                Request::MkNod { parent: dir.node, name, new: FILE }
            }
            Job::Mdtest => {
                self.callers[caller].at = At::Making;
                Request::Create { parent, name, new: FILE, flags }
            }
            Job::Read => self.look(caller),
            Job::Mixed => self.mixed(caller),
        };
        Some(Ask { rank: self.callers[caller].rank, request })
    }

    fn any_place(&mut self) -> (Dir, Name) {
        let number = self.any();
        self.place(number)
    }

    fn look(&mut self, caller: usize) -> Request {
        self.callers[caller].at = At::Looking;
        let (dir, name) = self.any_place();
        self.callers[caller].rank = dir.rank;
        Request::Lookup { parent: dir.node, name }
    }

    fn mixed(&mut self, caller: usize) -> Request {
        if self.dice.as_mut().is_none_or(|dice| !dice.chance(30, 100)) {
            return self.look(caller);
        }
        let own = self.callers[caller];
        if own.made - own.removed > KEPT {
            self.callers[caller].removed += 1;
            self.callers[caller].at = At::Last;
            let (dir, name) = self.own_place(caller, own.removed);
            self.callers[caller].rank = dir.rank;
            return Request::Unlink { parent: dir.node, name };
        }
        self.callers[caller].made += 1;
        self.callers[caller].at = At::Opening;
        let (dir, name) = self.own_place(caller, own.made);
        self.callers[caller].rank = dir.rank;
        Request::Create { parent: dir.node, name, new: FILE, flags: open_flags::WRONLY | open_flags::EXCL }
    }

    /// The operation's next request; none: it is over.
    pub(crate) fn answered(&mut self, caller: usize, outcome: Outcome) -> Result<Option<Ask>, String> {
        let reply = outcome.map_err(|errno| format!("{:?}: {errno}", self.job))?;
        let own = &mut self.callers[caller];
        if let Reply::Attr(attr) | Reply::Created { attr, .. } = &reply {
            own.node = NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash };
            if matches!(self.job, Job::MkNod | Job::Create | Job::Mdtest) {
                self.nodes[own.number as usize] = own.node;
            }
        }
        let node = own.node;
        let (at, next) = match own.at {
            At::One | At::Last => (At::One, None),
            At::Looking => (At::Opening, Some(Request::Open { node, flags: 0 })),
            At::Making => (At::Writing, Some(write(node))),
            At::Opening | At::Writing => (At::Last, Some(Request::Release { node, count: 1 })),
        };
        own.at = at;
        let rank = own.rank;
        self.operations += u64::from(next.is_none());
        Ok(next.map(|request| Ask { rank, request }))
    }
}

fn write(node: NodeRef) -> Request {
    Request::Write { node, offset: 0, append: false, kill_suidgid: false, data: Payload::from(vec![7; 4096]) }
}
