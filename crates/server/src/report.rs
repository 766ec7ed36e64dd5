//! The rank as the driver's machine, and its numbers as an operator sees them.
//!
//! Absent: texts and tables (room `cli`).

use crate::machine::RankMachine;
use mds::Rank;
use mds::input::Input;
use mds::output::Output;
use mds::status::SessionStatus;
use serde_json::{Value, json};
use stdx::{Machine, Mono, Now};

/// Operations replayed in a second, for the estimate in `status`.
const REPLAYED_PER_SECOND: f64 = 300_000.0;
/// Bytes of an average journal entry, for the same estimate.
const ENTRY_BYTES: u64 = 400;

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

    fn report(&self, question: &Value) -> Option<Value> {
        Some(match question.get("cmd")?.as_str()? {
            "status" => status(self),
            "perf dump" => counters(self),
            "client ls" => json!({ "clients": self.sessions().iter().map(client).collect::<Vec<_>>() }),
            _ => return None,
        })
    }
}

fn status(rank: &Rank) -> Value {
    let s = rank.status();
    let operations = s.journal_backlog / ENTRY_BYTES;
    json!({
        "state": rank.state().name(),
        "clients": s.sessions,
        "cached_inodes": s.cached,
        "cache_bytes": s.cache_bytes,
        "dirty": s.dirty,
        "full": s.full,
        "checkpointing": s.checkpointing,
        "journal_backlog": s.journal_backlog,
        "journal_operations": operations,
        "replay_seconds": operations as f64 / REPLAYED_PER_SECOND,
    })
}

fn counters(rank: &Rank) -> Value {
    let s = rank.status();
    json!({
        "requests": s.requests,
        "parks": s.parks,
        "parked": s.parked,
        "loads": s.loads,
        "loads_in_flight": s.loads_in_flight,
        "transactions": s.transactions,
        "replayed": s.replayed,
        "cached_inodes": s.cached,
        "cached_dirs": s.cached_dirs,
        "cache_bytes": s.cache_bytes,
        "dirty": s.dirty,
        "journal_end": s.journal_end.0,
        "journal_durable": s.journal_durable.0,
        "journal_backlog": s.journal_backlog,
        "checkpoints": s.checkpoints,
        "busy_files": s.busy_files,
        "locks": s.locks,
        "sessions": s.sessions,
        "next_ino": s.next_ino,
    })
}

/// One line of `client ls`. The rank knows a client as "uid=N host:mount pid N".
fn client(session: &SessionStatus) -> Value {
    let text = session.client.as_str();
    let (user, place) = text.strip_prefix("uid=").and_then(|t| t.split_once(' ')).unwrap_or(("", text));
    let (place, pid) = place.rsplit_once(" pid ").unwrap_or((place, ""));
    let (host, mount) = place.split_once(':').unwrap_or((place, ""));
    json!({
        "id": session.id.0,
        "host": host,
        "mount": mount,
        "user": user,
        "pid": pid.parse::<u32>().ok(),
        "embedded": session.embedded,
        "connected": session.connected,
        "requests": session.requests,
        "in_flight": session.in_flight,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_taken_apart() {
        let session = SessionStatus {
            id: proto::SessionId(7),
            client: "uid=1000 box:/mnt/a b pid 42".into(),
            embedded: false,
            connected: true,
            requests: 3,
            in_flight: 0,
        };
        let shown = client(&session);
        assert_eq!((&shown["user"], &shown["host"]), (&json!("1000"), &json!("box")));
        assert_eq!((&shown["mount"], &shown["pid"]), (&json!("/mnt/a b"), &json!(42)));
    }
}
