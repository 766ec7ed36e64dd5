//! `pando health`: what is wrong with a server, in Ceph's codes and words.
//!
//! Absent: judging (crate `server`).

use crate::args::Health;
use crate::output::Output;
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

/// Runs the verb. With `--check` the exit code is 0, 1 or 2 for OK, WARN or ERR.
///
/// # Errors
/// No server, no answer.
pub fn run(args: &Health, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let answer = admin::ask(&source?, &json!({"cmd": "health"}), ANSWER_TIME)?;
    let code = if args.check { level(&answer) } else { 0 };
    out.result(&text(&answer, args.detail.is_some()), answer);
    Ok(code)
}

fn level(answer: &Value) -> u8 {
    match answer["status"].as_str() {
        Some("HEALTH_OK") => 0,
        Some("HEALTH_WARN") => 1,
        _ => 2,
    }
}

/// As `ceph health [detail]`.
fn text(answer: &Value, detail: bool) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let checks: Vec<(&String, &Value)> = answer["checks"].as_object().into_iter().flatten().collect();
    let summaries: Vec<String> = checks.iter().map(|(_, check)| word(&check["summary"]["message"])).collect();
    let mut text = format!("{} {}", word(&answer["status"]), summaries.join("; ")).trim_end().to_owned();
    text.push('\n');
    for (code, check) in checks.iter().filter(|_| detail) {
        let short = if check["severity"] == "HEALTH_ERR" { "ERR" } else { "WRN" };
        text.push_str(&format!("[{short}] {code}: {}\n", word(&check["summary"]["message"])));
        for line in check["detail"].as_array().into_iter().flatten() {
            text.push_str(&format!("    {}\n", word(&line["message"])));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_cephs() {
        let good = json!({"status": "HEALTH_OK", "checks": {}, "mutes": []});
        assert_eq!((text(&good, true).as_str(), level(&good)), ("HEALTH_OK\n", 0));
        let slow = json!({
            "severity": "HEALTH_WARN",
            "summary": {"message": "1 MDSs report slow requests", "count": 1},
            "detail": [{"message": "mds.0: 2 slow requests are blocked > 30 secs"}],
        });
        let full = json!({
            "severity": "HEALTH_ERR",
            "summary": {"message": "1 pool(s) full", "count": 1},
            "detail": [{"message": "pool '/d' is full (no space): new data refused, unlink still works"}],
        });
        let bad = json!({"status": "HEALTH_ERR", "checks": {"MDS_SLOW_REQUEST": slow, "POOL_FULL": full}});
        assert_eq!(text(&bad, false), "HEALTH_ERR 1 MDSs report slow requests; 1 pool(s) full\n");
        let expected = "HEALTH_ERR 1 MDSs report slow requests; 1 pool(s) full\n\
            [WRN] MDS_SLOW_REQUEST: 1 MDSs report slow requests\n    \
            mds.0: 2 slow requests are blocked > 30 secs\n\
            [ERR] POOL_FULL: 1 pool(s) full\n    \
            pool '/d' is full (no space): new data refused, unlink still works\n";
        assert_eq!((text(&bad, true).as_str(), level(&bad)), (expected, 2));
    }
}
