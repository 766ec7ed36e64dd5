//! Journal entries and the mutations inside.
//!
//! Absent: segments (`journal_recovery`), applying mutations.

use crate::class::class;
use crate::repair::{self, STREAM_BASE};
use crate::target::{Exact, Target, Verdict, round_trip};
use proto::cluster::{MoveId, Unit};
use proto::codec::{Reader, Writer};
use proto::holder::Moved;
use proto::journal::{
    ENTRY_HEADER_BYTES, Mutations, Payload, TxnCluster, TxnOrigin, begin_entry, end_entry, highest_mark,
    put_mark, put_transaction, read_entry,
};
use proto::mutation::Mutation;
use proto::transact::TxnId;
use proto::unheard::When;
use proto::{FileId, Frag, Ino, NameHash, Position, RankId, SessionId, Tid, Version};
use stdx::Wall;

pub(super) const MUTATION: Target =
    Target { name: "mutation", execute: mutation, repair: None, seeds: mutation_seeds };
pub(super) const MUTATIONS: Target =
    Target { name: "mutations", execute: mutations, repair: None, seeds: mutations_seeds };
pub(super) const ENTRY: Target =
    Target { name: "journal-entry", execute: entry, repair: Some(repair::entry), seeds: entry_seeds };
pub(super) const HIGHEST_MARK: Target =
    Target { name: "highest-mark", execute: mark, repair: Some(repair::entries), seeds: stream_seeds };

fn mutation(input: &[u8]) -> Verdict {
    // It is borrowed: it takes what the type takes.
    let mut r = Reader::new(input);
    let first = match Mutation::decode(&mut r) {
        Ok(first) => first,
        Err(error) => return Ok(class("refused", &error)),
    };
    let used = &input[..input.len() - r.rest().len()];
    let mut w = Writer::new();
    first.encode(&mut w);
    if w.0 != used {
        return Err(format!("{first:?} is encoded as {}", crate::corpus::hex(&w.0)));
    }
    Ok(class("read", &first))
}

fn mutations(input: &[u8]) -> Verdict {
    let decode =
        |bytes: &[u8]| Mutations::new(bytes).map(|m| m.map(|m| encode(&m))).collect::<Result<Vec<_>, _>>();
    // After an error it must end, or replay would go on with garbage.
    let mut steps = Mutations::new(input);
    if steps.by_ref().any(|step| step.is_err()) && steps.next().is_some() {
        return Err("goes on behind an error".to_owned());
    }
    let kinds: Vec<u8> =
        Mutations::new(input).flatten().filter_map(|m| encode(&m).first().copied()).take(4).collect();
    let verdict = round_trip(input, Exact::Bytes, decode, |parts| parts.concat(), |parts| parts.len() * 24)?;
    Ok(if verdict.starts_with("read") {
        format!("read {kinds:?}")
    } else {
        format!("{verdict} after {}", kinds.len())
    })
}

fn encode(mutation: &Mutation<'_>) -> Vec<u8> {
    let mut w = Writer::new();
    mutation.encode(&mut w);
    w.0
}

fn entry(input: &[u8]) -> Verdict {
    let position = Position(STREAM_BASE);
    let read = match read_entry(input, position) {
        Ok(read) => read,
        Err(error) => return Ok(class("refused", &error)),
    };
    if read.position != position || read.len > input.len() || read.len < ENTRY_HEADER_BYTES {
        return Err(format!("an impossible entry: {read:?}"));
    }
    let mut w = Writer::new();
    let start = begin_entry(&mut w, position, read.mark);
    match &read.payload {
        Payload::Mark => put_mark(&mut w),
        Payload::Transaction { wall, origin, cluster, mutations } => {
            put_transaction(&mut w, *wall, origin.as_ref(), *cluster);
            w.raw(mutations);
        }
    }
    end_entry(&mut w, start);
    match read_entry(&w.0, position) {
        Ok(again) if again.mark == read.mark && again.payload == read.payload => {
            Ok(class("read", &read.payload))
        }
        other => Err(format!("{read:?} became {other:?}")),
    }
}

fn mark(input: &[u8]) -> Verdict {
    let base = Position(STREAM_BASE);
    let Some(highest) = highest_mark(input, base) else { return Ok("no entry".to_owned()) };
    let is_there = (0..input.len()).any(|at| {
        read_entry(&input[at..], Position(base.0 + at as u64)).is_ok_and(|entry| entry.mark == highest)
    });
    if is_there {
        Ok(format!("mark {}", highest.0 > base.0))
    } else {
        Err(format!("{highest:?} is no entry's mark"))
    }
}

