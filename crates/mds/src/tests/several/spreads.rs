//! Spread directories: how they come to be, what everybody sees of them, and that nothing of them is lost.
//!
//! Absent: random ones beside everything else (`random.rs`).

use super::*;
use proto::request::rename_flags;

impl Cluster {
    /// The rank that has a directory's content as a whole.
    pub(super) fn content_of(&self, dir: NodeRef) -> usize {
        let is_own = |at: &usize| self.worlds[*at].rank.owner(dir.ino) == Some(RankId(*at as u16));
        (0..self.worlds.len()).find(is_own).unwrap_or(0)
    }

    /// Whoever has it spreads a directory; and the units go where they are to be.
    pub(super) fn spread(&mut self, dir: NodeRef, depth: u8) {
        let at = self.content_of(dir);
        self.inject(at, Input::Spread { dir: dir.ino, depth });
        self.settle();
        self.come_to_rest();
    }

    /// The same if it can be now; whether it is.
    pub(super) fn try_spread(&mut self, dir: NodeRef, depth: u8) -> bool {
        let at = self.content_of(dir);
        self.inject(at, Input::Spread { dir: dir.ino, depth });
        for _ in 0..50 {
            if self.worlds[at].rank.spreads.is_idle() {
                break;
            }
            self.pass(1);
        }
        self.worlds[at].rank.view.cache.spread(dir.ino).is_some()
    }

    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..3_000 {
            let moving = self.map.entries.values().any(|entry| entry.moving.is_some());
            if !moving && self.worlds.iter().all(|world| is_still(&world.rank)) {
                return;
            }
            self.pass(1);
        }
        panic!("it does not come to rest: {:?}", self.worlds[0].notes);
    }

    /// Who has which part.
    pub(super) fn units(&self, dir: NodeRef) -> Vec<(u8, u16)> {
        let of = |(unit, _): &(&Unit, &Entry)| unit.dir == dir.ino;
        self.map.entries.iter().filter(of).map(|(unit, entry)| (unit.frag.depth, entry.rank.0)).collect()
    }

    /// A directory of rank 0's with so many files and a directory in it, in two parts, one of them rank 1's.
    pub(super) fn with_spread(files: usize) -> (Self, NodeRef) {
        let mut c = Self::new();
        let dir = c.mkdir(root(), "d");
        for at in 0..files {
            c.create(dir, &format!("f{at}"));
        }
        c.mkdir(dir, "sub");
        c.spread(dir, 1);
        assert_eq!(c.units(dir), [(1, 1)], "{:?}", c.worlds[0].notes);
        (c, dir)
    }

    /// What `with_spread` has made in a directory is removed.
    pub(super) fn remove_all(&mut self, parent: NodeRef, files: usize) {
        for name in expected(files) {
            let name = n(&name);
            let request = match name.as_bytes() {
                b"sub" => Request::RmDir { parent, name },
                _ => Request::Unlink { parent, name },
            };
            assert_eq!(self.call(0, request), Ok(Reply::Ok));
        }
    }

    /// Whoever has all parts counts in each what is in it, by the names; directories have names that begin with `s` or `t`.
    fn assert_counted(&mut self, dir: NodeRef) {
        let size = self.stat(dir).size as usize;
        let spread = self.worlds[0].rank.view.cache.spread(dir.ino);
        let spread = spread.unwrap_or_else(|| panic!("it is not spread: {:?}", self.worlds[0].notes));
        let names = self.names(dir);
        for (number, frag) in spread.all() {
            let within = names
                .iter()
                .filter(|name| frag.covers(name_hash(&SEED, name.as_bytes())))
                .collect::<Vec<_>>();
            let subdirs = within.iter().filter(|name| name.starts_with(['s', 't'])).count();
            let cache = &self.worlds[0].rank.view.cache;
            let header = &cache.dir(cache.find_dir(number).expect("a unit")).header;
            assert_eq!((header.entries, header.subdirs), (within.len() as u64, subdirs as u64), "{frag:?}");
        }
        assert_eq!(size, names.len());
    }

    /// A directory of rank 0's with so many files, and a tenth as many directories in it.
    pub(super) fn with_large(files: usize) -> (Self, NodeRef) {
        let mut c = Self::new();
        let dir = c.mkdir(root(), "d");
        for at in 0..files {
            c.create(dir, &format!("f{at}"));
            if at % 10 == 0 {
                c.mkdir(dir, &format!("s{at}"));
            }
        }
        (c, dir)
    }

    /// A name in a directory that is in that part of two.
    pub(super) fn name_in(&self, half: u64, from: usize) -> String {
        let name = |at: usize| format!("x{at}");
        let names = (from..from + 64).map(name);
        let mut names = names.filter(|name| name_hash(&SEED, name.as_bytes()).0 >> 63 == half);
        names.next().expect("a name")
    }
}

fn is_still(rank: &Rank) -> bool {
    rank.moves.is_idle() && rank.spreads.is_idle()
}

/// Names that a directory with so many files has.
pub(super) fn expected(files: usize) -> Vec<String> {
    let mut names: Vec<String> = (0..files).map(|at| format!("f{at}")).collect();
    names.push("sub".into());
    names.sort();
    names
}

