//! Random operations, moves, crashes and lost caches against a plain tree of paths.
//!
//! Absent: several clients; they are the simulator's.

use super::limits::LIMITED;
use super::*;
use stdx::Prng;

/// What the tree has, by path: a directory, or a file by its number here.
type Tree = BTreeMap<String, Option<usize>>;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Play {
    c: Cluster,
    ranks: usize,
    tree: Tree,
    /// Bytes of each file that there ever was.
    files: Vec<Vec<u8>>,
    rng: Prng,
    guest: Option<Guest>,
    /// What the guest does, so that it changes nothing of what is done besides.
    dice: Prng,
    seen: Counts,
}

/// What happened.
#[derive(Debug, Default)]
struct Counts {
    /// Pins to a rank that were answered.
    moves: u32,
    /// Directories that came to another entry's part.
    crossed: u32,
    /// Times that rank 1 went.
    leaves: u32,
    /// Slots that were to move.
    slots: u32,
    spreads: u32,
    /// Directories that were compared, and had their content at another rank than the directory above.
    elsewhere: u32,
    /// Answers to the guest about what is inside, and outside; what it did itself.
    let_in: u32,
    kept_out: u32,
    guests_own: u32,
}

/// A session that is limited to a directory, at all ranks.
#[derive(Clone, Copy)]
struct Guest {
    limit: Ino,
    session: SessionId,
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

impl Play {
    fn pick(&mut self, is: impl Fn(&Option<usize>) -> bool) -> Option<String> {
        let all: Vec<String> =
            self.tree.iter().filter(|(_, what)| is(what)).map(|(path, _)| path.clone()).collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())].clone())
    }

    fn directory(&mut self) -> String {
        self.pick(Option::is_none).expect("the root is one")
    }

    /// A name in a directory of the tree, there or not.
    fn name(&mut self) -> String {
        let name = NAMES[self.rng.index(NAMES.len())];
        format!("{}/{name}", self.directory())
    }

    fn node(&mut self, path: &str) -> NodeRef {
        let mut at = root();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = node(&self.c.lookup(at, part).unwrap_or_else(|errno| panic!("{path}: {errno}")));
        }
        at
    }

    /// The directories above a path, and what it leads to.
    fn way(&mut self, path: &str) -> Vec<NodeRef> {
        let mut way = vec![root()];
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let at = way[way.len() - 1];
            way.push(node(&self.c.lookup(at, part).unwrap_or_else(|errno| panic!("{path}: {errno}"))));
        }
        way
    }

    /// Whether one of the names of what a path leads to is below the directory that the guest is limited to, or is that.
    fn is_inside(&mut self, path: &str, guest: Guest) -> bool {
        let what = self.tree.get(path).copied().flatten();
        let names: Vec<String> = match what {
            Some(_) => {
                let same = self.tree.iter().filter(|(_, of)| what == **of);
                same.map(|(path, _)| path.clone()).collect()
            }
            None => vec![path.to_owned()],
        };
        names.iter().any(|path| self.way(path).iter().any(|at| at.ino == guest.limit))
    }

    /// Somebody is limited to a directory of now.
    fn guest_comes(&mut self) -> Option<Guest> {
        let dirs = self.tree.iter().filter(|(path, what)| what.is_none() && !path.is_empty());
        let dirs: Vec<String> = dirs.map(|(path, _)| path.clone()).collect();
        if dirs.is_empty() {
            return None;
        }
        let path = dirs[self.dice.index(dirs.len())].clone();
        let (limit, mut session) = (self.node(&path).ino, SessionId(0));
        for at in 0..self.ranks {
            let greeting = (session, at > 0);
            let welcome = self.c.greets_limited(at, greeting, Bits::NONE, (Ino::NONE, limit));
            assert!(matches!(welcome, ServerMsg::Welcome { root, .. } if root == limit), "{welcome:?}");
            session = self.c.worlds[at].sessions[&LIMITED];
        }
        Some(Guest { limit, session })
    }

    fn guest_goes(&mut self) {
        if self.guest.take().is_some() {
            (0..self.ranks).for_each(|at| self.c.hold(at).say(LIMITED, ClientMsg::Goodbye));
            self.c.settle();
        }
    }

    /// The guest asks each rank for something by its number.
    fn guest(&mut self) {
        if self.dice.chance(1, 30) {
            self.guest_goes();
        }
        self.guest = self.guest.or_else(|| self.guest_comes());
        let Some(guest) = self.guest else { return };
        (0..self.ranks).for_each(|at| self.c.hold(at).say(LIMITED, ClientMsg::Renew { number: 1 }));
        let paths: Vec<String> = self.tree.keys().cloned().collect();
        let path = paths[self.dice.index(paths.len())].clone();
        let (inside, node) = (self.is_inside(&path, guest), self.node(&path));
        let is_dir = self.tree[&path].is_none();
        let looks = Request::Lookup { parent: node, name: n("none") };
        for request in [Some(Request::GetAttr { node }), is_dir.then_some(looks)].into_iter().flatten() {
            let mut answers = 0;
            for at in 0..self.ranks {
                match self.c.ask_limited(at, request.clone()) {
                    Answered::NotMine(_) => continue,
                    Answered::Outcome(Err(Errno::EACCES)) => assert!(!inside, "{path} is kept out"),
                    Answered::Outcome(Ok(_) | Err(Errno::ENOENT)) => assert!(inside, "{path} is let in"),
                    other @ Answered::Outcome(_) => panic!("{path}: {other:?}"),
                }
                answers += 1;
            }
            if answers == 0 {
                // It came from one to the other while they were asked.
                let outcome = self.c.call_limited(request);
                assert_eq!(matches!(outcome, Err(Errno::EACCES)), !inside, "{path}: {outcome:?}");
            }
            *(if inside { &mut self.seen.let_in } else { &mut self.seen.kept_out }) += answers;
        }
    }

    /// A rename, perhaps by the guest. What it may not do somebody else does.
    fn renames(&mut self, (from, to): (&str, &str), request: Request) -> Outcome {
        let guest = self.guest.filter(|_| self.dice.chance(1, 2));
        let Some(guest) = guest else { return self.c.call(0, request) };
        let inside = [from, to].iter().all(|path| self.is_inside(parent_of(path), guest));
        let outcome = self.c.call_limited(request.clone());
        if inside {
            self.seen.guests_own += 1;
            return outcome;
        }
        assert_eq!(outcome, Err(Errno::EACCES), "{from} to {to}");
        self.c.call(0, request)
    }

    fn crash(&mut self, rank: usize) {
        self.c.crash(rank);
        let Some(guest) = self.guest else { return };
        let greeting = (guest.session, false);
        let welcome = self.c.greets_limited(rank, greeting, Bits::NONE, (Ino::NONE, guest.limit));
        assert!(matches!(welcome, ServerMsg::Welcome { resumed: true, .. }), "{welcome:?}");
        self.c.hold(rank).say(LIMITED, ClientMsg::Reclaimed);
        self.c.settle();
    }

    fn has_below(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.tree.keys().any(|other| other.starts_with(&below))
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..=4 => self.make(false),
            5..=8 => self.make(true),
            9..=10 => self.write(),
            11..=12 => self.remove(),
            13..=15 | 24..=26 => self.rename(),
            27..=28 => self.link(),
            16..=19 => self.pin(),
            20 => {
                let rank = self.rng.index(self.ranks);
                self.c.drop_cache(rank);
            }
            21 => {
                let rank = self.rng.index(self.ranks);
                self.c.checkpoint(rank);
            }
            22 => {
                let rank = self.rng.index(self.ranks);
                self.crash(rank);
            }
            23 => self.mode(),
            38..=39 => self.spread(),
            29..=31 => self.times(),
            32..=35 => self.look(),
            36 if self.c.map.slots_used => self.move_slot(),
            36 if self.ranks == 2 => self.leave(),
            _ => self.tear(),
        }
    }

    fn spread(&mut self) {
        let path = self.directory();
        if !path.is_empty() {
            let (dir, depth) = (self.node(&path), 1 + self.rng.below(2) as u8);
            self.seen.spreads += u32::from(self.c.try_spread(dir, depth));
        }
    }

    /// What a directory shows of itself.
    fn look(&mut self) {
        let path = self.directory();
        let dir = self.node(&path);
        let below = format!("{path}/");
        let inside = |other: &&String| {
            other.strip_prefix(&below).is_some_and(|name| !name.is_empty() && !name.contains('/'))
        };
        let count = self.tree.keys().filter(inside).count();
        let subdirs = self.tree.iter().filter(|(path, what)| what.is_none() && inside(path)).count();
        let attr = self.c.stat(dir);
        assert_eq!((attr.size, attr.nlink as usize), (count as u64, subdirs + 2), "{path}");
    }

    fn times(&mut self) {
        let path = self.directory();
        let (dir, mtime) = (self.node(&path), Wall(self.rng.below(1_000_000) as i64));
        let set =
            proto::SetAttr { mtime: Some(proto::attr::SetTime::At(mtime)), ..proto::SetAttr::default() };
        let attr = self.c.attr(0, Request::SetAttr { node: dir, set }).expect("set");
        assert_eq!(attr.mtime, mtime);
        let again = self.c.stat(dir);
        assert_eq!((again.mtime, again.change), (mtime, attr.change), "{path}");
    }

    /// The coordinator wants the slot of a directory elsewhere; a rank that lives again lets it be for a while.
    fn move_slot(&mut self) {
        let path = self.directory();
        let dir = self.node(&path);
        if dir.ino != Ino::ROOT {
            self.c.move_slot(dir);
            self.seen.slots += 1;
        }
    }

    /// Rank 1 goes, and comes again.
    fn leave(&mut self) {
        self.guest_goes();
        self.c.come_to_rest();
        leaving::stop(&mut self.c);
        self.c.pass(2_000);
        let left = leaving::is_gone(&self.c);
        assert!(left, "{:?}: {:?}", self.c.map.entries, self.c.worlds[1].notes);
        assert!(self.c.map.entries.values().all(|entry| entry.rank == RankId(0)));
        self.compare();
        leaving::come_again(&mut self.c);
        self.seen.leaves += 1;
    }

    /// A connection between ranks breaks. One of the two notices first.
    fn tear(&mut self) {
        let from = self.rng.index(self.ranks);
        let to = (from + 1 + self.rng.index(self.ranks - 1)) % self.ranks;
        let Some(conn) = self.c.links.remove(&(from, to)) else { return };
        let rank = RankId(to as u16);
        let mut inputs = [(from, Input::RankGone { rank }), (to, Input::Disconnected { conn })];
        if self.rng.chance(1, 2) {
            inputs.reverse();
        }
        for (at, input) in inputs {
            self.c.inject(at, input);
            self.c.settle();
        }
    }

    fn make(&mut self, dir: bool) {
        let path = self.name();
        let parent = self.node(parent_of(&path));
        let name = n(name_of(&path));
        let new = mode(if dir { 0o755 } else { 0o100_644 });
        let request =
            if dir { Request::MkDir { parent, name, new } } else { Request::MkNod { parent, name, new } };
        let first = self.rng.index(self.ranks);
        let outcome = self.c.attr(first, request).map(|_| ());
        let expected = if self.tree.contains_key(&path) { Err(Errno::EEXIST) } else { Ok(()) };
        assert_eq!(outcome, expected, "{path}");
        if expected.is_ok() {
            self.files.extend((!dir).then(Vec::new));
            self.tree.insert(path, (!dir).then(|| self.files.len() - 1));
        }
    }

    fn write(&mut self) {
        let Some(path) = self.pick(Option::is_some) else { return };
        let file = self.node(&path);
        let bytes = vec![self.rng.below(256) as u8; 1 + self.rng.index(50)];
        let data = Payload::Owned(bytes.clone());
        let request = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
        assert!(self.c.call(0, request).is_ok(), "{path}");
        let known = &mut self.files[self.tree[&path].expect("a file")];
        known.resize(known.len().max(bytes.len()), 0);
        known[..bytes.len()].copy_from_slice(&bytes);
    }

    fn remove(&mut self) {
        let path = self.name();
        let parent = self.node(parent_of(&path));
        let name = n(name_of(&path));
        let expected = match self.tree.get(&path) {
            None => Err(Errno::ENOENT),
            Some(None) if self.has_below(&path) => Err(Errno::ENOTEMPTY),
            Some(_) => Ok(Reply::Ok),
        };
        let request = match self.tree.get(&path) {
            Some(None) => Request::RmDir { parent, name },
            _ => Request::Unlink { parent, name },
        };
        let first = self.rng.index(self.ranks);
        assert_eq!(self.c.call(first, request), expected, "{path}");
        if expected.is_ok() {
            self.tree.remove(&path);
        }
    }

    fn rename(&mut self) {
        let Some(from) = self.pick(|_| true).filter(|path| !path.is_empty()) else { return };
        let to = self.name();
        let (source, target) = (self.tree[&from], self.tree.get(&to).copied());
        let ends = [&from, &to].map(|path| (self.node(parent_of(path)), name_of(path)));
        let exchange = self.rng.chance(1, 4);
        let flags = if exchange { proto::request::rename_flags::EXCHANGE } else { 0 };
        let (parent, new_parent) = (ends[0].0, ends[1].0);
        let entries = self.c.map.entries.len();
        let (name, new_name) = (n(ends[0].1), n(ends[1].1));
        let request = Request::Rename { parent, name, new_parent, new_name, flags };
        let outcome = self.renames((&from, &to), request);
        self.seen.crossed += u32::from(self.c.map.entries.len() > entries);
        if exchange {
            return self.exchanged((&from, &to), outcome);
        }
        let below = to.starts_with(&format!("{from}/"));
        let expected = match (&source, &target) {
            (None, _) if below => Err(Errno::EINVAL),
            _ if from == to || (source.is_some() && Some(source) == target) => {
                return assert_eq!(outcome, Ok(Reply::Ok));
            }
            (Some(_), Some(None)) => Err(Errno::EISDIR),
            (None, Some(Some(_))) => Err(Errno::ENOTDIR),
            (None, Some(None)) if self.has_below(&to) => Err(Errno::ENOTEMPTY),
            _ => Ok(Reply::Ok),
        };
        assert_eq!(outcome, expected, "{from} to {to}");
        if expected.is_err() || from == to {
            return;
        }
        let inside = format!("{from}/");
        let moved: Vec<String> =
            self.tree.keys().filter(|path| **path == from || path.starts_with(&inside)).cloned().collect();
        for path in moved {
            let what = self.tree.remove(&path).expect("there");
            self.tree.insert(format!("{to}{}", &path[from.len()..]), what);
        }
    }

    fn exchanged(&mut self, (from, to): (&str, &str), outcome: Outcome) {
        let (source, target) = (self.tree[from], self.tree.get(to).copied());
        match (outcome, target) {
            (outcome, None) if source.is_some() => assert_eq!(outcome, Err(Errno::ENOENT), "{from}, {to}"),
            (outcome, None) => {
                assert!(matches!(outcome, Err(Errno::ENOENT | Errno::EINVAL)), "{from}, {to}: {outcome:?}");
            }
            (Err(Errno::EINVAL), _) => {
                let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                assert!(below(from, to) || below(to, from), "{from}, {to}");
            }
            (outcome, Some(_)) => {
                assert_eq!(outcome, Ok(Reply::Ok), "{from}, {to}");
                let swapped = |path: &String| {
                    let other = |a: &str, b: &str| {
                        let rest =
                            path.strip_prefix(a).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                        rest.map(|rest| format!("{b}{rest}"))
                    };
                    other(from, to).or_else(|| other(to, from)).unwrap_or_else(|| path.clone())
                };
                self.tree = self.tree.iter().map(|(path, what)| (swapped(path), *what)).collect();
            }
        }
    }

    fn link(&mut self) {
        let Some(from) = self.pick(Option::is_some) else { return };
        let (to, what) = (self.name(), self.tree[&from]);
        let (file, parent) = (self.node(&from), self.node(parent_of(&to)));
        let outcome = self.c.call(0, Request::Link { node: file, parent, name: n(name_of(&to)) });
        if self.tree.contains_key(&to) {
            return assert_eq!(outcome, Err(Errno::EEXIST), "{to}");
        }
        assert!(outcome.is_ok(), "{from} as {to}: {outcome:?}");
        self.tree.insert(to, what);
    }

    fn pin(&mut self) {
        let path = self.directory();
        let dir = self.node(&path);
        if self.rng.chance(1, 4) {
            match self.c.pin_as(dir, "-1") {
                Ok(Reply::Ok) => {
                    // One that it got when it was renamed stays.
                    let entry = self.c.map.entries.get(&Unit { dir: dir.ino, frag: Frag::WHOLE });
                    assert!(entry.is_none_or(|entry| entry.policy == Policy::Carved));
                    assert_eq!(self.c.pin_of(dir), Err(Errno::ENODATA));
                }
                Err(Errno::EINVAL) => assert_eq!(path, ""),
                Err(Errno::EBUSY) => {}
                // Slots would place it elsewhere.
                Err(Errno::EOPNOTSUPP) => assert!(self.c.map.hash_placement),
                other => panic!("{path} without a pin: {other:?}"),
            }
            return;
        }
        let rank = self.rng.index(self.ranks) as u16;
        let first = self.rng.index(self.ranks);
        match self.c.call(first, Cluster::pin_request(dir, rank)) {
            Ok(Reply::Ok) => {
                self.seen.moves += 1;
                assert_eq!((self.c.owner(dir), self.c.pin_of(dir)), (Some(rank), Ok(rank.to_string())));
            }
            // Root stays; and a rank that lives again is not active at once.
            Err(Errno::EINVAL) => assert_eq!(path, ""),
            Err(Errno::EBUSY) => {}
            other => panic!("{path} to rank {rank}: {other:?}"),
        }
    }

    fn mode(&mut self) {
        let path = self.directory();
        let dir = self.node(&path);
        let set = proto::SetAttr { mode: Some(0o700 + self.rng.below(64) as u32), ..Default::default() };
        let attr = self.c.attr(0, Request::SetAttr { node: dir, set }).expect("set");
        assert_eq!(Some(attr.mode & 0o777), set.mode);
        assert_eq!(self.c.stat(dir).mode & 0o777, attr.mode & 0o777);
    }

    fn dirs(&mut self) -> BTreeSet<Ino> {
        let paths: Vec<String> =
            self.tree.iter().filter(|(_, what)| what.is_none()).map(|(path, _)| path.clone()).collect();
        paths.iter().map(|path| self.node(path).ino).collect()
    }

    /// The whole tree, and what each directory says of itself.
    fn compare(&mut self) {
        let mut found = Tree::from([(String::new(), None)]);
        let mut inos: BTreeMap<Ino, usize> = BTreeMap::new();
        let mut todo = vec![(String::new(), root())];
        while let Some((path, dir)) = todo.pop() {
            let names = self.c.names(dir);
            assert_eq!(self.c.stat(dir).size, names.len() as u64, "entries of {path}");
            for name in names {
                let attr = self.c.lookup(dir, &name).unwrap_or_else(|errno| {
                    panic!(
                        "{path}/{name}: {errno}: {:?}",
                        self.c.worlds.iter().map(|world| &world.notes).collect::<Vec<_>>()
                    )
                });
                let (path, at) = (format!("{path}/{name}"), node(&attr));
                if attr.kind() == proto::FileKind::Directory {
                    self.seen.elsewhere += u32::from(self.c.content_of(at) != self.c.content_of(dir));
                    found.insert(path.clone(), None);
                    todo.push((path, at));
                    continue;
                }
                let len = attr.size as u32;
                let bytes = match self
                    .c
                    .call(0, Request::Read { node: at, offset: 0, len: len.max(1), into: None })
                {
                    Ok(Reply::Data(data)) => data.bytes()[..(len as usize).min(data.bytes().len())].to_vec(),
                    other => panic!("{path}: {other:?}"),
                };
                let what =
                    self.tree.get(&path).copied().flatten().unwrap_or_else(|| panic!("{path} is no file"));
                assert_eq!(bytes, self.files[what], "{path}");
                let names = self.tree.values().filter(|of| **of == Some(what)).count();
                assert_eq!(attr.nlink as usize, names, "names of {path}");
                assert_eq!(*inos.entry(attr.ino).or_insert(what), what, "{path}");
                found.insert(path, Some(what));
            }
        }
        assert_eq!(found, self.tree);
        self.c.pass(20);
        let dirs = self.dirs();
        let entries = self.c.map.entries.keys().filter(|unit| **unit != Unit::ROOT);
        let lost: Vec<&Unit> = entries.filter(|unit| !dirs.contains(&unit.dir)).collect();
        assert!(lost.is_empty(), "entries of directories that are gone: {lost:?}");
        for world in &self.c.worlds {
            assert!(world.rank.leads.is_idle(), "{:?}", world.notes);
            assert!(matches!(world.rank.state(), State::Active | State::Reconnect), "{:?}", world.notes);
        }
    }
}

