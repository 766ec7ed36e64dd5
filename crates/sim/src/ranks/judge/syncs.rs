//! What a sync covers: all that its caller had been told when it asked, of everything, of a directory's names, or of a file and its
//! names, whichever rank did it and whoever asked for it. Once the sync is answered all of it is durable; a crash of any rank takes none
//! of it back.
//!
//! What was told is known by the entry of history that did it: of what the caller changed itself, and of names that it saw, the one by
//! which they became what they are. So it does not matter where a name moved since, or by which rank the caller heard of it.
//!
//! Absent: bytes of files.

use super::{Asked, Judge, Key};
use crate::model::judge::{Verdict, parents};
use crate::model::tree::Tree;
use proto::ids::{Position, RankId};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, every_request};
use std::collections::{BTreeMap, BTreeSet};

/// What each client was told last, and is looked at when it syncs.
const TOLD_MAX: usize = 256;

/// An entry of history that a client was told of.
#[derive(Clone, Debug)]
struct Told {
    rank: RankId,
    end: Position,
    /// By which request it was done.
    key: Option<Key>,
    /// Directories whose names it changed, and inodes.
    about: BTreeSet<Ino>,
    /// A transaction of several ranks.
    decides: bool,
    /// A crash took it back.
    lost: bool,
}

/// Per client, and per sync under way what it covers.
#[derive(Default)]
pub(super) struct Syncs {
    told: BTreeMap<usize, Vec<Told>>,
    begun: BTreeMap<u64, Vec<Told>>,
    /// How far syncs vouch for journals.
    vouched: BTreeMap<RankId, Position>,
    /// Entries that syncs covered; those of several ranks; by syncs of directories, of parts at several ranks among them.
    pub(super) covered: u64,
    pub(super) across: u64,
    pub(super) dirs: u64,
    pub(super) parted: u64,
}

/// A name that a caller saw, or saw missing.
struct Seen<'a> {
    dir: Ino,
    name: &'a [u8],
    ino: Option<Ino>,
}

impl Seen<'_> {
    fn is_so(&self, tree: &Tree) -> bool {
        let found = tree.node(self.dir).and_then(|dir| dir.entries.get(self.name).copied());
        found == self.ino && (tree.node(self.dir).is_some() || self.dir == Ino::NONE)
    }
}

impl Judge {
    /// A caller is about to have an answer, if it is one of which anything can be synced.
    pub(in crate::ranks) fn tells(&mut self, client: usize, keys: &[Key], asked: &Asked, outcome: &Outcome) {
        let own = keys.iter().filter(|_| outcome.is_ok());
        let mut told: Vec<Told> = own.filter_map(|key| self.told_of_own(*key)).collect();
        let since = asked.call.and_then(|call| self.begun.get(&call)).copied().unwrap_or(self.first);
        told.extend(seen(&asked.request, outcome).iter().filter_map(|seen| self.told_of_name(since, seen)));
        let list = self.syncs.told.entry(client).or_default();
        list.extend(told);
        let much = list.len().saturating_sub(TOLD_MAX);
        list.drain(..much);
    }

