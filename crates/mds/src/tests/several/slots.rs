//! Directories that slots place: made at one rank, and filled at another.
//!
//! Absent: which slots go where (the coordinator's).

use super::*;
use proto::cluster::Slot;

impl Cluster {
    /// Every other slot is rank 1's, and what is made from now on is placed by them.
    pub(super) fn with_slots() -> Self {
        Self::with_slots_of(2)
    }

    /// The same with so many ranks.
    pub(super) fn with_slots_of(ranks: u16) -> Self {
        let mut c = Self::of(ranks);
        c.spread_slots(2);
        c
    }

    /// Every slot that is no multiple of that is rank 1's.
    fn spread_slots(&mut self, step: u16) {
        (self.map.hash_placement, self.map.slots_used) = (true, true);
        let slots = Arc::make_mut(&mut self.map.slots);
        slots.set(
            0..proto::cluster::SLOTS,
            Slot { rank: RankId(0), version: self.map.version + 1, moving: None },
        );
        for at in (0..proto::cluster::SLOTS).filter(|at| at % step != 0) {
            slots.set(at..at + 1, Slot { rank: RankId(1), version: self.map.version + 1, moving: None });
        }
        self.publish();
        self.settle();
    }

    pub(super) fn slot_owner(&self, dir: NodeRef) -> u16 {
        self.map.slots.get(ClusterMap::slot_of(dir.ino, Frag::WHOLE)).rank.0
    }

    /// The coordinator wants slots elsewhere.
    pub(super) fn slots_begin(&mut self, run: std::ops::Range<u16>, to: u16) {
        let (rank, version) = (self.map.slots.get(run.start).rank, self.map.version + 1);
        self.map.last_move = MoveId(self.map.last_move.0 + 1);
        let moving = Some(Moving { id: self.map.last_move, to: RankId(to) });
        Arc::make_mut(&mut self.map.slots).set(run, Slot { rank, version, moving });
        self.publish();
    }

    pub(super) fn slots_end(&mut self, id: MoveId, switched: bool) {
        let of = |slot: &Slot| slot.moving.filter(|moving| moving.id == id);
        let Some((run, slot)) = self.map.slots.runs().find(|(_, slot)| of(slot).is_some()) else { return };
        let rank = of(&slot).filter(|_| switched).map_or(slot.rank, |moving| moving.to);
        let slot = Slot { rank, version: self.map.version + 1, moving: None };
        Arc::make_mut(&mut self.map.slots).set(run, slot);
    }

    fn moving_slots(&self) -> usize {
        self.map.slots.runs().filter(|(_, slot)| slot.moving.is_some()).count()
    }

    /// The slot's directory goes to the other rank, with its neighbours.
    pub(super) fn move_slot(&mut self, dir: NodeRef) -> u16 {
        let number = ClusterMap::slot_of(dir.ino, Frag::WHOLE);
        let to = 1 - self.map.slots.get(number).rank.0;
        self.slots_begin(number..number + 1, to);
        for _ in 0..5_000 {
            if self.moving_slots() == 0 {
                break;
            }
            self.pass(1);
        }
        self.map.slots.get(number).rank.0
    }

    /// A new directory whose slot is that rank's; others are made beside it.
    pub(super) fn dir_at(&mut self, parent: NodeRef, rank: u16) -> NodeRef {
        let first = self.names(parent).len();
        for at in first..first + 64 {
            let dir = self.mkdir(parent, &format!("d{at}"));
            if self.slot_owner(dir) == rank {
                return dir;
            }
        }
        panic!("no slot of rank {rank}");
    }
}

#[test]
fn a_directory_is_where_its_slot_says() {
    let mut c = Cluster::with_slots();
    let mut seen = [0; 2];
    for at in 0..20 {
        let dir = c.mkdir(root(), &format!("d{at}"));
        let owner = c.slot_owner(dir);
        seen[usize::from(owner)] += 1;
        let lookup = || Request::Lookup { parent: dir, name: n("f") };
        assert_eq!(c.ask(usize::from(1 - owner), lookup()), NOT_MINE(owner), "{at}");
        assert_eq!(c.ask(usize::from(owner), lookup()), Answered::Outcome(Err(Errno::ENOENT)));
        c.create(dir, "f");
        let below = c.mkdir(dir, "below");
        c.create(below, "g");
        assert_eq!((c.names(dir), c.names(below)), (vec!["below".to_owned(), "f".into()], vec!["g".into()]));
        assert_eq!((c.stat(dir).size, c.stat(dir).nlink, c.stat(below).size), (2, 3, 1));
    }
    assert!(seen[0] > 2 && seen[1] > 2, "{seen:?}");
    for at in [0, 1] {
        c.drop_cache(at);
    }
    let dir = node(&c.lookup(root(), "d7").expect("there"));
    assert_eq!(c.names(dir), ["below", "f"]);
    let below = node(&c.lookup(dir, "below").expect("there"));
    assert_eq!(c.names(below), ["g"], "{:?}", c.worlds[0].notes);
}

