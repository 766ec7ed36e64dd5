//! The journal on the simulated disk: crashes, flipped bits, full disks, and the limits of a torn tail.

use super::header::SegmentHeader;
use super::*;
use crate::disk_sim::{DiskFault, SimDisk};
use proto::codec::Writer;
use proto::journal::{TxnCluster, begin_entry, end_entry, put_mark, put_transaction};
use proto::mutation::Mutation;
use stdx::{Prng, Wall};

const LIMITS: JournalLimits = JournalLimits { segment_bytes: 16 << 10, journal_bytes: 96 << 10 };

fn open(disk: &SimDisk, life: u64) -> Result<JournalFiles<SimDisk>, StoreError> {
    JournalFiles::open(disk.clone(), RankId(0), Incarnation(life), LIMITS)
}

/// One entry at `at` with about `bytes` of content.
fn entry(w: &mut Writer, base: Position, mark: Position, bytes: usize, fill: u8) {
    let position = Position(base.0 + w.len() as u64);
    let start = begin_entry(w, position, mark);
    if bytes == 0 {
        put_mark(w);
    } else {
        put_transaction(w, Wall(1), None, TxnCluster::default());
        let data = vec![fill; bytes];
        let file = proto::FileId { ino: proto::Ino(4096), generation: 0 };
        Mutation::DataRedo { file, truncate_seq: 0, write_seq: 0, data: &data }.encode(w);
    }
    end_entry(w, start);
}

fn one(at: Position, mark: Position, bytes: usize) -> Vec<u8> {
    let mut w = Writer::new();
    entry(&mut w, at, mark, bytes, at.0 as u8);
    w.0
}

fn read_all(journal: &JournalFiles<SimDisk>, from: Position) -> Result<(Position, Vec<u8>), StoreError> {
    let mut bytes = Vec::new();
    let end = journal.read(from, &mut |position, piece| {
        assert_eq!(position.0, from.0 + bytes.len() as u64, "pieces follow each other");
        bytes.extend_from_slice(piece);
    })?;
    assert_eq!(end.0, from.0 + bytes.len() as u64);
    Ok((end, bytes))
}

/// A journal with its stream as the model.
struct Life {
    disk: SimDisk,
    prng: Prng,
    /// The stream from position 0, as appended or found.
    stream: Vec<u8>,
    /// Ends of entries in it.
    ends: Vec<u64>,
    synced: u64,
    trimmed: u64,
    life: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let (disk, prng) = (SimDisk::new(seed), Prng::new(seed ^ 0xA5A5));
        Self { disk, prng, stream: Vec::new(), ends: vec![0], synced: 0, trimmed: 0, life: 0 }
    }

    /// Restarts and checks what is there against the model.
    fn recover(&mut self) -> JournalFiles<SimDisk> {
        self.life += 1;
        let journal = open(&self.disk, self.life).expect("opens");
        let (end, bytes) = read_all(&journal, Position(self.trimmed)).expect("reads");
        assert!(end.0 >= self.synced, "end {} below the synced {}", end.0, self.synced);
        assert!(self.ends.contains(&end.0), "entries are whole");
        assert_eq!(bytes, self.stream[self.trimmed as usize..end.0 as usize]);
        self.stream.truncate(end.0 as usize);
        self.ends.retain(|at| *at <= end.0);
        self.synced = end.0;
        journal
    }

    fn append(&mut self, journal: &JournalFiles<SimDisk>) -> Result<(), StoreError> {
        let base = Position(self.stream.len() as u64);
        let mut w = Writer::new();
        for _ in 0..=self.prng.below(3) {
            let bytes = if self.prng.chance(1, 40) { 20_000 } else { self.prng.below(3000) as usize };
            entry(&mut w, base, Position(self.synced), bytes, self.life as u8);
            self.ends.push(base.0 + w.len() as u64);
        }
        self.stream.extend_from_slice(&w.0);
        journal.append(base, &w.0)
    }

    fn act(&mut self, journal: &JournalFiles<SimDisk>) -> Result<(), StoreError> {
        match self.prng.below(12) {
            0..=6 => self.append(journal),
            7..=9 => {
                self.synced = self.synced.max(journal.sync()?.0);
                Ok(())
            }
            10 => {
                let synced: Vec<u64> = self.ends.iter().copied().filter(|at| *at <= self.synced).collect();
                let to = synced[self.prng.index(synced.len())].max(self.trimmed);
                self.trimmed = to;
                journal.trim(Position(to))
            }
            _ => journal.prepare().map(|_| ()),
        }
    }
}

