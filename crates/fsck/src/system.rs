//! The system records: sessions, inode counter, checkpoint, of each rank.
//!
//! Absent: what sessions hold (opens and locks are in no record).

use crate::bytes::{Bytes, Out};
use crate::finding::{Found, Kind};
use crate::fix::{At, Fix, Spot};
use crate::journal::Statements;
use crate::record::{RANKS, system_key};
use crate::tables::{Table, Tables, place};
use std::collections::BTreeMap;

const SESSION: u8 = 1;
const COUNTER: u8 = 2;
const CHECKPOINT: u8 = 3;
const SESSION_OF_RANK: u8 = 4;

/// Among a session's flags: it is to end.
pub(crate) const EVICTED: u8 = 4;

/// A client session: description, and the results it may still ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) client: Box<[u8]>,
    pub(crate) floor: u64,
    pub(crate) results: BTreeMap<u64, Box<[u8]>>,
    /// It is to be refused, and to end when what its client keeps has run out: only the rank knows when.
    pub(crate) evicted: bool,
    /// Inode numbers that it may give out: first and count. Of those that the journal tells of some are used.
    pub(crate) delegated: Vec<(u64, u32)>,
}

/// What the system table says of one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfRank {
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Numbers below it may have been given out.
    pub(crate) counter: Option<u64>,
    /// Where replay starts; `Err`: there is a record and it cannot be read.
    pub(crate) checkpoint: Option<Result<u64, ()>>,
}

/// What the system table says.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// Those that there is a record of, and rank 0.
    pub(crate) ranks: BTreeMap<u16, OfRank>,
}

impl Default for System {
    fn default() -> Self {
        Self { ranks: BTreeMap::from([(0, OfRank::default())]) }
    }
}

impl Session {
    fn decode(value: &[u8]) -> Option<Self> {
        let mut b = Bytes(value);
        let mut session = Self { client: b.bytes()?.into(), floor: b.u64()?, ..Self::default() };
        let count = b.u32()?;
        for _ in 0..count {
            session.results.insert(b.u64()?, b.bytes()?.into());
        }
        if !b.is_empty() {
            // Flags, and numbers delegated to it; a repair leaves it neither, but that it is evicted.
            session.evicted = b.u8()? & EVICTED != 0;
            let delegated = b.u32()?;
            for _ in 0..delegated {
                session.delegated.push((b.u64()?, b.u32()?));
            }
        }
        b.is_empty().then_some(session)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.bytes(&self.client).u64(self.floor).u32(self.results.len() as u32);
        for (tid, result) in &self.results {
            out.u64(*tid).bytes(result);
        }
        if self.evicted {
            out.u8(EVICTED).u32(0);
        }
        out.0
    }

    pub(crate) fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.results = self.results.split_off(&self.floor);
    }
}

impl System {
    /// Reads the table; what cannot be read is a finding.
    pub(crate) fn read(tables: &Tables, found: &mut Found) -> Self {
        let mut system = Self::default();
        let damaged = found.report.findings.len();
        tables.walk(Table::System, &Statements::new(), found, |found, environment, key, value| {
            let at = At { environment, table: Table::System, key: key.into() };
            if environment != tables.home(Table::System, key) {
                found.add(Kind::EnvironmentWrong, place(environment, Table::System, key), "");
                return found.fix(Fix::Rehome(at));
            }
            system.take(found, at, value);
        });
        // A checkpoint whose checksum is wrong is one that cannot be read.
        for finding in found.report.findings[damaged..].iter().filter(|f| f.kind == Kind::ValueDamaged) {
            let rank = finding.place.split_once(" checkpoint of rank ").map(|(_, rank)| rank.parse());
            if let Some(Ok(rank)) = rank {
                system.rank(rank).checkpoint = Some(Err(()));
            }
        }
        system
    }

    /// What is said of a rank.
    pub(crate) fn rank(&mut self, rank: u16) -> &mut OfRank {
        self.ranks.entry(rank).or_default()
    }