/// Who may act for anyone finds units by itself. Who may not could choose names of one hash.
#[test]
fn the_seed_of_hashes_is_told_once_to_whom_it_may_be() {
    for (peer, knows) in
        [(Peer::Trusted, true), (Peer::User(proto::Cred { uid: 1000, gid: 1000, groups: Vec::new() }), false)]
    {
        let mut c = Cluster::new();
        let dir = c.mkdir(root(), "d");
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
        c.greet(0, peer.clone(), Bits::NONE);
        let is_seed = |message: &ServerMsg| matches!(message, ServerMsg::Numbers { count: 0, .. });
        for round in 0..2 {
            let tid = c.start(0, REMOTE, Request::Lookup { parent: dir, name: n("x") });
            assert_eq!(c.wait(0, REMOTE, tid), NOT_MINE(1));
            assert_eq!(c.heard(0, is_seed).is_some(), knows && round == 0, "{peer:?}, {round}");
        }
    }
}

#[test]
fn everything_is_there_wherever_it_is() {
    let (mut c, dir) = Cluster::with_spread(20);
    assert_eq!(c.names(dir), expected(20));
    let attr = c.stat(dir);
    assert_eq!((attr.size, attr.nlink), (21, 3));
    for name in expected(20) {
        assert_eq!(c.lookup(dir, &name).map(|attr| attr.parent), Ok(dir.ino), "{name}");
    }
    assert_eq!(c.lookup(dir, "g"), Err(Errno::ENOENT));
}

/// Each part is served by its own rank, and by no other.
#[test]
fn each_rank_serves_its_part() {
    let (mut c, dir) = Cluster::with_spread(8);
    for half in [0, 1] {
        let name = c.name_in(half, 0);
        let request = Request::MkNod { parent: dir, name: n(&name), new: mode(0o100_644) };
        assert_eq!(c.ask(1 - half as usize, request.clone()), NOT_MINE(half as u16));
        assert!(matches!(c.ask(half as usize, request), Answered::Outcome(Ok(_))));
        assert!(c.lookup(dir, &name).is_ok());
    }
    let mut names = expected(8);
    names.extend([c.name_in(0, 0), c.name_in(1, 0)]);
    names.sort();
    assert_eq!(c.names(dir), names);
    assert_eq!(c.stat(dir).size, 11);
}

#[test]
fn nothing_is_lost_with_a_crash_or_a_cache() {
    let (mut c, dir) = Cluster::with_spread(20);
    let (low, high) = (c.name_in(0, 0), c.name_in(1, 0));
    c.create(dir, &low);
    c.create(dir, &high);
    let mut names = expected(20);
    names.extend([low, high]);
    names.sort();
    for at in [0, 1] {
        c.crash(at);
        assert_eq!(c.names(dir), names, "rank {at} died");
        c.drop_cache(at);
        assert_eq!(c.names(dir), names, "rank {at} forgot");
        assert_eq!(c.stat(dir).size, 23);
    }
    c.crash(0);
    c.crash(1);
    assert_eq!(c.names(dir), names);
    for name in names {
        assert!(c.lookup(dir, &name).is_ok(), "{name}");
    }
}

/// Died right behind the transaction that spreads it, nothing of it in the store.
#[test]
fn a_directory_that_is_just_spread_is_so_after_a_crash() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for at in 0..20 {
        c.create(dir, &format!("f{at}"));
    }
    c.mkdir(dir, "sub");
    c.deaf = true;
    c.inject(0, Input::Spread { dir: dir.ino, depth: 2 });
    c.settle();
    c.pass(5);
    c.deaf = false;
    c.crash(0);
    assert_eq!(c.units(dir), []);
    assert_eq!(c.names(dir), expected(20));
    assert_eq!(c.stat(dir).size, 21);
    c.drop_cache(0);
    assert_eq!(c.names(dir), expected(20));
    c.create(dir, "g");
    assert_eq!(c.stat(dir).size, 22);
    c.crash(0);
    assert!(c.lookup(dir, "g").is_ok());
    assert_eq!(c.stat(dir).size, 22);
}

#[test]
fn names_go_from_part_to_part() {
    let (mut c, dir) = Cluster::with_spread(4);
    let (low, high) = (c.name_in(0, 0), c.name_in(1, 0));
    let file = c.create(dir, &low);
    assert_eq!(c.rename((dir, &low), (dir, &high)), Ok(Reply::Ok));
    assert_eq!(c.lookup(dir, &low), Err(Errno::ENOENT));
    assert_eq!(c.lookup(dir, &high).map(|attr| attr.ino), Ok(file.ino));
    let other = c.create(dir, &low);
    let request = Request::Rename {
        parent: dir,
        name: n(&low),
        new_parent: dir,
        new_name: n(&high),
        flags: rename_flags::EXCHANGE,
    };
    assert_eq!(c.call(0, request), Ok(Reply::Ok));
    assert_eq!(c.lookup(dir, &low).map(|attr| attr.ino), Ok(file.ino));
    assert_eq!(c.lookup(dir, &high).map(|attr| attr.ino), Ok(other.ino));
    let link = Request::Link { node: file, parent: dir, name: n(&c.name_in(1, 64)) };
    assert!(c.call(0, link).is_ok());
    assert_eq!(c.stat(dir).size, 8);
    for (name, left) in [(low, 7), (high, 6), (c.name_in(1, 64), 5)] {
        assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n(&name) }), Ok(Reply::Ok), "{name}");
        assert_eq!(c.stat(dir).size, left);
    }
    for at in [0, 1] {
        c.crash(at);
    }
    assert_eq!(c.stat(dir).size, 5);
    assert_eq!(c.names(dir), expected(4));
}

