//! File locks: flock and fcntl kept apart, waits that a signal ends, and what closing a file drops.
//! Absent: who gets a lock; the rank decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::mount::{CallId, Validity};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, Request};

use super::answer::asker;
use super::{RequestContext, Shared, convert};
use crate::caller;
use crate::reply::KernelReply;
use crate::request::groups::{
    attribute_operations, data_operations, listing_operations, mount_operations, name_operations,
    xattr_operations,
};
use crate::request::{KernelRequest, Lock, Operation};

/// How far a wait for a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Being handed to the session.
    Starting,
    /// Interrupted before the session had it.
    Interrupted,
    Call(CallId),
}

/// Waits by the kernel's number of the request.
#[derive(Default)]
pub(super) struct Waits(Mutex<HashMap<u64, Wait>>);

impl Waits {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<u64, Wait>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn start(&self, unique: u64) {
        self.with(|waits| waits.insert(unique, Wait::Starting));
    }

    /// The session has it; true when it was interrupted meanwhile. Answered already: nothing to note.
    fn started(&self, unique: u64, call: CallId) -> bool {
        self.with(|waits| match waits.get_mut(&unique) {
            Some(wait) => std::mem::replace(wait, Wait::Call(call)) == Wait::Interrupted,
            None => false,
        })
    }

    fn end(&self, unique: u64) {
        self.with(|waits| waits.remove(&unique));
    }

    /// What to interrupt; `Err`: no such wait (yet).
    fn interrupt(&self, unique: u64) -> Result<Option<CallId>, ()> {
        self.with(|waits| match waits.get_mut(&unique) {
            None => Err(()),
            Some(Wait::Call(call)) => Ok(Some(*call)),
            Some(wait) => {
                *wait = Wait::Interrupted;
                Ok(None)
            }
        })
    }
}

impl Shared {
    pub(super) fn lock_operation(
        self: &Arc<Self>,
        about: RequestContext,
        request: &KernelRequest<'_>,
        reply: KernelReply,
    ) {
        match &request.operation {
            Operation::GetLk(lock) => self.test_lock(about, lock, reply),
            Operation::SetLk { lock, sleep } => self.set_lock(about, lock, *sleep, request.unique, reply),
            Operation::Flush { fh, lock_owner } => {
                let (ino, fh) = (about.node.ino, *fh);
                // Closing any handle drops the fcntl locks its owner has on the file.
                if !self.nodes.may_be_locked(about.nodeid) {
                    return self.ok_or_late(ino, fh, reply);
                }
                let ask = Request::ReleaseLocks { node: about.node, flock: false, owner: *lock_owner };
                // A process that was killed closes its files, too, and waits here where no signal reaches it.
                let unique = reply.unique();
                self.ask(about.cred, ask, reply, move |shared, reply, _| shared.ok_or_late(ino, fh, reply));
                self.watch(unique, true);
            }
            // `Adapter::handle` sends these elsewhere.
            name_operations!()
            | attribute_operations!()
            | xattr_operations!()
            | listing_operations!()
            | data_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
    }

    fn test_lock(self: &Arc<Self>, about: RequestContext, lock: &Lock, reply: KernelReply) {
        let lock = match convert::lock(lock) {
            Ok(lock) => lock,
            Err(errno) => return reply.error(errno.0),
        };
        let ask = Request::TestLock { node: about.node, lock };
        self.ask(about.cred, ask, reply, |_, reply, answer| {
            let Reply::Lock(found) = answer else { return reply.error(libc::EIO) };
            reply.lock(&convert::file_lock(found.as_ref()));
        });
    }

    fn set_lock(
        self: &Arc<Self>,
        about: RequestContext,
        lock: &Lock,
        sleep: bool,
        unique: u64,
        reply: KernelReply,
    ) {
        let lock = match convert::lock(lock) {
            Ok(lock) => lock,
            Err(errno) => return reply.error(errno.0),
        };
        if !lock.flock && lock.kind != LockKind::Unlock {
            self.nodes.set_locked(about.nodeid);
        }
        let wait = sleep && lock.kind != LockKind::Unlock;
        let ask = Request::SetLock { node: about.node, lock, wait };
        if !wait {
            return self.done(about.cred, ask, reply);
        }
        self.waits.start(unique);
        let (shared, asker) = (Arc::clone(self), asker(&reply));
        let done = Box::new(move |outcome: Outcome, _: Validity| {
            shared.waits.end(unique);
            match outcome {
                Ok(_) => reply.ok(),
                Err(errno) => reply.error(errno.0),
            }
        });
        let call = self.mount.submit_for(asker, about.cred, ask, done);
        if self.waits.started(unique, call) {
            self.mount.interrupt(call);
        }
    }

    /// A signal for the caller of request `unique`. Waits for locks give up. Anything else is answered when it is done, as
    /// programs expect of a disk; but who is being killed, now or by a later signal, does not wait for a server that is gone.
    pub(super) fn interrupt(self: &Arc<Self>, unique: u64, reply: KernelReply) {
        let waits = self.waits.interrupt(unique);
        if let Ok(Some(call)) = waits {
            self.mount.interrupt(call);
        }
        match self.mount.call_of(unique) {
            Some((call, asker)) => {
                if caller::is_being_killed(asker.pid) {
                    self.mount.abandon(call);
                }
                self.watch(unique, false);
                reply.ok();
            }
            None if waits.is_ok() => reply.ok(),
            // Not known yet: the transport asks again should the request still come.
            None => reply.error(libc::EAGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_never_lost_between_start_and_call() {
        let waits = Waits::default();
        assert_eq!(waits.interrupt(1), Err(()));
        waits.start(1);
        assert_eq!(waits.interrupt(1), Ok(None));
        assert!(waits.started(1, CallId(9)), "the call must be interrupted now");
        assert_eq!(waits.interrupt(1), Ok(Some(CallId(9))));
        waits.end(1);
        assert!(!waits.started(1, CallId(9)), "an answered wait stays gone");
        assert_eq!(waits.interrupt(1), Err(()));
    }
}
