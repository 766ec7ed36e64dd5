//! `mdtest -F -L -w 4096 -z 2 -b 10 -I 200 -u`: each task has a tree of its own of depth 2 with ten directories in each, and 200 files of
//! 4 KiB in each of its hundred leaves. The trees are there when it begins. A phase ends when its time does, not when all is done, so
//! the files of the later phases are those that the first has made.
//!
//! Tasks begin anywhere in their first leaf, so that they do not all come to the next one at once. The ranks know the trees, which mdtest
//! has just made, and a file is in each task's first leaf already.
//!
//! Absent: making and removing directories, which mdtest times by itself.

use super::{Ask, FILE, Ground, Script, good, names, node};
use proto::reply::Outcome;
use proto::request::{Request, open_flags};
use proto::storeio::Payload;
use proto::{Name, NodeRef};

/// Leaves of a task, and files in each.
const LEAVES: u64 = 100;
const FILES: u64 = 200;
/// Directories of each level in one of the level above.
pub(in super::super) const FANS: [u64; 2] = [10, 10];
const FILE_BYTES: usize = 4096;

const PHASES: [&str; 3] = ["create", "stat", "remove"];

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Nothing,
    Making,
    Writing(NodeRef),
    Closing,
    Looking,
    Removing,
    /// Before the first phase.
    Visiting,
}

#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    at: At,
    /// Numbers of its files: from this one to that one.
    first: u64,
    made: u64,
    /// Looked up, or removed.
    next: u64,
}

/// Visits of each task to its first leaves before the first phase, and how a caller's first file moves on from that of the one before.
const VISITED: u64 = 8;
const APART: u64 = 73;

/// The script.
pub(in super::super) struct Mdtest {
    phase: Option<usize>,
    in_flight: u64,
    callers: Vec<Caller>,
}

impl Mdtest {
    pub(in super::super) fn new(callers: u64, in_flight: u64) -> Self {
        let first = |caller: u64| caller * APART % FILES;
        let own = |caller| Caller { first: first(caller), made: first(caller), ..Caller::default() };
        Self { phase: None, in_flight, callers: (0..callers).map(own).collect() }
    }

    /// Where a caller's `number`th file is: leaf and name. The callers of one task are in different leaves.
    fn place(&self, ground: &Ground<'_>, caller: u64, number: u64) -> (u64, NodeRef, Name) {
        let (task, own) = (caller / self.in_flight, caller % self.in_flight);
        let nth = own + number / FILES * self.in_flight;
        let leaf = task * LEAVES + nth % LEAVES;
        (leaf, ground.layout.leaf_ref(leaf), names::made(caller, number))
    }
}

impl Mdtest {
    /// The next of a caller's first leaves; in the very first it makes a file.
    fn visit(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask> {
        let own = &mut self.callers[caller as usize];
        let nth = own.next;
        (own.next, own.at) = (nth + 1, At::Visiting);
        if nth >= VISITED {
            return None;
        }
        let (leaf, parent, name) = self.place(ground, caller, nth.saturating_sub(1) * FILES + FILES * LEAVES);
        let request = match nth {
            0 => Request::MkNod { parent, name, new: FILE },
            // So that the directory is in memory.
            _ => Request::ReadDir { dir: parent, after: 0, attrs: false, bytes_max: 4096 },
        };
        Some(ground.ask(leaf, request))
    }
}

impl Script for Mdtest {
    fn phases(&self) -> &'static [&'static str] {
        &PHASES
    }

    fn prepare(&mut self) -> bool {
        true
    }

    fn begin(&mut self, phase: usize) {
        self.phase = Some(phase);
        self.callers.iter_mut().for_each(|caller| caller.next = 0);
    }

    fn start(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask> {
        let own = self.callers[caller as usize];
        let Some(phase) = self.phase else { return self.visit(ground, caller) };
        let number = match phase {
            0 => own.made,
            1 => own.first + own.next % (own.made - own.first).max(1),
            _ => own.first + own.next,
        };
        if phase > 0 && number >= own.made {
            return None;
        }
        let (leaf, parent, name) = self.place(ground, caller, number);
        let (at, request) = match phase {
            0 => {
                let flags = open_flags::WRONLY | open_flags::EXCL;
                (At::Making, Request::Create { parent, name, new: FILE, flags })
            }
            1 => (At::Looking, Request::Lookup { parent, name }),
            _ => (At::Removing, Request::Unlink { parent, name }),
        };
        self.callers[caller as usize].at = at;
        Some(ground.ask(leaf, request))
    }

    fn answered(
        &mut self,
        ground: &Ground<'_>,
        caller: u64,
        outcome: Outcome,
    ) -> Result<Option<Ask>, String> {
        let own = self.callers[caller as usize];
        let (leaf, ..) = self.place(ground, caller, own.made);
        let (at, request) = match own.at {
            At::Making => {
                let node = node(outcome)?;
                let data = Payload::from(vec![0; FILE_BYTES]);
                let write = Request::Write { node, offset: 0, append: false, kill_suidgid: false, data };
                (At::Writing(node), Some(write))
            }
            At::Writing(node) => {
                good(outcome)?;
                (At::Closing, Some(Request::Release { node, count: 1 }))
            }
            At::Closing => {
                good(outcome)?;
                self.callers[caller as usize].made += 1;
                (At::Nothing, None)
            }
            At::Visiting => (At::Nothing, None),
            At::Looking | At::Removing => {
                good(outcome)?;
                self.callers[caller as usize].next += 1;
                (At::Nothing, None)
            }
            At::Nothing => return Err("an answer to nothing".into()),
        };
        self.callers[caller as usize].at = at;
        Ok(request.map(|request| ground.ask(leaf, request)))
    }
}
