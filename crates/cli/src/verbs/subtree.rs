//! `pando subtree`: directories whose content is with a rank of their own.
//!
//! Absent: inodes that are not cached, which nobody counts; pins (`setfattr -n ceph.dir.pin`).

use crate::args::Subtree;
use crate::output::{Output, grouped, table};
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::verbs::fs::changed;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const COLUMNS: [&str; 8] = ["PATH", "RANK", "POLICY", "FRAGS", "INOS", "RD/s", "WR/s", "STATE"];
/// The part of a directory that is all of it.
const WHOLE: &str = "0x0/0";

/// Runs the verb. `server`: the one behind a path, or the one that is found.
///
/// # Errors
/// No server, no answer, its refusals.
pub fn run(
    verb: &Subtree,
    server: impl FnOnce(Option<&Path>) -> Result<Source, Problem>,
    out: &Output,
) -> Verdict {
    match verb {
        Subtree::Ls { path } => {
            let below = path.as_deref().map(directory).transpose()?;
            let command = json!({"cmd": "subtree ls", "ino": below});
            let answer = admin::ask(&server(path.as_deref())?, &command, ANSWER_TIME)?;
            let shown = answer["subtrees"].as_array().map_or(0, Vec::len) as u64;
            let count = answer["count"].as_u64().unwrap_or(0);
            if count > shown {
                out.say(&left_out(shown, count));
            }
            out.result(&listing(&answer), answer);
        }
        Subtree::Move { path, rank, frag } => {
            let command = json!({"cmd": "subtree move", "ino": directory(path)?, "frag": frag, "to": rank});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
        Subtree::Cancel { path, frag } => {
            let command = json!({"cmd": "subtree cancel", "ino": directory(path)?, "frag": frag});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
    }
    Ok(0)
}

fn left_out(shown: u64, count: u64) -> String {
    let (shown, count) = (grouped(shown), grouped(count));
    format!("only {shown} of {count} are listed: `pando subtree ls PATH` lists what is at or below PATH")
}

/// The number of a directory, which its server knows from then on.
pub(super) fn directory(path: &Path) -> Result<u64, Problem> {
    let failed = |error: std::io::Error| Problem::io(path.display(), &error);
    let found = fs::metadata(path).map_err(failed)?;
    // A file's content has no names that could be handed over.
    let mut names = fs::read_dir(path).map_err(failed)?;
    drop(names.next());
    Ok(found.ino())
}

fn listing(answer: &Value) -> String {
    let mut rows = vec![COLUMNS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for entry in answer["subtrees"].as_array().into_iter().flatten() {
        let word = |key: &str| match &entry[key] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let counted = |key: &str| match entry[key].as_f64() {
            Some(count) => grouped(count.round() as u64),
            None => "-".to_owned(),
        };
        let frags = if entry["frag"] == WHOLE { word("frags") } else { word("frag") };
        let mut row = vec![word("path"), word("rank"), word("policy"), frags];
        row.extend(["inos", "reads_per_s", "writes_per_s"].map(counted));
        row.push(state(&entry["moving"]));
        rows.push(row);
    }
    table(&rows)
}

/// How far a move is: what it does, and what it waits for.
fn state(moving: &Value) -> String {
    if moving.is_null() {
        return "-".to_owned();
    }
    let what = match (moving["to"].as_u64(), moving["wanted"].as_str()) {
        (Some(to), _) => format!("moves to {to}"),
        (None, Some("pin")) => "gets its entry".to_owned(),
        (None, Some("unpin")) => "loses its entry".to_owned(),
        (None, Some(_) | None) => "moves".to_owned(),
    };
    match moving["waits_for"].as_str() {
        Some(waits_for) => format!("{what}: waits for {waits_for}"),
        None => format!("{what}: queued"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, rank: u16, policy: &str, moving: Value) -> Value {
        json!({
            "path": path, "rank": rank, "policy": policy, "frag": WHOLE, "frags": 1, "inos": 1_024,
            "reads_per_s": 12_345.6, "writes_per_s": 0.4, "moving": moving,
        })
    }

    #[test]
    fn each_entry_is_one_line() {
        let moving = |to: Value, wanted: &str, waits_for: Value| json!({"id": 7, "to": to, "wanted": wanted, "waits_for": waits_for});
        let mut part = entry("/a b", 1, "spread", moving(json!(2), "move", json!("the metadata store")));
        part["frag"] = json!("0x8000000000000000/1");
        let mut inherits = entry("/c", 0, "", moving(json!(1), "move", Value::Null));
        for key in ["policy", "inos", "reads_per_s", "writes_per_s"] {
            inherits[key] = Value::Null;
        }
        inherits["frags"] = json!(0);
        let answer = json!({"count": 4, "subtrees": [
            entry("/", 0, "root", Value::Null),
            part,
            entry("/b", 1, "pin", moving(Value::Null, "unpin", json!("the coordinator"))),
            inherits,
        ]});
        let expected = "PATH  RANK  POLICY  FRAGS                 INOS   RD/s    WR/s  STATE\n\
            /     0     root    1                     1,024  12,346  0     -\n\
            /a b  1     spread  0x8000000000000000/1  1,024  12,346  0     moves to 2: waits for the metadata store\n\
            /b    1     pin     1                     1,024  12,346  0     loses its entry: waits for the coordinator\n\
            /c    0     -       0                     -      -       -     moves to 1: queued\n";
        assert_eq!(listing(&answer), expected);
    }

    #[test]
    fn what_is_left_out_is_told() {
        let expected =
            "only 1,000 of 65,536 are listed: `pando subtree ls PATH` lists what is at or below PATH";
        assert_eq!(left_out(1_000, 65_536), expected);
    }
}
