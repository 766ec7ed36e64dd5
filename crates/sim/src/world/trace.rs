//! The trace of a run: one line per event, folded into one hash. Two runs of a seed must agree.
//!
//! Absent: files; the binary prints the lines.

use std::collections::VecDeque;
use stdx::hash::mix64;

/// Lines kept for a report when a run fails.
const KEPT: usize = 60;

/// Hash and, when wanted, lines.
pub struct Trace {
    hash: u64,
    lines: u64,
    full: bool,
    last: VecDeque<String>,
}

impl Trace {
    /// `full`: make text of every event, not only its hash.
    #[must_use]
    pub const fn new(full: bool) -> Self {
        Self { hash: 0, lines: 0, full, last: VecDeque::new() }
    }

    /// Folds an event in: when, what kind, and its content.
    pub fn event(&mut self, at: u64, kind: &'static str, content: u64, text: impl FnOnce() -> String) {
        self.hash = mix64(self.hash ^ mix64(at ^ content.rotate_left(17) ^ fold(kind.as_bytes())));
        self.lines += 1;
        if self.full {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            let line = format!("{:>13.6} {kind:<9} {}", at as f64 / 1e6, text());
            println_line(&line);
            self.last.push_back(line);
        }
    }

    /// The hash so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.lines
    }
}

fn println_line(line: &str) {
    println!("{line}");
}

/// A hash of bytes.
#[must_use]
pub fn fold(bytes: &[u8]) -> u64 {
    u64::from(stdx::crc32c(bytes)) | ((bytes.len() as u64) << 32)
}