#[test]
fn it_goes_when_it_is_empty() {
    let (mut c, dir) = Cluster::with_spread(4);
    let rmdir = |c: &mut Cluster| c.call(0, Request::RmDir { parent: root(), name: n("d") });
    assert_eq!(rmdir(&mut c), Err(Errno::ENOTEMPTY));
    c.remove_all(dir, 4);
    assert_eq!(rmdir(&mut c), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.lookup(root(), "d"), Err(Errno::ENOENT));
    c.come_to_rest();
    c.checkpoint(0);
    c.checkpoint(1);
    c.come_to_rest();
    c.pass(50);
    assert_eq!(c.units(dir), [], "its entries are gone");
    let store = &c.worlds[c.holder].store;
    let is_of = |key: &[u8]| key.starts_with(&dir.ino.0.to_be_bytes());
    assert!(!store.keys().any(|(_, key)| is_of(key)), "nothing of it is in the store");
    let again = c.mkdir(root(), "d");
    assert_eq!(c.stat(again).size, 0);
}

/// Its time is that of its last change wherever that is, or what was set since.
#[test]
fn its_time_is_that_of_its_last_change() {
    let (mut c, dir) = Cluster::with_spread(4);
    let set = |mtime| {
        let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(mtime)), ..Default::default() };
        Request::SetAttr { node: dir, set }
    };
    let old = Wall(7_000);
    assert_eq!(c.attr(0, set(old)).map(|attr| attr.mtime), Ok(old));
    assert_eq!(c.stat(dir).mtime, old);
    for half in [0, 1] {
        assert_eq!(c.attr(0, set(old)).map(|attr| attr.mtime), Ok(old));
        c.pass(3);
        let (name, before) = (c.name_in(half, 0), c.stat(dir).change);
        c.create(dir, &name);
        let attr = c.stat(dir);
        assert!(attr.mtime > old && attr.change > before, "a name came into part {half}");
    }
}

/// What is below inherits from the part that it is in, or goes its own way.
#[test]
fn what_is_below_is_served() {
    let (mut c, dir) = Cluster::with_spread(2);
    for half in [0, 1] {
        let sub = c.mkdir(dir, &c.name_in(half, 0));
        let file = c.create(sub, "deep");
        assert_eq!(c.stat(file).ino, file.ino);
        assert_eq!(
            c.call(0, Request::Parent { node: sub }).map(|reply| match reply {
                Reply::Node(node) => node.ino,
                other => panic!("{other:?}"),
            }),
            Ok(dir.ino)
        );
        assert_eq!(c.pin(sub, 1 - half as u16), Ok(Reply::Ok), "{:?}", c.worlds[half as usize].notes);
        c.create(sub, "deeper");
        assert_eq!(c.names(sub), ["deep", "deeper"]);
        assert_eq!(c.stat(sub).size, 2);
    }
    for at in [0, 1] {
        c.crash(at);
        c.drop_cache(at);
    }
    for half in [0, 1] {
        let sub = node(&c.lookup(dir, &c.name_in(half, 0)).expect("it is there"));
        assert_eq!(c.names(sub), ["deep", "deeper"]);
    }
}

/// It is moved as a whole: parts that have no entry go with it.
#[test]
fn a_spread_directory_moves() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    for at in 0..20 {
        c.create(dir, &format!("f{at}"));
    }
    c.mkdir(dir, "sub");
    c.spread(dir, 2);
    assert_eq!(c.units(dir), [(2, 1), (2, 2)], "{:?}", c.worlds[0].notes);
    assert_eq!(c.pin(dir, 2), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.owner(dir), Some(2));
    assert_eq!(c.names(dir), expected(20));
    c.create(dir, "g");
    for at in 0..3 {
        c.crash(at);
        c.drop_cache(at);
    }
    assert_eq!(c.stat(dir).size, 22);
    assert!(c.lookup(dir, "g").is_ok());
    for name in expected(20) {
        assert!(c.lookup(dir, &name).is_ok(), "{name}");
    }
}

