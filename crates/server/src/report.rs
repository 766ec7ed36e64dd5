//! The rank as the driver's machine, and its numbers as an operator sees them.
//!
//! Absent: texts and tables (crate `cli`), judging the numbers (`health.rs`).

use crate::machine::{ClientName, RankFacts, RankMachine};
use mds::Rank;
use mds::input::Input;
use mds::output::Output;
use mds::status::{OpStatus, SessionStatus, Status};
use proto::cluster::Unit;
use proto::header::SPREAD_DEPTH_MAX;
use proto::{Frag, Ino, Kind, NameHash, SessionId};
use serde_json::{Map, Value, json};
use stdx::time::{MS, SECOND};
use stdx::{Machine, Mono, Now};

/// Operations replayed in a second, for the estimate in `status`.
const REPLAYED_PER_SECOND: f64 = 300_000.0;
/// Bytes of an average journal entry, for the same estimate.
const ENTRY_BYTES: u64 = 400;
/// Requests that one answer to `ops` lists: with paths of 512 bytes and more, each of which JSON may write as six, well within a frame.
const OPS_MAX: usize = 150;

impl RankMachine for Rank {
    fn step(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        Machine::step(self, now, input, out);
    }

    fn deadline(&self) -> Option<Mono> {
        Machine::deadline(self)
    }

    fn is_at_rest(&self) -> bool {
        Self::is_at_rest(self)
    }

    fn is_recalling(&self) -> bool {
        self.status().recalls > 0
    }

    fn state(&self) -> mds::State {
        Self::state(self)
    }

    fn has_session(&self, id: SessionId) -> bool {
        // No time matters for that.
        self.sessions(Mono(0)).iter().any(|session| session.id == id)
    }

    fn loads(&self, now: Mono) -> Vec<(Ino, u64)> {
        self.most_loaded(now)
    }

    fn facts(&self, now: Mono) -> Option<RankFacts> {
        Some(facts(self, now))
    }

    fn report(&self, now: Mono, question: &Value) -> Option<Value> {
        Some(match question.get("cmd")?.as_str()? {
            "status" => status(self, now),
            "perf dump" => json!({ "counters": counters(self), "gauges": gauges(self) }),
            "client ls" => json!({ "clients": self.sessions(now).iter().map(client).collect::<Vec<_>>() }),
            "ops" => operations(self, now),
            "warmup status" => warmth(self),
            "place" => match self.place_of(ino_of(question)?) {
                Some((parent, name)) => json!({ "parent": parent.0, "name": name }),
                None => Value::Null,
            },
            "census" => {
                let (counts, next) = self.census(question.get("from")?.as_u64()?.try_into().ok()?);
                let one = |(dir, unit, count): (Ino, Unit, u64)| {
                    let of = if dir == Ino::NONE { Ino::NONE } else { unit.dir };
                    json!({ "ino": of.0, "frag": frag(unit.frag), "inos": count })
                };
                json!({ "units": counts.into_iter().map(one).collect::<Vec<_>>(), "next": next })
            }
            "loads" => json!({ "units": self.loads(now).iter().map(unit).collect::<Vec<_>>() }),
            "spread" => {
                let (depth, busy, distributed) = self.spread_of(ino_of(question)?);
                json!({ "depth": depth, "busy": busy, "distributed": distributed })
            }
            "moving" => json!({ "wanted": self.is_to_move(ino_of(question)?) }),
            "moves" => json!({ "moves": self.moves_wanted().iter().map(moving).collect::<Vec<_>>() }),
            "part" => {
                let frag = frag_named(question.get("frag")?.as_str()?)?;
                match self.part_named(Unit { dir: ino_of(question)?, frag }) {
                    Some((number, owner)) => json!({ "number": number.0, "owner": owner.0 }),
                    None => Value::Null,
                }
            }
            _ => return None,
        })
    }
}

/// What is asked of the directories that one entry governs; the number 0: of those that slots place.
fn unit(unit: &mds::UnitLoad) -> Value {
    let mds::Load { reads, writes, misses, fetched, cpu } = unit.load;
    json!({
        "ino": unit.unit.dir.0, "frag": frag(unit.unit.frag), "reads_per_s": reads, "writes_per_s": writes, "misses_per_s": misses,
        "fetched_per_s": fetched, "cpu": cpu,
    })
}

/// A part of a directory, as `subtree ls` and `dirfrag ls` show it.
pub(crate) fn frag(frag: Frag) -> String {
    format!("{:#x}/{}", frag.prefix, frag.depth)
}

