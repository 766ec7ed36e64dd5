//! `pando journal inspect`: the transactions in a folder's journal, read without changing anything.
//!
//! Absent: repair; the meaning of records inside mutations.

mod looking;

use crate::args::Journal;
use crate::output::{Format, Output, grouped, write_out};
use crate::place;
use crate::problem::{Exit, Problem, Verdict, chain};
use looking::Looking;
use proto::cluster::MoveId;
use proto::journal::{Entry, Mutations, Payload, read_entry};
use proto::mutation::Mutation;
use proto::storeio::StoreError;
use proto::unheard::When;
use proto::{Incarnation, Position, RankId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use store::disk_real::RealDisk;
use store::folder::{self, FolderError, Found};
use store::journal_files::{HEADER_BYTES, JournalFiles, JournalLimits};

/// Runs the verb.
///
/// # Errors
/// The folder's refusals; damage in the journal, with file and offset, after what can be read before it.
pub fn run(verb: &Journal, out: &Output) -> Verdict {
    let (list, damage) = inspect(verb, out)?;
    list.end(damage.as_ref().map(|problem| problem.what.as_str()));
    damage.map_or(Ok(0), Err)
}

/// What can be read, and the damage behind it.
fn inspect(verb: &Journal, out: &Output) -> Result<(Listing, Option<Problem>), Problem> {
    let Journal::Inspect { dir, rank, from, limit } = verb;
    place::expect_existing(dir, "journal inspect DIR")?;
    let found = folder::inspect(dir).map_err(|error| place::explain(&error))?;
    let Found::Complete(record) = found else {
        return Err(place::explain(&FolderError::Absent { dir: dir.clone() }));
    };
    let root = if record.journal_dir.is_empty() { dir.clone() } else { record.journal_dir.into() };
    check_rank(dir, &root, *rank)?;
    let disk = Looking(RealDisk::new(&root));
    let damaged = |error: StoreError| {
        Problem::new(Exit::Refused, chain(&error)).do_this(format!("`pando fsck {}`", dir.display()))
    };
    // The highest incarnation may look at every segment.
    let files = JournalFiles::open(disk, RankId(*rank), Incarnation(u64::MAX), JournalLimits::default())
        .map_err(damaged)?;
    let mut list = Listing { limit: limit.unwrap_or(u64::MAX), out: *out, ..Listing::default() };
    for segment in files.segments() {
        list.segment(&segment);
    }
    let first = files.segments().first().map_or(Position(0), |segment| segment.header.start);
    let start = list.starts.range(..=*from).next_back().map_or(first, |(start, _)| Position(*start));
    (list.from, list.reached) = (*from, start.0);
    match files.read(start, &mut |position, bytes| list.piece(position, bytes)) {
        Ok(end) => list.reached = end.0,
        Err(error @ StoreError::Damaged { .. }) => {
            list.up_to_damage(&root)?;
            return Ok((list, Some(damaged(error))));
        }
        Err(error) => return Err(damaged(error)),
    }
    Ok((list, None))
}

/// Refuses a rank that never had a journal, and says which ones had.
fn check_rank(dir: &Path, root: &Path, rank: u16) -> Result<(), Problem> {
    let ranks = ranks_with_journal(root)?;
    if ranks.contains(&rank) {
        return Ok(());
    }
    let (known, step) = match ranks.as_slice() {
        [] | [_] => ("there is one, rank 0".to_owned(), "leave out `--rank`"),
        several => {
            let list: Vec<String> = several.iter().map(u16::to_string).collect();
            (format!("journals are there of ranks {}", list.join(", ")), "name one of these")
        }
    };
    let what = format!("{}: no rank {rank}: {known}", dir.display());
    Err(Problem::new(Exit::State, what).do_this(step))
}

/// Rank 0, and those that have a folder for their journal, ascending.
fn ranks_with_journal(root: &Path) -> Result<Vec<u16>, Problem> {
    let place = root.join("journal");
    let entries = match std::fs::read_dir(&place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![0]),
        Err(error) => return Err(Problem::io(place.display(), &error)),
    };
    let mut ranks = vec![0];
    for entry in entries {
        let entry = entry.map_err(|error| Problem::io(place.display(), &error))?;
        let name = entry.file_name();
        let rank = name.to_str().and_then(|name| u16::from_str_radix(name, 16).ok());
        ranks.extend(rank.filter(|rank| *rank > 0 && *name == *format!("{rank:04x}")));
    }
    ranks.sort_unstable();
    Ok(ranks)
}

#[derive(Default)]
struct Listing {
    /// Positions at which segments start.
    starts: BTreeMap<u64, String>,
    from: u64,
    /// Where what was read ends.
    reached: u64,
    limit: u64,
    seen: u64,
    shown: Vec<Value>,
    out: Output,
}