/// A directory that slots place is spread when it has become large.
#[test]
fn it_is_spread_when_it_grows() {
    let mut c = Cluster::with_slots();
    let dir = c.mkdir(root(), "d");
    let at = usize::from(c.slot_owner(dir));
    assert_eq!(c.units(dir), []);
    let size = c.worlds[at].config.split_size as usize;
    assert!(size < 64, "that of tests is small");
    for number in 0..=size + 1 {
        c.create(dir, &format!("f{number}"));
    }
    c.come_to_rest();
    let units = c.units(dir);
    assert_eq!(units.len(), 4, "half of eight: {units:?}, {:?}", c.worlds[at].notes);
    assert!(units.iter().all(|(depth, rank)| *depth == 3 && usize::from(*rank) == 1 - at), "{units:?}");
    assert_eq!(c.stat(dir).size as usize, size + 2);
    assert_eq!(c.names(dir).len(), size + 2);
}

/// What broke (a directory was spread just after its rank had begun to live): as long as sessions of before are awaited nothing moves, and
/// what was refused then nobody asked for again.
#[test]
fn parts_that_cannot_go_yet_go_later() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    (0..8).for_each(|at| _ = c.create(dir, &format!("f{at}")));
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    let tid = c.start(0, REMOTE, Request::GetAttr { node: dir });
    assert!(c.heard(0, |m| matches!(m, ServerMsg::Granted { tid: of, .. } if *of == tid)).is_some());
    let session = c.worlds[0].sessions[&REMOTE];
    c.crash(0);
    // It comes back, and does not say what it has given up of what it was granted.
    let world = c.hold(0);
    let welcome = world.hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(REMOTE, ClientMsg::Reclaimed);
    c.settle();
    assert_eq!(c.lookup(root(), "d").map(|attr| attr.ino), Ok(dir.ino));
    c.lookup(dir, "f0").expect("there");
    c.inject(0, Input::Spread { dir: dir.ino, depth: 2 });
    c.pass(30_000);
    let rank = &c.worlds[0].rank;
    assert_eq!(c.units(dir), [(2, 1), (2, 1)], "{:?} {:?}", rank.spreads, c.worlds[0].notes);
    let refused = c.worlds[0].notes.iter().filter(|note| note.contains("does not move")).count();
    assert!((2..=8).contains(&refused), "{:?}", c.worlds[0].notes);
    // What went is not asked for any more, and nobody is woken for it.
    assert_eq!(c.worlds[0].rank.spreads.due(), None);
    assert_eq!(c.names(dir).len(), 8);
}

/// One rank alone would gain nothing: there it stays in one part, however large.
#[test]
fn it_is_not_spread_for_one_rank() {
    let mut c = Cluster::with_slots();
    c.map.max_mds = 1;
    c.publish();
    c.settle();
    let dirs: Vec<NodeRef> = (0..20).map(|at| c.mkdir(root(), &format!("d{at}"))).collect();
    let dir = *dirs.iter().find(|dir| c.slot_owner(**dir) == 0).expect("one of rank 0's");
    let size = c.worlds[0].config.split_size as usize;
    for number in 0..2 * size {
        c.create(dir, &format!("f{number}"));
    }
    assert!(c.worlds[0].rank.spreads.is_idle());
    assert_eq!((c.units(dir), c.stat(dir).size as usize), (vec![], 2 * size));
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_none());
}

/// What broke: a rank that stops did nothing about a directory that it was about to spread, and wanted to be woken for it
/// again and again.
#[test]
fn a_rank_that_stops_is_not_woken_for_it() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.hold(0).say(REMOTE, ClientMsg::Settled);
    let get = c.start(0, REMOTE, Request::GetAttr { node: dir });
    assert!(matches!(c.wait(0, REMOTE, get), Answered::Outcome(Ok(_))));
    c.inject(0, Input::Spread { dir: dir.ino, depth: 1 });
    assert!(c.worlds[0].rank.spreading_due().is_some(), "the client has not given it back");
    c.worlds[0].rank.state = State::Stopping;
    assert_eq!(c.worlds[0].rank.spreading_due(), None);
}

/// Who lists it meanwhile misses nothing and sees nothing twice: cookies stay what they are.
#[test]
fn a_listing_goes_on_while_it_is_spread() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for at in 0..30 {
        c.create(dir, &format!("f{at}"));
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), 0, 0);
    loop {
        match c.call(0, Request::ReadDir { dir, after, attrs: false, bytes_max: 200 }) {
            Ok(Reply::Entries { entries, end }) => {
                after = entries.last().map_or(after, |entry| entry.hash.cookie());
                seen.extend(entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
                if end {
                    break;
                }
            }
            Ok(Reply::Further(further)) => after = further,
            other => panic!("{other:?}"),
        }
        pages += 1;
        if pages == 2 {
            c.spread(dir, 2);
        }
    }
    seen.sort();
    let mut names: Vec<String> = (0..30).map(|at| format!("f{at}")).collect();
    names.sort();
    assert_eq!(seen, names);
}

/// What a client keeps of it comes back before.
#[test]
fn what_is_kept_of_it_comes_back_first() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    let tid = c.start(0, REMOTE, Request::Lookup { parent: root(), name: n("d") });
    c.pass(5);
    assert!(
        c.heard(0, |message| matches!(message, ServerMsg::Granted { tid: of, .. } if *of == tid)).is_some()
    );
    c.inject(0, Input::Spread { dir: dir.ino, depth: 1 });
    c.settle();
    let Some(ServerMsg::Recall { list }) = c.heard(0, |message| matches!(message, ServerMsg::Recall { .. }))
    else {
        panic!("nothing is recalled");
    };
    c.pass(5);
    assert_eq!(c.worlds[0].rank.view.cache.spread(dir.ino), None, "it is still kept");
    let list = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
    c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
    c.come_to_rest();
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_some());
}

