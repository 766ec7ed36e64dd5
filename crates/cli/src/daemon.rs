//! A verb that goes on in the background: this program starts itself again, detached, and waits for one line on
//! the child's stdout that says whether it stands.
//!
//! A new process instead of a fork: no thread, lock or file of the parent is inherited half-way.
//!
//! Absent: what the daemon does.

use crate::problem::{Exit, Problem, plain};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Why there is no word that it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub problem: Problem,
    /// It may still come to stand: nothing may be taken away from under it.
    pub goes_on: bool,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem, goes_on: false }
    }
}

/// Starts this program with these arguments and waits for its word.
///
/// # Errors
/// The child's own problem; exit 3 when it said nothing in time; exit 1 when it died without a word.
pub fn start(args: &[OsString], log: Option<&Path>, timeout: Duration) -> Result<Value, Failure> {
    let program = std::env::current_exe().map_err(|error| Problem::io("this program", &error))?;
    let mut child = Command::new(&program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr_for(log))
        .process_group(0)
        .spawn()
        .map_err(|error| Problem::io(program.display(), &error))?;
    let stdout = child.stdout.take();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let _parent_gave_up = send.send(read.map(|_| line));
    });
    let where_to_look = |problem: Problem| match log {
        Some(log) => problem.do_this(format!("read {}", log.display())),
        None => problem,
    };
    let line = match receive.recv_timeout(timeout) {
        Ok(line) => line.unwrap_or_default(),
        Err(_) => {
            // Not killed: it may hold the folder in the middle of a replay, which it may finish.
            let text = format!("no answer within {} s (pid {} goes on)", timeout.as_secs(), child.id());
            let problem = where_to_look(Problem::new(Exit::Unreachable, text));
            return Err(Failure { problem, goes_on: true });
        }
    };
    match serde_json::from_str::<Value>(&line) {
        Ok(word) if word.get("problem").is_some() => Err(problem_in(&word["problem"]).into()),
        Ok(word) => Ok(word),
        Err(_) => {
            let end = child.wait().map_or_else(|error| plain(&error), |status| status.to_string());
            Err(where_to_look(Problem::new(
                Exit::Failed,
                format!("the daemon ended before it stood ({end})"),
            ))
            .into())
        }
    }
}

/// What a panic says must go somewhere: to the log, if its folder is there. It is not made here: a folder that
/// is about to be refused must stay as it is.
fn stderr_for(log: Option<&Path>) -> Stdio {
    let open = |path: &Path| std::fs::OpenOptions::new().create(true).append(true).open(path).ok();
    log.and_then(open).map_or_else(Stdio::null, Stdio::from)
}

/// The daemon's word that it stands.
pub fn stands(word: &Value) {
    tell(word);
}

/// The daemon's word that it does not.
pub fn fails(problem: &Problem) {
    tell(&json!({"problem": {"code": problem.code, "what": problem.what, "do": problem.step}}));
}

fn tell(word: &Value) {
    let mut out = std::io::stdout().lock();
    let _parent_gave_up = writeln!(out, "{word}").and_then(|()| out.flush());
}

fn problem_in(word: &Value) -> Problem {
    let code = word["code"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8);
    let text = |key: &str| word[key].as_str().map(Into::into);
    Problem { code, what: text("what").unwrap_or_default(), step: text("do") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_travels_whole() {
        let problem = Problem::new(Exit::State, "a is busy").do_this("wait");
        let word = json!({"code": problem.code, "what": problem.what, "do": problem.step});
        assert_eq!(problem_in(&word), problem);
    }
}
