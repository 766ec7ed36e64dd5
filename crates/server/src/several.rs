//! What several ranks answer, as one answer.
//!
//! Absent: asking them (`admin.rs`).

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What of a status adds up, and what is so as soon as one rank says so.
const SUMS: [&str; 12] = [
    "cached_names",
    "cached_inodes",
    "cached_dirs",
    "cache_bytes",
    "cache_limit",
    "dirty",
    "journal_backlog",
    "journal_operations",
    "requests_per_s",
    "read_bytes_per_s",
    "written_bytes_per_s",
    "in_flight",
];
const ANY: [&str; 2] = ["full", "checkpointing"];

/// Adds the numbers of the same name; of what is a highest one, the higher stays.
pub(crate) fn add(sum: &mut Value, other: Value) {
    match (sum, other) {
        (sum @ Value::Null, other) => *sum = other,
        (Value::Object(sum), Value::Object(other)) => {
            for (key, value) in other {
                match sum.get_mut(&key) {
                    Some(there) if key.ends_with("_max") => *there = higher(there, &value),
                    Some(there) => add(there, value),
                    None => drop(sum.insert(key, value)),
                }
            }
        }
        (sum, other) => {
            if let (Some(a), Some(b)) = (sum.as_u64(), other.as_u64()) {
                *sum = json!(a + b);
            }
        }
    }
}

fn higher(a: &Value, b: &Value) -> Value {
    json!(a.as_u64().unwrap_or(0).max(b.as_u64().unwrap_or(0)))
}

/// The rank's status of each, as one. Each client has a session with rank 0, and some have one with others.
pub(crate) fn status(ranks: &[Value]) -> Map<String, Value> {
    let mut all = Map::new();
    let number = |rank: &Value, key: &str| rank[key].as_u64().unwrap_or(0);
    for key in SUMS.iter().filter(|key| ranks.iter().any(|rank| rank[**key].is_u64())) {
        all.insert((*key).to_owned(), json!(ranks.iter().map(|rank| number(rank, key)).sum::<u64>()));
    }
    for key in ANY {
        all.insert(key.to_owned(), json!(ranks.iter().any(|rank| rank[key] == true)));
    }
    let clients = ranks.iter().map(|rank| number(rank, "clients")).max();
    all.insert("clients".to_owned(), json!(clients.unwrap_or(0)));
    // They replay at the same time.
    let longest = ranks.iter().filter_map(|rank| rank["replay_seconds"].as_f64()).fold(0.0, f64::max);
    all.insert("replay_seconds".to_owned(), json!(longest));
    all
}

/// The clients of all, each once.
pub(crate) fn clients(ranks: impl Iterator<Item = Value>) -> Value {
    let mut all: BTreeMap<u64, Value> = BTreeMap::new();
    for mut answer in ranks {
        for client in answer["clients"].as_array_mut().into_iter().flatten() {
            let client = client.take();
            let Some(id) = client["id"].as_u64() else { continue };
            match all.get_mut(&id) {
                Some(known) => add_client(known, &client),
                None => drop(all.insert(id, client)),
            }
        }
    }
    json!({ "clients": all.into_values().collect::<Vec<_>>() })
}

fn add_client(known: &mut Value, other: &Value) {
    const SUMS: [&str; 10] = [
        "requests",
        "in_flight",
        "caps",
        "num_caps",
        "completed_requests",
        "ops",
        "read_bytes",
        "written_bytes",
        "read_bytes_per_s",
        "written_bytes_per_s",
    ];
    for key in SUMS {
        add(&mut known[key], other[key].clone());
    }
    if other["late_ms"].as_u64() > known["late_ms"].as_u64() {
        (known["late"], known["late_ms"]) = (other["late"].clone(), other["late_ms"].clone());
    }
    if other["age_ms"].as_u64() > known["age_ms"].as_u64() {
        known["age_ms"] = other["age_ms"].clone();
    }
    // Cut off from one of them it is not whole.
    known["connected"] = json!(known["connected"] == true && other["connected"] == true);
}