/// What is made in it is there whoever died when.
#[test]
fn a_newborn_outlives_both_ranks() {
    for filled in [false, true] {
        for first in [0, 1] {
            let mut c = Cluster::with_slots();
            let dir = c.dir_at(root(), 1);
            if filled {
                c.create(dir, "f");
            }
            c.crash(first);
            assert_eq!(c.names(dir).len(), usize::from(filled));
            c.create(dir, "g");
            c.crash(1 - first);
            assert_eq!(c.names(dir).len(), 1 + usize::from(filled));
            for at in [0, 1] {
                c.drop_cache(at);
            }
            assert_eq!(c.names(dir).len(), 1 + usize::from(filled), "{:?}", c.worlds[1].notes);
            assert_eq!(c.stat(dir).size, 1 + u64::from(filled));
        }
    }
}

/// Its mark says nothing any more once there is a header.
#[test]
fn a_header_in_the_store_wins_against_the_mark() {
    let mut c = Cluster::with_slots();
    let dir = c.dir_at(root(), 1);
    let before = c.stat(dir);
    for round in 0..3 {
        c.create(dir, &format!("f{round}"));
        c.drop_cache(1);
        c.crash(1);
        c.drop_cache(0);
        let attr = c.stat(dir);
        assert_eq!(attr.size, round + 1);
        assert!(attr.change > before.change && attr.mtime >= before.mtime);
    }
    for round in 0..3 {
        assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n(&format!("f{round}")) }), Ok(Reply::Ok));
    }
    c.drop_cache(1);
    assert_eq!(c.names(dir), Vec::<String>::new());
    assert!(c.stat(dir).change > before.change);
}

/// A lost header is damage where the record says no more than that it is a directory.
#[test]
pub(super) fn only_a_newborn_may_lack_a_header() {
    let mut c = Cluster::with_slots();
    let (here, there) = (c.dir_at(root(), 0), c.dir_at(root(), 1));
    for at in [0, 1] {
        c.drop_cache(at);
    }
    for dir in [here, there] {
        let key = key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE });
        let had = c.hold(0).store.remove(&key).is_some();
        assert_eq!(had, dir == here, "whoever owns the content makes the header");
    }
    let lookup = |dir| Request::Lookup { parent: dir, name: n("f") };
    assert_eq!(c.call(1, lookup(there)), Err(Errno::ENOENT));
    assert_eq!(c.call(0, lookup(here)), Err(Errno::EIO));
}

/// Who has its content asked its home, which came here meanwhile: nobody else knows the inode any more.
#[test]
pub(super) fn one_whose_home_has_come_may_lack_a_header() {
    let mut c = Cluster::with_slots();
    let above = c.dir_at(root(), 0);
    let (dir, other) = (c.dir_at(above, 1), c.dir_at(above, 1));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "an entry of its own");
    c.drop_cache(1);
    c.crash(1);
    c.stat(other);
    assert!(!c.hold(0).store.contains_key(&key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE })));
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
    let (to, message) = c.worlds[0].to_ranks.pop_front().expect("a question");
    assert_eq!(to, RankId(1));
    assert_eq!(c.pin(above, 1), Ok(Reply::Ok), "its home goes to rank 1");
    let conn = c.links[&(0, 1)];
    c.inject(1, Input::Message { conn, message });
    assert_eq!(c.wait(0, EMBEDDED, tid), NOT_MINE(1), "{:?}", c.worlds[1].notes);
    assert_eq!(c.stat(dir).size, 0);
}

