//! Operators' commands about directories whose content is a rank's by an entry of the cluster map: `subtree ls`, `load`, `move`, `cancel`.
//!
//! Absent: parts of directories (`dirfrag.rs`); the move (crate `mds`); slots.

use crate::admin::{done, refusal, refusal_with};
use crate::fs::carry_out;
use crate::life::RankLife;
use crate::report::frag;
use crate::server::Server;
use mds::coordinator::Command;
use mds::input::Input;
use proto::admin::Refusal;
use proto::cluster::{ClusterMap, Entry, Policy, RankState, Unit};
use proto::storeio::{Backptr, LoadRequest, Loaded};
use proto::{Frag, Ino, RankId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::meta::MetaStore;

/// Entries that are listed.
const LISTED_MAX: usize = 1_000;
/// Of those that are asked for by what is asked of them.
const TOP_MAX: usize = 100;
/// Directories above each other that a path is followed up through.
const DEPTH_MAX: usize = 256;

/// Where directories are, as far as it was asked.
struct Paths<'a> {
    server: &'a Server,
    known: BTreeMap<Ino, Option<(Ino, String)>>,
}

impl Paths<'_> {
    /// As a rank's cache has it, else the store: what is not cached is as it was stored.
    fn place(&mut self, ino: Ino) -> Option<(Ino, String)> {
        if let Some(known) = self.known.get(&ino) {
            return known.clone();
        }
        let question = json!({ "cmd": "place", "ino": ino.0 });
        let cached = self.server.stage.all().iter().find_map(|life| {
            let answer = life.driver.report(&question)?;
            Some((Ino(answer["parent"].as_u64()?), answer["name"].as_str()?.to_owned()))
        });
        let place = cached.or_else(|| self.stored(ino));
        self.known.insert(ino, place.clone());
        place
    }

    fn stored(&self, ino: Ino) -> Option<(Ino, String)> {
        let opened = self.server.opened.as_ref()?;
        let Ok(Loaded::Value(Some(value))) = opened.meta.load(&[LoadRequest::Backptr { ino }]).pop()? else {
            return None;
        };
        let backptr = Backptr::decode(&value).ok()?;
        Some((backptr.parent, String::from_utf8_lossy(&backptr.name).into_owned()))
    }

    /// `/a/b`; below what nobody knows: `#0x1000/b`.
    fn path(&mut self, dir: Ino) -> String {
        let (mut at, mut path) = (dir, String::new());
        for _ in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return if path.is_empty() { "/".to_owned() } else { path };
            }
            let Some((parent, name)) = self.place(at) else { break };
            path = format!("/{name}{path}");
            at = parent;
        }
        format!("#{:#x}{path}", at.0)
    }
}

/// Every entry of the map: where, whose, why, and whether it moves.
pub(crate) fn list(server: &Server, map: &ClusterMap) -> Value {
    let mut paths = Paths { server, known: BTreeMap::new() };
    // There may be as many as entries.
    let whose = |row: &Value| (row["rank"].as_u64(), row["ino"].as_u64(), row["frag"].to_string());
    let loads: BTreeMap<_, Value> =
        units_asked(server).into_iter().map(|load| (whose(&load), load)).collect();
    let inos = census(server);
    let shown = map.entries.iter().take(LISTED_MAX).map(|(unit, entry)| {
        let mut row = one(&mut paths, map, *unit, entry);
        // Of what nothing is asked its rank says nothing.
        let load = loads.get(&whose(&row));
        for key in ["reads_per_s", "writes_per_s"] {
            row[key] = load.map_or_else(|| json!(0.0), |load| load[key].clone());
        }
        let key = (entry.rank.0, unit.dir.0, frag(unit.frag));
        row["inos"] = json!(inos.get(&key).copied().unwrap_or(0));
        row
    });
    json!({ "subtrees": shown.collect::<Vec<_>>(), "count": map.entries.len(), "epoch": map.version })
}

/// How many inodes each rank has in its cache, by the entry that governs them.
fn census(server: &Server) -> BTreeMap<(u16, u64, String), u64> {
    let mut counts = BTreeMap::new();
    for life in server.stage.all() {
        let mut from = json!(0);
        // In slices: a rank serves others in between.
        while from.is_u64() {
            let answer = life.driver.report(&json!({ "cmd": "census", "from": from })).unwrap_or_default();
            for unit in answer["units"].as_array().into_iter().flatten() {
                let part = unit["frag"].as_str().unwrap_or_default().to_owned();
                let of = (life.identity.rank.0, unit["ino"].as_u64().unwrap_or(0), part);
                *counts.entry(of).or_insert(0) += unit["inos"].as_u64().unwrap_or(0);
            }
            from = answer["next"].clone();
        }
    }
    counts
}

/// What is asked of each entry's directories at its rank.
fn units_asked(server: &Server) -> Vec<Value> {
    let mut units = Vec::new();
    for life in server.stage.all() {
        let answer = life.driver.report(&json!({ "cmd": "loads" })).unwrap_or_default();
        for unit in answer["units"].as_array().into_iter().flatten() {
            let mut unit = unit.clone();
            unit["rank"] = json!(life.identity.rank.0);
            units.push(unit);
        }
    }
    units
}

