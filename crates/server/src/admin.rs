//! An operator's commands: JSON in, JSON out. Every answer has `ok`; a refusal has `code`
//! (`proto::admin`) and `error`.
//!
//! Nothing here waits: what takes long is started and seen in `status`.
//!
//! Absent: texts and tables (crate `cli`).

use crate::driver::{Driver, Life};
use crate::health::{Facts, Space};
use crate::server::Server;
use crate::{backup, fs, health, perf};
use mds::input::Input;
use proto::admin::Refusal;
use proto::storeio::{DataDone, DataOp};
use proto::{Ino, SessionId};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) fn refusal(why: Refusal, error: &str) -> Value {
    json!({ "schema": 1, "ok": false, "code": why.code(), "error": error })
}

/// A refusal with what to do about it.
pub(crate) fn refusal_with(why: Refusal, error: &str, step: &str) -> Value {
    let mut answer = refusal(why, error);
    answer["do"] = json!(step);
    answer
}

pub(crate) fn done(result: Value) -> Value {
    json!({ "schema": 1, "ok": true, "result": result })
}

/// Answers one command. `may_change`: the asker is root, who runs the server, or this process.
pub(crate) fn answer(server: &Arc<Server>, command: &Value, may_change: bool) -> Value {
    let Some(cmd) = command.get("cmd").and_then(Value::as_str) else {
        return refusal(Refusal::Usage, "no `cmd`");
    };
    match cmd {
        "status" => return done(status(server)),
        "health" => return done(health::json(&health::checks(&facts(server)))),
        "backup status" => return done(server.backup.report()),
        _ => {}
    }
    if let Some(answer) = fs::look(server, cmd, command) {
        return answer;
    }
    if !may_change && !LOOKS.contains(&cmd) {
        return refusal(Refusal::Denied, "permission denied: only root may do this, and who runs the server");
    }
    if let Some(answer) = fs::change(server, cmd, command) {
        return answer;
    }
    match server.driver() {
        Some(driver) => of_rank(server, &driver, cmd, command),
        None => {
            refusal_with(Refusal::State, "no rank has a life now", "`pando fs status`, `pando health detail`")
        }
    }
}

/// Questions to a rank that anybody may ask.
const LOOKS: [&str; 3] = ["perf dump", "cache status", "client ls"];

/// What a rank answers.
fn of_rank(server: &Arc<Server>, driver: &Driver, cmd: &str, command: &Value) -> Value {
    match cmd {
        "perf dump" => done(perf::dump(server, driver)),
        "cache status" => done(cache(driver)),
        "client ls" => clients(driver, command),
        "checkpoint" => {
            driver.feed([Input::Checkpoint]);
            done(json!({ "started": true }))
        }
        "cache drop" => {
            driver.feed([Input::DropCache]);
            done(json!({ "started": true }))
        }
        "perf reset" => {
            server.baseline.reset(driver);
            done(json!({ "reset": true }))
        }
        "warmup start" => match command.get("ino").and_then(Value::as_u64) {
            None => refusal(Refusal::Usage, "no `ino`"),
            Some(_) if driver.is_frozen() => refusal(Refusal::State, "a backup is under way"),
            Some(ino) => {
                driver.feed([Input::Warmup { dir: Some(Ino(ino)) }]);
                report(driver, &json!({ "cmd": "warmup status" }))
            }
        },
        "ops" => {
            let mut answer = report(driver, command);
            answer["result"]["held_back"] = json!(driver.held_back());
            answer
        }
        "client evict" => evict(driver, command),
        "backup create" => match command.get("path").and_then(Value::as_str) {
            None => refusal(Refusal::Usage, "no `path`"),
            Some(path) => match backup::start(server, PathBuf::from(path)) {
                Ok(()) => done(json!({ "started": true })),
                Err(e) => refusal(Refusal::State, &e.to_string()),
            },
        },
        _ => report(driver, command),
    }
}

fn evict(driver: &Driver, command: &Value) -> Value {
    let Some(id) = command.get("id").and_then(Value::as_u64) else {
        return refusal(Refusal::Usage, "no `id`");
    };
    if !driver.has_session(SessionId(id)) {
        return refusal(Refusal::State, &format!("no client {id}"));
    }
    driver.feed([Input::Evict { session: SessionId(id) }]);
    done(json!({ "evicted": id }))
}