#[test]
fn one_that_is_empty_is_removed_by_way_of_its_home() {
    let mut c = Cluster::with_slots();
    let (new, used) = (c.dir_at(root(), 1), c.dir_at(root(), 1));
    let name = |c: &mut Cluster, dir: NodeRef| {
        c.names(root()).into_iter().find(|name| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino))
    };
    let (new, used) = (name(&mut c, new).expect("a name"), (name(&mut c, used).expect("a name"), used));
    let rmdir = |name: &str| Request::RmDir { parent: root(), name: n(name) };
    c.create(used.1, "f");
    assert_eq!(c.call(0, rmdir(&used.0)), Err(Errno::ENOTEMPTY));
    assert_eq!(c.call(0, rmdir(&new)), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.call(0, Request::Unlink { parent: used.1, name: n("f") }), Ok(Reply::Ok));
    assert_eq!(c.call(0, rmdir(&used.0)), Ok(Reply::Ok));
    for at in [0, 1] {
        c.crash(at);
        assert_eq!(c.lookup(root(), &used.0), Err(Errno::ENOENT));
        assert_eq!(c.lookup(root(), &new), Err(Errno::ENOENT));
    }
    assert_eq!(c.call(1, Request::Lookup { parent: used.1, name: n("f") }), Err(Errno::ESTALE));
}

#[test]
fn an_entry_counts_before_the_slot() {
    let mut c = Cluster::with_slots();
    let dir = c.dir_at(root(), 1);
    c.create(dir, "f");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.owner(dir), Some(0));
    assert_eq!(c.ask(1, Request::Lookup { parent: dir, name: n("f") }), NOT_MINE(0));
    c.create(dir, "g");
    let new = c.dir_at(root(), 0);
    assert_eq!(c.pin(new, 1), Ok(Reply::Ok));
    c.create(new, "h");
    assert_eq!((c.names(dir), c.names(new)), (vec!["f".to_owned(), "g".into()], vec!["h".into()]));
}

/// Nobody serves from what a crash of its home may take back.
#[test]
pub(super) fn its_content_is_not_served_before_its_home_has_it_on_disk() {
    let mut c = Cluster::with_slots();
    c.worlds[0].auto_durable = false;
    let mut dirs = Vec::new();
    for at in 0..16 {
        let dir = c.mkdir(root(), &format!("d{at}"));
        dirs.extend(Some(dir).filter(|dir| c.slot_owner(*dir) == 1));
    }
    let create = Request::MkNod { parent: dirs[0], name: n("f"), new: mode(0o100_644) };
    let tid = c.start(1, EMBEDDED, create.clone());
    c.pass(20);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None);
    c.hold(0).sync();
    assert!(matches!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    c.crash(0);
    assert_eq!(c.names(dirs[0]), ["f"]);
}

#[test]
fn its_name_may_change_and_its_place_stays() {
    let mut c = Cluster::with_slots();
    let dir = c.mkdir(root(), "old");
    let owner = c.slot_owner(dir);
    c.create(dir, "f");
    assert_eq!(c.rename((root(), "old"), (root(), "new")), Ok(Reply::Ok));
    for at in [0, 1] {
        c.drop_cache(at);
        c.crash(at);
    }
    let found = node(&c.lookup(root(), "new").expect("there"));
    assert_eq!((found.ino, c.names(found)), (dir.ino, vec!["f".to_owned()]));
    let other = usize::from(1 - owner);
    assert_eq!(c.ask(other, Request::Lookup { parent: found, name: n("f") }), NOT_MINE(owner));
}

/// How many directories are delegated with the answer.
fn mkdirs_early(c: &mut Cluster, parent: NodeRef, name: &str) -> usize {
    let tid = c.start(0, REMOTE, Request::MkDir { parent, name: n(name), new: mode(0o755) });
    c.pass(1);
    match c.heard(0, |m| matches!(m, ServerMsg::Early { tid: of, .. } if *of == tid)) {
        Some(ServerMsg::Early { delegated, .. }) => delegated.len(),
        _ => 0,
    }
}

/// A client that works in a directory by itself makes its own there, and takes them for its rank's.
#[test]
pub(super) fn what_a_client_makes_by_itself_inherits() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::ATTRS.with(Bits::DX));
    let delegated: usize = (0..4).map(|at| mkdirs_early(&mut c, dir, &format!("e{at}"))).sum();
    assert!(delegated > 0);
    let numbers = c.heard(0, |m| matches!(m, ServerMsg::Numbers { count: 1.., .. }));
    let Some(ServerMsg::Numbers { first, .. }) = numbers else { panic!("no numbers") };
    c.spread_slots(4096);
    for at in 0..2 {
        let (made, wall) = (Ino(first.0 + 2 * at), Wall(c.worlds[0].now as i64));
        let inside = Ino(made.0 + 1);
        for (ino, request) in [
            (made, Request::MkDir { parent: dir, name: n(&format!("p{at}")), new: mode(0o755) }),
            (inside, Request::MkNod { parent: NodeRef::bare(made), name: n("f"), new: mode(0o100_644) }),
        ] {
            let tid = c.hold(0).next_tid();
            let told = proto::message::Told { ino, wall, heard: false };
            let performed = ClientMsg::Performed { tid, floor: tid, cred: Cred::ROOT, told, request };
            c.inject(0, Input::Message { conn: REMOTE, message: performed });
            c.settle();
            let done = c.heard(0, |m| matches!(m, ServerMsg::Done { tid: of, .. } if *of == tid));
            assert!(done.is_some(), "{at}: {:?}", c.worlds[0].notes);
        }
    }
}

