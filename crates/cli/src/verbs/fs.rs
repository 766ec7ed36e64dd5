//! `pando fs`: the file system as a whole, in Ceph's form: what follows `ceph` in a runbook works after `pando`.
//!
//! Absent: several file systems, subvolumes, identities.

use crate::args::Fs;
use crate::output::Output;
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

/// Runs the verb.
///
/// # Errors
/// No server, no answer, its refusals.
pub fn run(verb: &Fs, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    let ask = |command: Value| admin::ask(&source, &command, ANSWER_TIME);
    match verb {
        Fs::Ls => {
            let answer = ask(json!({"cmd": "fs ls"}))?;
            out.result(&listed(&answer), answer);
        }
        Fs::Status { fs } => {
            let answer = ask(json!({"cmd": "fs status", "fs": fs}))?;
            out.result(&status(&answer), answer);
        }
        Fs::Dump => {
            let answer = ask(json!({"cmd": "fs dump"}))?;
            out.result(&dump(&answer), answer);
        }
        Fs::Get { fs } => {
            let answer = ask(json!({"cmd": "fs get", "fs": fs}))?;
            out.result(&one(&answer), answer);
        }
        Fs::Set { fs, key, value } => {
            changed(ask(json!({"cmd": "fs set", "fs": fs, "key": key, "value": value}))?, out);
        }
        Fs::Fail { fs } => changed(ask(json!({"cmd": "fs fail", "fs": fs}))?, out),
        Fs::Joinable { fs } => changed(ask(json!({"cmd": "fs joinable", "fs": fs}))?, out),
    }
    Ok(0)
}

/// What a change came to.
pub fn changed(answer: Value, out: &Output) {
    let text = answer["text"].as_str().unwrap_or_default().to_owned();
    if let Some(warning) = answer["warning"].as_str() {
        out.say(warning);
    }
    out.result(&text, answer);
}

fn items<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}

fn listed(answer: &Value) -> String {
    let of = |fs: &Value| {
        let pools: String = items(fs, "data_pools").iter().map(|pool| format!("{} ", word(pool))).collect();
        let (name, meta) = (word(&fs["name"]), word(&fs["metadata_pool"]));
        format!("name: {name}, metadata pool: {meta}, data pools: [{pools}]\n")
    };
    answer.as_array().into_iter().flatten().map(of).collect()
}

