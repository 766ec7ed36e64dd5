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
        Subtree::Ls => {
            let answer = admin::ask(&server(None)?, &json!({"cmd": "subtree ls"}), ANSWER_TIME)?;
            let (shown, count) =
                (answer["subtrees"].as_array().map_or(0, Vec::len), answer["count"].as_u64().unwrap_or(0));
            if count > shown as u64 {
                out.say(&format!("{} of {}", grouped(shown as u64), grouped(count)));
            }
            out.result(&listing(&answer), answer);
        }
        Subtree::Move { path, rank } => {
            let command = json!({"cmd": "subtree move", "ino": directory(path)?, "to": rank});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
        Subtree::Cancel { path } => {
            let command = json!({"cmd": "subtree cancel", "ino": directory(path)?});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
    }
    Ok(0)
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
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
    let mut rows = vec![COLUMNS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for entry in answer["subtrees"].as_array().into_iter().flatten() {
        let state = match entry["moving"]["to"].as_u64() {
            Some(to) => format!("moves to {to}"),
            None => "-".to_owned(),
        };
        let cells = ["path", "rank", "policy", "frags"].map(|key| word(&entry[key]));
        let counts = ["inos", "reads_per_s", "writes_per_s"];
        let counts = counts.map(|key| grouped(entry[key].as_f64().unwrap_or(0.0).round() as u64));
        rows.push(cells.into_iter().chain(counts).chain([state]).collect());
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_one_line() {
        let entry = |path: &str, rank: u16, policy: &str, moving: Value| json!({"path": path, "rank": rank, "policy": policy, "frags": 1, "inos": 1_024, "reads_per_s": 12_345.6, "writes_per_s": 0.4, "moving": moving});
        let answer = json!({"count": 2, "subtrees": [
            entry("/", 0, "root", Value::Null),
            entry("/a b", 1, "pin", json!({"id": 7, "to": 2})),
        ]});
        let expected = "PATH  RANK  POLICY  FRAGS  INOS   RD/s    WR/s  STATE\n\
            /     0     root    1      1,024  12,346  0     -\n\
            /a b  1     pin     1      1,024  12,346  0     moves to 2\n";
        assert_eq!(listing(&answer), expected);
    }
}