    /// The counter of the rank that gave a number out.
    pub(crate) fn counter_of(&self, rank: u16) -> Option<u64> {
        self.ranks.get(&rank)?.counter
    }

    /// Whether a session may give that number out.
    pub(crate) fn is_delegated(&self, ino: u64) -> bool {
        let has =
            |(first, count): &(u64, u32)| ino.checked_sub(*first).is_some_and(|at| at < u64::from(*count));
        let sessions = self.ranks.values().flat_map(|rank| rank.sessions.values());
        sessions.flat_map(|session| &session.delegated).any(has)
    }

    /// The highest incarnation that numbers of sessions tell of.
    pub(crate) fn newest(&self) -> u64 {
        let last = self.ranks.values().filter_map(|rank| rank.sessions.keys().next_back());
        last.map(|id| id >> 32).max().unwrap_or(0)
    }

    fn take(&mut self, found: &mut Found, at: At, value: &[u8]) {
        let place = place(at.environment, Table::System, &at.key);
        let mut v = Bytes(value);
        match read_key(&at.key) {
            Some(Key::Session(rank, id)) => match Session::decode(value) {
                Some(session) => {
                    self.rank(rank).sessions.insert(id, session);
                }
                None => {
                    found.add(Kind::SessionUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            Some(Key::Counter(rank)) => match (v.u64(), v.is_empty()) {
                (Some(next), true) => self.rank(rank).counter = Some(next),
                _ => {
                    found.add(Kind::CounterUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            Some(Key::Checkpoint(rank)) => match (v.u64(), v.u64(), v.is_empty()) {
                (Some(position), Some(next), true) => {
                    let rank = self.rank(rank);
                    rank.checkpoint = Some(Ok(position));
                    rank.counter = rank.counter.max(Some(next));
                }
                _ => {
                    self.rank(rank).checkpoint = Some(Err(()));
                    found.add(Kind::CheckpointUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            None => {
                found.add(Kind::SystemKeyUnknown, place, "");
                found.fix(Fix::Remove(Spot::At(at)));
            }
        }
    }

    /// The table's records as they should be, with replay of each rank's journal starting at its position.
    pub(crate) fn records(&self, positions: &BTreeMap<u16, u64>) -> Statements {
        let mut records = Statements::new();
        for (rank, said) in &self.ranks {
            let next = said.counter.unwrap_or(crate::record::FIRST_COUNTER);
            let position = positions.get(rank).copied().unwrap_or(0);
            let [counter, checkpoint] = counter_keys(*rank);
            let mut put = |key, value: Vec<u8>| records.insert(key, Some(value.into()));
            put(counter, Out::default().u64(next).0.clone());
            put(checkpoint, Out::default().u64(position).u64(next).0.clone());
            for (id, session) in &said.sessions {
                put(session_key(*rank, *id), session.encode());
            }
        }
        records
    }
}

/// The key of a system record.
enum Key {
    Session(u16, u64),
    Counter(u16),
    Checkpoint(u16),
}

fn read_key(key: &[u8]) -> Option<Key> {
    let mut b = Bytes(key);
    let (kind, number) = (b.u8()?, b.u64_be()?);
    let rank = u16::try_from(number).ok().filter(|rank| *rank < RANKS);
    let read = match kind {
        SESSION => Key::Session(0, number),
        COUNTER => Key::Counter(rank?),
        CHECKPOINT => Key::Checkpoint(rank?),
        SESSION_OF_RANK => Key::Session(rank.filter(|rank| *rank > 0)?, b.u64_be()?),
        _ => return None,
    };
    b.is_empty().then_some(read)
}

/// The key of a rank's counter and of its checkpoint.
pub(crate) fn counter_keys(rank: u16) -> [Box<[u8]>; 2] {
    [system_key(COUNTER, rank.into()), system_key(CHECKPOINT, rank.into())]
}

/// The key of a session.
pub(crate) fn session_key(rank: u16, id: u64) -> Box<[u8]> {
    match rank {
        0 => system_key(SESSION, id),
        rank => [&system_key(SESSION_OF_RANK, rank.into())[..], &id.to_be_bytes()].concat().into(),
    }
}
