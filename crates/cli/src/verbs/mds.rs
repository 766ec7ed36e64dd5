//! `pando mds`: ranks and the daemons that carry them; `pando tell`: commands for one rank.
//!
//! Absent: what else Ceph's `tell` takes.

use crate::args::{Mds, Tell};
use crate::output::Output;
use crate::problem::{Problem, Verdict};
use crate::source::Source;
use crate::verbs::fs::changed;
use crate::{ANSWER_TIME, admin};
use serde_json::json;

/// Runs `mds`.
///
/// # Errors
/// No server, no answer, its refusals.
pub fn run(verb: &Mds, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let Mds::Fail { who } = verb;
    changed(admin::ask(&source?, &json!({"cmd": "mds fail", "who": who}), ANSWER_TIME)?, out);
    Ok(0)
}

/// Runs `tell`: what a rank answers is shown as JSON, as Ceph shows it.
///
/// # Errors
/// As `run`; exit 2 for what is told to no rank here.
pub fn tell(args: &Tell, source: impl FnOnce() -> Result<Source, Problem>, out: &Output) -> Verdict {
    let command = json!({"cmd": "tell", "who": args.who, "what": args.words.join(" ")});
    let answer = admin::ask(&source()?, &command, ANSWER_TIME)?;
    match answer["text"].as_str() {
        Some(_) => changed(answer, out),
        None => out.result(&format!("{answer:#}\n"), answer),
    }
    Ok(0)
}
