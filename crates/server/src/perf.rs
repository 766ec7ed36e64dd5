//! Counters of a server: `perf dump`, with Ceph's names where Ceph has the number, and `perf reset`.
//!
//! A reset touches no counter: what was counted until then is taken off what is shown.
//!
//! Absent: counting (crate `mds`, the driver), tables (crate `cli`).

use crate::driver::Driver;
use crate::server::Server;
use crate::several;
use runtime::process;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What `perf reset` has taken off, by the driver's number: each life of a rank counts from zero.
#[derive(Default)]
pub(crate) struct Baseline(Mutex<BTreeMap<u64, Value>>);

impl Baseline {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These count from now. `all` there are: others are over, and forgotten.
    pub(crate) fn reset(&self, drivers: &[Arc<Driver>], all: &[Arc<Driver>]) {
        let counters: Vec<(u64, Value)> = drivers
            .iter()
            .map(|driver| {
                // The longest ones are no counts: they begin anew.
                driver.forget_longest_turn();
                driver.counters.queue_nanos_max.store(0, Ordering::Relaxed);
                (driver.number, counted(driver).0)
            })
            .collect();
        let mut base = self.lock();
        base.retain(|number, _| all.iter().any(|driver| driver.number == *number));
        base.extend(counters);
    }

    fn off(&self, driver: &Driver, counters: &Value) -> Value {
        self.lock().get(&driver.number).map_or_else(|| counters.clone(), |base| less(counters, base))
    }
}

/// Each number less the one of the same name in `base`; what `base` does not know stays.
fn less(counters: &Value, base: &Value) -> Value {
    if let Value::Object(map) = counters {
        return map.iter().map(|(key, value)| (key.clone(), less(value, &base[key]))).collect();
    }
    match (counters.as_u64(), base.as_u64()) {
        (Some(now), Some(then)) => json!(now.saturating_sub(then)),
        _ => counters.clone(),
    }
}

/// What only grows, of rank and driver, whatever was reset; and the rank's gauges.
pub(crate) fn counted(driver: &Driver) -> (Value, Value) {
    let mut rank = driver.report(&json!({ "cmd": "perf dump" })).unwrap_or_default();
    let (counters, gauges) = (rank["counters"].take(), rank["gauges"].take());
    (json!({ "rank": counters, "driver": of_driver(driver) }), gauges)
}

fn of_driver(driver: &Driver) -> Value {
    let c = &driver.counters;
    let mut map = Map::new();
    let mut put = |name: &str, counter: &AtomicU64| {
        map.insert(name.to_owned(), json!(counter.load(Ordering::Relaxed)));
    };
    put("waits", &c.waits);
    put("wait_nanos", &c.wait_nanos);
    put("waits_over_5ms", &c.waits_over_5ms);
    put("queued", &c.queued);
    put("queue_nanos", &c.queue_nanos);
    put("queue_nanos_max", &c.queue_nanos_max);
    put("queue_over_5ms", &c.queue_over_5ms);
    put("journal_commits", &c.commits);
    put("journal_bytes", &c.journal_bytes);
    put("loads", &c.loads);
    put("load_batches", &c.load_batches);
    put("store_batches", &c.store_batches);
    put("data_inline", &c.data_inline);
    put("data_queued", &c.data_queued);
    let turns = driver.turns();
    let mut put = |name: &str, count: u64| map.insert(name.to_owned(), json!(count));
    put("turns", turns.turns);
    put("turn_nanos", turns.nanos);
    put("turn_nanos_max", turns.nanos_max);
    put("turns_over_5ms", turns.over_5ms);
    put("inputs", turns.inputs);
    Value::Object(map)
}

/// `perf dump`, of all these together.
pub(crate) fn dump(server: &Server, drivers: &[Arc<Driver>]) -> Value {
    let (mut counters, mut gauges) = (Value::Null, Value::Null);
    for driver in drivers {
        let (own, state) = counted(driver);
        several::add(&mut counters, server.baseline.off(driver, &own));
        several::add(&mut gauges, state);
    }
    shown(&counters, &gauges, process::usage().map_or(0, |usage| usage.resident_bytes))
}

fn shown(counters: &Value, gauges: &Value, resident_bytes: u64) -> Value {
    let rank = &counters["rank"];
    let mut of_server = Map::new();
    of_server.insert("handle_client_request".into(), rank["requests"].clone());
    let (mut replies, mut nanos) = (0, 0);
    for (name, count) in rank["ops"].as_object().into_iter().flatten() {
        let (count, each) = (count["count"].as_u64().unwrap_or(0), count["nanos"].as_u64().unwrap_or(0));
        (replies, nanos) = (replies + count, nanos + each);
        of_server.insert(format!("req_{name}_latency"), latency(count, each));
    }
    let mut own = rank.clone();
    if let (Some(own), Some(gauges)) = (own.as_object_mut(), gauges.as_object()) {
        own.remove("ops");
        own.extend(gauges.clone());
    }
    json!({
        "mds": {
            "request": rank["requests"],
            "reply": replies,
            "reply_latency": latency(replies, nanos),
            "inodes": gauges["cached_inodes"],
            "q": gauges["in_flight"],
        },
        "mds_server": of_server,
        "mds_log": {
            "evadd": rank["transactions"],
            "wrpos": gauges["journal_end"],
            "safepos": gauges["journal_durable"],
            "replayed": gauges["replayed"],
        },
        "mds_mem": {
            "ino": gauges["cached_inodes"],
            "dir": gauges["cached_dirs"],
            "dn": gauges["cached_names"],
            "rss": resident_bytes / 1024,
        },
        "mds_sessions": { "session_count": gauges["sessions"] },
        "rank": own,
        "driver": counters["driver"],
    })
}

/// As Ceph writes one: seconds.
fn latency(count: u64, nanos: u64) -> Value {
    let sum = nanos as f64 / 1e9;
    let average = if count == 0 { 0.0 } else { sum / count as f64 };
    json!({ "avgcount": count, "sum": sum, "avgtime": average })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_taken_off_and_gauges_are_not() {
        let count = |count: u64| json!({ "count": count, "errors": 0, "nanos": count * 1_000_000 });
        let counters = |n: u64| {
            let rank = json!({ "ops": { "create": count(n) }, "requests": n, "transactions": n });
            json!({ "rank": rank, "driver": { "turns": 2 * n } })
        };
        let since = less(&counters(10), &counters(4));
        let shown = shown(&since, &json!({ "cached_inodes": 7, "dirty": 3 }), 4096);
        let create = &shown["mds_server"]["req_create_latency"];
        assert_eq!((&create["avgcount"], create["sum"].as_f64()), (&json!(6), Some(0.006)));
        assert_eq!((&shown["mds"]["reply"], &shown["mds"]["inodes"]), (&json!(6), &json!(7)));
        assert_eq!((&shown["rank"]["dirty"], &shown["driver"]["turns"]), (&json!(3), &json!(12)));
        assert_eq!(shown["mds_mem"]["rss"], json!(4));
        assert_eq!(less(&counters(4), &Value::Null), counters(4), "nothing was reset");
    }
}
