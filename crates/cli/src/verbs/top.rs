//! `pando top`: who asks how much of a server, again and again on a terminal.
//!
//! Absent: single directories; `pando.dir.load` of each says it.

use crate::args::{By, Top};
use crate::output::{Output, bytes, grouped, table};
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

/// To the top left corner, and the rest of the screen cleared.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs the verb: until it is interrupted on a terminal, else once.
///
/// # Errors
/// No server, no answer.
pub fn run(args: &Top, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    let live = std::io::stdout().is_terminal() && out.format == crate::output::Format::Plain;
    let rounds = args.iterations.unwrap_or(if live { u64::MAX } else { 1 });
    for round in 0..rounds {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(args.delay));
        }
        let status = admin::ask(&source, &json!({"cmd": "status"}), ANSWER_TIME)?;
        let clients = admin::ask(&source, &json!({"cmd": "client ls"}), ANSWER_TIME)?;
        let (rows, table) = if args.by == By::Subtree {
            let answer = admin::ask(&source, &json!({"cmd": "subtree load"}), ANSWER_TIME)?;
            let rows = answer["subtrees"].as_array().cloned().unwrap_or_default();
            let table = subtrees(&rows);
            (rows, table)
        } else {
            let mut rows = rows(args.by, &status, clients["clients"].as_array().map_or(&[], Vec::as_slice));
            if args.by == By::Rank {
                add_loads(&mut rows, &admin::ask(&source, &json!({"cmd": "rank load"}), ANSWER_TIME)?);
            }
            let table = shown(args.by, &rows);
            (rows, table)
        };
        let clear = if live { CLEAR } else { "" };
        let text = format!("{clear}{}\n{table}", summary(&status));
        if !out.another(&text, json!({"by": args.by.name(), "status": status, "rows": rows})) {
            break;
        }
    }
    Ok(0)
}

/// One line about the whole.
fn summary(status: &Value) -> String {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    format!(
        "{} {} - {} clients, {} op/s, {}/s rd, {}/s wr, cache {} of {}",
        status["name"].as_str().unwrap_or("pandofs"),
        status["health"].as_str().unwrap_or(""),
        number("clients"),
        grouped(number("requests_per_s")),
        bytes(number("read_bytes_per_s")),
        bytes(number("written_bytes_per_s")),
        bytes(number("cache_bytes")),
        bytes(number("cache_limit")),
    )
}

/// What adds up.
const SUMS: [&str; 4] = ["ops", "read_bytes_per_s", "written_bytes_per_s", "in_flight"];

/// The rows, those that ask most first.
fn rows(by: By, status: &Value, clients: &[Value]) -> Vec<Value> {
    let mut rows = match by {
        By::Client => clients.to_vec(),
        By::User => users(clients),
        By::Rank => ranks(status),
        By::Subtree => Vec::new(),
    };
    let load = |row: &Value| {
        let number = |key: &str| row[key].as_u64().unwrap_or(0);
        (number("ops"), number("read_bytes_per_s") + number("written_bytes_per_s"))
    };
    rows.sort_by(|a, b| load(b).cmp(&load(a)).then_with(|| a["id"].as_u64().cmp(&b["id"].as_u64())));
    rows
}

fn users(clients: &[Value]) -> Vec<Value> {
    let mut users: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for client in clients {
        users.entry(client["user"].as_str().unwrap_or("")).or_default().push(client);
    }
    users.into_iter().map(|(user, clients)| summed(json!({"user": user}), &clients)).collect()
}

fn ranks(status: &Value) -> Vec<Value> {
    let all = status["ranks"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |rank: &Value| {
        let mut row = json!({"rank": rank["rank"], "state": rank["state"], "inos": rank["cached_inodes"], "clients": rank["clients"]});
        // Those of sessions that have ended count, too.
        for (key, whole) in
            SUMS.iter().zip(["requests_per_s", "read_bytes_per_s", "written_bytes_per_s", "in_flight"])
        {
            row[*key] = rank[whole].clone();
        }
        row
    };
    all.iter().map(of).collect()
}

/// What each rank counts of what is asked of it.
const LOADS: [&str; 5] = ["reads_per_s", "writes_per_s", "misses_per_s", "fetched_per_s", "cpu"];

/// Of a rank that counts nothing of late nothing is told.
fn add_loads(rows: &mut [Value], loads: &Value) {
    for row in rows {
        let own = loads["ranks"].as_array().into_iter().flatten().find(|load| load["rank"] == row["rank"]);
        for key in LOADS {
            row[key] = own.map_or_else(|| json!(0.0), |own| own[key].clone());
        }
    }
}

fn summed(mut row: Value, clients: &[&Value]) -> Value {
    row["clients"] = json!(clients.len());
    for key in SUMS {
        row[key] = json!(clients.iter().map(|client| client[key].as_u64().unwrap_or(0)).sum::<u64>());
    }
    row
}

fn shown(by: By, rows: &[Value]) -> String {
    let own: &[(&str, &str)] = match by {
        By::Client => &[("ID", "id"), ("HOST", "host"), ("MOUNT", "mount"), ("USER", "user")],
        By::User => &[("USER", "user"), ("CLIENTS", "clients")],
        By::Rank => &[("RANK", "rank"), ("STATE", "state"), ("INOS", "inos"), ("CLIENTS", "clients")],
        By::Subtree => &[],
    };
    let loads: &[&str] = if by == By::Rank { &LOAD_HEADS } else { &[] };
    // A rank that does not answer has not said.
    let word = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        value => value.as_str().map_or_else(|| value.to_string(), Into::into),
    };
    let mut lines: Vec<Vec<String>> = Vec::new();
    lines.push(
        own.iter()
            .map(|(name, _)| *name)
            .chain(["OPS/s", "RD-BYTES/s", "WR-BYTES/s", "IN-FLIGHT"])
            .chain(loads.iter().copied())
            .map(Into::into)
            .collect(),
    );
    for row in rows {
        let number = |key: &str| row[key].as_u64().unwrap_or(0);
        let mut line: Vec<String> = own.iter().map(|(_, key)| word(&row[*key])).collect();
        line.push(grouped(number("ops")));
        line.extend(["read_bytes_per_s", "written_bytes_per_s"].map(|key| bytes(number(key))));
        line.push(grouped(number("in_flight")));
        if !loads.is_empty() {
            line.extend(load_cells(row));
        }
        lines.push(line);
    }
    table(&lines)
}

