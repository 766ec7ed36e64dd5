//! `pando status`: what a server says of itself.
//!
//! Absent: health checks, which come with their own verb.

use crate::output::{Output, bytes, grouped};
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

/// Runs the verb.
///
/// # Errors
/// No server, no answer.
pub fn run(source: Result<Source, Problem>, out: &Output) -> Verdict {
    let answer = admin::ask(&source?, &json!({"cmd": "status"}), ANSWER_TIME)?;
    out.result(&text(&answer), answer);
    Ok(0)
}

/// As `ceph -s`: cluster, services, data, io; then the journal. What the server does not say is left out.
fn text(answer: &Value) -> String {
    let word = |key: &str| answer.get(key).and_then(Value::as_str);
    let number = |key: &str| answer.get(key).and_then(Value::as_u64);
    let mut text = String::from("  cluster:\n");
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("    {:<10}{value}\n", format!("{name}:")));
        }
    };
    line("id", word("fsid").map(Into::into));
    line("name", word("name").map(Into::into));
    let state = word("state").map(Into::into);
    line("state", state);
    line("\u{0}", None);
    text.push_str("\n  services:\n");
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("    {:<10}{value}\n", format!("{name}:")));
        }
    };
    line("mds", word("state").map(|state| format!("1 rank, {state}{}", pid(answer))));
    line("clients", number("clients").map(grouped));
    text.push_str("\n  data:\n");
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("    {:<10}{value}\n", format!("{name}:")));
        }
    };
    line("folder", word("dir").map(Into::into));
    line("usage", usage(answer));
    line("cached", number("cached_inodes").map(|count| format!("{} inodes", grouped(count))));
    if let Some(count) = number("journal_operations") {
        let seconds = answer.get("replay_seconds").and_then(Value::as_f64).unwrap_or(0.0);
        text.push_str(&format!(
            "\n  journal: {} ops not checkpointed (replay about {seconds:.1} s)\n",
            grouped(count)
        ));
    }
    text
}

fn pid(answer: &Value) -> String {
    answer.get("pid").and_then(Value::as_u64).map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

fn usage(answer: &Value) -> Option<String> {
    let space = answer.get("space")?;
    let total = space.get("total")?.as_u64()?;
    let available = space.get("available")?.as_u64()?;
    Some(format!("{} available of {}", bytes(available), bytes(total)))
}