#[test]
pub(super) fn nothing_is_delegated_where_slots_place() {
    for placed in [false, true] {
        let mut c = if placed { Cluster::with_slots() } else { Cluster::new() };
        let dir = c.dir_at(root(), 0);
        c.greet(0, Peer::Trusted, Bits::ATTRS.with(Bits::DX));
        let delegated: usize = (0..6).map(|at| mkdirs_early(&mut c, dir, &format!("x{at}"))).sum();
        assert_eq!(delegated > 0, !placed);
    }
}

/// What broke: a directory had gone to another rank with its inode, and what was known of it stayed. When it was gone, and its entry with
/// it, its slot was this rank's, and its names were read from the store, where they still were.
#[test]
fn what_left_is_not_taken_for_ones_own_by_its_slot() {
    let mut c = Cluster::with_slots();
    let (to, dir) = (c.dir_at(root(), 1), c.dir_at(root(), 1));
    let names = c.names(root());
    let is_it = |c: &mut Cluster, name: &String| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino);
    let name = names.into_iter().find(|name| is_it(&mut c, name)).expect("a name");
    // Of what is in it rank 0 has a replica.
    let inner = c.dir_at(dir, 0);
    c.create(inner, "x");
    assert_eq!(c.call(0, Request::Unlink { parent: inner, name: n("x") }), Ok(Reply::Ok));
    for name in c.names(dir) {
        assert_eq!(c.call(1, Request::RmDir { parent: dir, name: n(&name) }), Ok(Reply::Ok));
    }
    c.pass(20);
    let known = |c: &Cluster| c.worlds[0].rank.view.cache.find_dir(dir.ino).is_some();
    assert!(known(&c));
    assert_eq!(c.rename((root(), &name), (to, "d")), Ok(Reply::Ok));
    c.pass(20);
    assert!(!known(&c), "neither its inode nor its content is here");
}

/// What broke: what one step of a transaction had asked another rank the next one did not know. It may not ask itself, and the transaction
/// began anew for ever.
#[test]
fn what_was_heard_for_clear_counts_for_prepare() {
    let mut c = Cluster::new();
    let above = c.mkdir(root(), "a");
    let dir = c.mkdir(above, "p");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let inner = c.mkdir(dir, "q");
    let file = c.create(inner, "b");
    let moved = c.mkdir(root(), "b");
    // None of them was made where slots place: but by its number the one above might be.
    c.spread_slots(4_096);
    assert_eq!(c.slot_owner(above), 1);
    c.drop_cache(1);
    c.crash(1);
    assert!(c.worlds[1].rank.view.cache.by_ino(dir.ino).is_none());
    let flags = proto::request::rename_flags::EXCHANGE;
    let (name, new_name) = (n("b"), n("b"));
    let request = Request::Rename { parent: inner, name, new_parent: root(), new_name, flags };
    assert_eq!(c.call(0, request), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.lookup(inner, "b").expect("there").ino, moved.ino);
    assert_eq!(c.lookup(root(), "b").expect("there").ino, file.ino);
}

