//! An open /dev/fuse: reading requests, writing replies, and the buffers both use.
//! Absent: threads, and anything about what the bytes mean beyond the reply header.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{OutHeader, Plain};

const HEADER: usize = size_of::<OutHeader>();

/// Spare buffers kept; more than this many in use at once are freed on return.
const SPARE_BUFFERS: usize = 16;

/// A message buffer; its pages become real when first touched.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(crate) fn new(size: usize) -> Buffer {
        Buffer(vec![0; size].into_boxed_slice())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.0.len())
    }
}

/// The connection to the kernel, shared by all that read or answer.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    message_bytes: usize,
    spares: Mutex<Vec<Buffer>>,
}

/// What a read brought.
pub(crate) enum Received {
    Message(usize),
    /// Interrupted, or the request went away: read again.
    Nothing,
    /// Unmounted or aborted.
    Ended,
}

impl Device {
    /// Opens the device without mounting anything on it.
    pub(crate) fn open_fd() -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().read(true).write(true).open("/dev/fuse")?.into())
    }

    /// `payload_bytes` is the most any request or reply carries.
    pub(crate) fn new(fd: OwnedFd, payload_bytes: usize) -> Device {
        // Room for the header, the largest fixed struct and names before a WRITE's data.
        Device { fd, message_bytes: payload_bytes + 4096, spares: Mutex::default() }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn buffer(&self) -> Buffer {
        let spare = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Buffer::new(self.message_bytes))
    }

    pub(crate) fn give_back(&self, buffer: Buffer) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARE_BUFFERS {
            spares.push(buffer);
        }
    }

    /// A buffer nobody else holds: this one, or a fresh one in its place.
    pub(crate) fn exclusive<'b>(&self, buffer: &'b mut Arc<Buffer>) -> &'b mut Buffer {
        if Arc::get_mut(buffer).is_none() {
            *buffer = Arc::new(self.buffer());
        }
        Arc::get_mut(buffer).expect("a buffer just made has one holder")
    }

    /// Waits for one request.
    pub(crate) fn receive(&self, buffer: &mut Buffer) -> io::Result<Received> {
        let room = buffer.bytes_mut();
        // SAFETY: the descriptor is open while self lives; `room` is writable for its whole length.
        let read = unsafe { libc::read(self.raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        match usize::try_from(read) {
            Ok(0) => Ok(Received::Ended),
            Ok(length) => Ok(Received::Message(length)),
            Err(_) => match io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ECONNABORTED)) => {
                    Ok(Received::Ended)
                }
                error if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT | libc::EAGAIN)) => {
                    Ok(Received::Nothing)
                }
                error => Err(error),
            },
        }
    }

    /// Answers a request. Failures mean that its caller is gone (interrupted, aborted, unmounted), or that
    /// the kernel refused the reply and failed the request itself; neither leaves anything to do.
    pub(crate) fn answer(&self, unique: u64, errno: i32, body: &[u8]) {
        let _gone = self.send(&header(unique, -errno, body.len()), body);
    }

    /// Answers a request with a body written in place.
    pub(crate) fn answer_with(
        &self,
        unique: u64,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>,
    ) {
        let mut buffer = self.buffer();
        let (head, body) = buffer.bytes_mut().split_at_mut(HEADER);
        let room = room.min(body.len());
        match fill(&mut body[..room]) {
            Ok(filled) if filled <= room => {
                head.copy_from_slice(header(unique, 0, filled).bytes());
                let _gone = self.write(&buffer.bytes()[..HEADER + filled]);
            }
            Ok(_) => self.answer(unique, libc::EIO, &[]),
            Err(errno) => self.answer(unique, errno, &[]),
        }
        self.give_back(buffer);
    }

    /// Writes one message in two parts; the kernel takes it whole or not at all.
    pub(crate) fn send(&self, header: &OutHeader, body: &[u8]) -> io::Result<()> {
        let head = header.bytes();
        let parts = [head, body]
            .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        // SAFETY: the descriptor is open, and both parts are readable for their lengths; writev only reads.
        let written = unsafe { libc::writev(self.raw_fd(), parts.as_ptr(), 2) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn write(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the descriptor is open and `message` is readable for its length.
        let written = unsafe { libc::write(self.raw_fd(), message.as_ptr().cast(), message.len()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The header of a reply, or, with unique 0, of a notification.
pub(crate) fn header(unique: u64, error: i32, body_bytes: usize) -> OutHeader {
    let len = u32::try_from(HEADER + body_bytes).unwrap_or(u32::MAX);
    OutHeader { len, error, unique }
}