/// As `ceph fs status`.
fn status(answer: &Value) -> String {
    let mut text = String::new();
    for fs in items(answer, "clients") {
        let name = word(&fs["fs"]);
        text.push_str(&format!("{name} - {} clients\n{}\n", fs["clients"], "=".repeat(name.chars().count())));
    }
    // What nobody said: as Ceph leaves it out of a failed rank's line.
    let number =
        |of: &Value, key: &str| of[key].as_u64().map_or_else(String::new, |count| short(count, 1000));
    let heads = ["RANK", "STATE", "MDS", "ACTIVITY", "DNS", "INOS", "DIRS", "CAPS"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    let (ranks, standbys): (Vec<&Value>, Vec<&Value>) =
        items(answer, "mdsmap").iter().partition(|daemon| daemon["rank"].is_u64());
    for daemon in ranks {
        let mut row = vec![daemon["rank"].to_string(), word(&daemon["state"]), word(&daemon["name"])];
        row.push(match (daemon["state"].as_str(), daemon["stays_for"].as_str()) {
            (Some("active"), _) if daemon["rate"].is_u64() => format!("Reqs: {}/s", number(daemon, "rate")),
            (_, Some(left)) => format!("Has: {left}"),
            (_, None) => String::new(),
        });
        row.extend(["dns", "inos", "dirs", "caps"].map(|key| number(daemon, key)));
        rows.push(row);
    }
    text.push_str(&centred(&rows));
    let mut rows = vec![["POOL", "TYPE", "USED", "AVAIL"].map(String::from).to_vec()];
    for pool in items(answer, "pools") {
        let bytes = |key: &str| pool[key].as_u64().map_or_else(|| "-".to_owned(), |bytes| short(bytes, 1024));
        rows.push(vec![word(&pool["name"]), word(&pool["type"]), bytes("used"), bytes("avail")]);
    }
    text.push_str(&centred(&rows));
    if !standbys.is_empty() {
        let names = standbys.into_iter().map(|daemon| vec![word(&daemon["name"])]);
        let rows: Vec<Vec<String>> = std::iter::once(vec!["STANDBY MDS".to_owned()]).chain(names).collect();
        text.push_str(&centred(&rows));
    }
    for version in items(answer, "mds_version") {
        text.push_str(&format!("MDS version: {}\n", word(&version["version"])));
    }
    text
}

/// As `ceph fs dump`.
fn dump(answer: &Value) -> String {
    let mut text = format!("e{}\n", answer["epoch"]);
    for fs in items(answer, "filesystems") {
        text.push_str(&one(fs));
    }
    let standbys = items(answer, "standbys");
    if !standbys.is_empty() {
        text.push_str("\nStandby daemons:\n\n");
        standbys.iter().for_each(|daemon| text.push_str(&line(daemon)));
    }
    text
}

/// As `ceph fs get`.
fn one(fs: &Value) -> String {
    let map = &fs["mdsmap"];
    let numbers = |key: &str| {
        let numbers: Vec<String> = items(map, key).iter().map(Value::to_string).collect();
        numbers.join(",")
    };
    let up: Vec<String> = map["up"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(rank, gid)| format!("{}={gid}", rank.trim_start_matches("mds_")))
        .collect();
    let mut text = format!("Filesystem '{}' ({})\n", word(&map["fs_name"]), fs["id"]);
    text.push_str(&format!("fs_name\t{}\n", word(&map["fs_name"])));
    for key in ["epoch", "joinable", "max_mds"] {
        text.push_str(&format!("{key}\t{}\n", map[key]));
    }
    for key in ["bal_rank_mask", "placement"] {
        text.push_str(&format!("{key}\t{}\n", word(&map[key])));
    }
    let weights: Vec<String> = items(map, "rank_weight").iter().map(word).collect();
    text.push_str(&format!("rank_weight\t{}\n", weights.join(",")));
    text.push_str(&format!("in\t{}\nup\t{{{}}}\n", numbers("in"), up.join(",")));
    for key in ["failed", "damaged", "stopped"] {
        text.push_str(&format!("{key}\t{}\n", numbers(key)));
    }
    let daemons = map["info"].as_object().into_iter().flatten();
    daemons.for_each(|(_, daemon)| text.push_str(&line(daemon)));
    text
}

/// `[mds.NAME{RANK:GID} state up:active incarnation N]`
fn line(daemon: &Value) -> String {
    let life = match daemon["incarnation"].as_u64() {
        Some(life) if life > 0 => format!(" incarnation {life}"),
        _ => String::new(),
    };
    let (name, state) = (word(&daemon["name"]), word(&daemon["state"]));
    format!("[mds.{name}{{{}:{}}} state {state}{life}]\n", daemon["rank"], daemon["gid"])
}

/// A number in five characters, the last of them its unit: `9999 `, `31.1k`, ` 463k`.
fn short(number: u64, factor: u64) -> String {
    const UNITS: [char; 7] = [' ', 'k', 'M', 'G', 'T', 'P', 'E'];
    let (mut unit, mut rest) = (0, number);
    while rest > 9999 {
        rest /= factor;
        unit += 1;
    }
    if unit == 0 {
        return format!("{number:>4} ");
    }
    let scaled = number as f64 / (factor as f64).powi(unit);
    let digits = format!("{scaled:.6}");
    let digits = match digits.get(..4).unwrap_or(&digits) {
        cut if cut.ends_with('.') => format!(" {}", cut.trim_end_matches('.')),
        cut => cut.to_owned(),
    };
    format!("{digits}{}", UNITS[unit as usize])
}

/// Columns as Ceph's manager sets them: each cell in the middle, two spaces apart.
fn centred(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let len = |cell: &String| cell.chars().count();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let excess = width - len(cell);
            // Of an odd rest a cell of odd length has the smaller part before it.
            let before = if len(cell) % 2 == 1 { excess / 2 } else { excess.div_ceil(2) };
            line.push_str(&format!("{:before$}{cell}{:after$}  ", "", "", after = excess - before));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_five_characters() {
        for (number, text) in [
            (0, "   0 "),
            (9_999, "9999 "),
            (10_000, "10.0k"),
            (31_100, "31.1k"),
            (463_000, " 463k"),
            (12_345_678, "12.3M"),
        ] {
            assert_eq!(short(number, 1000), text, "{number}");
        }
        assert_eq!((short(64 << 10, 1024), short(95 << 30, 1024)), ("64.0k".into(), "95.0G".into()));
        assert_eq!(short(u64::MAX, 1000), "18.4E");
    }

    #[test]
    fn status_is_cephs() {
        let answer = json!({
            "clients": [{"fs": "pandofs", "clients": 2}],
            "mdsmap": [
                {"rank": 0, "name": "box-0", "state": "active", "rate": 31_100, "dns": 10, "inos": 13, "dirs": 12, "caps": 7},
                {"rank": 1, "name": "box-2", "state": "stopping", "stays_for": "sessions of clients", "dns": 1, "inos": 1, "dirs": 1, "caps": 0},
                {"rank": 2, "name": "", "state": "failed", "rate": null, "dns": null, "inos": null, "dirs": null, "caps": null},
                {"name": "box-1", "state": "standby"},
            ],
            "pools": [
                {"name": "meta", "type": "metadata", "used": 98_304, "avail": 102_005_473_280_u64},
                {"name": "data", "type": "data", "used": 0, "avail": null},
            ],
            "mds_version": [{"version": "PandoFS 0.3.0", "daemon": ["box-0", "box-1"]}],
        });
        let expected = "pandofs - 2 clients\n=======\n\
            RANK   STATE     MDS           ACTIVITY           DNS    INOS   DIRS   CAPS\n \
            0     active   box-0       Reqs: 31.1k/s          10     13     12      7\n \
            1    stopping  box-2  Has: sessions of clients     1      1      1      0\n \
            2     failed\n\
            POOL    TYPE     USED  AVAIL\n\
            meta  metadata  96.0k  95.0G\n\
            data    data       0     -\n\
            STANDBY MDS\n   \
            box-1\n\
            MDS version: PandoFS 0.3.0\n";
        assert_eq!(status(&answer), expected);
    }

    #[test]
    fn dump_is_cephs() {
        let map = json!({
            "epoch": 12, "fs_name": "pandofs", "joinable": true, "max_mds": 1, "bal_rank_mask": "0x38", "placement": "hash", "rank_weight": ["1=50", "3=200"], "in": [0], "up": {"mds_0": 5},
            "failed": [], "damaged": [], "stopped": [],
            "info": {"gid_5": {"gid": 5, "name": "box-0", "rank": 0, "incarnation": 9, "state": "up:active"}},
        });
        let standby = json!({"gid": 6, "name": "box-1", "rank": -1, "incarnation": 0, "state": "up:standby"});
        let answer = json!({"epoch": 12, "filesystems": [{"id": 1, "mdsmap": map}], "standbys": [standby]});
        let expected = "e12\nFilesystem 'pandofs' (1)\nfs_name\tpandofs\nepoch\t12\njoinable\ttrue\nmax_mds\t1\nbal_rank_mask\t0x38\nplacement\thash\nrank_weight\t1=50,3=200\nin\t0\n\
            up\t{0=5}\nfailed\t\ndamaged\t\nstopped\t\n\
            [mds.box-0{0:5} state up:active incarnation 9]\n\nStandby daemons:\n\n\
            [mds.box-1{-1:6} state up:standby]\n";
        assert_eq!(dump(&answer), expected);
    }

    #[test]
    fn the_list_is_cephs() {
        let answer = json!([{"name": "pandofs", "metadata_pool": "meta", "data_pools": ["data"]}]);
        assert_eq!(listed(&answer), "name: pandofs, metadata pool: meta, data pools: [data ]\n");
    }
}
