//! Operators' commands about the file system and its ranks (`fs ...`, `mds fail`), with the keys that Ceph's have; `subtree ...` and
//! `dirfrag ...` are led on from here.
//!
//! Absent: what those two do (`subtree.rs`, `dirfrag.rs`); what can be set (`setting.rs`); `tell` (`tell.rs`); what commands come to (the coordinator's); texts for
//! people (crate `cli`).

use crate::admin::{done, refusal, refusal_with};
use crate::cluster::{Failed, standbys};
use crate::dirfrag;
use crate::health::{Facts, Space};
use crate::server::Server;
use crate::{setting, subtree};
use mds::coordinator::{Command, CommandError, Reply};
use proto::admin::Refusal;
use proto::cluster::{ClusterMap, DaemonId, RANKS_MAX, RankInfo, RankState};
use proto::{Incarnation, Ino, RankId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Questions that anybody may ask; `None`: it is none of them.
pub(crate) fn look(server: &Server, cmd: &str, command: &Value) -> Option<Value> {
    let answer = match cmd {
        "fs ls" => with_map(server, |name, _| json!([listed(name)])),
        "fs status" => named(server, command).map(|()| done(status(server))).unwrap_or_else(|no| no),
        "fs dump" => with_map(server, dump),
        "rank load" => done(subtree::rank_loads(server)),
        "fs get" => named(server, command).map(|()| with_map(server, get)).unwrap_or_else(|no| no),
        _ => return None,
    };
    Some(answer)
}

/// Questions whose answers show paths; `None`: it is none of them.
pub(crate) fn look_at_paths(server: &Server, cmd: &str, command: &Value) -> Option<Value> {
    match cmd {
        "subtree ls" => {
            let below = command.get("ino").and_then(Value::as_u64).map(Ino);
            Some(with_map(server, |_, map| subtree::list(server, map, below)))
        }
        "subtree load" => Some(done(subtree::loads(server))),
        _ => None,
    }
}

/// Commands that change something; `None`: it is none of them.
pub(crate) fn change(server: &Arc<Server>, cmd: &str, command: &Value) -> Option<Value> {
    let changed = match cmd {
        "fs set" => named(server, command).and_then(|()| setting::set(server, command)),
        "fs fail" => named(server, command).and_then(|()| not_of_mount(server)).and_then(|()| {
            let name = fs_name(server);
            let text = format!(
                "{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."
            );
            carry_out(server, Command::FailFs, |_| text)
        }),
        "fs joinable" => named(server, command).and_then(|()| {
            let text = format!("{} marked joinable; MDS may join as newly active.", fs_name(server));
            carry_out(server, Command::SetJoinable(true), |_| text)
        }),
        "subtree move" => not_of_mount(server).and_then(|()| subtree::begin(server, command)),
        "subtree cancel" => not_of_mount(server).and_then(|()| subtree::cancel(server, command)),
        "dirfrag split" => not_of_mount(server).and_then(|()| dirfrag::split(server, command)),
        "dirfrag merge" => not_of_mount(server).and_then(|()| dirfrag::merge(server, command)),
        "mds fail" => not_of_mount(server).and_then(|()| fail(server, command)),
        _ => return None,
    };
    Some(changed.unwrap_or_else(|no| no))
}

pub(crate) fn text<'a>(command: &'a Value, key: &str) -> Result<&'a str, Value> {
    let missing = || refusal(Refusal::Usage, &format!("no `{key}`"));
    command.get(key).and_then(Value::as_str).ok_or_else(missing)
}

fn fs_name(server: &Server) -> &str {
    server.opened.as_ref().map_or("pandofs", |opened| opened.folder.record().name.as_str())
}

/// Whether the file system that is named, if one is, is this one.
fn named(server: &Server, command: &Value) -> Result<(), Value> {
    command.get("fs").and_then(Value::as_str).map_or(Ok(()), |name| named_fs(server, name))
}

fn named_fs(server: &Server, name: &str) -> Result<(), Value> {
    let own = fs_name(server);
    if name == own {
        return Ok(());
    }
    let what = format!("no file system '{name}': this server has '{own}'");
    Err(refusal_with(Refusal::State, &what, "`pando fs ls`"))
}