    /// What the caller changed. What that rank was asked counts: a file that is opened by one of several names is opened by its number.
    fn told_of_own(&self, key: Key) -> Option<Told> {
        let pending = self.pending.get(&key)?;
        let (outcome, end) = pending.executed.as_ref()?;
        let step = self.line.iter().find(|step| step.rank == key.0 && step.end == *end);
        let request = &pending.asked.request;
        let subject = request.subject().map(|(node, _)| node.ino);
        let linked = if let Request::Link { node, .. } = request { Some(node.ino) } else { None };
        let made = match outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => Some(attr.ino),
            _ => None,
        };
        let about = parents(request).chain(subject).chain(linked).chain(made).collect();
        let decides = step.is_some_and(|step| step.decides);
        Some(Told { rank: key.0, end: *end, key: Some(key), about, decides, lost: false })
    }

    /// What made a name what it was, at the latest, when the caller saw it. None: it is durable.
    fn told_of_name(&self, since: u64, seen: &Seen<'_>) -> Option<Told> {
        let mut was_so = false;
        let mut maker = None;
        let states: Vec<(u64, &Tree)> = self.states(self.first).collect();
        for (number, tree) in states {
            let is_so = seen.is_so(tree);
            if is_so && !was_so {
                maker = number.checked_sub(self.first + 1);
            }
            was_so = is_so;
            if is_so && number >= since {
                break;
            }
        }
        let step = self.line.get(maker? as usize).filter(|_| was_so)?;
        let about = [Some(seen.dir), seen.ino].into_iter().flatten().collect();
        let key = step.origin.as_ref().map(|origin| origin.key);
        Some(Told { rank: step.rank, end: step.end, key, about, decides: step.decides, lost: false })
    }

    /// A caller asks for a sync.
    pub(in crate::ranks) fn sync_begins(&mut self, client: usize, call: u64, request: &Request) {
        let of = match request {
            Request::SyncFs => None,
            Request::Fsync { node, .. } => Some(node.ino),
            every_request!() => return,
        };
        let told = self.syncs.told.get(&client).into_iter().flatten();
        let covers: Vec<Told> =
            told.filter(|told| of.is_none_or(|ino| told.about.contains(&ino))).cloned().collect();
        self.syncs.begun.insert(call, covers);
    }

    /// It has its answer.
    pub(in crate::ranks) fn sync_ends(&mut self, call: u64, request: &Request, outcome: &Outcome) -> Verdict {
        let Some(covers) = self.syncs.begun.remove(&call).filter(|_| outcome.is_ok()) else { return Ok(()) };
        for told in &covers {
            let durable = self.ranks.get(&told.rank).map_or(Position(0), |journal| journal.durable);
            let again = self.durable_again(told);
            if again.is_none() && (told.lost || told.end > durable) {
                return Err(format!(
                    "a sync is answered, and what its caller was told before is {}: {told:?}, durable {}\n  request {request:?}",
                    if told.lost { "lost" } else { "not durable" },
                    durable.0
                ));
            }
            let vouched = self.syncs.vouched.entry(told.rank).or_default();
            *vouched = again.unwrap_or(told.end).max(*vouched);
        }
        self.syncs.covered += covers.len() as u64;
        self.syncs.across += covers.iter().filter(|told| told.decides).count() as u64;
        if let Request::Fsync { node, .. } = request
            && self.tree().node(node.ino).is_some_and(|node| node.is_dir())
        {
            self.syncs.dirs += 1;
            self.syncs.parted += u64::from(self.was_boundary(node.ino));
        }
        Ok(())
    }

    /// Nobody waits for a sync any more.
    pub(in crate::ranks) fn sync_forgotten(&mut self, call: u64) {
        self.syncs.begun.remove(&call);
    }

    /// Another client takes the place of one, and was told nothing.
    pub(super) fn told_nothing(&mut self, client: usize) {
        self.syncs.told.remove(&client);
    }

    /// What a crash took back may have been told early: its author's client has asked for it once more, and it is durable, up to there.
    fn durable_again(&self, told: &Told) -> Option<Position> {
        self.promises.ends.get(&told.key.filter(|_| told.lost)?).copied()
    }

    /// Callers of that client were told late that these may come, or came, to nothing. Nobody else was told of them before they were durable.
    pub(super) fn taken_back(&mut self, which: impl Fn(&Key) -> bool) {
        let all = self.syncs.told.values_mut().chain(self.syncs.begun.values_mut());
        all.for_each(|told| told.retain(|told| !told.key.is_some_and(|key| which(&key))));
    }

    /// A rank lives again on a journal that ends there.
    pub(super) fn check_synced(&mut self, rank: RankId, end: Position) -> Verdict {
        if let Some(vouched) = self.syncs.vouched.get(&rank).filter(|vouched| **vouched > end) {
            return Err(format!(
                "the journal of rank {} ends at {}, and a sync covered what is behind that, to {}",
                rank.0, end.0, vouched.0
            ));
        }
        let told = self.syncs.told.values_mut().chain(self.syncs.begun.values_mut()).flatten();
        told.filter(|told| told.rank == rank && told.end > end).for_each(|told| told.lost = true);
        Ok(())
    }

    /// Directories and inodes that a client was told of last.
    pub(in crate::ranks) fn told_last(&self, client: usize) -> Vec<Ino> {
        let told = self.syncs.told.get(&client).into_iter().flatten();
        told.rev().take(8).flat_map(|told| told.about.iter().copied()).collect()
    }

    /// How often what was covered: what there is a line for in the coverage.
    pub(in crate::ranks) fn synced(&self) -> [(&'static str, u64); 4] {
        let Syncs { covered, across, dirs, parted, .. } = &self.syncs;
        [
            ("changes and names covered by syncs", *covered),
            ("transactions of several ranks covered by syncs", *across),
            ("directories synced", *dirs),
            ("directories of several ranks synced", *parted),
        ]
    }
}