impl Listing {
    fn segment(&mut self, segment: &store::journal_files::SegmentInfo) {
        self.starts.insert(segment.header.start.0, segment.name.clone());
        if self.out.format == Format::Plain {
            let header = &segment.header;
            write_out(&format!(
                "segment {} incarnation {} start {}\n",
                segment.name, header.incarnation.0, header.start.0
            ));
        }
    }

    /// Whole, checked entries.
    fn piece(&mut self, position: Position, bytes: &[u8]) {
        let mut at = 0;
        while let Ok(entry) = read_entry(&bytes[at..], Position(position.0 + at as u64)) {
            if entry.position.0 >= self.from && matches!(entry.payload, Payload::Transaction { .. }) {
                self.seen += 1;
                if self.seen <= self.limit {
                    self.entry(&entry);
                }
            }
            at += entry.len;
            if at >= bytes.len() {
                break;
            }
        }
        self.reached = position.0 + at as u64;
    }

    /// The whole entries between the last piece and the damage: a server must not act on them, so that they are
    /// not handed over.
    fn up_to_damage(&mut self, root: &Path) -> Result<(), Problem> {
        let from = self.reached;
        let Some((start, name)) = self.starts.range(..=from).next_back() else { return Ok(()) };
        let path = root.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            // A segment that is missing is the damage.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Problem::io(path.display(), &error)),
        };
        let at = usize::try_from(HEADER_BYTES + (from - start)).unwrap_or(usize::MAX);
        self.piece(Position(from), bytes.get(at..).unwrap_or_default());
        Ok(())
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        let Payload::Transaction { wall, origin, mutations, .. } = &entry.payload else { return };
        let names: Vec<String> = Mutations::new(mutations)
            .map(|mutation| mutation.map_or_else(|error| format!("({error})"), |mutation| text(&mutation)))
            .collect();
        let who = origin.as_ref().map(|origin| (origin.session.0, origin.tid.0));
        if self.out.format == Format::Json {
            let (session, tid) = who.unzip();
            self.shown.push(json!({
                "position": entry.position.0, "bytes": entry.len, "time_ns": wall.0,
                "session": session, "tid": tid, "mutations": names,
            }));
            return;
        }
        let who = who.map_or_else(|| "-".into(), |(session, tid)| format!("{session}/{tid}"));
        write_out(&format!("{:>12} {who:>12}  {}\n", entry.position.0, names.join(", ")));
    }

    fn end(self, damage: Option<&str>) {
        let (count, end) = (self.seen, self.reached);
        if self.out.format == Format::Json {
            let segments: Vec<_> =
                self.starts.iter().map(|(start, name)| json!({"name": name, "start": start})).collect();
            let json = json!({
                "segments": segments, "transactions": self.shown, "count": count, "end": end, "damage": damage,
            });
            self.out.result("", json);
            return;
        }
        let count = grouped(count);
        write_out(&match damage {
            None => format!("{count} transactions, end {end}\n"),
            Some(_) => format!("{count} transactions before the damage, which begins at {end}\n"),
        });
    }
}

