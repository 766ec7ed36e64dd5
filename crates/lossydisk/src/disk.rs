//! The requests of the kernel, passed through to the folder and entered in the ledger first.
//!
//! One lock over everything: a cut must fall between two requests. Absent: what the module `lib` lists.

use crate::ledger::{Cut, Ledger, Undo};
use crate::nodes::{Handle, Nodes};
use fuse::abi::{self, Attr};
use fuse::{
    DirSink, Entry, Handler, KernelReply, KernelRequest, Negotiated, Notifier, Opened, Operation, SetAttr,
};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(1);

/// The disk.
pub struct LossyDisk {
    state: Mutex<State>,
}

struct State {
    nodes: Nodes,
    ledger: Ledger,
    /// Where removed files wait for their folder's sync.
    attic: PathBuf,
    kept: u64,
    /// The power fails after the next sync of a file whose name is not durable.
    armed: Option<Armed>,
    /// The power is off: requests of the dying server must not reach the folder any more, nor be answered.
    off: bool,
}

impl State {
    fn cut(&mut self, seed: u64) -> io::Result<Cut> {
        self.off = true;
        std::mem::take(&mut self.ledger).cut(seed)
    }
}

/// The dice of an ordered cut, and who wants to know that it was made.
struct Armed {
    seed: u64,
    tell: Sender<io::Result<Cut>>,
}

