//! The rank as the driver sees it: a machine, and a few questions an operator may ask it.
//!
//! Absent: the rank itself (room `mds`).

use mds::input::Input;
use mds::output::Output;
use stdx::{Mono, Now};

/// A rank, or a stand-in for one in a test.
pub trait RankMachine: Send {
    /// Applies one input and appends its effects in order.
    fn step(&mut self, now: Now, input: Input, out: &mut Vec<Output>);

    /// When it next wants a tick.
    fn deadline(&self) -> Option<Mono>;

    /// Whether nothing is under way in it that would go on without another input from outside.
    fn is_at_rest(&self) -> bool;

    /// Whether it waits for clients to give something back.
    fn is_recalling(&self) -> bool {
        false
    }

    /// Answers an operator's question about the rank's state; `None` for one it does not know.
    fn report(&self, now: Mono, question: &serde_json::Value) -> Option<serde_json::Value>;
}