/// The other way round; none: it is no part that a directory may have.
pub(crate) fn frag_named(text: &str) -> Option<Frag> {
    let (prefix, depth) = text.split_once('/')?;
    let prefix = u64::from_str_radix(prefix.strip_prefix("0x")?, 16).ok()?;
    let depth = depth.parse().ok().filter(|depth| *depth <= SPREAD_DEPTH_MAX)?;
    let found = Frag::leading(NameHash(prefix), depth);
    (found.prefix == prefix).then_some(found)
}

/// A move, for `subtree ls`; `waits_for` null: for its turn.
fn moving(one: &mds::MoveStatus) -> Value {
    json!({
        "ino": one.unit.dir.0, "frag": frag(one.unit.frag), "wanted": one.goal.name(), "to": one.to.map(|to| to.0),
        "waits_for": one.waits_for,
    })
}

fn ino_of(question: &Value) -> Option<Ino> {
    Some(Ino(question.get("ino")?.as_u64()?))
}

fn status(rank: &Rank, now: Mono) -> Value {
    let s = rank.status();
    let traffic = rank.traffic(now);
    let operations = s.journal_backlog / ENTRY_BYTES;
    json!({
        "state": rank.state().name(),
        "clients": s.sessions,
        "cached_names": s.cached,
        "cached_inodes": s.cached_inodes,
        "cached_dirs": s.cached_dirs,
        "cache_bytes": cache_bytes(&s),
        "cache_limit": rank.config().cache_bytes,
        "dirty": s.dirty,
        "full": s.full,
        "stays_for": rank.stays_for(),
        "checkpointing": s.checkpointing,
        "journal_backlog": s.journal_backlog,
        "journal_operations": operations,
        "replay_seconds": operations as f64 / REPLAYED_PER_SECOND,
        "in_flight": rank.in_flight(),
        "requests_per_s": traffic.request_rate,
        "read_bytes_per_s": traffic.read_rate,
        "written_bytes_per_s": traffic.write_rate,
    })
}

/// What only grows.
fn counters(rank: &Rank) -> Value {
    let s = rank.status();
    let traffic = rank.traffic(Mono(0));
    let ops: Map<String, Value> = Kind::all()
        .zip(rank.op_counts())
        .map(|(kind, count)| {
            let numbers = json!({ "count": count.count, "errors": count.errors, "nanos": count.nanos });
            (kind.name().to_owned(), numbers)
        })
        .collect();
    json!({
        "ops": ops,
        "requests": traffic.requests,
        "read_bytes": traffic.read_bytes,
        "written_bytes": traffic.written_bytes,
        "parks": s.parks,
        "loads": s.loads,
        "loaded_ahead": s.loaded_ahead,
        "transactions": s.transactions,
        "checkpoints": s.checkpoints,
    })
}

fn gauges(rank: &Rank) -> Value {
    let s = rank.status();
    json!({
        "in_flight": rank.in_flight(),
        "parked": s.parked,
        "loads_in_flight": s.loads_in_flight,
        "replayed": s.replayed,
        "cached_names": s.cached,
        "cached_inodes": s.cached_inodes,
        "cached_dirs": s.cached_dirs,
        "cache_bytes": cache_bytes(&s),
        "dirty": s.dirty,
        "journal_end": s.journal_end.0,
        "journal_durable": s.journal_durable.0,
        "journal_backlog": s.journal_backlog,
        "busy_files": s.busy_files,
        "locks": s.locks,
        "caps": s.caps,
        "caps_bytes": s.caps_bytes,
        "recalls": s.recalls,
        "lined_up": s.lined_up,
        "sessions": s.sessions,
        "next_ino": s.next_ino,
    })
}

fn facts(rank: &Rank, now: Mono) -> RankFacts {
    let (s, config, sessions) = (rank.status(), rank.config(), rank.sessions(now));
    let names = |fails: &dyn Fn(&SessionStatus) -> bool| {
        sessions.iter().filter(|session| fails(session)).map(client_name).collect()
    };
    // Of a lease the other half is left until it is evicted.
    let (results_max, half_lease) = (config.limits.results as u64 / 2, config.lease_ns / 2);
    RankFacts {
        state: rank.state(),
        blocked: rank.blocked(now).count,
        complaint_s: config.complaint_ns / SECOND,
        cache_bytes: cache_bytes(&s),
        cache_limit: config.cache_bytes,
        journal_backlog: s.journal_backlog,
        journal_size: config.journal_bytes,
        full: s.full,
        behind: names(&|session| session.results > results_max),
        late: names(&|session| session.late_ns >= half_lease),
        pressed: names(&|session| session.room_ns >= half_lease),
    }
}

/// Memory that counts against `mds_cache_memory_limit`: what is noted of clients is cache, too.
const fn cache_bytes(s: &Status) -> u64 {
    s.cache_bytes + s.caps_bytes
}