/// Names that an answer shows.
fn seen<'a>(request: &'a Request, outcome: &'a Outcome) -> Vec<Seen<'a>> {
    match (request, outcome) {
        (Request::Lookup { parent, name }, Ok(Reply::Attr(attr))) => {
            vec![Seen { dir: parent.ino, name: name.as_bytes(), ino: Some(attr.ino) }]
        }
        (Request::Lookup { parent, name }, Err(Errno::ENOENT)) => {
            vec![Seen { dir: parent.ino, name: name.as_bytes(), ino: None }]
        }
        (Request::ReadDir { dir, .. }, Ok(Reply::Entries { entries, .. })) => entries
            .iter()
            .map(|entry| Seen { dir: dir.ino, name: &entry.name, ino: Some(entry.ino) })
            .collect(),
        (every_request!(), _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::Records;
    use proto::ids::{SessionId, Tid};
    use proto::request::NewNode;
    use proto::{Attr, Cred, Name, NodeRef};
    use stdx::{Wall, hash::HashSeed};

    /// What broke: a file was made by one of its several names, which was there. It was opened, and cut, where its inode is; that is
    /// about no name, and a sync of the directory was to cover it.
    #[test]
    fn a_sync_of_a_directory_covers_no_file_that_was_opened_by_a_name_in_it() {
        let mut judge = Judge::new(HashSeed([7; 16]), Records::default(), Wall(0));
        let key = (RankId(0), SessionId(5), Tid(1));
        let (dir, file) = (NodeRef::bare(Ino(5000)), NodeRef::bare(Ino(6000)));
        let asked = |request| Asked { cred: Cred::ROOT, request, call: Some(1), guest: None };
        let attr = Attr { ino: file.ino, ..Attr::default() };
        judge.arrives(key, asked(Request::Open { node: file, flags: 514 }));
        judge.pending.get_mut(&key).expect("asked").executed = Some((Ok(Reply::Attr(attr)), Position(9)));
        let (new, name) = (NewNode { mode: 0o600, umask: 0, rdev: 0 }, Name::new(b"b").expect("a name"));
        let create = Request::Create { parent: dir, name, new, flags: 514 };
        judge.tells(0, &[key], &asked(create), &Ok(Reply::Created { attr, new: false }));
        let mut sync = |call, node| {
            let request = Request::Fsync { node, data_only: false };
            judge.sync_begins(0, call, &request);
            judge.sync_ends(call, &request, &Ok(Reply::Ok))
        };
        assert!(sync(2, dir).is_ok(), "no name of it was changed");
        assert!(sync(3, file).is_err(), "it is about the file");
    }
}