/// Heads of `LOADS`.
const LOAD_HEADS: [&str; 5] = ["RD/s", "WR/s", "MISS/s", "FETCH/s", "CPU"];

fn load_cells(row: &Value) -> impl Iterator<Item = String> {
    let [rates @ .., cpu] = LOADS.map(|key| row[key].as_f64().unwrap_or(0.0));
    rates.into_iter().map(|rate| grouped(rate.round() as u64)).chain([format!("{:.1}%", cpu * 100.0)])
}

/// What is asked of what one entry of the cluster map governs, per second.
fn subtrees(rows: &[Value]) -> String {
    let heads = ["PATH", "RANK"].into_iter().chain(LOAD_HEADS).map(String::from);
    let mut lines = vec![heads.collect::<Vec<_>>()];
    for row in rows {
        let path = row["path"].as_str().unwrap_or_default().to_owned();
        lines.push([path, row["rank"].to_string()].into_iter().chain(load_cells(row)).collect());
    }
    table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: u64, user: &str, ops: u64) -> Value {
        json!({
            "id": id, "host": "h", "mount": "/m", "user": user, "ops": ops, "in_flight": 1,
            "read_bytes_per_s": 2048, "written_bytes_per_s": 0
        })
    }

    #[test]
    fn who_asks_most_comes_first_and_users_add_up() {
        let clients = [client(1, "0", 5), client(2, "1000", 2_000), client(3, "0", 7)];
        let status = json!({"ranks": [{"rank": 0, "state": "active", "cached_inodes": 9, "clients": 3, "requests_per_s": 2_012, "read_bytes_per_s": 6144, "in_flight": 3}]});
        let text = |by| shown(by, &rows(by, &status, &clients));
        let expected = "ID  HOST  MOUNT  USER  OPS/s  RD-BYTES/s  WR-BYTES/s  IN-FLIGHT\n\
            2   h     /m     1000  2,000  2.0 KiB     0 B         1\n\
            3   h     /m     0     7      2.0 KiB     0 B         1\n\
            1   h     /m     0     5      2.0 KiB     0 B         1\n";
        assert_eq!(text(By::Client), expected);
        let expected = "USER  CLIENTS  OPS/s  RD-BYTES/s  WR-BYTES/s  IN-FLIGHT\n\
            1000  1        2,000  2.0 KiB     0 B         1\n\
            0     2        12     4.0 KiB     0 B         2\n";
        assert_eq!(text(By::User), expected);
        let mut ranks = rows(By::Rank, &status, &clients);
        let load = json!({"rank": 0, "reads_per_s": 2_011.6, "writes_per_s": 0.0, "misses_per_s": 3.0, "fetched_per_s": 96.0, "cpu": 0.25});
        add_loads(&mut ranks, &json!({"ranks": [load]}));
        let expected = "RANK  STATE   INOS  CLIENTS  OPS/s  RD-BYTES/s  WR-BYTES/s  IN-FLIGHT  RD/s   WR/s  MISS/s  FETCH/s  CPU\n\
            0     active  9     3        2,012  6.0 KiB     0 B         3          2,012  0     3       96       25.0%\n";
        assert_eq!(shown(By::Rank, &ranks), expected);
        let silent = [json!({"rank": 1, "state": "active(laggy)", "inos": null, "clients": null})];
        let line = shown(By::Rank, &silent);
        assert!(line.contains("1     active(laggy)  -     -        0"), "{line}");
    }

    #[test]
    fn subtrees_show_what_is_asked_of_them() {
        let row = |path: &str, rank: u16, reads: f64, writes: f64, cpu: f64| {
            json!({
                "path": path, "rank": rank, "reads_per_s": reads, "writes_per_s": writes, "misses_per_s": 0.4,
                "fetched_per_s": 0.0, "cpu": cpu,
            })
        };
        let rows = [row("/a", 1, 12_345.6, 9.5, 0.071), row("(placed by slots)", 0, 1.0, 0.0, 0.0004)];
        let expected = "PATH               RANK  RD/s    WR/s  MISS/s  FETCH/s  CPU\n\
            /a                 1     12,346  10    0       0        7.1%\n\
            (placed by slots)  0     1       0     0       0        0.0%\n";
        assert_eq!(subtrees(&rows), expected);
    }

    #[test]
    fn the_whole_is_one_line() {
        let status = json!({
            "name": "pandofs", "health": "HEALTH_OK", "clients": 2, "requests_per_s": 1234,
            "read_bytes_per_s": 0, "written_bytes_per_s": 1 << 20, "cache_bytes": 1 << 20, "cache_limit": 1_u64 << 32
        });
        let expected =
            "pandofs HEALTH_OK - 2 clients, 1,234 op/s, 0 B/s rd, 1.0 MiB/s wr, cache 1.0 MiB of 4.0 GiB";
        assert_eq!(summary(&status), expected);
    }
}