/// The same, those of which most is asked first; those that slots place count together.
pub(crate) fn loads(server: &Server) -> Value {
    let mut units = units_asked(server);
    let number = |unit: &Value, key: &str| unit[key].as_f64().unwrap_or(0.0);
    let asked = |unit: &Value| number(unit, "reads_per_s") + number(unit, "writes_per_s");
    units.sort_by(|a, b| asked(b).total_cmp(&asked(a)));
    let count = units.len();
    units.truncate(TOP_MAX);
    let mut paths = Paths { server, known: BTreeMap::new() };
    for unit in &mut units {
        let ino = Ino(unit["ino"].as_u64().unwrap_or(0));
        unit["path"] = json!(if ino == Ino::NONE { "(placed by slots)".to_owned() } else { paths.path(ino) });
    }
    json!({ "subtrees": units, "count": count })
}

fn one(paths: &mut Paths<'_>, map: &ClusterMap, unit: Unit, entry: &Entry) -> Value {
    let policy = match entry.policy {
        Policy::Pin => "pin",
        Policy::Spread => "spread",
        Policy::Carved => "carved",
        Policy::Placement => "placement",
    };
    let frags = map.entries.keys().filter(|other| other.dir == unit.dir).count();
    json!({
        "path": paths.path(unit.dir),
        "ino": unit.dir.0,
        "frag": frag(unit.frag),
        "frags": frags,
        "rank": entry.rank.0,
        "policy": if unit.dir == Ino::ROOT { "root" } else { policy },
        "version": entry.version,
        "moving": entry.moving.map(|moving| json!({ "id": moving.id.0, "to": moving.to.0 })),
    })
}

pub(crate) fn number(command: &Value, key: &str) -> Result<u64, Value> {
    let missing = || refusal(Refusal::Usage, &format!("no `{key}`"));
    command.get(key).and_then(Value::as_u64).ok_or_else(missing)
}

/// The life that has a directory's content.
pub(crate) fn owner_of(server: &Server, dir: Ino) -> Result<Arc<RankLife>, Value> {
    let question = json!({ "cmd": "owner", "ino": dir.0 });
    let owner = server.stage.all().into_iter().find(|life| {
        let own = u64::from(life.identity.rank.0);
        life.driver.report(&question).is_some_and(|answer| answer["owner"].as_u64() == Some(own))
    });
    let step = "look at it through a mount (`ls PATH`), and try again";
    owner.ok_or_else(|| refusal_with(Refusal::State, "no rank has the directory in its cache", step))
}

/// A rank is told what an operator wants, and the newest map before: it may not have heard yet of a rank that serves by now.
pub(crate) fn feed(server: &Server, owner: &RankLife, wanted: Input) {
    owner.driver.feed(map_of(server).map(Input::Map).into_iter().chain([wanted]));
}

/// The cluster map that is durable now.
fn map_of(server: &Server) -> Option<Arc<ClusterMap>> {
    server.cluster.get().and_then(|cluster| cluster.shared.views.map())
}

/// Has the rank that owns a directory's content hand it over. That it begins, the map says.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn begin(server: &Server, command: &Value) -> Result<Value, Value> {
    let (dir, to) = (Ino(number(command, "ino")?), number(command, "to")?);
    let state = |what: String| refusal(Refusal::State, &what);
    if dir.is_reserved() || dir == Ino::ROOT {
        return Err(refusal(Refusal::Usage, "the root directory stays with rank 0"));
    }
    let owner = owner_of(server, dir)?;
    let to = u16::try_from(to).map_err(|_| refusal(Refusal::Usage, &format!("{to}: no rank")))?;
    let from = owner.identity.rank;
    let serves = |map: Arc<ClusterMap>| {
        let info = map.ranks.get(&RankId(to));
        to < map.max_mds && info.is_some_and(|info| info.state == RankState::Active)
    };
    let text = match map_of(server).is_some_and(serves) {
        _ if from == RankId(to) => format!("it is rank {to}'s already"),
        false => return Err(state(format!("rank {to} does not serve: `pando fs status`"))),
        true => {
            feed(server, &owner, Input::Move { dir, to: RankId(to) });
            format!("rank {} hands it to rank {to}: `pando subtree ls` shows how far it is", from.0)
        }
    };
    Ok(done(json!({ "text": text, "from": from.0, "to": to, "ino": dir.0 })))
}

/// Gives the move of a directory's content up, while that is possible.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn cancel(server: &Server, command: &Value) -> Result<Value, Value> {
    let dir = Ino(number(command, "ino")?);
    let unit = Unit { dir, frag: Frag::WHOLE };
    let moving = map_of(server).and_then(|map| map.entries.get(&unit)?.moving);
    if let Some(moving) = moving {
        return carry_out(server, Command::CancelMove(moving.id), |reply| reply.text.clone());
    }
    // Its rank may not have come to it yet: it begins one at a time, and looks at what is open below before it says so.
    let owner = owner_of(server, dir)?;
    let state = owner.driver.report(&json!({ "cmd": "moving", "ino": dir.0 })).unwrap_or_default();
    if state["wanted"].as_bool() != Some(true) {
        return Err(refusal(Refusal::State, "it does not move"));
    }
    feed(server, &owner, Input::Unmove { dir });
    let text = format!("rank {} had not begun to hand it over, and does not", owner.identity.rank.0);
    Ok(done(json!({ "text": text, "ino": dir.0 })))
}