pub(crate) fn not_of_mount(server: &Server) -> Result<(), Value> {
    match server.cluster.get() {
        Some(cluster) if !cluster.is_of_mount() => Ok(()),
        Some(_) => {
            let what = "a mount runs in this process: its rank ends with it";
            Err(refusal_with(Refusal::State, what, "`pando serve`"))
        }
        None => Err(refusal(Refusal::State, "this server has no coordinator")),
    }
}

fn with_map(server: &Server, shown: impl FnOnce(&str, &ClusterMap) -> Value) -> Value {
    match server.cluster.get().and_then(|cluster| cluster.shared.views.map()) {
        Some(map) => done(shown(fs_name(server), &map)),
        None => refusal(Refusal::State, "there is no cluster map"),
    }
}

/// Has the coordinator carry it out; `words` makes of its reply what people read.
pub(crate) fn carry_out(
    server: &Server,
    command: Command,
    words: impl FnOnce(&Reply) -> String,
) -> Result<Value, Value> {
    let Some(cluster) = server.cluster.get() else {
        return Err(refusal(Refusal::State, "this server has no coordinator"));
    };
    match cluster.command(command) {
        Ok(reply) => Ok(done(json!({ "text": words(&reply), "epoch": reply.map.version }))),
        Err(Failed::Silent) => {
            let what = "the coordinator does not answer: the disk of the data folder may hang";
            Err(refusal(Refusal::State, what))
        }
        Err(Failed::Refused(why)) => {
            let kind = match &why {
                CommandError::Unsupported(_) => Refusal::Usage,
                CommandError::WrongState(_) | CommandError::Stale(_) | CommandError::Store(_) => {
                    Refusal::State
                }
            };
            Err(refusal(kind, &why.to_string()))
        }
    }
}

/// The rank that is meant: `0`, `FS:0`, `mds.0`, or the name of the daemon that carries it.
pub(crate) fn rank_meant(server: &Server, who: &str) -> Result<RankId, Value> {
    let map = server.cluster.get().and_then(|cluster| cluster.shared.views.map());
    let short = who.strip_prefix("mds.").unwrap_or(who);
    let digits = match short.rsplit_once(':') {
        Some((fs, digits)) => named_fs(server, fs).map(|()| digits)?,
        None => short,
    };
    if let Ok(number) = digits.parse::<u16>()
        && number < RANKS_MAX
    {
        return Ok(RankId(number));
    }
    let Some(map) = map else { return Err(refusal(Refusal::State, "there is no cluster map")) };
    let daemon = map.daemons.iter().find(|(_, info)| info.name == short);
    match daemon.map(|(id, _)| map.rank_of(*id)) {
        Some(Some((rank, _))) => Ok(rank),
        Some(None) => {
            let what = format!("{who}: it stands by, and carries no rank");
            Err(refusal(Refusal::State, &what))
        }
        None => {
            let what = format!("{who}: neither a rank nor a daemon");
            Err(refusal_with(Refusal::Usage, &what, "`pando fs status` shows both"))
        }
    }
}

fn fail(server: &Server, command: &Value) -> Result<Value, Value> {
    let rank = rank_meant(server, text(command, "who")?)?;
    carry_out(server, Command::FailRank(rank), |reply| reply.text.clone())
}

fn listed(name: &str) -> Value {
    json!({
        "name": name,
        "metadata_pool": "meta",
        "metadata_pool_id": 1,
        "data_pool_ids": [2],
        "data_pools": ["data"],
    })
}

/// As Ceph's map calls a state.
fn up(state: RankState) -> String {
    match state {
        RankState::Failed | RankState::Damaged => format!("down:{}", state.name()),
        RankState::Replay
        | RankState::Resolve
        | RankState::Reconnect
        | RankState::Active
        | RankState::Stopping
        | RankState::Creating => format!("up:{}", state.name()),
    }
}

fn daemon(map: &ClusterMap, id: DaemonId, carried: Option<(RankId, RankInfo)>) -> Value {
    let name = map.daemons.get(&id).map(|info| info.name.as_str());
    json!({
        "gid": id.0,
        "name": name,
        "rank": carried.map_or(-1, |(rank, _)| i64::from(rank.0)),
        "incarnation": carried.map_or(0, |(_, info)| info.incarnation.0),
        "state": carried.map_or_else(|| "up:standby".into(), |(_, info)| up(info.state)),
    })
}

