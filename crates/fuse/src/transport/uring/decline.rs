//! The way back from io_uring before its first request.
//! Once INIT took io_uring, the kernel holds every request back until all queues are registered, or until one
//! registration is refused. Absent: a way back later; the kernel has none.

use std::io;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue};

use super::super::device::Device;
use super::worker::command;
use crate::abi;

/// A small ring kept ready to be refused. Made before INIT is answered: where not even this can be made,
/// io_uring is not taken.
pub(crate) struct Decline {
    ring: IoUring<Entry128, cqueue::Entry>,
}

impl Decline {
    pub(crate) fn prepare(device: &Device) -> io::Result<Decline> {
        let ring = IoUring::builder().build(1)?;
        ring.submitter().register_files(&[device.raw_fd()])?;
        Ok(Decline { ring })
    }

    /// Makes the kernel serve /dev/fuse after all.
    pub(crate) fn decline(mut self) -> io::Result<()> {
        // Without its address list a registration is invalid.
        let submission = command(abi::URING_CMD_REGISTER, 0, 0);
        // SAFETY: the command carries its arguments inside and points nowhere.
        unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)?;
        self.ring.submit_and_wait(1)?;
        match self.ring.completion().next().map(|completion| completion.result()) {
            Some(result) if result < 0 => Ok(()),
            _ => Err(io::Error::other("the kernel took an invalid registration")),
        }
    }
}