/// A mutation in a few words.
fn text(mutation: &Mutation<'_>) -> String {
    let name = |name: &[u8]| String::from_utf8_lossy(name).escape_default().to_string();
    match mutation {
        Mutation::PutDentry { dir, name: n, version, .. } => {
            format!("put {:#x}/{} v{}", dir.0, name(n), version.0)
        }
        Mutation::DelDentry { dir, name: n, version, .. } => {
            format!("del {:#x}/{} v{}", dir.0, name(n), version.0)
        }
        Mutation::PutHeader { dir, version, .. } => format!("header {:#x} v{}", dir.0, version.0),
        Mutation::PutBackptr { ino, parent, .. } => format!("backptr {:#x} in {:#x}", ino.0, parent.0),
        Mutation::DelBackptr { ino, .. } => format!("no backptr {:#x}", ino.0),
        Mutation::DelPlace { ino, .. } => format!("no place {:#x}", ino.0),
        Mutation::DelContent { dir } => format!("no content {:#x}", dir.0),
        Mutation::Session { id, open, .. } => {
            format!("session {} {}", id.0, if *open { "opens" } else { "ends" })
        }
        Mutation::SessionFloor { id, floor } => format!("session {} floor {}", id.0, floor.0),
        Mutation::InoCounter { next, .. } => format!("numbers below {next}"),
        Mutation::DataCut { file, size, truncate_seq } => {
            format!("cut {:#x} to {size} #{truncate_seq}", file.ino.0)
        }
        Mutation::DataRedo { file, data, .. } => format!("redo {:#x} {} bytes", file.ino.0, data.len()),
        Mutation::DataRemove { file } => format!("remove {:#x}", file.ino.0),
        Mutation::Sealed { id, unit } => format!("seal {:#x} for move {}", unit.dir.0, id.0),
        Mutation::Holders { id: MoveId(0), .. } => "opens and locks that came".to_owned(),
        Mutation::Holders { id, .. } => format!("opens and locks that come with move {}", id.0),
        Mutation::HolderGone { session, ino } => {
            format!("session {} has {:#x} in its own books", session.0, ino.0)
        }
        Mutation::Unheard { when: When::Now, .. } => "answers that nobody may have heard".to_owned(),
        Mutation::Unheard { when: When::Transaction(id), .. } => {
            format!("answers that nobody may have heard, for transaction {:#x}", id.0)
        }
        Mutation::Unheard { when: When::Move(id, _), .. } => {
            format!("answers that nobody may have heard, for move {}", id.0)
        }
        Mutation::Prepared { id, leader, .. } => {
            format!("transaction {:#x} of rank {} prepared", id.0, leader.0)
        }
        Mutation::Committed { id, .. } => format!("transaction {:#x} committed", id.0),
        Mutation::Resolved { id, .. } => format!("transaction {:#x} over", id.0),
        Mutation::DelegateInos { id, first, count } => {
            format!("session {} gets {count} numbers from {:#x}", id.0, first.0)
        }
        Mutation::SessionFlags { id, flags } => format!("session {} flags {flags:#x}", id.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Writer;
    use proto::journal::{TxnCluster, begin_entry, end_entry, put_transaction};
    use runtime::Config;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    #[test]
    fn each_ranks_journal_is_listed_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("data");
        place::format(&dir, &place::format_options()).expect("made");
        let out = Output { format: Format::Json, ..Output::default() };
        let look = |rank| inspect(&Journal::Inspect { dir: dir.clone(), rank, from: 0, limit: None }, &out);
        let refused = look(2).map(|_| ()).expect_err("no such rank");
        assert!(refused.what.ends_with(": no rank 2: there is one, rank 0"), "{}", refused.what);
        for (rank, transactions) in [(0, 1_u64), (2, 3)] {
            let limits = JournalLimits { segment_bytes: 64 << 10, journal_bytes: 1 << 20 };
            let files = JournalFiles::open(RealDisk::new(&dir), RankId(rank), Incarnation(1), limits);
            let files = files.expect("opens");
            let mut at = Position(0);
            for next in 0..transactions {
                let mut w = Writer::new();
                let entry = begin_entry(&mut w, at, at);
                put_transaction(&mut w, stdx::Wall(1), None, TxnCluster::default());
                Mutation::InoCounter { rank: RankId(rank), next }.encode(&mut w);
                end_entry(&mut w, entry);
                files.append(at, &w.0).expect("appended");
                at = Position(at.0 + w.len() as u64);
            }
            files.sync().expect("synced");
        }
        for (rank, transactions, segment) in [(0, 1, "journal/00000001"), (2, 3, "journal/0002/00000001")] {
            let (list, damage) = look(rank).expect("read");
            assert_eq!((list.seen, damage), (transactions, None));
            assert_eq!(list.starts.values().collect::<Vec<_>>(), [segment]);
        }
        let refused = look(3).map(|_| ()).expect_err("no such rank");
        assert!(refused.what.ends_with(": no rank 3: journals are there of ranks 0, 2"), "{}", refused.what);
        // The damage in one is not the other's.
        let file = OpenOptions::new().write(true).open(dir.join("journal/0002/00000001")).expect("a segment");
        file.write_all_at(b"x", HEADER_BYTES + 20).expect("written");
        let (list, damage) = look(2).expect("read");
        assert_eq!(list.seen, 0);
        assert!(damage.expect("damage").what.starts_with("journal/0002/00000001 at 0x1000: "));
        assert_eq!(look(0).expect("read").1, None);
    }

    #[test]
    fn what_is_before_the_damage_is_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("data");
        place::format(&dir, &place::format_options()).expect("made");
        let server = place::open_unheard(&dir, &Config::default()).expect("served");
        // Files, a checkpoint, ten files more: what those write says that all before is durable, so that a bad entry
        // there is no torn tail. More than one piece long.
        bench::memory::run(&*server.embedded(), 10, 1, false).expect("created");
        server.stop().expect("stopped");
        let verb = Journal::Inspect { dir: dir.clone(), rank: 0, from: 0, limit: None };
        let out = Output { format: Format::Json, ..Output::default() };
        let (whole, damage) = inspect(&verb, &out).expect("read");
        assert_eq!((whole.seen > 10_000, damage), (true, None));
        let bad = whole.shown[5_000]["position"].as_u64().expect("a position");
        let at = HEADER_BYTES + bad + 20;
        let journal = dir.join("journal/00000001");
        let file = OpenOptions::new().read(true).write(true).open(journal).expect("a segment");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[!byte[0]], at).expect("written");
        let (left, damage) = inspect(&verb, &out).expect("read");
        assert_eq!((left.shown.as_slice(), left.reached), (&whole.shown[..5_000], bad));
        let problem = damage.expect("damage");
        assert_eq!((problem.code, problem.step), (4, Some(format!("`pando fsck {}`", dir.display()))));
        let place = format!("journal/00000001 at {:#x}: ", HEADER_BYTES + bad);
        assert!(problem.what.contains(&place), "{}", problem.what);
    }
}
