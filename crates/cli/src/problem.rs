//! What a person reads when a command does not succeed: `pando VERB: WHAT WHERE: WHY`, then one line
//! `  do: STEP`, and the exit code scripts look at. With `--format json` the same as an object.
//!
//! Absent: logging; a daemon's log is another text.

pub use runtime::words::{plain, words};
use serde_json::{Value, json};
use std::fmt::Display;

/// Exit codes of every verb but the mount helper and `fsck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    /// No server, or no answer in time.
    Unreachable = 3,
    /// Identity or permission.
    Refused = 4,
    /// Busy, exists, another version.
    State = 5,
}

/// A command that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The process's exit code.
    pub code: u8,
    /// `WHAT WHERE: WHY`.
    pub what: String,
    /// What to do about it, if we know.
    pub step: Option<String>,
}

/// The result of a verb: its exit code when it ran.
pub type Verdict = Result<u8, Problem>;

impl Problem {
    /// A problem without advice.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { code: exit as u8, what: what.into(), step: None }
    }

    /// The same with what to do.
    #[must_use]
    pub fn do_this(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Failed: a step on something, and the reason from below.
    pub fn failed(place: impl Display, why: impl Display) -> Self {
        Self::new(Exit::Failed, format!("{place}: {why}"))
    }

    /// A file operation that the system refused; says which kind of refusal by its exit code.
    pub fn io(place: impl Display, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Refused,
            _ => Exit::Failed,
        };
        Self::new(exit, format!("{place}: {}", plain(error)))
    }

    /// The text for stderr.
    #[must_use]
    pub fn text(&self, verb: &str) -> String {
        let space = if verb.is_empty() { "" } else { " " };
        let mut text = format!("pando{space}{verb}: {}\n", self.what);
        if let Some(step) = &self.step {
            text.push_str(&format!("  do: {step}\n"));
        }
        text
    }

    /// The same for programs (`--format json`).
    #[must_use]
    pub fn json(&self, verb: &str) -> Value {
        json!({"schema": 1, "verb": verb, "error": self.what, "do": self.step, "exit": self.code})
    }
}

/// An error and the chain of its sources, joined by colons.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    words(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_promised_form() {
        let problem = Problem::new(Exit::State, "./mnt is busy").do_this("`pando umount ./mnt`");
        assert_eq!(problem.text("mount"), "pando mount: ./mnt is busy\n  do: `pando umount ./mnt`\n");
        assert_eq!(problem.code, 5);
    }

    #[test]
    fn system_errors_read_as_words() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&error), "no such file or directory");
        assert_eq!(words(&format!("f: {error}")), "f: no such file or directory");
        assert_eq!(words("meta/env-01: os error 5"), "meta/env-01: input/output error");
        assert_eq!(words("our own text (os error 5)"), "our own text");
        assert_eq!(words("os error 2, os error 28"), "no such file or directory, no space left on device");
        assert_eq!(words("os error unknown"), "os error unknown");
        assert_eq!(Problem::io("x", &std::io::Error::from_raw_os_error(13)).code, 4);
    }
}