/// Lives of random actions, each ended by a power failure or a kill. Returns how many.
fn crash(seeds: u64) -> u32 {
    let mut crashes = 0;
    for seed in 0..seeds {
        let mut life = Life::new(seed);
        for _ in 0..30 {
            let journal = life.recover();
            life.disk.die_after(life.prng.clone().below(60));
            for _ in 0..40 {
                if life.act(&journal).is_err() {
                    assert!(life.disk.is_dead());
                    break;
                }
            }
            if life.prng.chance(1, 4) {
                life.disk.kill()
            } else {
                life.disk.crash()
            }
            crashes += 1;
        }
    }
    crashes
}

#[test]
fn whatever_was_synced_survives_thousands_of_crashes() {
    assert_eq!(crash(120), 3600);
}

#[cfg(feature = "mutants")]
#[test]
fn seeded_defects_are_caught() {
    for defect in ["journal_no_sync", "journal_no_sync_before_roll"] {
        stdx::mutant::activate(Some(defect));
        let caught = std::panic::catch_unwind(|| crash(120)).is_err();
        stdx::mutant::activate(None);
        assert!(caught, "{defect}");
    }
    stdx::mutant::activate(Some("journal_damage_is_tail"));
    let caught = std::panic::catch_unwind(every_flipped_bit_is_found_or_lies_in_the_tail_nobody_was_told_of);
    stdx::mutant::activate(None);
    assert!(caught.is_err());
}

#[cfg(feature = "embedded")]
#[test]
fn the_same_on_a_real_disk() {
    let place = tempfile::tempdir().expect("folder");
    let (mut stream, mut trimmed) = (Vec::new(), Position(0));
    for life in 1..6 {
        let disk = crate::disk_real::RealDisk::new(place.path());
        let journal = JournalFiles::open(disk, RankId(0), Incarnation(life), LIMITS).expect("opens");
        let mut bytes = Vec::new();
        let end = journal.read(trimmed, &mut |_, piece| bytes.extend_from_slice(piece)).expect("reads");
        assert_eq!(bytes, stream[trimmed.0 as usize..]);
        assert_eq!(end.0, stream.len() as u64);
        while journal.prepare().expect("prepared") {}
        for size in 0..40 {
            let at = Position(stream.len() as u64);
            let entry = one(at, journal.durable(), 100 * size);
            journal.append(at, &entry).expect("appended");
            stream.extend_from_slice(&entry);
        }
        assert_eq!(journal.sync(), Ok(Position(stream.len() as u64)));
        trimmed = Position(stream.len() as u64);
        journal.trim(trimmed).expect("trimmed");
        let tail = one(trimmed, trimmed, 500);
        journal.append(trimmed, &tail).expect("appended");
        stream.extend_from_slice(&tail);
        assert!(journal.bytes() < 20 << 10 && journal.spares() > 1);
    }
}

/// Several segments of synced entries, then a tail that is not synced. Returns the disk, the stream and
/// where the synced part ends.
fn sample(seed: u64) -> (SimDisk, Vec<u8>, u64) {
    let mut life = Life::new(seed);
    let journal = life.recover();
    for step in 0..14 {
        let base = Position(life.stream.len() as u64);
        let bytes = one(base, Position(life.synced), 2000 + step * 10);
        life.stream.extend_from_slice(&bytes);
        journal.append(base, &bytes).expect("appended");
        if step < 12 {
            life.synced = journal.sync().expect("synced").0;
        }
    }
    drop(journal);
    life.disk.kill();
    (life.disk, life.stream, life.synced)
}