fn play(ranks: u16, seeds: u64, slots: bool) -> Counts {
    let mut seen = Counts::default();
    for seed in 0..seeds {
        let tree = Tree::from([(String::new(), None)]);
        let mut play = Play {
            c: if slots { Cluster::with_slots() } else { Cluster::of(ranks) },
            ranks: usize::from(ranks),
            tree,
            files: Vec::new(),
            rng: Prng::new(seed),
            guest: None,
            dice: Prng::new(seed ^ 0x6775_6573_7400),
            seen,
        };
        for round in 0..12 {
            for _ in 0..15 {
                play.step();
                if play.dice.chance(1, 2) {
                    play.guest();
                }
            }
            play.compare();
            if round % 4 == 3 {
                (0..usize::from(ranks)).for_each(|rank| play.crash(rank));
                play.compare();
            }
        }
        seen = play.seen;
    }
    seen
}

/// What is demanded of every run.
fn check(seen: &Counts) {
    let often = seen.moves > 100 && seen.crossed > 10 && seen.spreads > 50 && seen.elsewhere > 500;
    assert!(often && seen.let_in > 500 && seen.kept_out > 500 && seen.guests_own > 50, "{seen:?}");
}

#[test]
fn whatever_moves_and_whoever_dies_the_tree_is_one() {
    let seen = play(2, 60, false);
    check(&seen);
    assert!(seen.leaves > 10, "{seen:?}");
}

#[test]
fn three_ranks_have_one_tree_as_well() {
    check(&play(3, 40, false));
}

#[test]
fn wherever_slots_place_it_the_tree_is_one() {
    let seen = play(2, 60, true);
    check(&seen);
    assert!(seen.slots > 20, "{seen:?}");
}
