//! Where a reply goes: a device, a ring entry, the interrupt book, or nowhere.
//! Absent: what the bytes mean.

use std::ops::Range;
use std::sync::Arc;

use super::Loan;
use crate::transport::device::{Buffer, Device};
use crate::transport::interrupts::Interrupts;
use crate::transport::uring::EntryHandle;
use proto::storeio::FillOnce;

#[derive(Debug)]
pub(crate) enum Channel {
    /// Answered, or nobody waits.
    Closed,
    Device(DeviceChannel),
    Ring(EntryHandle),
    /// An interrupt: EAGAIN puts it in the book, anything else ends it.
    Interrupt(Arc<Interrupts>, u64),
}

/// A reply written to the device its request was read from.
#[derive(Debug)]
pub(crate) struct DeviceChannel {
    device: Arc<Device>,
    /// The buffer the request lies in and where its data are, for WRITE only: the reader leaves a buffer
    /// alone that someone else still holds.
    data: Option<(Arc<Buffer>, Range<usize>)>,
}

impl DeviceChannel {
    pub(crate) fn new(device: Arc<Device>, data: Option<(Arc<Buffer>, Range<usize>)>) -> DeviceChannel {
        DeviceChannel { device, data }
    }
}

/// A part of a message read from a device.
struct Message {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.buffer.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

impl Drop for DeviceChannel {
    fn drop(&mut self) {
        if let Some(buffer) = self.data.take().and_then(|(buffer, _)| Arc::into_inner(buffer)) {
            self.device.give_back(buffer);
        }
    }
}

/// The errno as the kernel takes it; numbers of 512 and up are its own.
fn sane(errno: i32) -> i32 {
    if (0..512).contains(&errno) { errno } else { libc::EIO }
}

impl Channel {
    pub(crate) fn take(&mut self) -> Channel {
        std::mem::replace(self, Channel::Closed)
    }

    pub(crate) fn send(self, unique: u64, errno: i32, body: &[u8]) {
        let errno = sane(errno);
        match self {
            Channel::Closed => {}
            Channel::Device(channel) => channel.device.answer(unique, errno, body),
            Channel::Ring(entry) => entry.answer(errno, body),
            Channel::Interrupt(book, target) => {
                if errno == libc::EAGAIN {
                    book.remember(target);
                }
            }
        }
    }

    /// Lets `fill` write up to `room` bytes of the body in place.
    pub(crate) fn fill(self, unique: u64, room: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>) {
        match self {
            Channel::Closed | Channel::Interrupt(..) => {}
            Channel::Device(channel) => channel.device.answer_with(unique, room, fill),
            Channel::Ring(entry) => entry.answer_with(room, fill),
        }
    }

    /// The data of the WRITE request this answers, beyond the borrow of this channel.
    pub(crate) fn lend(&mut self) -> Loan {
        match self {
            // The reader leaves a buffer alone that someone holds, so here the answer need not wait.
            Channel::Device(DeviceChannel { data: Some((buffer, range)), .. }) => {
                Arc::new(Message { buffer: Arc::clone(buffer), range: range.clone() })
            }
            Channel::Ring(entry) => entry.lend(),
            Channel::Closed | Channel::Device(_) | Channel::Interrupt(..) => Arc::new([]),
        }
    }

    /// Room for the answer's body, beyond the borrow of this channel. A device has none of its own.
    pub(crate) fn lend_room(&mut self, bytes: usize) -> Option<Arc<dyn FillOnce>> {
        match self {
            Channel::Ring(entry) => entry.lend_room(bytes),
            Channel::Closed | Channel::Device(_) | Channel::Interrupt(..) => None,
        }
    }

    /// The data of the WRITE request this answers.
    #[cfg(feature = "null")]
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Channel::Device(DeviceChannel { data: Some((buffer, range)), .. }) => {
                buffer.bytes().get(range.clone()).unwrap_or_default()
            }
            Channel::Ring(entry) => entry.data(),
            Channel::Closed | Channel::Device(_) | Channel::Interrupt(..) => &[],
        }
    }
}