/// Its names come into the cache unit by unit, also where nobody knows yet that it is spread: those that are another rank's do not. They
/// came once, before the header did, and stayed.
#[test]
fn it_is_warmed() {
    let (mut c, dir) = Cluster::with_spread(20);
    let others = c.name_in(1, 0);
    let others = c.create(dir, &others);
    c.checkpoint(1);
    c.drop_cache(0);
    assert!(c.lookup(root(), "d").is_ok());
    c.inject(0, Input::Warmup { dir: Some(dir.ino) });
    for _ in 0..200 {
        c.pass(1);
    }
    let own = expected(20).into_iter().filter(|name| name_hash(&SEED, name.as_bytes()).0 >> 63 == 0).count();
    let status = c.worlds[0].rank.warm.status();
    assert_eq!((status.names as usize, status.left_out, status.waiting), (own, 0, 0), "{status:?}");
    assert_eq!(c.worlds[0].rank.view.cache.by_ino(others.ino), None);
    assert_eq!(c.names(dir).len(), expected(20).len() + 1);
    assert_eq!(c.stat(dir).size, 22);
}

/// A part is not given away while another rank has reserved a name in it.
#[test]
fn a_part_with_a_reserved_name_stays() {
    let (mut c, dir) = Cluster::with_spread(4);
    let other = c.mkdir(root(), "other");
    let high = c.name_in(1, 0);
    let file = c.create(dir, &high);
    // Rank 0 leads, rank 1 has the old name: its vote comes, and what is decided does not.
    let parent = dir;
    let request =
        Request::Rename { parent, name: n(&high), new_parent: other, new_name: n("there"), flags: 0 };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, request);
    for _ in 0..100 {
        if !c.worlds[1].rank.view.transactions.is_free() {
            break;
        }
        c.deliver_one(0);
        c.deliver_one(1);
    }
    assert!(!c.worlds[1].rank.view.transactions.is_free(), "rank 1 has reserved it");
    let number = c.worlds[1].rank.view.cache.spread(dir.ino).expect("it is known").unit(1).0;
    c.inject(1, Input::Move { dir: number, to: RankId(0) });
    for _ in 0..150 {
        c.hold(1).pass(1);
        while let Some(wish) = c.worlds[1].wishes.pop_front() {
            c.grant(1, wish);
        }
    }
    assert_eq!(c.units(dir), [(1, 1)], "it is still there");
    // Sealed, it waited for that as long as is allowed.
    let notes = &c.worlds[1].notes;
    assert!(notes.iter().any(|note| note.contains("for 100 ms: requests that are under way")), "{notes:?}");
    c.settle();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    c.come_to_rest();
    assert_eq!(c.lookup(other, "there").map(|attr| attr.ino), Ok(file.ino));
    assert_eq!(c.names(dir), expected(4));
}

/// What broke: a rename that is planned as far as its votes withholds the directory. The rank with the other part dies and
/// needs a replica of it before it can say again what it has.
#[test]
fn a_part_whose_rank_dies_gets_its_replica() {
    let (mut c, dir) = Cluster::with_spread(4);
    let (low, high) = (c.name_in(0, 0), c.name_in(1, 0));
    let (other, file) = (c.create(dir, &low), c.create(dir, &high));
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.hold(0).say(REMOTE, ClientMsg::Settled);
    let lookup = c.start(0, REMOTE, Request::Lookup { parent: dir, name: n(&low) });
    assert!(matches!(c.wait(0, REMOTE, lookup), Answered::Outcome(Ok(_))));
    let flags = rename_flags::EXCHANGE;
    let request = Request::Rename { parent: dir, name: n(&high), new_parent: dir, new_name: n(&low), flags };
    let tid = c.start(0, EMBEDDED, request);
    c.settle();
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "a client keeps what is exchanged");
    let Some(ServerMsg::Recall { list }) = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) else {
        panic!("nothing is recalled")
    };
    c.crash(1);
    let returned = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
    c.hold(0).say(REMOTE, ClientMsg::Returned { list: returned });
    c.settle();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(c.lookup(dir, &low).map(|attr| attr.ino), Ok(file.ino));
    assert_eq!(c.lookup(dir, &high).map(|attr| attr.ino), Ok(other.ino));
}

/// What the journal's tail says of a part counts, also before anybody has looked how its directory is spread.
#[test]
fn a_name_that_is_gone_stays_gone_with_a_crash() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for at in 0..8 {
        c.create(dir, &format!("f{at}"));
    }
    let (gone, kept) = (c.create(dir, "gone"), c.create(dir, "kept"));
    c.deaf = true;
    c.inject(0, Input::Spread { dir: dir.ino, depth: 1 });
    c.settle();
    c.pass(5);
    c.checkpoint(0);
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("gone") }), Ok(Reply::Ok));
    c.crash(0);
    assert_eq!(c.call(0, Request::GetAttr { node: gone }), Err(Errno::ESTALE));
    assert_eq!(c.stat(kept).ino, kept.ino);
    assert_eq!(c.lookup(dir, "gone"), Err(Errno::ENOENT));
    assert_eq!(c.stat(dir).size, 9);
}

