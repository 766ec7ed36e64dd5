//! The system records: sessions, inode counter, checkpoint.
//!
//! Absent: what sessions hold (opens and locks are in no record).

use crate::bytes::{Bytes, Out};
use crate::finding::{Found, Kind};
use crate::fix::{At, Fix, Spot};
use crate::journal::Statements;
use crate::record::system_key;
use crate::tables::{Table, Tables, place};
use std::collections::BTreeMap;

const SESSION: u8 = 1;
const COUNTER: u8 = 2;
const CHECKPOINT: u8 = 3;

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
}

/// What the system table says.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Numbers below it may have been given out.
    pub(crate) counter: Option<u64>,
    /// Where replay starts; `Err`: there is a record and it cannot be read.
    pub(crate) checkpoint: Option<Result<u64, ()>>,
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
            b.take((delegated as usize).checked_mul(8 + 4)?)?;
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
        let lost = |f: &crate::Finding| f.kind == Kind::ValueDamaged && f.place.contains(" checkpoint ");
        if found.report.findings[damaged..].iter().any(lost) {
            system.checkpoint = Some(Err(()));
        }
        system
    }

    fn take(&mut self, found: &mut Found, at: At, value: &[u8]) {
        let place = place(at.environment, Table::System, &at.key);
        let mut b = Bytes(&at.key);
        let mut v = Bytes(value);
        let (kind, id, end) = (b.u8(), b.u64_be(), b.is_empty());
        match (kind, id, end) {
            (Some(SESSION), Some(id), true) => match Session::decode(value) {
                Some(session) => {
                    self.sessions.insert(id, session);
                }
                None => {
                    found.add(Kind::SessionUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            (Some(COUNTER), Some(0), true) => match (v.u64(), v.is_empty()) {
                (Some(next), true) => self.counter = Some(next),
                _ => {
                    found.add(Kind::CounterUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            (Some(CHECKPOINT), Some(0), true) => match (v.u64(), v.u64(), v.is_empty()) {
                (Some(position), Some(next), true) => {
                    self.checkpoint = Some(Ok(position));
                    self.counter = self.counter.max(Some(next));
                }
                _ => {
                    self.checkpoint = Some(Err(()));
                    found.add(Kind::CheckpointUnreadable, place, "");
                    found.fix(Fix::Remove(Spot::At(at)));
                }
            },
            _ => {
                found.add(Kind::SystemKeyUnknown, place, "");
                found.fix(Fix::Remove(Spot::At(at)));
            }
        }
    }

    /// The table's records as they should be, with replay starting at `position`.
    pub(crate) fn records(&self, position: u64) -> Statements {
        let mut records = Statements::new();
        let next = self.counter.unwrap_or(crate::record::FIRST_COUNTER);
        let mut put = |key, value: Vec<u8>| records.insert(key, Some(value.into()));
        put(system_key(COUNTER, 0), Out::default().u64(next).0.clone());
        put(system_key(CHECKPOINT, 0), Out::default().u64(position).u64(next).0.clone());
        for (id, session) in &self.sessions {
            put(system_key(SESSION, *id), session.encode());
        }
        records
    }
}

/// The key of rank 0's counter and of its checkpoint.
pub(crate) fn counter_keys() -> [Box<[u8]>; 2] {
    [system_key(COUNTER, 0), system_key(CHECKPOINT, 0)]
}

/// The key of a session.
pub(crate) fn session_key(id: u64) -> Box<[u8]> {
    system_key(SESSION, id)
}
