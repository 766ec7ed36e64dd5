//! `tell mds.N ...`: a command for one rank, in Ceph's words; and faults, so that a failover can be tried.
//!
//! Absent: what the commands do (`admin.rs`).

use crate::admin::{done, refusal, refusal_with};
use crate::fs::{not_of_mount, rank_meant, text};
use crate::server::Server;
use proto::admin::Refusal;
use serde_json::{Value, json};

/// What may be told, and what it is elsewhere.
const WORDS: [(&str, &str); 12] = [
    ("perf dump", "perf dump"),
    ("perf reset", "perf reset"),
    ("cache status", "cache status"),
    ("cache drop", "cache drop"),
    ("client ls", "client ls"),
    ("session ls", "client ls"),
    ("client evict", "client evict"),
    ("session evict", "client evict"),
    ("ops", "ops"),
    ("dump_ops_in_flight", "ops"),
    ("flush journal", "checkpoint"),
    ("checkpoint", "checkpoint"),
];

/// What Ceph's ranks are told and ours are not, and the command that does it here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("damage", "`pando fsck DIR`, when nobody serves DIR"),
    ("dirfrag", "`pando dirfrag ls|split|merge PATH`"),
    ("dump_blocked_ops", "`pando ops --blocked`"),
    ("dump_historic_ops", "`pando ops --slow`"),
    ("export dir", "`pando subtree move PATH RANK`"),
    ("get subtrees", "`pando subtree ls`"),
    ("respawn", "`pando mds fail RANK`"),
    ("scrub", "`pando fsck DIR`, when nobody serves DIR"),
    ("status", "`pando fs status`: a line for each rank"),
];

/// What comes nearest to what is told to no rank here.
fn nearest(what: &str) -> String {
    let is_meant =
        |word: &str| what.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    match ELSEWHERE.iter().find(|(word, _)| is_meant(word)) {
        Some((_, step)) => (*step).to_owned(),
        None => format!("`pando tell mds.N` with {}", WORDS.map(|(word, _)| word).join(", ")),
    }
}

/// The command that is meant, for its rank; none: a fault.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn inner(server: &Server, command: &Value) -> Result<Option<Value>, Value> {
    let (who, what) = (text(command, "who")?, text(command, "what")?);
    if is_fault(what) {
        return Ok(None);
    }
    let rank = rank_meant(server, who)?;
    // `session evict id=7`, `session evict 7`.
    let (words, id) = match what.rsplit_once(' ') {
        Some((words, last)) if words.ends_with("evict") => {
            (words, last.strip_prefix("id=").unwrap_or(last).parse::<u64>().ok())
        }
        _ => (what, None),
    };
    match WORDS.iter().find(|(word, _)| *word == words) {
        Some((_, cmd)) => Ok(Some(json!({ "cmd": cmd, "rank": rank.0, "id": id }))),
        None => Err(refusal_with(Refusal::Usage, &format!("{what}: not in this version"), &nearest(what))),
    }
}

fn is_fault(what: &str) -> bool {
    matches!(what, "crash" | "hang")
}

/// Does harm to a life.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn fault(server: &Server, command: &Value) -> Result<Value, Value> {
    not_of_mount(server)?;
    let (who, what) = (text(command, "who")?, text(command, "what")?);
    let rank = rank_meant(server, who)?;
    let Some(life) = server.stage.of(rank) else {
        return Err(refusal(Refusal::State, &format!("mds.{}: it has no life now", rank.0)));
    };
    server.log.warn("server", "a fault was asked for", &[("rank", &rank.0), ("fault", &what)]);
    if what == "hang" {
        life.driver.hang();
    } else if !server.cluster.get().is_some_and(|cluster| cluster.crash(&life.identity.name)) {
        return Err(refusal(Refusal::State, &format!("mds.{}: no slot carries it any more", rank.0)));
    }
    Ok(done(json!({ "text": format!("mds.{}: {what}", rank.0) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ceph_tells_its_ranks_names_the_command_for_it() {
        assert_eq!(nearest("get subtrees"), "`pando subtree ls`");
        assert_eq!(nearest("status"), "`pando fs status`: a line for each rank");
        assert_eq!(nearest("export dir /builds 1"), "`pando subtree move PATH RANK`");
        assert_eq!(nearest("dirfrag split /builds 0/0 3"), "`pando dirfrag ls|split|merge PATH`");
        for what in ["get", "dirfrags", "export directory", ""] {
            assert!(nearest(what).starts_with("`pando tell mds.N` with perf dump, "), "{what}");
        }
        assert!(WORDS.iter().all(|(word, _)| nearest(word).starts_with("`pando tell")), "told to a rank");
    }
}
