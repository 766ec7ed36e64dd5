//! An operator's commands: JSON in, JSON out. Every answer has `ok`; a refusal has `code`
//! (`proto::admin`) and `error`.
//!
//! Nothing here waits: what takes long is started and seen in `status`.
//!
//! Absent: texts and tables (crate `cli`).

use crate::cluster::Cluster;
use crate::driver::{Driver, Life};
use crate::health::{Facts, OfRank, Space};
use crate::life::RankLife;
use crate::server::Server;
use crate::{backup, fs, health, perf, several, tell};
use mds::input::Input;
use proto::admin::Refusal;
use proto::cluster::RankState;
use proto::storeio::{DataDone, DataOp};
use proto::{Ino, RankId, SessionId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
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

fn denied() -> Value {
    refusal(Refusal::Denied, "permission denied: only root may do this, and who runs the server")
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
    if cmd == "tell" {
        return match tell::inner(server, command) {
            Ok(Some(inner)) => self::answer(server, &inner, may_change),
            Ok(None) if may_change => tell::fault(server, command).unwrap_or_else(|no| no),
            Ok(None) => denied(),
            Err(no) => no,
        };
    }
    if let Some(answer) = fs::look(server, cmd, command) {
        return answer;
    }
    if !may_change && !LOOKS.contains(&cmd) {
        return denied();
    }
    let of_fs = fs::look_at_paths(server, cmd, command).or_else(|| fs::change(server, cmd, command));
    if let Some(answer) = of_fs {
        return answer;
    }
    match meant(server, command) {
        Ok(lives) => of_ranks(server, &lives, cmd, command),
        Err(no) => no,
    }
}

/// Questions to ranks that anybody may ask.
const LOOKS: [&str; 3] = ["perf dump", "cache status", "client ls"];

/// The lives that are asked: of one rank if `rank` names it, else all there are.
fn meant(server: &Server, command: &Value) -> Result<Vec<Arc<RankLife>>, Value> {
    let Some(rank) = command.get("rank").filter(|rank| !rank.is_null()) else {
        let lives = server.stage.all();
        let step = "`pando fs status`, `pando health detail`";
        let none = || Err(refusal_with(Refusal::State, "no rank has a life now", step));
        return if lives.is_empty() { none() } else { Ok(lives) };
    };
    let number = rank.as_u64().and_then(|rank| u16::try_from(rank).ok());
    let Some(number) = number else { return Err(refusal(Refusal::Usage, "`rank` is no rank's number")) };
    match server.stage.of(RankId(number)) {
        Some(life) => Ok(vec![life]),
        None => Err(refusal(Refusal::State, &format!("mds.{number}: it has no life now"))),
    }
}

/// What ranks answer: one alone as it is, several as one.
fn of_ranks(server: &Arc<Server>, lives: &[Arc<RankLife>], cmd: &str, command: &Value) -> Value {
    let drivers: Vec<Arc<Driver>> = lives.iter().map(|life| life.driver.clone()).collect();
    let feed = |input: fn() -> Input| drivers.iter().for_each(|driver| driver.feed([input()]));
    match cmd {
        "perf dump" => done(perf::dump(server, &drivers)),
        "cache status" => done(cache(&drivers)),
        "client ls" => match gathered(lives, &json!({ "cmd": cmd })) {
            Ok(mut answers) => {
                for (life, answer) in lives.iter().zip(&mut answers) {
                    add_ages(&life.driver, answer);
                }
                done(several::clients(answers.into_iter()))
            }
            Err(no) => no,
        },
        "checkpoint" => {
            feed(|| Input::Checkpoint);
            done(json!({ "started": true }))
        }
        "cache drop" => {
            feed(|| Input::DropCache);
            done(json!({ "started": true }))
        }
        "perf reset" => {
            let all: Vec<Arc<Driver>> = server.stage.all().iter().map(|life| life.driver.clone()).collect();
            server.baseline.reset(&drivers, &all);
            done(json!({ "reset": true }))
        }
        "warmup start" => match command.get("ino").and_then(Value::as_u64) {
            None => refusal(Refusal::Usage, "no `ino`"),
            Some(_) if drivers.iter().any(|driver| driver.is_frozen()) => {
                refusal(Refusal::State, "a backup is under way")
            }
            Some(ino) => {
                for driver in &drivers {
                    driver.feed([Input::Warmup { dir: Some(Ino(ino)) }]);
                }
                warmth(lives)
            }
        },
        "warmup status" => warmth(lives),
        "ops" => match gathered(lives, &json!({ "cmd": cmd })) {
            Ok(mut answers) => {
                for (driver, answer) in drivers.iter().zip(&mut answers) {
                    answer["held_back"] = json!(driver.held_back());
                }
                done(several::ops(lives.iter().map(|life| life.identity.rank.0).zip(answers)))
            }
            Err(no) => no,
        },
        "client evict" => evict(server, lives, command),
        "backup create" => match command.get("path").and_then(Value::as_str) {
            None => refusal(Refusal::Usage, "no `path`"),
            Some(path) => match backup::start(server, PathBuf::from(path)) {
                Ok(()) => done(json!({ "started": true })),
                Err(e) => refusal(Refusal::State, &e.to_string()),
            },
        },
        _ => refusal(Refusal::Usage, "unknown command"),
    }
}

/// Ends a session at the ranks that are meant. One that does not serve may have it, too, or learn of it when its journal is read: success
/// is answered only when all of them serve. It was once when a rank had no life, and the client went on there in the next one.
fn evict(server: &Server, lives: &[Arc<RankLife>], command: &Value) -> Value {
    let Some(id) = command.get("id").and_then(Value::as_u64) else {
        return refusal(Refusal::Usage, "no `id`");
    };
    let input = || [Input::Evict { session: SessionId(id) }];
    let (mut known, mut untold) = (false, without_life(server, lives, command));
    for RankLife { driver, identity, .. } in lives.iter().map(Arc::as_ref) {
        match (driver.life.get(), driver.has_session(SessionId(id))) {
            (Life::Active, Some(false)) => {}
            (Life::Active, Some(true)) => {
                known = true;
                driver.feed(input());
            }
            // It keeps that, and does it when it serves; but its life may end before.
            (Life::Booting, Some(_)) => {
                untold.insert(identity.rank);
                driver.feed(input());
            }
            (Life::Booting | Life::Active, None) | (Life::Damaged(_) | Life::Stopped, _) => {
                untold.insert(identity.rank);
            }
        }
    }
    if !untold.is_empty() {
        let names: Vec<String> = untold.iter().map(|rank| format!("mds.{}", rank.0)).collect();
        let error =
            format!("client {id} is not known to be evicted at {}: no service there now", names.join(", "));
        return refusal_with(
            Refusal::State,
            &error,
            "`pando fs status`, and the same again when it is active",
        );
    }
    if !known {
        return refusal_with(Refusal::State, &format!("no client {id}"), "`pando client ls`");
    }
    done(json!({ "evicted": id }))
}

/// Ranks of the map that are meant and have no life here. One that has not been made yet has no sessions.
fn without_life(server: &Server, lives: &[Arc<RankLife>], command: &Value) -> BTreeSet<RankId> {
    if !command["rank"].is_null() {
        return BTreeSet::new();
    }
    let mapped = server.cluster.get().map(Cluster::facts).into_iter().flat_map(|facts| facts.ranks);
    let made = mapped.filter(|(_, state)| *state != RankState::Creating).map(|(rank, _)| rank);
    made.filter(|rank| lives.iter().all(|life| life.identity.rank != *rank)).collect()
}

/// How long this server has known each of a rank's sessions.
fn add_ages(driver: &Driver, answer: &mut Value) {
    for client in answer["clients"].as_array_mut().into_iter().flatten() {
        if let Some(age) = client["id"].as_u64().and_then(|id| driver.age_ms(SessionId(id))) {
            client["age_ms"] = json!(age);
        }
    }
}

/// What each says to a question about its own state. One that hangs is no reason to hear nothing of the others, unless it is the only
/// one that was asked.
fn gathered(lives: &[Arc<RankLife>], question: &Value) -> Result<Vec<Value>, Value> {
    let answers: Vec<Option<Value>> = lives.iter().map(|life| life.driver.report(question)).collect();
    if answers.iter().all(Option::is_none) {
        let rank = lives.first().map_or(0, |life| life.identity.rank.0);
        let what = format!("mds.{rank} does not answer: it hangs, or its life has just ended");
        return Err(refusal(Refusal::State, &what));
    }
    Ok(answers.into_iter().map(Option::unwrap_or_default).collect())
}

fn warmth(lives: &[Arc<RankLife>]) -> Value {
    match gathered(lives, &json!({ "cmd": "warmup status" })) {
        Ok(answers) => done(several::warmth(&answers)),
        Err(no) => no,
    }
}

fn status(server: &Server) -> Value {
    let lives = server.stage.all();
    let of: Vec<Value> = lives.iter().map(own_status).collect();
    let (state, why) = state(server, &of);
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
    let bytes = |count: fn(&Driver) -> u64| lives.iter().map(|life| count(&life.driver)).sum::<u64>();
    if !lives.is_empty() {
        let (bytes, pending) =
            (bytes(|driver| driver.journal_io.bytes()), bytes(|driver| driver.journal_pending() as u64));
        put("journal", json!({ "bytes": bytes, "pending_bytes": pending }));
    }
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
    if of.iter().any(|rank| rank["clients"].is_u64()) {
        for (key, value) in several::status(&of) {
            put(&key, value);
        }
    }
    put("ranks", json!(of));
    let checks = health::checks(&facts);
    answer["health"] = json!(health::overall(&checks).name());
    answer["health_summary"] = checks.into_iter().map(|check| check.summary).collect();
    answer
}

/// What a rank says of itself, with its number.
fn own_status(life: &Arc<RankLife>) -> Value {
    let answer = life.driver.report(&json!({ "cmd": "status" }));
    let is_silent = answer.is_none();
    let mut own = answer.unwrap_or_default();
    let word = match life.driver.life.get() {
        Life::Booting => "boot",
        // As `fs status` calls it.
        Life::Active if is_silent => "active(laggy)",
        Life::Active => "active",
        Life::Damaged(why) => {
            own["why"] = json!(why);
            "damaged"
        }
        Life::Stopped => "stopped",
    };
    if own["state"].is_null() {
        own["state"] = json!(word);
    }
    own["rank"] = json!(life.identity.rank.0);
    own
}

/// The word for where the file system is, and why if it is damaged: that of the first rank that does not serve.
fn state(server: &Server, of: &[Value]) -> (String, Option<String>) {
    let cluster = server.cluster.get().map(Cluster::facts);
    let mapped = cluster.into_iter().flat_map(|facts| facts.ranks);
    let mut words: BTreeMap<u64, String> =
        mapped.map(|(rank, state)| (u64::from(rank.0), state.name().to_owned())).collect();
    for rank in of {
        if let (Some(number), Some(word)) = (rank["rank"].as_u64(), rank["state"].as_str()) {
            words.insert(number, word.to_owned());
        }
    }
    let serves = |word: &String| word == "active";
    let word = words.values().find(|word| !serves(word)).or(words.values().next()).cloned();
    let why = of.iter().find_map(|rank| rank["why"].as_str()).map(Into::into);
    (word.unwrap_or_else(|| "boot".into()), why)
}

/// What health is judged by.
pub(crate) fn facts(server: &Server) -> Facts {
    let lives = server.stage.all();
    let ranks: Vec<OfRank> = lives.iter().filter_map(of_life).collect();
    let full = ranks.iter().any(|of| of.facts.full);
    // The device is the same for all.
    let space = match lives.first().map(|life| life.driver.data_io.run(&DataOp::StatFs)) {
        // What is free then is kept for unlink and checkpoints.
        Some(Ok(DataDone::Space(space))) => {
            let available = if full { 0 } else { space.available };
            Some(Space { total: space.total, free: space.free, available })
        }
        _ => None,
    };
    let name = server.opened.as_ref().map_or("pandofs", |opened| opened.folder.record().name.as_str());
    let cluster = server.cluster.get().map(Cluster::facts);
    Facts { ranks, cluster, name: name.to_owned(), dir: server.place.clone(), space }
}

/// `None` of a stand-in, and of one that does not answer.
fn of_life(life: &Arc<RankLife>) -> Option<OfRank> {
    let driver = &life.driver;
    let why = match driver.life.get() {
        Life::Damaged(why) => Some(why),
        Life::Booting | Life::Active | Life::Stopped => None,
    };
    let damage = driver.damage.first().map(|first| (driver.damage.count(), first.to_string()));
    Some(OfRank { rank: life.identity.rank, facts: driver.facts()?, why, damage })
}

/// As `ceph tell mds.N cache status`: items and bytes, and the limit.
fn cache(drivers: &[Arc<Driver>]) -> Value {
    let of = drivers.iter().map(|driver| driver.report(&json!({ "cmd": "status" })).unwrap_or_default());
    let all = Value::Object(several::status(&of.collect::<Vec<_>>()));
    json!({
        "pool": { "items": all["cached_names"], "bytes": all["cache_bytes"] },
        "dirs": all["cached_dirs"],
        "dirty": all["dirty"],
        "limit": all["cache_limit"],
    })
}