/// The rank's sessions, and how long this server has known each.
fn clients(driver: &Driver, command: &Value) -> Value {
    let mut answer = report(driver, command);
    for client in answer["result"]["clients"].as_array_mut().into_iter().flatten() {
        if let Some(age) = client["id"].as_u64().and_then(|id| driver.age_ms(SessionId(id))) {
            client["age_ms"] = json!(age);
        }
    }
    answer
}

/// A question about the rank's own state.
fn report(driver: &Driver, command: &Value) -> Value {
    match driver.report(command) {
        Some(result) => done(result),
        None if driver.state().is_none() => {
            refusal(Refusal::State, "mds.0 does not answer: it hangs, or its life has just ended")
        }
        None => refusal(Refusal::Usage, "unknown command"),
    }
}

fn status(server: &Server) -> Value {
    let driver = server.driver();
    let (state, why) = state(server, driver.as_deref());
    let mut answer = json!({
        "dir": server.place,
        "pid": std::process::id(),
        "state": state,
        "uptime_s": server.started.elapsed().as_secs(),
    });
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            answer[key] = value;
        }
    };
    put("why", json!(why));
    put("journal", json!(driver.as_deref().map(journal)));
    if server.ends_with_last_client.load(Ordering::Acquire) {
        put("ends_with_last_client", json!(true));
    }
    if let Some(opened) = &server.opened {
        let record = opened.folder.record();
        put("fsid", json!(store::folder::full_id(record)));
        put("name", json!(record.name));
    }
    let facts = facts(server);
    put("mds", fs::daemons(&facts));
    put("space", json!(facts.space.map(Space::json)));
    // What the rank says of itself: its own state word is the finer one.
    let report = driver.as_ref().and_then(|driver| driver.report(&json!({ "cmd": "status" })));
    if let Some(Value::Object(rank)) = report {
        for (key, value) in rank {
            put(&key, value);
        }
    }
    let checks = health::checks(&facts);
    answer["health"] = json!(health::overall(&checks).name());
    answer["health_summary"] = checks.into_iter().map(|check| check.summary).collect();
    answer
}

/// The word for where the rank is, and why if it is damaged.
fn state(server: &Server, driver: Option<&Driver>) -> (&'static str, Option<String>) {
    match driver.map(|driver| driver.life.get()) {
        Some(Life::Booting) => ("boot", None),
        Some(Life::Active) => ("active", None),
        Some(Life::Damaged(why)) => ("damaged", Some(why)),
        Some(Life::Stopped) => ("stopped", None),
        None => {
            let ranks = server.cluster.get().map(|cluster| cluster.facts().ranks).unwrap_or_default();
            (ranks.first().map_or("boot", |(_, state)| state.name()), None)
        }
    }
}

/// What health is judged by.
pub(crate) fn facts(server: &Server) -> Facts {
    let driver = server.driver();
    let rank = driver.as_ref().and_then(|driver| driver.facts());
    let full = rank.as_ref().is_some_and(|rank| rank.full);
    let why = match driver.as_ref().map(|driver| driver.life.get()) {
        Some(Life::Damaged(why)) => Some(why),
        Some(Life::Booting | Life::Active | Life::Stopped) | None => None,
    };
    let space = match driver.as_ref().map(|driver| driver.data_io.run(&DataOp::StatFs)) {
        // What is free then is kept for unlink and checkpoints.
        Some(Ok(DataDone::Space(space))) => {
            let available = if full { 0 } else { space.available };
            Some(Space { total: space.total, free: space.free, available })
        }
        _ => None,
    };
    let damage = driver.as_ref().and_then(|driver| {
        let first = driver.damage.first()?;
        Some((driver.damage.count(), first.to_string()))
    });
    let name = server.opened.as_ref().map_or("pandofs", |opened| opened.folder.record().name.as_str());
    let cluster = server.cluster.get().map(|cluster| cluster.facts());
    Facts { rank, cluster, name: name.to_owned(), dir: server.place.clone(), why, damage, space }
}

/// As `ceph tell mds.N cache status`: items and bytes, and the limit.
fn cache(driver: &Driver) -> Value {
    let rank = driver.report(&json!({ "cmd": "status" })).unwrap_or_default();
    json!({
        "pool": { "items": rank["cached_inodes"], "bytes": rank["cache_bytes"] },
        "dirs": rank["cached_dirs"],
        "dirty": rank["dirty"],
        "limit": rank["cache_limit"],
    })
}

fn journal(driver: &Driver) -> Value {
    json!({ "bytes": driver.journal_io.bytes(), "pending_bytes": driver.journal_pending() })
}