/// How many slots each rank has, how many of them move, and which they are: the first and the last of each run.
fn slots(map: &ClusterMap) -> Value {
    let mut of_ranks: BTreeMap<u16, (usize, usize, Vec<[u16; 2]>)> = BTreeMap::new();
    for (run, slot) in map.slots.runs() {
        let (all, moving, runs) = of_ranks.entry(slot.rank.0).or_default();
        *all += run.len();
        *moving += slot.moving.map_or(0, |_| run.len());
        // Neighbours differ in what moves, or in their versions, which are not told.
        match runs.last_mut() {
            Some([_, last]) if *last + 1 == run.start => *last = run.end - 1,
            Some(_) | None => runs.push([run.start, run.end - 1]),
        }
    }
    let shown =
        |(rank, (all, moving, runs))| json!({ "rank": rank, "slots": all, "moving": moving, "runs": runs });
    of_ranks.into_iter().map(shown).collect()
}

/// Those that were given, as `rank_weight` takes them.
fn weights(map: &ClusterMap) -> Value {
    map.weights.iter().map(|(rank, weight)| format!("{}={weight}", rank.0)).collect::<Vec<_>>().into()
}

/// One file system of `fs dump`.
fn get(name: &str, map: &ClusterMap) -> Value {
    let of = |state: RankState| -> Vec<u16> {
        map.ranks.iter().filter(|(_, info)| info.state == state).map(|(rank, _)| rank.0).collect()
    };
    let (mut up_ranks, mut info) = (Map::new(), Map::new());
    for (rank, carried) in map.ranks.iter().filter(|(_, info)| info.daemon != DaemonId::NONE) {
        let gid = carried.daemon.0;
        up_ranks.insert(format!("mds_{}", rank.0), json!(gid));
        info.insert(format!("gid_{gid}"), daemon(map, carried.daemon, Some((*rank, *carried))));
    }
    json!({
        "id": 1,
        "mdsmap": {
            "epoch": map.version,
            "fs_name": name,
            "enabled": true,
            "joinable": map.joinable,
            "max_mds": map.max_mds,
            "bal_rank_mask": map.bal_rank_mask.hex(),
            "placement": if map.hash_placement { "hash" } else { "subtree" },
            "rank_weight": weights(map),
            "in": map.ranks.keys().map(|rank| rank.0).collect::<Vec<_>>(),
            "up": up_ranks,
            "failed": of(RankState::Failed),
            "damaged": of(RankState::Damaged),
            "stopped": [],
            "info": info,
            "last_incarnation": map.last_incarnation.0,
            "slots": slots(map),
        },
    })
}

fn dump(name: &str, map: &ClusterMap) -> Value {
    let idle = map.daemons.keys().filter(|id| map.rank_of(**id).is_none());
    json!({
        "epoch": map.version,
        "standbys": idle.map(|id| daemon(map, *id, None)).collect::<Vec<_>>(),
        "filesystems": [get(name, map)],
    })
}

/// How many daemons there are, for `status`.
pub(crate) fn daemons(facts: &Facts) -> Value {
    let Some(cluster) = &facts.cluster else { return Value::Null };
    let is_up = |state: RankState| state != RankState::Failed && state != RankState::Damaged;
    let up = cluster.ranks.iter().filter(|(_, state)| is_up(*state)).count();
    json!({ "up": up, "in": cluster.ranks.len(), "standby": cluster.standbys, "epoch": cluster.version })
}