/// The requests of all, the oldest first. Each answer is that of the rank whose number it has.
pub(crate) fn ops(ranks: impl Iterator<Item = (u16, Value)>) -> Value {
    let mut all = json!({ "ops": [], "slow": [] });
    for (rank, mut answer) in ranks {
        for key in ["ops", "slow"] {
            for op in answer[key].as_array_mut().into_iter().flatten() {
                op["rank"] = json!(rank);
                if let Some(list) = all[key].as_array_mut() {
                    list.push(op.take());
                }
            }
        }
        for key in ["count", "blocked", "held_back"] {
            add(&mut all[key], answer[key].take());
        }
        all["complaint_s"] = answer["complaint_s"].take();
    }
    if let Some(list) = all["ops"].as_array_mut() {
        list.sort_by_key(|op| std::cmp::Reverse(op["age_ms"].as_u64()));
    }
    all
}

/// How far warming is at all of them. One that does not know the directory has nothing to load, unless none does.
pub(crate) fn warmth(ranks: &[Value]) -> Value {
    let mut all = Value::Null;
    for rank in ranks {
        add(&mut all, rank.clone());
    }
    let of = |state: &str| ranks.iter().any(|rank| rank["state"] == state);
    let worst = ["running", "stopped", "full", "done", "nowhere"].into_iter().find(|state| of(state));
    all["state"] = json!(worst.unwrap_or("never"));
    if ranks.iter().any(|rank| rank["rank"] == "damaged" && rank["state"] == "running") {
        all["rank"] = json!("damaged");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_add_up_and_the_highest_stays() {
        let mut sum = Value::Null;
        add(&mut sum, json!({ "ops": { "create": { "count": 2 } }, "turn_nanos_max": 9, "name": "a" }));
        add(&mut sum, json!({ "ops": { "create": { "count": 3 } }, "turn_nanos_max": 4, "more": 1 }));
        let expected =
            json!({ "ops": { "create": { "count": 5 } }, "turn_nanos_max": 9, "name": "a", "more": 1 });
        assert_eq!(sum, expected);
    }

    #[test]
    fn a_client_of_two_ranks_is_one() {
        let client = |id: u64, caps: u64, late: u64, connected: bool| json!({ "id": id, "host": "h", "caps": caps, "late": format!("{late}s"), "late_ms": late * 1000, "connected": connected });
        let ranks = [
            json!({ "clients": [client(7, 3, 0, true), client(8, 1, 0, true)] }),
            json!({ "clients": [client(7, 2, 4, false)] }),
        ];
        let all = clients(ranks.into_iter());
        assert_eq!(all["clients"].as_array().map(Vec::len), Some(2));
        let one = &all["clients"][0];
        assert_eq!((&one["caps"], &one["late"]), (&json!(5), &json!("4s")));
        assert_eq!(one["connected"], json!(false));
    }

    #[test]
    fn status_adds_up_but_for_clients() {
        let rank = |clients: u64| json!({ "clients": clients, "dirty": 2, "full": clients == 1, "replay_seconds": 0.5 });
        let all = status(&[rank(2), rank(1)]);
        assert_eq!((&all["clients"], &all["dirty"], &all["full"]), (&json!(2), &json!(4), &json!(true)));
        assert_eq!(all["replay_seconds"], json!(0.5));
    }

    #[test]
    fn warming_runs_while_one_runs_and_is_nowhere_only_if_all_say_so() {
        let rank = |state: &str| json!({ "run": 1, "state": state, "rank": "active", "names": 5 });
        let all = |a: &str, b: &str| warmth(&[rank(a), rank(b)])["state"].clone();
        assert_eq!(all("done", "running"), "running");
        assert_eq!((all("nowhere", "done"), all("nowhere", "nowhere")), (json!("done"), json!("nowhere")));
        assert_eq!(warmth(&[rank("done"), rank("done")])["names"], 10);
    }

    #[test]
    fn requests_of_all_say_whose_they_are() {
        let answer = |age: u64| json!({ "ops": [{ "age_ms": age }], "slow": [], "count": 1, "blocked": 0, "held_back": 0, "complaint_s": 30 });
        let all = ops([(0, answer(3)), (1, answer(8))].into_iter());
        assert_eq!((&all["ops"][0]["rank"], &all["count"]), (&json!(1), &json!(2)));
        assert_eq!(all["complaint_s"], 30);
    }
}
