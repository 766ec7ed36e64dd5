//! Which mount's answers this thread is handing out. What the callers ask for next leaves together when all of them have been
//! answered: a message of its own for each would cost both sides a system call, and wake the server each time.
//!
//! Absent: what leaves; it waits in the mount's core, and whoever sends earlier takes it along.

use crate::shared::Shared;
use std::cell::Cell;
use std::ptr;

thread_local! {
    static ANSWERING: Cell<Answering> = const { Cell::new(Answering { mount: ptr::null(), asked: false }) };
}

#[derive(Clone, Copy)]
struct Answering {
    /// Only compared. The mount outlives it: it is borrowed for as long.
    mount: *const Shared,
    /// Something was left to be sent.
    asked: bool,
}

/// Whether this thread is handing out answers of the mount, and will send afterwards.
pub(crate) fn sends_later(mount: &Shared) -> bool {
    let answering = ANSWERING.get();
    let later = ptr::eq(answering.mount, mount);
    if later {
        ANSWERING.set(Answering { asked: true, ..answering });
    }
    later
}

/// Runs callbacks of the mount. Answers whether something is to be sent now that was asked for meanwhile.
pub(crate) fn hand_out(mount: &Shared, callbacks: impl FnOnce()) -> bool {
    let outer = ANSWERING.get();
    if ptr::eq(outer.mount, mount) {
        // Called by a callback: the outermost sends.
        callbacks();
        return false;
    }
    let restore = Restore(outer);
    ANSWERING.set(Answering { mount, asked: false });
    callbacks();
    let asked = ANSWERING.get().asked;
    drop(restore);
    asked
}

/// A callback may panic.
struct Restore(Answering);

impl Drop for Restore {
    fn drop(&mut self) {
        ANSWERING.set(self.0);
    }
}