fn warmth(rank: &Rank) -> Value {
    let s = rank.warm_status();
    json!({
        "run": s.run,
        "state": s.state.name(),
        "rank": rank.state().name(),
        "dirs": s.dirs,
        "names": s.names,
        "loaded": s.loaded,
        "waiting": s.waiting,
        "left_out": s.left_out,
    })
}

/// The requests under way, and those of late that were slow.
fn operations(rank: &Rank, now: Mono) -> Value {
    let (under_way, count) = rank.operations(now, OPS_MAX);
    let shown = |ops: &[OpStatus]| ops.iter().map(operation).collect::<Vec<_>>();
    json!({
        "ops": shown(&under_way),
        "count": count,
        "blocked": rank.blocked(now).count,
        "slow": shown(&rank.slow_operations()),
        "complaint_s": rank.config().complaint_ns / SECOND,
    })
}

fn operation(op: &OpStatus) -> Value {
    json!({
        "age_ms": op.age_ns / MS,
        "client": op.session.0,
        "op": op.kind.name(),
        "path": op.path,
        "waiting_for": op.waits.map(mds::Waits::name),
        "blocked": op.blocked,
    })
}

/// What a client says of itself, "uid=N [in=0xINO ]host:mount pid N", taken apart: user, host, mount, pid. `limited`: the rank says the word
/// before the host.
fn parts(client: &str, limited: bool) -> (&str, &str, &str, &str) {
    let (user, place) = client.strip_prefix("uid=").and_then(|t| t.split_once(' ')).unwrap_or(("", client));
    let place = place.split_once(' ').filter(|_| limited).map_or(place, |(_, place)| place);
    let (place, pid) = place.rsplit_once(" pid ").unwrap_or((place, ""));
    let (host, mount) = place.split_once(':').unwrap_or((place, ""));
    (user, host, mount, pid)
}

fn client_name(session: &SessionStatus) -> ClientName {
    let (_, host, mount, _) = parts(&session.client, session.limit.is_some());
    ClientName { id: session.id, host: host.to_owned(), mount: mount.to_owned() }
}

/// One line of `client ls`.
fn client(session: &SessionStatus) -> Value {
    let (user, host, mount, pid) = parts(&session.client, session.limit.is_some());
    json!({
        "id": session.id.0,
        "host": host,
        "mount": mount,
        "user": user,
        "limit": session.limit.map(|limit| format!("0x{:x}", limit.0)),
        "pid": pid.parse::<u32>().ok(),
        "embedded": session.embedded,
        "connected": session.connected,
        "requests": session.traffic.requests,
        "in_flight": session.in_flight,
        "caps": session.caps,
        "num_caps": session.caps,
        "dirty": 0,
        "late": format!("{}s", session.late_ns / SECOND),
        "late_ms": session.late_ns / MS,
        "completed_requests": session.results,
        "ops": session.traffic.request_rate,
        "read_bytes": session.traffic.read_bytes,
        "written_bytes": session.traffic.written_bytes,
        "read_bytes_per_s": session.traffic.read_rate,
        "written_bytes_per_s": session.traffic.write_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_taken_apart() {
        let mut session = SessionStatus {
            id: proto::SessionId(7),
            client: "uid=1000 box:/mnt/a b pid 42".into(),
            limit: None,
            embedded: false,
            connected: true,
            traffic: mds::TrafficStatus::default(),
            in_flight: 0,
            caps: 5,
            late_ns: 0,
            room_ns: 0,
            results: 3,
        };
        let shown = client(&session);
        assert_eq!((&shown["user"], &shown["host"]), (&json!("1000"), &json!("box")));
        assert_eq!((&shown["mount"], &shown["pid"]), (&json!("/mnt/a b"), &json!(42)));
        assert_eq!((&shown["completed_requests"], &shown["limit"]), (&json!(3), &json!(null)));
        session.client = "uid=0 in=0x000000000001001f box:/mnt pid 42".into();
        session.limit = Some(Ino(0x1_001f));
        let shown = client(&session);
        assert_eq!((&shown["user"], &shown["host"]), (&json!("0"), &json!("box")));
        assert_eq!((&shown["mount"], &shown["limit"]), (&json!("/mnt"), &json!("0x1001f")));
    }
    #[test]
    fn parts_are_named_as_they_are_shown() {
        let half = Frag { prefix: 1 << 63, depth: 1 };
        for part in [Frag::WHOLE, half, Frag { prefix: 0xff << 56, depth: 8 }] {
            assert_eq!(frag_named(&frag(part)), Some(part));
        }
        for odd in ["", "0x0", "0/1", "0x4000000000000000/1", "0x1/64", "0x0/9", "0x0/-1", "0xg/1"] {
            assert_eq!(frag_named(odd), None, "{odd}");
        }
    }
}