fn status(server: &Server) -> Value {
    let name = fs_name(server);
    let map = server.cluster.get().and_then(|cluster| cluster.shared.views.map());
    let (mut mdsmap, mut clients): (Vec<Value>, u64) = (Vec::new(), 0);
    // A server without a coordinator has one rank, and its state.
    let first = (
        RankId(0),
        RankInfo { state: RankState::Active, incarnation: Incarnation(0), daemon: DaemonId::NONE },
    );
    let ranks =
        map.as_ref().map_or_else(|| vec![first], |map| map.ranks.iter().map(|(r, i)| (*r, *i)).collect());
    for (id, info) in ranks {
        let daemon = map.as_ref().and_then(|map| map.daemons.get(&info.daemon));
        let life = server.stage.of(id);
        let asked = |cmd: &str| {
            life.as_ref().and_then(|life| life.driver.report(&json!({ "cmd": cmd }))).unwrap_or_default()
        };
        let rank = asked("status");
        // One that hangs is not waited for twice.
        let perf = if rank.is_null() { Value::Null } else { asked("perf dump") };
        clients = clients.max(rank["clients"].as_u64().unwrap_or(0));
        // The rank's own word is the newer one, but it does not know that it is to go; one that hangs says nothing. It is active to
        // others once the map says so.
        let own = rank["state"].as_str();
        let word = match (own, info.state) {
            (_, RankState::Failed) => "failed",
            (Some("active"), state) => state.name(),
            (Some("boot"), _) => "replay",
            (Some(own), _) => own,
            (None, RankState::Active) if life.is_some() => "active(laggy)",
            (None, state) => state.name(),
        };
        mdsmap.push(json!({
            "rank": id.0,
            "name": daemon.map_or("", |daemon| daemon.name.as_str()),
            "state": word,
            // Of one that is to go: what it still has.
            "stays_for": rank["stays_for"],
            // Of one that says nothing: null, not zero.
            "rate": rank["requests_per_s"],
            "dns": rank["cached_names"],
            "inos": rank["cached_inodes"],
            "dirs": rank["cached_dirs"],
            "caps": perf["gauges"]["caps"],
        }));
    }
    for name in map.iter().flat_map(|map| standbys(map)) {
        mdsmap.push(json!({ "name": name, "state": "standby" }));
    }
    // A failed rank has no daemon.
    let names: Vec<&Value> = mdsmap.iter().map(|daemon| &daemon["name"]).filter(|name| *name != "").collect();
    let facts = crate::admin::facts(server);
    json!({
        "clients": [{ "fs": name, "clients": clients }],
        "mds_version": [{ "version": concat!("PandoFS ", env!("CARGO_PKG_VERSION")), "daemon": names }],
        "mdsmap": mdsmap,
        "pools": pools(facts.space, server),
    })
}

/// What Ceph has pools for. Of space that metadata and data share each shows what is free of it: null while no rank is there to ask.
fn pools(space: Option<Space>, server: &Server) -> Value {
    let meta = server.opened.as_ref().map(|opened| opened.folder.meta());
    let used = meta.as_deref().map_or(0, bytes_below);
    let free = space.map(|space| space.available);
    let taken = space.map(|space| space.total.saturating_sub(space.free).saturating_sub(used));
    json!([
        { "id": 1, "name": "meta", "type": "metadata", "used": used, "avail": free },
        { "id": 2, "name": "data", "type": "data", "used": taken, "avail": free },
    ])
}

/// What the files right below a folder take on their disk.
fn bytes_below(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::cluster::Slot;

    #[test]
    fn the_keys_are_those_of_ceph() {
        let mut map = ClusterMap::first();
        let info = |name: &str| proto::cluster::DaemonInfo { name: name.into() };
        map.daemons = [(DaemonId(5), info("a")), (DaemonId(6), info("b"))].into();
        let rank = RankInfo { state: RankState::Active, incarnation: Incarnation(9), daemon: DaemonId(5) };
        map.ranks.insert(RankId(0), rank);
        let shown = dump("pandofs", &map);
        let of = &shown["filesystems"][0]["mdsmap"];
        assert_eq!((&of["in"], &of["up"]["mds_0"], &of["failed"]), (&json!([0]), &json!(5), &json!([])));
        let carrier = json!({ "gid": 5, "name": "a", "rank": 0, "incarnation": 9, "state": "up:active" });
        assert_eq!(of["info"]["gid_5"], carrier);
        let idle = json!({ "gid": 6, "name": "b", "rank": -1, "incarnation": 0, "state": "up:standby" });
        assert_eq!(shown["standbys"], json!([idle]));
    }

    /// Slots that differ in nothing that is told are one run.
    #[test]
    fn slots_are_told_by_rank() {
        let mut map = ClusterMap::first();
        let slot = |rank, version| Slot { rank: RankId(rank), version, moving: None };
        let slots = Arc::make_mut(&mut map.slots);
        slots.set(1_000..2_000, slot(1, 7));
        slots.set(2_000..2_001, slot(1, 8));
        slots.set(4_000..4_096, slot(1, 8));
        let first = json!({ "rank": 0, "slots": 2_999, "moving": 0, "runs": [[0, 999], [2_001, 3_999]] });
        let second =
            json!({ "rank": 1, "slots": 1_097, "moving": 0, "runs": [[1_000, 2_000], [4_000, 4_095]] });
        assert_eq!(get("pandofs", &map)["mdsmap"]["slots"], json!([first, second]));
    }
}
