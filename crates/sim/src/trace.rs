//! The trace of a run: one line per event, folded into one hash. Two runs of a seed must agree.
//!
//! Absent: files; whoever wants the lines gives a sink.

use stdx::hash::mix64;

/// Where the lines of a trace go.
pub type Sink = Box<dyn FnMut(&str)>;

/// Hash and, when wanted, lines.
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    sink: Option<Sink>,
}

impl Trace {
    /// Without a sink no text is made.
    pub(crate) const fn new(sink: Option<Sink>) -> Self {
        Self { hash: 0, events: 0, sink }
    }

    /// Folds an event in: when, what kind, and its content.
    pub(crate) fn event(&mut self, at: u64, kind: &'static str, content: u64, text: impl FnOnce() -> String) {
        self.hash = mix64(self.hash ^ mix64(at ^ content.rotate_left(17) ^ fold(kind.as_bytes())));
        self.events += 1;
        if let Some(sink) = &mut self.sink {
            sink(&format!("{:>14.6} {kind:<9} {}", at as f64 / 1e6, text()));
        }
    }

    /// Lines that explain an event and are no events themselves.
    pub(crate) fn explain(&mut self, at: u64, kind: &'static str, lines: impl FnOnce() -> Vec<String>) {
        if let Some(sink) = &mut self.sink {
            lines().iter().for_each(|line| sink(&format!("{:>14.6} {kind:<9} {line}", at as f64 / 1e6)));
        }
    }

    /// The hash so far.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }
}

/// A hash of bytes.
#[must_use]
pub(crate) fn fold(bytes: &[u8]) -> u64 {
    u64::from(stdx::crc32c(bytes)) | ((bytes.len() as u64) << 32)
}
