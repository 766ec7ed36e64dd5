//! The answer to one request: given exactly once, at once or later, from any thread.
//! Absent: how bytes reach the kernel (`reply::channel` and the transports).

pub(crate) mod channel;
mod dir;
#[cfg(feature = "null")]
pub(crate) mod held;

use std::time::Duration;

use crate::abi::{self, Attr, FileLock, Opcode, Plain, StatFs, StatxAttr};
use crate::meter::Measure;
use channel::Channel;
use proto::storeio::FillOnce;
use std::sync::Arc;

pub use dir::DirSink;

/// The right and the duty to answer one request. Dropped unanswered it answers EIO.
///
/// Requests nobody waits for (FORGET, BATCH_FORGET, NOTIFY_REPLY) come with one too; answering does nothing.
#[derive(Debug)]
#[must_use = "a dropped reply answers EIO"]
pub struct KernelReply {
    channel: Channel,
    unique: u64,
    /// The thread that waits; 0: not known.
    pid: u32,
    opcode: Opcode,
    /// Most bytes the kernel takes in an answer of variable length.
    room: u32,
    measure: Option<Measure>,
}

/// A looked-up or created node. `nodeid` 0 answers "no such name", to be remembered for `entry_timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub nodeid: u64,
    pub generation: u64,
    pub entry_timeout: Duration,
    pub attr_timeout: Duration,
    pub attr: Attr,
}

/// An opened handle; `flags` are [`abi::fopen`] bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub fh: u64,
    pub flags: u32,
}

impl Entry {
    fn wire(&self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_timeout.as_secs(),
            attr_valid: self.attr_timeout.as_secs(),
            entry_valid_nsec: self.entry_timeout.subsec_nanos(),
            attr_valid_nsec: self.attr_timeout.subsec_nanos(),
            attr: self.attr,
        }
    }
}

impl Opened {
    fn wire(self) -> abi::OpenOut {
        abi::OpenOut { fh: self.fh, open_flags: self.flags, backing_id: 0 }
    }
}

impl KernelReply {
    pub(crate) fn new(channel: Channel, unique: u64, opcode: Opcode, room: u32) -> KernelReply {
        KernelReply { channel, unique, pid: 0, opcode, room, measure: None }
    }

    /// The same for a caller that is known.
    pub(crate) fn to(mut self, pid: u32) -> KernelReply {
        self.pid = pid;
        self
    }

    /// The same, measured until its answer.
    pub(crate) fn measured(mut self, measure: Measure) -> KernelReply {
        self.measure = Some(measure);
        self
    }

    fn end_measure(&mut self, errno: i32) {
        if let Some(measure) = self.measure.take() {
            measure.end(errno);
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Names the request this answers, as in [`crate::Operation::Interrupt`].
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Fails the request with a positive errno.
    pub fn error(self, errno: i32) {
        self.send(errno, &[]);
    }

    /// Succeeds without a value.
    pub fn ok(self) {
        self.send(0, &[]);
    }

    pub fn entry(self, entry: &Entry) {
        self.send(0, entry.wire().bytes());
    }

    /// Answers CREATE and TMPFILE.
    pub fn create(self, entry: &Entry, opened: Opened) {
        self.send(0, abi::CreateOut { entry: entry.wire(), open: opened.wire() }.bytes());
    }

    /// Answers GETATTR and SETATTR.
    pub fn attr(self, timeout: Duration, attr: &Attr) {
        let out = abi::AttrOut {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            dummy: 0,
            attr: *attr,
        };
        self.send(0, out.bytes());
    }

    pub fn statx(self, timeout: Duration, stat: &StatxAttr) {
        let out = abi::StatxOut {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: *stat,
        };
        self.send(0, out.bytes());
    }

    /// Answers OPEN and OPENDIR.
    pub fn open(self, opened: Opened) {
        self.send(0, opened.wire().bytes());
    }

    /// Bytes taken by a WRITE.
    pub fn write(self, size: u32) {
        self.send(0, abi::WriteOut { size, padding: 0 }.bytes());
    }

    /// Bytes copied by a copy_file_range; the old form of the request counts no further than u32.
    pub fn copied(self, bytes: u64) {
        match matches!(self.opcode, Opcode::CopyFileRange64) {
            true => self.send(0, bytes.bytes()),
            false => self.write(u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }

    pub fn statfs(self, stat: &StatFs) {
        self.send(0, stat.bytes());
    }

    /// Answers GETXATTR or LISTXATTR of size 0.
    fn xattr_size(self, size: u32) {
        self.send(0, abi::GetXattrOut { size, padding: 0 }.bytes());
    }

    /// Answers GETXATTR or LISTXATTR by the size asked for: the length, the bytes, or ERANGE.
    pub fn xattr(self, value: &[u8]) {
        match (self.room, u32::try_from(value.len())) {
            (0, Ok(size)) => self.xattr_size(size),
            (room, Ok(size)) if size <= room => self.bytes(value),
            _ => self.error(libc::ERANGE),
        }
    }

    /// Answers GETLK with the lock in the way, or one of kind F_UNLCK.
    pub fn lock(self, lock: &FileLock) {
        self.send(0, lock.bytes());
    }

    pub fn lseek(self, offset: u64) {
        self.send(0, offset.bytes());
    }

    /// Answers READLINK, READ, GETXATTR and LISTXATTR with bytes that exist already.
    pub fn bytes(self, data: &[u8]) {
        self.send(0, data);
    }

    /// Answers READ, GETXATTR or LISTXATTR by writing straight into the reply: `fill` gets a buffer as long
    /// as the kernel asked for, of undefined content, and says how many bytes of it count, or an errno.
    pub fn data_with(mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>) {
        let room = usize::try_from(self.room).unwrap_or(0);
        let mut errno = 0;
        self.channel.take().fill(self.unique, room, |buffer| fill(buffer).inspect_err(|why| errno = *why));
        self.end_measure(errno);
    }

    /// Answers READDIR or READDIRPLUS.
    pub fn directory(self, list: impl FnOnce(&mut DirSink<'_>) -> Result<(), i32>) {
        let plus = self.opcode == Opcode::ReadDirPlus;
        self.data_with(|buffer| {
            let mut sink = DirSink::new(buffer, plus);
            list(&mut sink)?;
            Ok(sink.used())
        });
    }

    /// Lends the data of a WRITE, uncopied. The kernel gets the answer only when the last clone of the loan
    /// is dropped: until then it lets the caller wait, and leaves the bytes alone.
    pub fn lend(&mut self) -> Loan {
        self.channel.lend()
    }

    /// Lends room for as many bytes as the kernel asked for, where the transport has it. Filled there they need
    /// no copy when given to [`KernelReply::bytes`]. As with [`KernelReply::lend`] the kernel gets the answer when the last
    /// clone is dropped.
    pub fn lend_room(&mut self) -> Option<Arc<dyn FillOnce>> {
        self.channel.lend_room(usize::try_from(self.room).unwrap_or(0))
    }

    fn send(mut self, errno: i32, body: &[u8]) {
        self.channel.take().send(self.unique, errno, body);
        self.end_measure(errno);
    }
}

impl Drop for KernelReply {
    fn drop(&mut self) {
        self.channel.take().send(self.unique, libc::EIO, &[]);
        self.end_measure(libc::EIO);
    }
}

/// Data of a WRITE where the transport has them; see [`KernelReply::lend`].
pub type Loan = Arc<dyn AsRef<[u8]> + Send + Sync>;
