//! Operators' commands about directories whose content is a rank's by an entry of the cluster map: `subtree ls`, `load`, `move`, `cancel`.
//!
//! Absent: parts of directories (`dirfrag.rs`); the move (crate `mds`); slots.

use crate::admin::{done, refusal, refusal_with};
use crate::fs::carry_out;
use crate::life::RankLife;
use crate::report::{frag, frag_named};
use crate::server::Server;
use mds::coordinator::Command;
use mds::input::Input;
use proto::admin::Refusal;
use proto::cluster::{ClusterMap, Entry, Mask, Policy, RankState, Unit};
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
/// What ranks count.
const LOADS: [&str; 5] = ["reads_per_s", "writes_per_s", "misses_per_s", "fetched_per_s", "cpu"];
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

    /// Whether a directory is that one or below it, as far as that is known.
    fn is_below(&mut self, dir: Ino, top: Ino) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == top || top == Ino::ROOT {
                return true;
            }
            let Some((parent, _)) = self.place(at).filter(|_| at != Ino::ROOT) else { break };
            at = parent;
        }
        false
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

/// A directory's content or a part of it, at a rank: how rows of several answers are brought together.
type Piece = (Option<u64>, Option<u64>, String);

fn piece(row: &Value) -> Piece {
    (row["rank"].as_u64(), row["ino"].as_u64(), row["frag"].as_str().unwrap_or_default().to_owned())
}

/// Every entry of the map, and every move that has none yet: where, whose, why, and how far a move is. `below`: only what is at or below
/// that directory.
pub(crate) fn list(server: &Server, map: &ClusterMap, below: Option<Ino>) -> Value {
    let mut paths = Paths { server, known: BTreeMap::new() };
    // There may be as many as entries.
    let loads: BTreeMap<Piece, Value> =
        units_asked(server).into_iter().map(|load| (piece(&load), load)).collect();
    let (inos, mut moves) = (census(server), moves(server));
    let (mut rows, mut count) = (Vec::new(), 0_u64);
    for (unit, entry) in map.entries.iter() {
        if below.is_some_and(|top| !paths.is_below(unit.dir, top)) {
            continue;
        }
        count += 1;
        if rows.len() == LISTED_MAX {
            continue;
        }
        let mut row = one(&mut paths, map, *unit, entry);
        let of = piece(&row);
        // Of what nothing is asked its rank says nothing.
        for key in ["reads_per_s", "writes_per_s"] {
            row[key] = loads.get(&of).map_or_else(|| json!(0.0), |load| load[key].clone());
        }
        row["inos"] = json!(inos.get(&of).copied().unwrap_or(0));
        row["moving"] = moving(entry, moves.remove(&of));
        rows.push(row);
    }
    // Those whose pieces have an entry are shown with it, or were left out with it.
    moves.retain(|_, one| !map.entries.contains_key(&unit_of(one)));
    for one in moves.into_values() {
        let dir = unit_of(&one).dir;
        if below.is_some_and(|top| !paths.is_below(dir, top)) {
            continue;
        }
        count += 1;
        if rows.len() < LISTED_MAX {
            rows.push(inheriting(&mut paths, map, one));
        }
    }
    json!({ "subtrees": rows, "count": count, "epoch": map.version })
}

/// The unit of the map that a row is about.
fn unit_of(row: &Value) -> Unit {
    let frag = row["frag"].as_str().and_then(frag_named).unwrap_or(Frag::WHOLE);
    Unit { dir: Ino(row["ino"].as_u64().unwrap_or(0)), frag }
}

/// How far the move of an entry is; null: none is wanted. `told`: what its rank says of it.
fn moving(entry: &Entry, told: Option<Value>) -> Value {
    let id = entry.moving.map(|moving| moving.id.0);
    match (told, entry.moving) {
        (Some(one), _) => {
            json!({ "id": id, "wanted": one["wanted"], "to": one["to"], "waits_for": one["waits_for"] })
        }
        // Its rank has not heard of it yet.
        (None, Some(moving)) => json!({ "id": id, "wanted": "move", "to": moving.to.0, "waits_for": null }),
        (None, None) => Value::Null,
    }
}

/// What is to move and has no entry yet.
fn inheriting(paths: &mut Paths<'_>, map: &ClusterMap, told: Value) -> Value {
    let Unit { dir, frag: part } = unit_of(&told);
    json!({
        "path": paths.path(dir),
        "ino": dir.0,
        "frag": frag(part),
        "frags": entries_of(map, dir),
        "rank": told["rank"],
        "policy": null,
        "version": null,
        "inos": null,
        "reads_per_s": null,
        "writes_per_s": null,
        "moving": { "id": null, "wanted": told["wanted"], "to": told["to"], "waits_for": told["waits_for"] },
    })
}