#[test]
fn every_flipped_bit_is_found_or_lies_in_the_tail_nobody_was_told_of() {
    let (disk, stream, synced) = sample(1);
    let names: Vec<String> = disk.names().into_iter().filter(|name| !name.contains("spare")).collect();
    assert!(names.len() >= 2);
    let (mut damaged, mut tail) = (0, 0);
    for name in &names {
        let size = disk.content(name).expect("there").len() as u64 * 8;
        for bit in (0..size).step_by(13) {
            assert!(disk.flip(name, bit));
            match open(&disk, 2).and_then(|journal| read_all(&journal, Position(0))) {
                Err(StoreError::Damaged { .. }) => damaged += 1,
                Err(other) => panic!("{other}"),
                Ok((end, bytes)) => {
                    assert!(end.0 + 2200 > synced, "bit {bit} of {name} lost synced entries");
                    assert_eq!(bytes, stream[..end.0 as usize]);
                    tail += u32::from(end.0 < stream.len() as u64);
                }
            }
            disk.flip(name, bit);
        }
    }
    assert!(damaged > 1000 && tail > 100, "{damaged} {tail}");
}

#[test]
fn damage_names_file_offset_and_what_is_lost() {
    let (disk, _, _) = sample(2);
    assert!(disk.flip("journal/00000001", (4096 + 2100) * 8));
    let error = open(&disk, 2).and_then(|journal| read_all(&journal, Position(0))).expect_err("damaged");
    let len = one(Position(0), Position(0), 2000).len();
    let text = format!(
        "journal/00000001 at {:#x}: checksum mismatch (13 operations after seq {len} unreadable)",
        4096 + len
    );
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_missing_segment_is_damage_wherever_it_was() {
    for missing in ["journal/00000001", "journal/00000002"] {
        let mut life = Life::new(3);
        let journal = life.recover();
        while journal.segments().len() < 3 {
            life.append(&journal).expect("appended");
        }
        let second = journal.segments()[1].header.start;
        drop(journal);
        life.disk.kill();
        life.disk.remove(missing).expect("removed");
        let journal = open(&life.disk, 2).expect("headers are fine");
        assert!(matches!(read_all(&journal, Position(0)), Err(StoreError::Damaged { .. })));
        if missing.ends_with('1') {
            assert!(read_all(&journal, second).is_ok(), "nobody needs what lies before");
        }
    }
}

#[test]
fn bytes_past_a_stated_end_are_never_read() {
    let mut life = Life::new(4);
    let journal = life.recover();
    let first = one(Position(0), Position(0), 100);
    journal.append(Position(0), &first).expect("appended");
    journal.sync().expect("synced");
    let at = Position(first.len() as u64);
    let lost = one(at, Position(0), 300);
    journal.append(at, &lost).expect("appended");
    life.disk.kill();
    // The tail is torn: the second life ends before it and appends something else.
    assert!(life.disk.flip("journal/00000001", (4096 + at.0 + 60) * 8));
    let journal = open(&life.disk, 2).expect("opens");
    assert_eq!(read_all(&journal, Position(0)).expect("reads").0, at);
    let other = one(at, at, 50);
    journal.append(at, &other).expect("appended");
    assert_eq!(journal.segments()[1].header.predecessor_end, at);
    // Even when the torn entry comes back whole.
    assert!(life.disk.flip("journal/00000001", (4096 + at.0 + 60) * 8));
    let (_, bytes) = open(&life.disk, 3).and_then(|j| read_all(&j, Position(0))).expect("reads");
    assert_eq!(bytes, [first, other].concat());
}

/// What broke: the length that was missing was counted below zero.
#[test]
fn segments_out_of_order_are_damage() {
    let mut life = Life::new(5);
    let journal = life.recover();
    let first = one(Position(0), Position(0), 600);
    journal.append(Position(0), &first).expect("appended");
    journal.sync().expect("synced");
    for (sequence, start) in [(2, Position(first.len() as u64)), (3, Position(100))] {
        let (rank, incarnation) = (RankId(0), Incarnation(1));
        let header = SegmentHeader { rank, incarnation, sequence, start, predecessor_end: start };
        let file = life.disk.create(&format!("journal/{}", header.file_name())).expect("made");
        file.write_at(&header.encode(), 0).expect("written");
        file.sync_data().expect("synced");
    }
    let error = open(&life.disk, 2).and_then(|journal| read_all(&journal, Position(0))).expect_err("damage");
    assert!(
        matches!(&error, StoreError::Damaged { at, .. } if at.starts_with("journal/0000000")),
        "{error:?}"
    );
}

#[test]
fn trimmed_segments_are_used_again_and_never_more_than_the_limit() {
    let mut life = Life::new(5);
    let journal = life.recover();
    assert!(journal.prepare().expect("made") && journal.prepare().expect("made"));
    assert!(!journal.prepare().expect("enough"));
    for _ in 0..200 {
        life.append(&journal).expect("appended");
        life.synced = journal.sync().expect("synced").0;
        let keep = life.synced.saturating_sub(40 << 10);
        let to = life.ends.iter().copied().filter(|at| *at <= keep).max().unwrap_or(0);
        journal.trim(Position(to)).expect("trimmed");
        life.trimmed = to;
        assert!(life.disk.names().len() <= 7, "{:?}", life.disk.names());
    }
    assert!(journal.bytes() <= 80 << 10);
    assert!(journal.spares() > 0);
    life.disk.crash();
    life.recover();
}

#[test]
fn after_a_failed_sync_nothing_is_durable_any_more() {
    let mut life = Life::new(6);
    let journal = life.recover();
    life.append(&journal).expect("appended");
    life.disk.inject(DiskFault::Sync, "journal/0", 1);
    assert!(journal.sync().is_err());
    assert_eq!(journal.sync(), Err(StoreError::Poisoned));
    let end = Position(life.stream.len() as u64);
    assert_eq!(journal.append(end, &one(end, end, 10)), Err(StoreError::Poisoned));
}

#[test]
fn a_full_disk_stops_the_append_and_the_same_append_goes_on_later() {
    let mut life = Life::new(7);
    life.disk.set_capacity(24 << 10);
    let journal = life.recover();
    let mut w = Writer::new();
    for _ in 0..12 {
        entry(&mut w, Position(0), Position(0), 3000, 1);
    }
    assert_eq!(journal.append(Position(0), &w.0), Err(StoreError::NoSpace));
    assert_eq!(journal.append(Position(0), &w.0), Err(StoreError::NoSpace));
    life.disk.set_capacity(1 << 20);
    journal.append(Position(0), &w.0).expect("appended");
    assert_eq!(journal.sync(), Ok(Position(w.0.len() as u64)));
    life.disk.crash();
    let journal = open(&life.disk, 2).expect("opens");
    assert_eq!(read_all(&journal, Position(0)).expect("reads").1, w.0);
}

#[test]
fn a_checkpoint_beyond_the_journal_is_damage() {
    let (disk, stream, _) = sample(8);
    let journal = open(&disk, 2).expect("opens");
    assert!(matches!(
        read_all(&journal, Position(stream.len() as u64 + 64)),
        Err(StoreError::Damaged { .. })
    ));
    assert!(read_all(&journal, Position(stream.len() as u64)).is_ok());
    assert!(matches!(
        read_all(&open(&SimDisk::new(1), 1).expect("opens"), Position(9)),
        Err(StoreError::Damaged { .. })
    ));
}

#[test]
fn an_append_that_does_not_follow_is_refused() {
    let mut life = Life::new(9);
    let journal = life.recover();
    assert!(journal.append(Position(5), &one(Position(5), Position(0), 10)).is_err());
    assert!(journal.append(Position(0), b"not an entry, whatever it says").is_err());
}

#[test]
fn a_segment_is_begun_where_there_is_no_room_for_a_whole_one() {
    let disk = SimDisk::new(10);
    disk.set_capacity(2 * 4096);
    let journal = open(&disk, 1).expect("opens");
    read_all(&journal, Position(0)).expect("reads");
    let first = one(Position(0), Position(0), 3000);
    let end = Position(first.len() as u64);
    journal.append(Position(0), &first).expect("made longer as it is written");
    assert_eq!(journal.sync(), Ok(end));
    let long = one(end, end, 4000);
    assert_eq!(journal.append(end, &long), Err(StoreError::NoSpace));
    disk.set_capacity(1 << 20);
    journal.append(end, &long).expect("the same append");
    let end = journal.sync().expect("synced");
    disk.crash();
    let journal = open(&disk, 2).expect("opens");
    assert_eq!(read_all(&journal, Position(0)).expect("reads").1, [first, long].concat());
    // It is shorter than others and of no use to them.
    journal.append(end, &one(end, end, 100)).expect("appended");
    journal.trim(end).expect("trimmed");
    assert_eq!((journal.segments().len(), journal.spares()), (1, 0));
}

/// A disk without room for a spare segment was filled to the brim, once a second.
#[test]
fn no_spare_segment_is_written_where_there_is_no_room_for_it() {
    let mut life = Life::new(11);
    let journal = life.recover();
    life.append(&journal).expect("appended");
    let before = life.disk.counts().writes;
    let used = life.disk.space().expect("space");
    let taken = used.total - used.free;
    life.disk.set_capacity(taken + LIMITS.segment_bytes);
    assert_eq!((journal.prepare(), life.disk.counts().writes), (Ok(false), before));
    life.disk.set_capacity(u64::MAX);
    assert_eq!(journal.prepare(), Ok(true));
}

/// Lives of other ranks have the numbers in between; and one that made nothing durable served nobody.
#[test]
fn the_life_before_is_read_from_the_newest_segment() {
    let disk = SimDisk::new(9);
    let mut end = Position(0);
    let mut former = 0;
    for (life, appends) in [(5, true), (9, true), (11, false), (14, true), (20, true)] {
        let journal = open(&disk, life).expect("opens");
        assert_eq!(journal.former(), Incarnation(former));
        assert_eq!(read_all(&journal, Position(0)).expect("reads").0, end);
        if appends {
            let bytes = one(end, Position(0), 100);
            journal.append(end, &bytes).expect("appended");
            end = journal.sync().expect("synced");
            assert_eq!(journal.former(), Incarnation(former), "its own segment does not count");
            former = life;
        }
        disk.crash();
    }
    // All that was before is trimmed: the newest segment stays.
    let journal = open(&disk, 30).expect("opens");
    read_all(&journal, Position(0)).expect("reads");
    journal.trim(end).expect("trimmed");
    assert_eq!(open(&disk, 31).expect("opens").former(), Incarnation(20));
}

/// What broke: it poisoned the journal, and the rank was damaged until somebody said that it may be tried again.
#[test]
fn a_segment_that_finds_no_descriptor_is_begun_later() {
    // The spare, the folder, the segment: whatever is opened in its turn, more than once.
    for (place, count) in
        [("journal", 1), ("journal", 2), ("journal", 3), ("journal/0", 2), ("journal/spare", 2)]
    {
        for prepared in [false, true] {
            let disk = SimDisk::new(1);
            let journal = open(&disk, 1).expect("opens");
            while prepared && journal.prepare().expect("prepared") {}
            let spares = journal.spares();
            let mut stream = Vec::new();
            for round in 0..2 {
                disk.inject(DiskFault::Open, place, count);
                let first = one(Position(stream.len() as u64), Position(0), 12_000);
                journal.append(Position(stream.len() as u64), &first).expect("later");
                stream.extend(first);
                assert_eq!(journal.sync(), Ok(Position(stream.len() as u64)), "{place} {count} {round}");
            }
            assert_eq!(journal.segments().len(), 2);
            assert!(journal.spares() + 4 >= spares, "few are lost");
            drop(journal);
            disk.crash();
            let journal = open(&disk, 2).expect("opens");
            assert_eq!(read_all(&journal, Position(0)), Ok((Position(stream.len() as u64), stream)));
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_journal_that_gives_up_for_want_of_a_descriptor_is_caught() {
    stdx::mutant::activate(Some("journal_no_descriptor_poisons"));
    let verdict = std::panic::catch_unwind(a_segment_that_finds_no_descriptor_is_begun_later);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
