//! A rank that is not rank 0: its numbers, its records, its orphans.
//!
//! Absent: what it owns; here it may change the root directory as rank 0 would.

use super::sessions::REMOTE;
use super::*;
use proto::request::open_flags;
use proto::system::CheckpointRecord;

const RANK: RankId = RankId(3);

fn rank_3() -> World {
    let mut w = World::with(|config| config.rank = RANK);
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w
}

/// System records by key.
fn system(w: &World) -> Vec<&[u8]> {
    w.store.keys().filter(|(table, _)| *table == Table::System).map(|(_, key)| key.as_slice()).collect()
}

fn key(key: StoreKey<'_>) -> Vec<u8> {
    key_bytes(key).1
}

fn record(w: &World, key: StoreKey<'_>) -> Vec<u8> {
    w.store.get(&key_bytes(key)).expect("stored").clone()
}

/// The name of an inode in `//orphans`.
fn number(ino: Ino) -> String {
    String::from_utf8(ino.link_name().to_vec()).expect("hex digits")
}

#[test]
fn its_records_are_its_own() {
    let mut w = rank_3();
    let session = w.sessions[&REMOTE];
    w.mkdir(root(), "d");
    w.checkpoint();
    let expected = [
        key(StoreKey::Counter { rank: RANK }),
        key(StoreKey::Checkpoint { rank: RANK }),
        key(StoreKey::Session { rank: RANK, id: session }),
    ];
    assert_eq!(system(&w), expected);
    assert_eq!(expected[2][..9], [4, 0, 0, 0, 0, 0, 0, 0, 3]);
    // A record of another rank's session is not its to have, nor to delete.
    let (_, other) = key_bytes(StoreKey::Session { rank: RankId(4), id: SessionId(1 << 33) });
    let of_0 = key(StoreKey::Session { rank: RankId(0), id: SessionId(1 << 34) });
    let value = record(&w, StoreKey::Session { rank: RANK, id: session });
    for key in [&other, &of_0] {
        w.store.insert((Table::System, key.clone()), value.clone());
    }
    w.crash();
    w.hello(REMOTE, Peer::Trusted, session).expect("welcome");
    assert_eq!(w.sessions[&REMOTE], session, "resumed");
    w.say(REMOTE, ClientMsg::Goodbye);
    w.pass(60_000);
    w.checkpoint();
    let expected = [of_0, expected[0].clone(), expected[1].clone(), other];
    assert_eq!(system(&w), expected, "its own is gone, the others are not");
}

#[test]
fn its_numbers_carry_it_and_are_never_given_out_twice() {
    let mut w = rank_3();
    let mut seen = std::collections::BTreeSet::new();
    for life in 0..3 {
        for file in 0..5 {
            let made = w.create(root(), &format!("f{life}-{file}")).ino;
            assert_eq!(made.0 >> 48, 3);
            assert!(made.0 & 0xFFFF_FFFF_FFFF >= Ino::FIRST_COUNTER);
            assert!(seen.insert(made), "{made:?} again");
        }
        if life == 1 {
            w.checkpoint();
        }
        w.crash();
    }
    w.checkpoint();
    let next = u64::from_le_bytes(record(&w, StoreKey::Counter { rank: RANK }).try_into().expect("8 bytes"));
    let highest = seen.last().expect("some").0 & 0xFFFF_FFFF_FFFF;
    assert!(next > highest && next < 1 << 40, "the counter carries no rank: {next}");
    let checkpoint = record(&w, StoreKey::Checkpoint { rank: RANK });
    let checkpoint = CheckpointRecord::decode(&checkpoint).expect("a record");
    assert_eq!(checkpoint.next_ino, next);
}

/// Another rank's numbers in its journal (of the time before a directory moved, perhaps) say nothing about its own.
#[test]
fn the_counter_of_another_rank_is_not_its_own() {
    let mut w = rank_3();
    let mut muts = Writer::new();
    proto::mutation::Mutation::InoCounter { rank: RankId(1), next: 1 << 40 }.encode(&mut muts);
    let position = Position(w.journal.len() as u64);
    let mut entry = Writer::new();
    let start = proto::journal::begin_entry(&mut entry, position, position);
    proto::journal::put_transaction(&mut entry, Wall(1), None, proto::journal::TxnCluster::default());
    entry.raw(&muts.0);
    proto::journal::end_entry(&mut entry, start);
    w.journal.extend(&entry.0);
    w.durable = w.journal.len();
    w.crash();
    assert!(w.create(root(), "f").ino.0 & 0xFFFF_FFFF_FFFF < 1 << 32);
}

#[test]
fn its_orphans_are_in_its_own_directory_and_end_there() {
    let orphans = Ino::orphans(RANK);
    for checkpoint in [false, true] {
        let mut w = rank_3();
        let file = w.create(root(), "f");
        w.open(file, open_flags::RDWR).expect("open");
        w.write(file, 0, b"content").expect("write");
        w.unlink(root(), "f").expect("unlink");
        let name = number(file.ino);
        assert_eq!(w.read(file), b"content", "open, without a name");
        if checkpoint {
            w.checkpoint();
            assert!(w.stored(orphans, &name).is_some() && w.stored(Ino(0x100), &name).is_none());
        }
        // Nobody claims it: it goes, with its data, and nobody else's orphan does.
        let other = number(Ino(5000));
        let hash = name_hash(&SEED, other.as_bytes());
        let core = InodeCore { ino: Ino(5000), mode: 0o100_644, change: 1, ..Default::default() };
        let mut value = Writer::new();
        encode_primary(&core, None, &mut value);
        w.store.insert(key_bytes(StoreKey::head(Ino(0x100), hash, other.as_bytes())), value.0);
        w.crash();
        w.pass(200_000);
        w.checkpoint();
        assert_eq!(w.stored(orphans, &name), None);
        assert!(w.stored(Ino(0x100), &other).is_some(), "rank 0's is rank 0's to end");
        assert!(w.data.keys().all(|data| data.ino != file.ino), "{:?}", w.data);
        assert!(w.notes.iter().all(|note| !note.starts_with("damaged")), "{:?}", w.notes);
    }
}

#[test]
fn without_its_system_records_it_does_not_start() {
    let mut w = rank_3();
    let header = StoreKey::Header { dir: Ino::orphans(RANK), frag: Frag::WHOLE };
    w.checkpoint();
    w.store.remove(&key_bytes(header));
    w.config.incarnation = Incarnation(9);
    w.rank = Rank::new(w.config.clone());
    w.inject(Input::Boot);
    assert_eq!(w.rank.state(), State::Damaged);
    assert!(w.notes.iter().any(|note| note.contains("header is missing")), "{:?}", w.notes);
}