type Answer<T> = Result<T, i32>;

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl LossyDisk {
    /// Passes through to `folder`; `attic` is an empty folder on the same device.
    #[must_use]
    pub fn new(folder: PathBuf, attic: PathBuf) -> Self {
        let state = State {
            nodes: Nodes::new(folder),
            ledger: Ledger::default(),
            attic,
            kept: 0,
            armed: None,
            off: false,
        };
        Self { state: Mutex::new(state) }
    }

    /// Cuts the power: takes unsynced state back by the dice of `seed`. No request is served from here on: the caller ends the
    /// process after it.
    ///
    /// # Errors
    /// When the folder cannot be changed.
    pub fn cut(&self, seed: u64) -> io::Result<Cut> {
        self.lock().cut(seed)
    }

    /// Cuts the power as soon as a file was synced whose name is not durable: whoever makes a new file durable finds the
    /// disk gone between the two steps. Then as `cut`.
    pub fn cut_before_name(&self, seed: u64) -> Receiver<io::Result<Cut>> {
        let (tell, told) = channel();
        self.lock().armed = Some(Armed { seed, tell });
        told
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for LossyDisk {
    fn init(&self, _negotiated: &Negotiated, _notifier: &Notifier) {}

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        let mut state = self.lock();
        if state.off {
            // The end of the process answers it.
            return std::mem::forget(reply);
        }
        let node = request.nodeid;
        match request.operation {
            Operation::Read(read) => reply.data_with(|buffer| state.read(read.fh, read.offset, buffer)),
            Operation::ReadLink => finish(reply, state.target(node), |reply, target| reply.bytes(&target)),
            Operation::ReadDir { offset, .. } => reply.directory(|sink| state.list(node, offset, sink)),
            Operation::Forget { .. } | Operation::BatchForget { .. } => {}
            Operation::StatFs => reply.statfs(&abi::StatFs {
                blocks: 1 << 30,
                bfree: 1 << 30,
                bavail: 1 << 30,
                bsize: 4096,
                frsize: 4096,
                namelen: 255,
                ..Default::default()
            }),
            Operation::GetAttr { fh } => {
                finish(reply, state.attr(node, fh), |reply, attr| reply.attr(TTL, &attr))
            }
            Operation::SetAttr(set) => {
                finish(reply, state.set_attr(node, &set), |reply, attr| reply.attr(TTL, &attr));
            }
            Operation::Open { flags, .. } => finish(reply, state.open(node, flags), KernelReply::open),
            Operation::OpenDir { .. } => reply.open(Opened { fh: 0, flags: 0 }),
            Operation::Create { name, flags, mode, umask, .. } => {
                let made = state.create(node, name, flags, mode & !umask);
                finish(reply, made, |reply, (entry, opened)| reply.create(&entry, opened));
            }
            Operation::Write(write) => {
                let written = state.write(write.fh, write.offset, write.data);
                finish(reply, written, KernelReply::write);
            }
            operation => state.change(node, operation, reply),
        }
    }
}

fn finish<T>(reply: KernelReply, answer: Answer<T>, send: impl FnOnce(KernelReply, T)) {
    match answer {
        Ok(value) => send(reply, value),
        Err(errno) => reply.error(errno),
    }
}

impl State {
    fn change(&mut self, node: u64, operation: Operation<'_>, reply: KernelReply) {
        match operation {
            Operation::Lookup { name } => {
                let found = self.child(node, name).and_then(|path| self.entry(&path));
                finish(reply, found, |reply, entry| reply.entry(&entry));
            }
            Operation::MkDir { name, mode, umask } => {
                let made = self.make(node, name, |path| {
                    fs::create_dir(path)?;
                    fs::set_permissions(path, fs::Permissions::from_mode(mode & !umask & 0o7777))
                });
                finish(reply, made, |reply, entry| reply.entry(&entry));
            }
            Operation::MkNod { name, mode, umask, .. } => {
                let made = self.make(node, name, |path| make_node(path, mode & !umask));
                finish(reply, made, |reply, entry| reply.entry(&entry));
            }
            Operation::Unlink { name } => finish(reply, self.unlink(node, name), |reply, ()| reply.ok()),
            Operation::RmDir { name } => {
                let removed = self.child(node, name).and_then(|path| {
                    fs::remove_dir(&path).map_err(|e| errno(&e))?;
                    self.nodes.removed(&path);
                    Ok(())
                });
                finish(reply, removed, |reply, ()| reply.ok());
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                let renamed = match flags {
                    0 => self.rename(node, name, new_parent, new_name),
                    _ => Err(libc::EINVAL),
                };
                finish(reply, renamed, |reply, ()| reply.ok());
            }
            Operation::FSync { fh, .. } => {
                let synced = self.sync(fh);
                let nameless = matches!(synced, Ok(true));
                finish(reply, synced, |reply, _| reply.ok());
                if let Some(armed) = self.armed.take_if(|_| nameless) {
                    let _the_caller_left = armed.tell.send(self.cut(armed.seed));
                }
            }
            Operation::FSyncDir { .. } => finish(reply, self.sync_folder(node), |reply, ()| reply.ok()),
            Operation::Fallocate { fh, offset, length, mode } => {
                let done = self.allocate(fh, offset, length, mode);
                finish(reply, done, |reply, ()| reply.ok());
            }
            Operation::Release(release) => {
                self.nodes.close(release.fh);
                reply.ok();
            }
            Operation::Flush { .. } | Operation::ReleaseDir(_) | Operation::Destroy => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn path(&self, node: u64) -> Answer<PathBuf> {
        self.nodes.path(node).ok_or(libc::ESTALE)
    }

    fn child(&self, parent: u64, name: &[u8]) -> Answer<PathBuf> {
        Ok(self.path(parent)?.join(std::ffi::OsStr::from_bytes(name)))
    }

    fn entry(&mut self, path: &Path) -> Answer<Entry> {
        let meta = fs::symlink_metadata(path).map_err(|e| errno(&e))?;
        let nodeid = self.nodes.number(path);
        Ok(Entry {
            nodeid,
            generation: 0,
            entry_timeout: TTL,
            attr_timeout: TTL,
            attr: attr_of(&meta, nodeid),
        })
    }

    fn attr(&self, node: u64, fh: Option<u64>) -> Answer<Attr> {
        let meta = match fh.and_then(|fh| self.nodes.handle(fh)) {
            Some(handle) => handle.file.metadata(),
            None => fs::symlink_metadata(self.path(node)?),
        };
        meta.map(|meta| attr_of(&meta, node)).map_err(|e| errno(&e))
    }

    fn target(&self, node: u64) -> Answer<Vec<u8>> {
        let target = fs::read_link(self.path(node)?).map_err(|e| errno(&e))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }

    fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Answer<Entry> {
        let path = self.child(parent, name)?;
        make(&path).map_err(|e| errno(&e))?;
        self.ledger.folder_changed(&self.path(parent)?, Undo::Remove(path.clone()));
        self.entry(&path)
    }

    fn create(&mut self, parent: u64, name: &[u8], flags: u32, mode: u32) -> Answer<(Entry, Opened)> {
        let path = self.child(parent, name)?;
        if fs::symlink_metadata(&path).is_err() {
            self.make(parent, name, |path| {
                File::create_new(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))
            })?;
        } else if flags & libc::O_EXCL as u32 != 0 {
            return Err(libc::EEXIST);
        }
        let entry = self.entry(&path)?;
        let opened = self.open(entry.nodeid, flags)?;
        Ok((entry, opened))
    }

    /// Always for reading and writing: the ledger reads what a write replaces.
    fn open(&mut self, node: u64, flags: u32) -> Answer<Opened> {
        let path = self.path(node)?;
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| errno(&e))?;
        if flags & libc::O_TRUNC as u32 != 0 {
            self.resize(&path, &file, 0)?;
        }
        Ok(Opened { fh: self.nodes.open(file, node), flags: 0 })
    }

    fn handle(&self, fh: u64) -> Answer<(Handle, Option<PathBuf>)> {
        let handle = self.nodes.handle(fh).ok_or(libc::EBADF)?;
        let path = self.nodes.path(handle.node);
        Ok((handle, path))
    }

    fn read(&self, fh: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let (handle, _) = self.handle(fh)?;
        let mut done = 0;
        while done < buffer.len() {
            match handle.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(done)
    }

    fn write(&mut self, fh: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        let (handle, path) = self.handle(fh)?;
        if let Some(path) = path {
            let kept = self.ledger.before_write(&path, &handle.file, offset, data.len() as u64);
            kept.map_err(|e| errno(&e))?;
        }
        handle.file.write_all_at(data, offset).map_err(|e| errno(&e))?;
        u32::try_from(data.len()).map_err(|_| libc::EFBIG)
    }

    fn set_attr(&mut self, node: u64, set: &SetAttr) -> Answer<Attr> {
        let path = self.path(node)?;
        if let Some(size) = set.size {
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| errno(&e))?;
            self.resize(&path, &file, size)?;
        }
        if let Some(mode) = set.mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777)).map_err(|e| errno(&e))?;
        }
        self.attr(node, None)
    }

    fn resize(&mut self, path: &Path, file: &File, size: u64) -> Answer<()> {
        let present = file.metadata().map_err(|e| errno(&e))?.len();
        let (low, high) = (size.min(present), size.max(present));
        // Growing changes no sector that existed; cutting loses every one beyond the new end that was there at the last sync.
        let high = self.ledger.synced_size(path).map_or(high, |synced| high.min(synced));
        let lost = if size < present { high.saturating_sub(low) } else { 0 };
        self.ledger.before_write(path, file, low, lost).map_err(|e| errno(&e))?;
        file.set_len(size).map_err(|e| errno(&e))
    }

    fn allocate(&mut self, fh: u64, offset: u64, length: u64, mode: u32) -> Answer<()> {
        let (handle, path) = self.handle(fh)?;
        let size = handle.file.metadata().map_err(|e| errno(&e))?.len();
        let punch = mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0;
        if let Some(path) = path {
            let end = (offset + length).min(size);
            let lost = if punch { end.saturating_sub(offset) } else { 0 };
            self.ledger.before_write(&path, &handle.file, offset, lost).map_err(|e| errno(&e))?;
        }
        if punch {
            let end = (offset + length).min(size);
            let zeros = vec![0; end.saturating_sub(offset) as usize];
            return handle.file.write_all_at(&zeros, offset).map_err(|e| errno(&e));
        }
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE as u32 != 0;
        match offset + length > size && !keep_size {
            true => handle.file.set_len(offset + length).map_err(|e| errno(&e)),
            false => Ok(()),
        }
    }

    /// Whether the file has a name that is not durable.
    fn sync(&mut self, fh: u64) -> Answer<bool> {
        let (_, path) = self.handle(fh)?;
        let Some(path) = path else { return Ok(false) };
        self.ledger.synced(&path);
        Ok(self.ledger.is_new(&path))
    }

    fn sync_folder(&mut self, node: u64) -> Answer<()> {
        let path = self.path(node)?;
        self.ledger.folder_synced(&path).map_err(|e| errno(&e))
    }

    fn unlink(&mut self, parent: u64, name: &[u8]) -> Answer<()> {
        let path = self.child(parent, name)?;
        self.keep(&path, parent)
    }

    /// Moves a file that loses its name to the attic, until its folder is synced.
    fn keep(&mut self, path: &Path, parent: u64) -> Answer<()> {
        self.kept += 1;
        let kept = self.attic.join(self.kept.to_string());
        fs::rename(path, &kept).map_err(|e| errno(&e))?;
        self.nodes.removed(path);
        self.ledger.removed(path);
        self.ledger.folder_changed(&self.path(parent)?, Undo::Restore { kept, path: path.to_path_buf() });
        Ok(())
    }

    fn rename(&mut self, parent: u64, name: &[u8], new_parent: u64, new_name: &[u8]) -> Answer<()> {
        let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
        if from.is_dir() {
            return Err(libc::EOPNOTSUPP);
        }
        if fs::symlink_metadata(&to).is_ok() {
            self.keep(&to, new_parent)?;
        }
        fs::rename(&from, &to).map_err(|e| errno(&e))?;
        self.nodes.renamed(&from, &to);
        self.ledger.renamed(&from, &to);
        self.ledger.folder_changed(&self.path(new_parent)?, Undo::Rename { from, to });
        Ok(())
    }

    fn list(&self, node: u64, offset: u64, sink: &mut DirSink<'_>) -> Answer<()> {
        let entries = fs::read_dir(self.path(node)?).map_err(|e| errno(&e))?;
        let mut all: Vec<_> = entries.filter_map(Result::ok).collect();
        all.sort_by_key(fs::DirEntry::file_name);
        for (i, entry) in all.iter().enumerate().skip(offset as usize) {
            let kind = entry.file_type().map_or(libc::DT_UNKNOWN, |kind| match () {
                () if kind.is_dir() => libc::DT_DIR,
                () if kind.is_symlink() => libc::DT_LNK,
                () if kind.is_socket() => libc::DT_SOCK,
                () => libc::DT_REG,
            });
            if !sink.name(entry.file_name().as_bytes(), entry.ino(), kind, i as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}

fn make_node(path: &Path, mode: u32) -> io::Result<()> {
    if !matches!(mode & libc::S_IFMT, libc::S_IFSOCK | libc::S_IFREG | libc::S_IFIFO) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    match unsafe { libc::mknod(name.as_ptr(), mode, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attr_of(meta: &fs::Metadata, ino: u64) -> Attr {
    Attr {
        ino,
        size: meta.len(),
        blocks: meta.blocks(),
        atime: meta.atime() as u64,
        mtime: meta.mtime() as u64,
        ctime: meta.ctime() as u64,
        atimensec: meta.atime_nsec() as u32,
        mtimensec: meta.mtime_nsec() as u32,
        ctimensec: meta.ctime_nsec() as u32,
        mode: meta.mode(),
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
