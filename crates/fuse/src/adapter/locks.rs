//! File locks: flock and fcntl kept apart, waits that a signal ends, and what closing a file drops.
//! Absent: who gets a lock; the rank decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
use crate::request::{KernelRequest, Lock, Operation, Release};

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

/// Owners of fcntl locks by the handle that they were taken through.
///
/// The kernel sends no unlock for the locks of an open file (F_OFD_SETLK) at its last close, and a lock does not tell whether it is one of
/// these. But a process that closes a handle sends FLUSH with its owner before the RELEASE. So whoever is left at a RELEASE is the open
/// file itself (fs/locks.c `locks_remove_file`, fs/fuse/file.c `fuse_setlk`).
#[derive(Default)]
pub(super) struct LockOwners(Mutex<BTreeMap<u64, BTreeSet<u64>>>);

impl LockOwners {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, BTreeSet<u64>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn locks(&self, fh: u64, owner: u64) {
        self.with(|handles| handles.entry(fh).or_default().insert(owner));
    }

    fn flushes(&self, fh: u64, owner: u64) {
        self.with(|handles| {
            let Some(owners) = handles.get_mut(&fh) else { return };
            owners.remove(&owner);
            if owners.is_empty() {
                handles.remove(&fh);
            }
        });
    }

    /// The handle is closed: whose locks go with it.
    fn closed(&self, fh: u64) -> BTreeSet<u64> {
        self.with(|handles| handles.remove(&fh)).unwrap_or_default()
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
                self.lock_owners.flushes(fh, *lock_owner);
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
        let fh = lock.fh;
        let lock = match convert::lock(lock) {
            Ok(lock) => lock,
            Err(errno) => return reply.error(errno.0),
        };
        if !lock.flock && lock.kind != LockKind::Unlock {
            self.nodes.set_locked(about.nodeid);
            self.lock_owners.locks(fh, lock.owner);
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

    /// What a handle's end unlocks, one after the other.
    pub(super) fn unlocks_at_release(&self, about: &RequestContext, release: Release) -> Vec<Request> {
        let mut unlocks = Vec::new();
        if self.nodes.may_be_locked(about.nodeid) {
            let own = self.lock_owners.closed(release.fh).into_iter();
            unlocks.extend(own.map(|owner| Request::ReleaseLocks { node: about.node, flock: false, owner }));
        }
        if release.flock_unlock {
            let owner = release.lock_owner;
            unlocks.push(Request::ReleaseLocks { node: about.node, flock: true, owner });
        }
        unlocks
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

    /// What broke: the lock of an open file stayed after its last close.
    #[test]
    fn who_is_left_at_a_handles_end_is_the_open_file() {
        let owners = LockOwners::default();
        let (process, forked, file) = (1, 2, 3);
        for owner in [process, forked, file] {
            owners.locks(7, owner);
        }
        owners.locks(8, process);
        owners.flushes(7, process);
        owners.flushes(7, forked);
        owners.flushes(9, process);
        assert_eq!(owners.closed(7), [file].into());
        // Its process locked again through another handle before this one's RELEASE came.
        assert_eq!(owners.closed(8), [process].into());
        assert!(owners.with(|handles| handles.is_empty()));
    }

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