/// The moves that ranks are at or have before them, but those of slots. Of several of one piece the first one.
fn moves(server: &Server) -> BTreeMap<Piece, Value> {
    let mut all = BTreeMap::new();
    for life in server.stage.all() {
        let answer = life.driver.report(&json!({ "cmd": "moves" })).unwrap_or_default();
        for one in answer["moves"].as_array().into_iter().flatten() {
            let mut one = one.clone();
            one["rank"] = json!(life.identity.rank.0);
            all.entry(piece(&one)).or_insert(one);
        }
    }
    all
}

/// How many inodes each rank has in its cache, by the entry that governs them.
fn census(server: &Server) -> BTreeMap<Piece, u64> {
    let mut counts = BTreeMap::new();
    for life in server.stage.all() {
        let mut from = json!(0);
        // In slices: a rank serves others in between.
        while from.is_u64() {
            let answer = life.driver.report(&json!({ "cmd": "census", "from": from })).unwrap_or_default();
            for unit in answer["units"].as_array().into_iter().flatten() {
                let mut of = piece(unit);
                of.0 = Some(life.identity.rank.0.into());
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

/// What is asked of all that each rank has.
pub(crate) fn rank_loads(server: &Server) -> Value {
    let mut ranks: BTreeMap<u64, [f64; LOADS.len()]> = BTreeMap::new();
    for unit in units_asked(server) {
        let sums = ranks.entry(unit["rank"].as_u64().unwrap_or(0)).or_default();
        for (sum, key) in sums.iter_mut().zip(LOADS) {
            *sum += unit[key].as_f64().unwrap_or(0.0);
        }
    }
    let shown = |(rank, sums): (u64, [f64; LOADS.len()])| {
        let mut row = json!({ "rank": rank });
        LOADS.iter().zip(sums).for_each(|(key, sum)| row[*key] = json!(sum));
        row
    };
    json!({ "ranks": ranks.into_iter().map(shown).collect::<Vec<_>>() })
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
        Policy::Carved if unit.frag != Frag::WHOLE => "spread",
        Policy::Spread => "spread",
        Policy::Carved => "carved",
        Policy::Placement => "placement",
    };
    json!({
        "path": paths.path(unit.dir),
        "ino": unit.dir.0,
        "frag": frag(unit.frag),
        "frags": entries_of(map, unit.dir),
        "rank": entry.rank.0,
        "policy": if unit.dir == Ino::ROOT { "root" } else { policy },
        "version": entry.version,
    })
}

/// How many entries a directory has: its own, and those of its parts.
fn entries_of(map: &ClusterMap, dir: Ino) -> usize {
    let from = Unit { dir, frag: Frag::WHOLE };
    map.entries.range(from..).take_while(|(unit, _)| unit.dir == dir).count()
}

pub(crate) fn number(command: &Value, key: &str) -> Result<u64, Value> {
    let missing = || refusal(Refusal::Usage, &format!("no `{key}`"));
    command.get(key).and_then(Value::as_u64).ok_or_else(missing)
}

/// The life that has a directory's content.
///
/// # Errors
/// What is refused, to the operator: no life has it in its cache.
pub(crate) fn owner_of(server: &Server, dir: Ino) -> Result<Arc<RankLife>, Value> {
    owner_of_part(server, Unit { dir, frag: Frag::WHOLE }).map(|(owner, _)| owner)
}

/// The life that has a directory's content or that part of it, and by which number it is called there.
fn owner_of_part(server: &Server, unit: Unit) -> Result<(Arc<RankLife>, Ino), Value> {
    let question = json!({ "cmd": "part", "ino": unit.dir.0, "frag": frag(unit.frag) });
    let owns = |life: Arc<RankLife>| {
        let answer = life.driver.report(&question)?;
        let is_own = answer["owner"].as_u64() == Some(life.identity.rank.0.into());
        Some((life, Ino(answer["number"].as_u64()?))).filter(|_| is_own)
    };
    if let Some(found) = server.stage.all().into_iter().find_map(owns) {
        return Ok(found);
    }
    if unit.frag != Frag::WHOLE && owner_of(server, unit.dir).is_ok() {
        let what = format!("the directory has no part {}", frag(unit.frag));
        return Err(refusal_with(Refusal::State, &what, "`pando dirfrag ls PATH` shows its parts"));
    }
    let step = "look at it through a mount (`ls PATH`), and try again";
    Err(refusal_with(Refusal::State, "no rank has the directory in its cache", step))
}

/// The directory, or the part of one, that a command names.
fn unit_meant(command: &Value) -> Result<Unit, Value> {
    let dir = Ino(number(command, "ino")?);
    let part = match command.get("frag").and_then(Value::as_str) {
        None => Some(Frag::WHOLE),
        Some(text) => frag_named(text),
    };
    let step = "a part as `pando dirfrag ls PATH` shows it: 0x8000000000000000/1";
    let frag = part.ok_or_else(|| refusal_with(Refusal::Usage, "`frag`: no part of a directory", step))?;
    Ok(Unit { dir, frag })
}

/// A rank is told what an operator wants, and the newest map before: it may not have heard yet of a rank that serves by now.
pub(crate) fn feed(server: &Server, owner: &RankLife, wanted: Input) {
    owner.driver.feed(map_of(server).map(Input::Map).into_iter().chain([wanted]));
}

/// The cluster map that is durable now.
fn map_of(server: &Server) -> Option<Arc<ClusterMap>> {
    server.cluster.get().and_then(|cluster| cluster.shared.views.map())
}

/// Has the rank that owns a directory's content, or a part of it, hand it over. That it begins, the map says.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn begin(server: &Server, command: &Value) -> Result<Value, Value> {
    let (unit, to) = (unit_meant(command)?, number(command, "to")?);
    let state = |what: String| refusal(Refusal::State, &what);
    if unit.dir.is_reserved() || unit.dir == Ino::ROOT {
        return Err(refusal(Refusal::Usage, "the root directory stays with rank 0"));
    }
    let (owner, dir) = owner_of_part(server, unit)?;
    let to = u16::try_from(to).map_err(|_| refusal(Refusal::Usage, &format!("{to}: no rank")))?;
    let from = owner.identity.rank;
    let serves = |map: Arc<ClusterMap>| {
        let info = map.ranks.get(&RankId(to));
        to < map.max_mds && info.is_some_and(|info| info.state == RankState::Active)
    };
    let map = map_of(server);
    let is_pin =
        |map: &Arc<ClusterMap>| map.entries.get(&unit).is_some_and(|entry| entry.policy == Policy::Pin);
    let is_pinned = map.as_ref().is_some_and(is_pin);
    let mask = map.as_ref().map_or(Mask::ALL, |map| map.bal_rank_mask);
    let text = match map.is_some_and(serves) {
        _ if from == RankId(to) => format!("it is rank {to}'s already"),
        // Its pin would bring it back.
        _ if is_pinned => {
            let step =
                format!("`setfattr -n ceph.dir.pin -v {to} PATH` pins it there, `-v -1` takes the pin away");
            return Err(refusal_with(Refusal::State, "it is pinned", &step));
        }
        false => return Err(state(format!("rank {to} does not serve: `pando fs status`"))),
        // The coordinator would have it leave again.
        true if mask != Mask::NONE && !mask.has(RankId(to)) => {
            let step = format!("`setfattr -n ceph.dir.pin -v {to} PATH` pins it there");
            return Err(refusal_with(Refusal::State, &format!("bal_rank_mask leaves rank {to} out"), &step));
        }
        true => {
            feed(server, &owner, Input::Move { dir, to: RankId(to) });
            format!("rank {} hands it to rank {to}: `pando subtree ls` shows how far it is", from.0)
        }
    };
    let part = frag(unit.frag);
    Ok(done(json!({ "text": text, "from": from.0, "to": to, "ino": unit.dir.0, "frag": part })))
}

/// Gives the move of a directory's content, or of a part of it, up, while that is possible.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn cancel(server: &Server, command: &Value) -> Result<Value, Value> {
    let unit = unit_meant(command)?;
    let map = map_of(server);
    let moving = map.as_ref().and_then(|map| map.entries.get(&unit)?.moving);
    if let Some(moving) = moving {
        return carry_out(server, Command::CancelMove(moving.id), |reply| reply.text.clone());
    }
    // Its rank may not have come to it yet: it begins one at a time, and looks at what is open below before it says so.
    let (owner, dir) = owner_of_part(server, unit)?;
    let state = owner.driver.report(&json!({ "cmd": "moving", "ino": dir.0 })).unwrap_or_default();
    if state["wanted"].as_bool() != Some(true) {
        let part = map.and_then(|map| part_that_moves(&map, unit.dir)).filter(|_| unit.frag == Frag::WHOLE);
        let step = part.map(|part| format!("a part of it moves: `pando subtree cancel PATH --frag {part}`"));
        return Err(match step {
            Some(step) => refusal_with(Refusal::State, "it does not move", &step),
            None => refusal(Refusal::State, "it does not move"),
        });
    }
    feed(server, &owner, Input::Unmove { dir });
    let text = format!("rank {} had not begun to hand it over, and does not", owner.identity.rank.0);
    Ok(done(json!({ "text": text, "ino": unit.dir.0, "frag": frag(unit.frag) })))
}

/// A part of a directory that is on its way.
fn part_that_moves(map: &ClusterMap, dir: Ino) -> Option<String> {
    let from = Unit { dir, frag: Frag::WHOLE };
    let mut parts = map.entries.range(from..).take_while(|(unit, _)| unit.dir == dir);
    parts.find_map(|(unit, entry)| entry.moving.map(|_| frag(unit.frag)))
}
