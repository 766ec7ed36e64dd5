//! `pando mds`: ranks and the daemons that carry them; `pando tell`: faults, to try a failover with.
//!
//! Absent: what else Ceph's `tell` takes: verbs of their own.

use crate::args::{Mds, Tell};
use crate::output::Output;
use crate::problem::{Exit, Problem, Verdict};
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

/// Runs `tell`.
///
/// # Errors
/// As `run`; exit 2 for what is another verb here.
pub fn tell(args: &Tell, source: impl FnOnce() -> Result<Source, Problem>, out: &Output) -> Verdict {
    match args.words.as_slice() {
        [what] if what == "crash" || what == "hang" => {
            let command = json!({"cmd": "tell", "who": args.who, "what": what});
            changed(admin::ask(&source()?, &command, ANSWER_TIME)?, out);
            Ok(0)
        }
        _ => Err(Problem::new(Exit::Usage, "not in this version")
            .do_this("`pando perf dump`, `pando ops`, `pando client ls`")),
    }
}