fn samples() -> Vec<Mutation<'static>> {
    let file = FileId { ino: Ino(4097), generation: 2 };
    let (dir, hash, version) = (Ino::ROOT, NameHash(99), Version(5));
    vec![
        Mutation::PutDentry { dir, hash, version, name: b"a", value: b"value" },
        Mutation::DelDentry { dir, hash, version, name: b"a" },
        Mutation::PutHeader { dir, frag: Frag::WHOLE, version, newborn: true, header: b"header" },
        Mutation::PutBackptr { ino: Ino(4097), version: 3, parent: dir, hash, name: b"a" },
        Mutation::DelBackptr { ino: Ino(4097), version: 4 },
        Mutation::DelPlace { ino: Ino(4097), version: 4 },
        Mutation::DelContent { dir: Ino(4097) },
        Mutation::Session { id: SessionId(1), open: true, client: b"host" },
        Mutation::SessionFloor { id: SessionId(1), floor: Tid(7) },
        Mutation::InoCounter { rank: RankId(0), next: 70_000 },
        Mutation::DataCut { file, size: 10, truncate_seq: 1 },
        Mutation::DataRedo { file, truncate_seq: 1, write_seq: 8, data: b"content" },
        Mutation::DataRemove { file },
        Mutation::Sealed { id: MoveId(3), unit: Unit::ROOT },
        Mutation::Prepared { id: TxnId(4), leader: RankId(1), parts: b"parts" },
        Mutation::Committed { id: TxnId(4), decided: b"changes", left: b"" },
        Mutation::Resolved { id: TxnId(4), left: b"left" },
        Mutation::DelegateInos { id: SessionId(1), first: Ino(8192), count: 4096 },
        Mutation::SessionFlags { id: SessionId(1), flags: 3 },
        Mutation::Holders {
            id: MoveId(3),
            moved: Moved { unit: Unit::ROOT, slot: 5 },
            first: true,
            list: &[0; 4],
        },
        Mutation::HolderGone { session: SessionId(1), ino: Ino(9) },
        Mutation::Unheard { when: When::Transaction(TxnId(4)), list: &[0; 4] },
    ]
}

fn mutation_seeds() -> Vec<(String, Vec<u8>)> {
    samples()
        .iter()
        .enumerate()
        .map(|(number, mutation)| (format!("{number:02}"), encode(mutation)))
        .collect()
}

fn mutations_seeds() -> Vec<(String, Vec<u8>)> {
    let all: Vec<Vec<u8>> = samples().iter().map(encode).collect();
    let pairs = all.windows(2).enumerate().map(|(number, pair)| (format!("pair-{number:02}"), pair.concat()));
    pairs.chain([("all".to_owned(), all.concat()), ("none".to_owned(), Vec::new())]).collect()
}

/// Appends one entry; `shape` chooses what is in it.
fn put(w: &mut Writer, shape: usize, mark: Position) {
    let start = begin_entry(w, Position(STREAM_BASE + w.len() as u64), mark);
    let origin = TxnOrigin { session: SessionId(3), tid: Tid(9), result: b"\x01" };
    let cluster = TxnCluster { global_id: 1, map_version: 2, snap_sequence: 3 };
    match shape % 5 {
        0 => put_mark(w),
        1 => put_transaction(w, Wall(5), None, TxnCluster::default()),
        2 => put_transaction(w, Wall(5), Some(&origin), TxnCluster::default()),
        3 => put_transaction(w, Wall(5), None, cluster),
        _ => put_transaction(w, Wall(-5), Some(&origin), cluster),
    }
    if !shape.is_multiple_of(5) {
        samples().iter().skip(shape).take(2).for_each(|mutation| mutation.encode(w));
    }
    end_entry(w, start);
}

fn entry_seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |shape: usize| {
        let mut w = Writer::new();
        put(&mut w, shape, Position(STREAM_BASE));
        (format!("{shape:02}"), w.0)
    };
    (0..10).map(seed).collect()
}

fn stream_seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |count: usize| {
        let mut w = Writer::new();
        for shape in 0..count {
            let mark = Position(STREAM_BASE + w.len() as u64 / 2);
            put(&mut w, shape + count, mark);
        }
        (format!("{count}"), w.0)
    };
    (1..6).map(seed).collect()
}
