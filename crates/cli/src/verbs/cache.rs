//! `pando cache`: the rank's cache of metadata.
//!
//! Absent: the page cache, which is the kernel's.

use crate::args::Cache;
use crate::output::{Output, bytes, grouped};
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

/// Runs the verb.
///
/// # Errors
/// No server, no answer, not permitted.
pub fn run(verb: &Cache, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    match verb {
        Cache::Status => {
            let answer = admin::ask(&source, &json!({"cmd": "cache status"}), ANSWER_TIME)?;
            out.result(&text(&answer), answer);
        }
        Cache::Drop => {
            let answer = admin::ask(&source, &json!({"cmd": "cache drop"}), ANSWER_TIME)?;
            out.result("what the store has is being forgotten", answer);
        }
    }
    Ok(0)
}

fn text(answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let (used, limit) = (number(&answer["pool"]["bytes"]), number(&answer["limit"]));
    let lines = [
        ("inodes", grouped(number(&answer["pool"]["items"]))),
        ("directories", grouped(number(&answer["dirs"]))),
        ("not in the store", grouped(number(&answer["dirty"]))),
        ("memory", format!("{} of {}", bytes(used), bytes(limit))),
    ];
    lines.iter().map(|(key, value)| format!("{:<17} {value}\n", format!("{key}:"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_stands_beside_what_is_used() {
        let answer =
            json!({"pool": {"items": 12_000, "bytes": 3 << 20}, "dirs": 7, "dirty": 5, "limit": 4_u64 << 30});
        let expected = "inodes:           12,000\ndirectories:      7\nnot in the store: 5\n\
            memory:           3.0 MiB of 4.0 GiB\n";
        assert_eq!(text(&answer), expected);
    }
}
