//! The contract of every deciding part of PandoFS.
//!
//! Absent: any driver. A driver feeds one input, drains the outbox completely, repeats.

use crate::time::{Mono, Now};

/// Effects of one step, in order. A thin vector so that drivers can reuse its memory.
pub type Outbox<T> = Vec<T>;

/// A deterministic state machine: no I/O, no clock, no thread, no global.
pub trait Machine {
    /// Everything that can happen to the machine.
    type Input;
    /// Everything it can ask its driver for.
    type Output;

    /// Applies one input at one instant and appends the effects in order.
    fn step(&mut self, now: Now, input: Self::Input, out: &mut Outbox<Self::Output>);

    /// When the machine next wants a tick; `None` while it waits for nothing but inputs.
    fn deadline(&self) -> Option<Mono>;
}
