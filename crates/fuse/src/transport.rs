//! How requests reach the handler: readers on /dev/fuse, or one io_uring per CPU.
//! Absent: INIT and mounting, which `kernel_mount` does before any of this runs.

pub(crate) mod classic;
pub(crate) mod device;
pub(crate) mod interrupts;
pub(crate) mod uring;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{Dialect, InHeader, Opcode};
use crate::kernel_mount::Handler;
use crate::reply::KernelReply;
use crate::reply::channel::Channel;
use crate::request::Parts;
use crate::request::groups::{attribute_operations, lock_operations, mount_operations};
use crate::request::{KernelRequest, Operation, ParseError};
use interrupts::Interrupts;

/// Which way requests travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring where the kernel offers it, else /dev/fuse.
    #[default]
    Auto,
    /// io_uring, or the mount fails.
    Uring,
    /// read(2) and write(2) on /dev/fuse.
    Classic,
}

/// What all threads of a kernel mount share.
pub(crate) struct Core {
    handler: Arc<dyn Handler>,
    pub(crate) dialect: Dialect,
    interrupts: Arc<Interrupts>,
    failure: Mutex<Option<io::Error>>,
}

impl Core {
    pub(crate) fn new(handler: Arc<dyn Handler>, dialect: Dialect) -> Core {
        Core { handler, dialect, interrupts: Arc::default(), failure: Mutex::default() }
    }

    /// For a thread that will call the handler.
    pub(crate) fn enter(self: &Arc<Core>) -> Presence {
        Presence(Arc::clone(self))
    }

    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers bytes that are no request, where an answer is possible.
    pub(crate) fn refuse(&self, header: &InHeader, error: ParseError, channel: Channel) {
        let errno = if let ParseError::UnknownOpcode(_) = error { libc::ENOSYS } else { libc::EIO };
        channel.send(header.unique, errno, &[]);
    }

    /// Hands one request to the handler.
    pub(crate) fn dispatch(&self, parts: Parts<'_>, channel: Channel) {
        let request = match KernelRequest::of_parts(parts, self.dialect) {
            Ok(request) => request,
            Err(error) if wants_answer(parts.opcode) => return self.refuse(&parts.header, error, channel),
            Err(_) => return,
        };
        let opcode = parts.opcode;
        if let Operation::Interrupt { unique: target } = request.operation {
            return self.interrupt(request, target);
        }
        let channel = if wants_answer(opcode) { channel } else { Channel::Closed };
        let reply = KernelReply::new(channel, request.unique, opcode, reply_bytes_max(&request.operation))
            .to(request.pid);
        self.handler.handle(request, reply);
        if self.interrupts.take(request.unique) {
            let unique = request.unique;
            self.interrupt(KernelRequest { operation: Operation::Interrupt { unique }, ..request }, unique);
        }
    }

    /// Delivers an interrupt; one the handler cannot place is noted and then delivered once more, because the
    /// request may have been handled between the handler's look and the note.
    fn interrupt(&self, request: KernelRequest<'_>, target: u64) {
        for _ in 0..2 {
            let channel = Channel::Interrupt(Arc::clone(&self.interrupts), target);
            self.handler.handle(request, KernelReply::new(channel, request.unique, Opcode::Interrupt, 0));
            if !self.interrupts.holds(target) {
                return;
            }
        }
    }
}

fn wants_answer(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply | Opcode::Interrupt)
}

/// The most bytes the kernel takes in an answer of variable length.
fn reply_bytes_max(operation: &Operation<'_>) -> u32 {
    match operation {
        Operation::Read(read) => read.size,
        Operation::ReadDir { size, .. }
        | Operation::ReadDirPlus { size, .. }
        | Operation::GetXattr { size, .. }
        | Operation::ListXattr { size } => *size,
        Operation::ReadLink => 4095,
        Operation::Lookup { .. }
        | Operation::Symlink { .. }
        | Operation::MkNod { .. }
        | Operation::MkDir { .. }
        | Operation::Unlink { .. }
        | Operation::RmDir { .. }
        | Operation::Rename { .. }
        | Operation::Link { .. }
        | Operation::Open { .. }
        | Operation::Create { .. }
        | Operation::TmpFile { .. }
        | Operation::Write(_)
        | Operation::FSync { .. }
        | Operation::Release(_)
        | Operation::Fallocate { .. }
        | Operation::Lseek { .. }
        | Operation::CopyFileRange(_)
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::OpenDir { .. }
        | Operation::FSyncDir { .. }
        | Operation::ReleaseDir(_)
        | attribute_operations!()
        | lock_operations!()
        | mount_operations!() => 0,
    }
}

/// A thread's share in the kernel mount.
pub(crate) struct Presence(Arc<Core>);

impl Drop for Presence {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A transport thread that is gone leaves every process of its queue hanging in the kernel;
            // without its process the mount fails them with ENOTCONN instead.
            std::process::abort();
        }
    }
}

/// Gives the calling thread the one CPU, if it exists and is allowed.
pub(crate) fn pin_to_cpu(cpu: usize) {
    // SAFETY: cpu_set_t is a plain bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= size_of::<libc::cpu_set_t>() * 8 {
        return;
    }
    // SAFETY: `cpu` is within the set; the set outlives both calls and its size is given.
    // A refusal (CPU offline or outside the allowed set) leaves the thread where it may run.
    let _refused = unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
}