/// What broke: the store never heard where a directory is whose unit was not sealed.
#[test]
fn the_seal_of_a_spread_directory_takes_no_places_of_its_units() {
    use crate::cache::Source;
    use proto::header::Spreading;
    use proto::mutation::Mutation;
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d").ino;
    let unit = Unit { dir, frag: Frag { prefix: 1 << 63, depth: 1 } };
    let spreading = Some(Box::new(Spreading::Unit(unit)));
    let (mut header, mut w) = (Writer::new(), Writer::new());
    FragHeader { version: Version(9), spreading, ..Default::default() }.encode(&mut header);
    let number = Ino(1 << 63 | 77);
    let newborn = Mutation::PutHeader {
        dir: number,
        frag: Frag::WHOLE,
        version: Version(9),
        newborn: false,
        header: &header.0,
    };
    newborn.encode(&mut w);
    let (ino, hash) = (Ino(9_000), NameHash(1 << 63 | 5));
    Mutation::PutBackptr { ino, version: 1, parent: dir, hash, name: b"x" }.encode(&mut w);
    Mutation::Sealed { id: MoveId(1), unit: Unit { dir, frag: Frag::WHOLE } }.encode(&mut w);
    let rank = &mut c.hold(0).rank;
    crate::apply::apply(&mut rank.view, &mut rank.sessions, &w.0, Source::Replay).expect("a journal");
    assert!(rank.view.backptrs.contains_key(&ino), "it is in a unit that was not sealed");
}

/// However many names it has, few are handed to its parts in one step, and none is counted that is not there.
#[test]
fn a_large_directory_is_spread() {
    for kept in [true, false] {
        let (mut c, dir) = Cluster::with_large(200);
        let few = c.worlds[0].config.limits.spread_names;
        assert!(few < 20, "that of tests is small");
        if !kept {
            c.drop_cache(0);
            // Some the cache has all the same, and one of them the store does not have.
            (0..5).for_each(|at| assert!(c.lookup(dir, &format!("f{at}")).is_ok()));
            c.create(dir, "g");
            assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f9") }), Ok(Reply::Ok));
        }
        c.deaf = true;
        assert!(c.try_spread(dir, 2), "{:?}", c.worlds[0].notes);
        let cache = &c.worlds[0].rank.view.cache;
        let spread = cache.spread(dir.ino).expect("it is spread");
        let cached = spread.all().map(|(number, _)| cache.find_dir(number).expect("a unit"));
        let cached: u32 = cached.map(|slot| cache.dir(slot).table.len()).sum();
        assert!(cached <= few, "{cached} names were handed over");
        c.assert_counted(dir);
        assert_eq!(c.names(dir).len(), 220);
        c.crash(0);
        c.assert_counted(dir);
    }
}

/// While its names are counted others come, go, and change the part that they are in. It is served meanwhile.
#[test]
fn names_change_while_they_are_counted() {
    for kept in [true, false] {
        let (mut c, dir) = Cluster::with_large(200);
        if !kept {
            c.drop_cache(0);
        }
        c.deaf = true;
        c.hold(0).inbox.push_back(Input::Spread { dir: dir.ino, depth: 2 });
        let (mut at, mut tids) = (0, Vec::new());
        while at == 0 || !c.worlds[0].rank.spreads.is_idle() {
            let name = |kind: &str| n(&format!("{kind}{at}"));
            let parent = dir;
            let request = match at % 5 {
                0 => Request::RmDir { parent, name: name("s") },
                1 => Request::MkNod { parent, name: name("g"), new: mode(0o100_644) },
                2 => Request::Unlink { parent, name: name("f") },
                3 => Request::MkDir { parent, name: name("t"), new: mode(0o755) },
                _ => Request::Rename {
                    parent,
                    name: name("f"),
                    new_parent: dir,
                    new_name: name("h"),
                    flags: 0,
                },
            };
            if at < 100 {
                tids.push(c.hold(0).queue(EMBEDDED, Cred::ROOT, request));
            }
            for _ in 0..2 {
                c.hold(0).one_step();
            }
            c.hold(0).now += MS / 20;
            at += 1;
            assert!(at < 10_000, "it does not come to an end: {:?}", c.worlds[0].notes);
        }
        assert!(at > 20, "it was served while it was counted: {at}");
        for tid in tids {
            c.wait(0, EMBEDDED, tid);
        }
        let again = c.worlds[0].notes.iter().find(|note| note.contains("counted anew"));
        assert_eq!(again, None, "what changed was counted as it did");
        c.assert_counted(dir);
        c.crash(0);
        c.assert_counted(dir);
    }
}

