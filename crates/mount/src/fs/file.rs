//! An open file.
//!
//! Absent: a file position; `write` keeps one, `pread` and `pwrite` do not use it.

use super::{Fs, attr};
use crate::error::Result;
use crate::shared::lock;
use proto::reply::Reply;
use proto::request::{IO_BYTES_MAX, Request, open_flags};
use proto::storeio::Payload;
use proto::{Attr, Errno, FileKind, NodeRef};
use std::path::Path;
use std::sync::Mutex;

/// Permission bits of a file that an open makes, before the umask.
const MODE: u32 = 0o666;

/// How to open a file; the defaults are read-only and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    exclusive: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::READ
    }
}

macro_rules! switches {
    ($($name:ident: $doc:literal,)*) => {
        $(
            #[doc = $doc]
            #[must_use]
            pub const fn $name(mut self) -> Self {
                self.$name = true;
                self
            }
        )*
    };
}

impl OpenOptions {
    /// For reading.
    pub const READ: Self =
        Self { read: true, write: false, append: false, truncate: false, create: false, exclusive: false };
    /// For writing alone.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };

    switches! {
        write: "For writing, too.",
        append: "Each write goes to the end of the file.",
        truncate: "Cut to nothing at open.",
        create: "Make it when absent.",
        exclusive: "With `create`: fail when present.",
    }

    const fn flags(self) -> u32 {
        let mut flags = match (self.read, self.write) {
            (_, false) => 0,
            (false, true) => open_flags::WRONLY,
            (true, true) => open_flags::RDWR,
        };
        if self.append {
            flags |= open_flags::APPEND;
        }
        if self.truncate {
            flags |= open_flags::TRUNC;
        }
        if self.exclusive {
            flags |= open_flags::EXCL;
        }
        flags
    }
}

/// An open file. Dropped, it is released without waiting.
pub struct File {
    fs: Fs,
    node: NodeRef,
    append: bool,
    position: Mutex<u64>,
    /// Its number among the mount's, for errors that come late.
    handle: u64,
    released: bool,
}

impl Fs {
    /// Opens a file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File> {
        let path = path.as_ref();
        if options.create {
            let (parent, name) = self.parent_of(path)?;
            let new = Self::new_node(FileKind::Regular.mode_bits() | MODE, 0);
            let flags = options.flags();
            match self.call(Request::Create { parent, name, new, flags }) {
                Ok(Reply::Created { attr, .. }) => return Ok(self.file(&attr, options)),
                Ok(_) => return Err(Errno::EPROTO),
                // Something that is not a file, perhaps a symbolic link: open decides.
                Err(Errno::ELOOP | Errno::EISDIR) if !options.exclusive => {}
                Err(errno) => return Err(errno),
            }
        }
        let node = self.node(path)?;
        let attr = attr(self.call(Request::Open { node, flags: options.flags() }))?;
        Ok(self.file(&attr, options))
    }

    /// Makes or cuts a file and opens it for writing.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open(path, OpenOptions::READ_WRITE.create().truncate())
    }

    /// The whole content.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path, OpenOptions::READ)?;
        let mut content = Vec::new();
        loop {
            let chunk = file.pread(content.len() as u64, IO_BYTES_MAX)?;
            if chunk.is_empty() {
                return Ok(content);
            }
            content.extend_from_slice(&chunk);
        }
    }

    /// Makes the file's content exactly `content`.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.pwrite(0, content)?;
        file.close()
    }

    fn file(&self, attr: &Attr, options: OpenOptions) -> File {
        let (node, position, handle) = (attr.node(), Mutex::new(0), self.mount.handle());
        File { fs: self.clone(), node, append: options.append, position, handle, released: false }
    }
}

impl File {
    /// How requests name it.
    #[must_use]
    pub const fn node(&self) -> NodeRef {
        self.node
    }

    /// Attributes.
    ///
    /// # Errors
    /// What the rank answers.
    pub fn stat(&self) -> Result<Attr> {
        self.fs.getattr(self.node)
    }

    /// Up to `len` bytes from `offset`, at most 1 MiB; none at the end.
    ///
    /// # Errors
    /// What the rank answers.
    pub fn pread(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let len = len.min(IO_BYTES_MAX) as u32;
        match self.fs.call(Request::Read { node: self.node, offset, len, into: None })? {
            Reply::Data(Payload::Owned(bytes)) => Ok(bytes),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Writes everything at `offset` (at the end, if opened for appending).
    ///
    /// # Errors
    /// What the rank answers; part may have been written.
    pub fn pwrite(&self, offset: u64, data: &[u8]) -> Result<Attr> {
        let mut last = None;
        for (index, chunk) in data.chunks(IO_BYTES_MAX).enumerate() {
            last = Some(self.write_chunk(offset + (index * IO_BYTES_MAX) as u64, chunk)?);
        }
        last.map_or_else(|| self.stat(), Ok)
    }

    fn write_chunk(&self, offset: u64, chunk: &[u8]) -> Result<Attr> {
        let data = Payload::Owned(chunk.to_vec());
        let request =
            Request::Write { node: self.node, offset, append: self.append, kill_suidgid: false, data };
        match self.fs.call(request)? {
            Reply::Written { count, attr } if count == chunk.len() as u64 => Ok(attr),
            Reply::Written { .. } => Err(Errno::ENOSPC),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Writes everything at the position, which moves on.
    ///
    /// # Errors
    /// As `pwrite`.
    pub fn write(&self, data: &[u8]) -> Result<()> {
        let mut position = lock(&self.position);
        self.pwrite(*position, data)?;
        *position += data.len() as u64;
        Ok(())
    }

    /// Data and attributes are durable when it returns.
    ///
    /// # Errors
    /// `EIO`: they are not. What failed after it was answered, once.
    pub fn fsync(&self) -> Result<()> {
        self.fs.call(Request::Fsync { node: self.node, data_only: false })?;
        self.fs.mount.late_error(self.node.ino, self.handle)
    }

    /// Releases the file and waits for the answer.
    ///
    /// # Errors
    /// What the rank answers; what failed after it was answered, as far as that is known.
    pub fn close(mut self) -> Result<()> {
        self.released = true;
        let released = self.fs.call(Request::Release { node: self.node, count: 1 }).map(drop);
        let late = self.fs.mount.late_error(self.node.ino, self.handle);
        self.fs.mount.handle_closed(self.node.ino, self.handle);
        late.and(released)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let request = Request::Release { node: self.node, count: 1 };
        self.fs.mount.handle_closed(self.node.ino, self.handle);
        self.fs.mount.submit_unawaited(self.fs.cred.clone(), request, Box::new(|_, _| ()));
    }
}