/// The simulator would find these, if slots placed anything there.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_slots_are_caught() {
    let defects: [(&str, fn()); 7] = [
        ("mds_left_keeps_facts", what_left_is_not_taken_for_ones_own_by_its_slot),
        ("mds_heard_is_not_kept", what_was_heard_for_clear_counts_for_prepare),
        ("mds_seal_not_replayed", replay_drops_what_went_with_its_slots),
        ("mds_newborn_unmarked", only_a_newborn_may_lack_a_header),
        ("mds_home_that_came_is_damage", one_whose_home_has_come_may_lack_a_header),
        ("mds_performed_placed", what_a_client_makes_by_itself_inherits),
        ("mds_delegates_where_slots_place", nothing_is_delegated_where_slots_place),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

#[test]
fn what_slots_place_moves_with_them() {
    let mut c = Cluster::with_slots();
    let mut dirs = Vec::new();
    for at in 0..6 {
        let dir = c.mkdir(root(), &format!("d{at}"));
        c.create(dir, "f");
        dirs.push(dir);
    }
    let below = c.mkdir(dirs[0], "below");
    let file = c.create(below, "deep");
    for round in 0..3 {
        for dir in dirs.iter().copied().chain([below]) {
            let was = c.slot_owner(dir);
            let names = c.names(dir);
            assert_eq!(c.move_slot(dir), 1 - was, "{:?}", c.worlds[usize::from(was)].notes);
            assert_eq!(
                c.ask(usize::from(was), Request::Lookup { parent: dir, name: n("f") }),
                NOT_MINE(1 - was)
            );
            assert_eq!(c.names(dir), names);
            c.create(dir, &format!("{round}"));
            assert_eq!(c.stat(dir).size, names.len() as u64 + 1);
        }
        let at = round % 2;
        c.drop_cache(at);
        c.crash(1 - at);
    }
    assert_eq!(c.stat(file).parent, below.ino);
    assert_eq!(c.names(below), ["0", "1", "2", "deep"]);
}

/// Nothing was changed in it: neither rank has written a header.
#[test]
fn a_newborn_may_move() {
    let mut c = Cluster::with_slots();
    let (here, there) = (c.dir_at(root(), 0), c.dir_at(root(), 1));
    for dir in [here, there] {
        for _ in 0..3 {
            assert_eq!(c.names(dir), Vec::<String>::new());
            let to = c.move_slot(dir);
            assert_eq!(c.names(dir), Vec::<String>::new());
            c.crash(usize::from(to));
            assert_eq!(c.stat(dir).size, 0);
        }
        c.create(dir, "f");
        c.move_slot(dir);
        assert_eq!(c.names(dir), ["f"]);
    }
}

#[test]
fn a_rank_that_dies_while_slots_move_has_them_or_not_as_the_map_says() {
    for switched in [false, true] {
        let mut c = Cluster::with_slots();
        let dir = c.dir_at(root(), 1);
        c.create(dir, "f");
        let number = ClusterMap::slot_of(dir.ino, Frag::WHOLE);
        c.slots_begin(number..number + 1, 0);
        while !matches!(c.worlds[1].wishes.front(), Some(MapWish::Switch { .. })) {
            c.deaf = true;
            c.pass(1);
        }
        // Sealed: nobody is served.
        let lookup = c.start(1, EMBEDDED, Request::Lookup { parent: dir, name: n("f") });
        c.pass(50);
        assert_eq!(c.take_answer(1, EMBEDDED, lookup), None);
        c.deaf = false;
        let id = c.map.last_move;
        c.worlds[1].wishes.clear();
        c.slots_end(id, switched);
        c.map.version += 1;
        c.crash(1);
        assert_eq!(c.slot_owner(dir), u16::from(!switched));
        assert_eq!(c.names(dir), ["f"]);
        c.create(dir, "g");
        assert_eq!(c.names(dir), ["f", "g"]);
    }
}

/// As pins: what is open stays, and the coordinator hears of it.
#[test]
fn slots_stay_where_something_is_open() {
    let mut c = Cluster::with_slots();
    let (dir, other) = (c.dir_at(root(), 1), c.dir_at(root(), 1));
    let file = c.create(dir, "f");
    let elsewhere = c.create(other, "f");
    for node in [file, elsewhere] {
        assert!(c.call(1, Request::Open { node, flags: 0 }).is_ok());
    }
    assert_eq!(c.move_slot(dir), 1);
    assert!(c.worlds[1].notes.iter().any(|note| note.contains("is open")), "{:?}", c.worlds[1].notes);
    assert!(c.call(1, Request::Release { node: file, count: 1 }).is_ok());
    assert_eq!(c.move_slot(dir), 0, "{:?}", c.worlds[1].notes);
    assert_eq!(c.names(dir), ["f"]);
}

/// An old journal says nothing of what went away and was changed there.
#[test]
pub(super) fn replay_drops_what_went_with_its_slots() {
    let mut c = Cluster::with_slots();
    let dir = c.dir_at(root(), 0);
    c.create(dir, "f");
    assert_eq!(c.move_slot(dir), 1);
    assert_eq!(c.rename((dir, "f"), (dir, "g")), Ok(Reply::Ok));
    c.checkpoint(1);
    let key = key_bytes(StoreKey::Checkpoint { rank: RankId(0) });
    c.hold(0).store.remove(&key);
    c.crash(0);
    c.checkpoint(0);
    c.drop_cache(1);
    assert_eq!(c.names(dir), ["g"]);
}