/// A directory of which something cannot be read stays in one part, and is served as well as before.
#[test]
fn what_cannot_be_counted_is_not_spread() {
    let (mut c, dir) = Cluster::with_large(20);
    c.drop_cache(0);
    let key =
        |key: &Vec<u8>| key.starts_with(&dir.ino.0.to_be_bytes()) && key.windows(2).any(|part| part == b"f7");
    let store = &mut c.hold(0).store;
    let damaged: Vec<_> = store.keys().filter(|(_, at)| key(at)).cloned().collect();
    assert_eq!(damaged.len(), 1);
    store.insert(damaged[0].clone(), vec![77]);
    c.inject(0, Input::Spread { dir: dir.ino, depth: 1 });
    c.come_to_rest();
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_none());
    let said = |notes: &[String]| notes.iter().any(|note| note.contains("its names cannot be read"));
    assert!(said(&c.worlds[0].notes), "{:?}", c.worlds[0].notes);
    assert!(c.lookup(dir, "f8").is_ok());
}

/// What broke: a directory was gone, and entries of its parts were there yet. Who followed a hint into it was told that what he
/// looked for was gone, too.
#[test]
fn a_hint_into_what_is_gone_leads_nowhere() {
    let mut c = Cluster::new();
    let sub = c.mkdir(root(), "sub");
    c.checkpoint(0);
    let gone = Ino(9_999);
    for (prefix, rank) in [(0, 0), (1 << 63, 1)] {
        let unit = Unit { dir: gone, frag: proto::Frag { prefix, depth: 1 } };
        let entry =
            Entry { rank: RankId(rank), version: c.map.version + 1, policy: Policy::Spread, moving: None };
        Arc::make_mut(&mut c.map.entries).insert(unit, entry);
    }
    c.publish();
    c.drop_cache(0);
    let hint = NodeRef { ino: sub.ino, parent: gone, hash: NameHash(77) };
    assert_eq!(c.attr(0, Request::GetAttr { node: hint }).map(|attr| attr.ino), Ok(sub.ino));
    // Who asks in it hears so from whoever has the name's part, and is not sent to and fro.
    let lookup = |name: &str| Request::Lookup { parent: NodeRef::bare(gone), name: n(name) };
    for at in [0, 1] {
        let name = c.name_in(at as u64, 0);
        assert_eq!(c.ask(at, lookup(&name)), Answered::Outcome(Err(Errno::ESTALE)));
    }
}

/// The same where the rank has all entries: it sent who asked to nobody, and the map sent him back, for ever.
#[test]
fn what_is_gone_is_gone_where_all_its_parts_are() {
    let mut c = Cluster::new();
    let gone = Ino(9_999);
    let unit = Unit { dir: gone, frag: Frag { prefix: 1 << 63, depth: 1 } };
    let version = c.map.version + 1;
    let entry = Entry { rank: RankId(0), version, policy: Policy::Spread, moving: None };
    Arc::make_mut(&mut c.map.entries).insert(unit, entry);
    c.publish();
    c.drop_cache(0);
    for half in [0, 1] {
        let name = c.name_in(half, 0);
        let lookup = Request::Lookup { parent: NodeRef::bare(gone), name: n(&name) };
        assert_eq!(c.ask(0, lookup), Answered::Outcome(Err(Errno::ESTALE)));
    }
}

/// What broke: the entry of a part of what is gone was to move, and was neither moved nor given up. Nothing else of that rank was moved.
#[test]
fn a_part_of_what_is_gone_does_not_move_for_ever() {
    let mut c = Cluster::new();
    let unit = Unit { dir: Ino(9_999), frag: Frag { prefix: 0, depth: 1 } };
    let version = c.map.version + 1;
    let entry = Entry { rank: RankId(0), version, policy: Policy::Spread, moving: None };
    Arc::make_mut(&mut c.map.entries).insert(unit, entry);
    c.publish();
    c.announce(unit, RankId(1));
    c.pass(50);
    assert_eq!(c.map.entries.get(&unit), None, "{:?}", c.worlds[0].notes);
}

/// What broke: the mask excluded the rank, and one part went while the next one came, without end.
#[test]
pub(super) fn what_is_to_end_is_gathered_outside_of_the_mask() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    c.spread(dir, 2);
    assert_eq!(c.units(dir), [(2, 1), (2, 2)], "{:?}", c.worlds[0].notes);
    c.masked = Some(RankId(0));
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.come_to_rest();
    assert_eq!(c.units(dir), []);
}

/// What broke: the directory's own table is empty when its parts have the names. So it left the cache while a file was open in one of them,
/// nothing said any more where that file was, and a move took it out of the cache.
#[test]
fn what_is_open_in_a_part_keeps_its_directory_cached() {
    let (mut c, dir) = Cluster::with_spread(8);
    let name = c.name_in(0, 0);
    let file = c.create(dir, &name);
    c.greet(0, Peer::Trusted, Bits::NONE);
    let tid = c.start(0, REMOTE, Request::Open { node: file, flags: 2 });
    assert!(matches!(c.wait(0, REMOTE, tid), Answered::Outcome(Ok(_))));
    (0..4).for_each(|_| c.drop_cache(0));
    let cache = &c.worlds[0].rank.view.cache;
    assert!(cache.by_ino(file.ino).is_some(), "it is open");
    assert!(cache.by_ino(dir.ino).is_some(), "what is above it says where it is");
}

/// An empty directory leaves the cache while what was told of it comes back, and another rank's question has its header loaded again.
#[test]
fn what_left_the_cache_is_spread_with_its_header() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "its content is rank 1's, its inode rank 0's");
    for _ in 0..10 {
        c.create(dir, "f");
        assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    }
    for at in [1, 1, 1, 0] {
        c.drop_cache(at);
    }
    c.stat(dir);
    let version = |c: &Cluster| {
        let cache = &c.worlds[1].rank.view.cache;
        let slot = cache.find_dir(dir.ino).filter(|slot| cache.dir(*slot).has(crate::cache::dir::HEADER));
        slot.map(|slot| cache.dir(slot).header.version)
    };
    let before = version(&c).expect("its header");
    c.deaf = true;
    c.hold(1).hold_loads = true;
    c.inject(1, Input::Spread { dir: dir.ino, depth: 1 });
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(5))), ..Default::default() };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: dir, set });
    let page = c.hold(1).held.pop_front().expect("a page of names");
    c.inject(1, page);
    assert_eq!(c.worlds[1].rank.view.cache.find_dir(dir.ino), None);
    c.settle();
    c.hold(1).let_go();
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    c.pass(5);
    c.deaf = false;
    c.checkpoint(1);
    let stored = c.hold(1).store[&key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE })].clone();
    let header = FragHeader::decode(&stored).expect("a header");
    assert!(header.spread().is_some(), "{:?}", c.worlds[1].notes);
    assert!(header.version > before, "{:?}", header.version);
}

/// Its time was set while a checkpoint ran that had not come to it, and its parts counted as known in full.
#[test]
fn one_that_changes_in_a_checkpoint_has_all_its_names() {
    // So few that they stay in the cache.
    let (mut c, dir) = Cluster::with_large(5);
    c.checkpoint(0);
    let other = c.mkdir(root(), "other");
    for at in 0..100 {
        c.create(other, &format!("o{at}"));
    }
    c.deaf = true;
    assert!(c.try_spread(dir, 2), "{:?}", c.worlds[0].notes);
    c.hold(0).hold_stores = true;
    c.inject(0, Input::DropCache);
    c.inject(0, Input::Checkpoint);
    let known = |c: &Cluster| {
        let cache = &c.worlds[0].rank.view.cache;
        let all = cache.spread(dir.ino).expect("it is spread").all();
        let units = all.filter_map(|(number, _)| cache.find_dir(number));
        units.map(|unit| cache.dir(unit).has(crate::cache::dir::COMPLETE)).collect::<Vec<_>>()
    };
    let before = known(&c);
    let cache = &c.worlds[0].rank.view.cache;
    let top = cache.dir(cache.find_dir(dir.ino).expect("cached"));
    assert!(cache.checkpointing && top.has(crate::cache::dir::QUEUED) && top.queued != cache.round);
    assert!(before.contains(&false), "names have left the cache");
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(5))), ..Default::default() };
    assert!(c.call(0, Request::SetAttr { node: dir, set }).is_ok());
    assert_eq!(known(&c), before);
    c.hold(0).let_go();
    c.settle();
    assert!((0..5).all(|at| c.lookup(dir, &format!("f{at}")).is_ok()));
    assert_eq!(c.names(dir).len(), 6);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_units_are_caught() {
    let defects: [(&str, fn()); 17] = [
        ("mds_parts_lead_on", what_is_gone_is_gone_where_all_its_parts_are),
        ("mds_parts_known_in_full", one_that_changes_in_a_checkpoint_has_all_its_names),
        ("mds_spread_without_header", what_left_the_cache_is_spread_with_its_header),
        ("mds_units_alone", what_is_open_in_a_part_keeps_its_directory_cached),
        ("mds_gone_keeps_entries", a_part_of_what_is_gone_does_not_move_for_ever),
        ("mds_units_asked_once", parts_that_cannot_go_yet_go_later),
        ("mds_seed_not_told", the_seed_of_hashes_is_told_once_to_whom_it_may_be),
        ("mds_tally_counts_twice", a_large_directory_is_spread),
        ("mds_tally_frozen", names_change_while_they_are_counted),
        ("mds_spread_hands_out_many", a_large_directory_is_spread),
        ("mds_withheld_while_anew", a_part_whose_rank_dies_gets_its_replica),
        ("mds_seal_takes_units_places", the_seal_of_a_spread_directory_takes_no_places_of_its_units),
        ("mds_unit_of_nothing", a_name_that_is_gone_stays_gone_with_a_crash),
        ("mds_spread_keeps_grants", what_is_kept_of_it_comes_back_first),
        ("mds_units_time_unseen", its_time_is_that_of_its_last_change),
        ("mds_reserved_unit_moves", a_part_with_a_reserved_name_stays),
        ("mds_units_outlive_directory", it_goes_when_it_is_empty),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
