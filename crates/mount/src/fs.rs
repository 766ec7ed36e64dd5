//! The file system as Rust calls on paths: what tests, benchmarks and tools use.
//!
//! Every component of a path is looked up each time: at the rank, but for names that the client knows to be absent.
//!
//! Absent: a working directory (paths start at the root, a leading slash is optional), and permission
//! checks, which the rank does for sessions of ordinary users.

mod dir;
mod file;
mod path;
#[cfg(test)]
mod tests;

pub use dir::ReadDir;
pub use file::{File, OpenOptions};

use crate::error::Result;
use crate::mount::Mount;
use proto::name::Name;
use proto::reply::{Outcome, Reply, StatFs};
use proto::request::{NewNode, Request, XattrMode};
use proto::{Attr, Cred, Errno, FileKind, NodeRef, SetAttr};
use std::path::Path;
use std::sync::Arc;

/// Permission bits that new files and directories do not get.
const UMASK: u32 = 0o022;

/// A file system seen as one user. Cheap to clone.
#[derive(Clone)]
pub struct Fs {
    mount: Arc<Mount>,
    cred: Cred,
}

impl Fs {
    /// The file system of `mount`, as `cred`, with umask 022.
    #[must_use]
    pub const fn new(mount: Arc<Mount>, cred: Cred) -> Self {
        Self { mount, cred }
    }

    /// The session underneath.
    #[must_use]
    pub const fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    pub(crate) fn call(&self, request: Request) -> Outcome {
        self.mount.call(self.cred.clone(), request)
    }

    /// Attributes of what the path leads to.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP` and whatever the rank answers.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.resolve(path.as_ref(), true)
    }

    /// Attributes of the path itself, a symbolic link included.
    ///
    /// # Errors
    /// As `stat`.
    pub fn lstat(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.resolve(path.as_ref(), false)
    }

    /// Attributes by reference, without a path.
    ///
    /// # Errors
    /// `ESTALE` when the inode is gone.
    pub fn getattr(&self, node: NodeRef) -> Result<Attr> {
        attr(self.call(Request::GetAttr { node }))
    }

    /// Where the path leads, for calls by reference.
    ///
    /// # Errors
    /// As `stat`.
    pub fn node(&self, path: impl AsRef<Path>) -> Result<NodeRef> {
        self.stat(path).map(|attr| attr.node())
    }

    /// Changes attributes of what the path leads to.
    ///
    /// # Errors
    /// As `stat`, and what the rank answers.
    pub fn setattr(&self, path: impl AsRef<Path>, set: SetAttr) -> Result<Attr> {
        let node = self.node(path)?;
        attr(self.call(Request::SetAttr { node, set }))
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// As `setattr`.
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Result<Attr> {
        self.setattr(path, SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// As `setattr`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<Attr> {
        self.setattr(path, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As `setattr`.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<Attr> {
        self.setattr(path, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST` and what `stat` of the parent fails with.
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<Attr> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let new = Self::new_node(FileKind::Directory.mode_bits() | (mode & 0o7777), 0);
        attr(self.call(Request::MkDir { parent, name, new }))
    }

    /// Makes a directory and the missing ones above it.
    ///
    /// # Errors
    /// As `mkdir`, but an existing directory is fine.
    pub fn mkdir_all(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        match self.mkdir(path, mode) {
            Err(Errno::ENOENT) => {
                let above = path.parent().ok_or(Errno::ENOENT)?;
                self.mkdir_all(above, mode)?;
                self.mkdir_all_last(path, mode)
            }
            Err(Errno::EEXIST | Errno::EINVAL) => self.expect_dir(path),
            done => done.map(drop),
        }
    }

    fn mkdir_all_last(&self, path: &Path, mode: u32) -> Result<()> {
        match self.mkdir(path, mode) {
            Err(Errno::EEXIST) => self.expect_dir(path),
            done => done.map(drop),
        }
    }

    fn expect_dir(&self, path: &Path) -> Result<()> {
        match self.stat(path)?.kind() {
            FileKind::Directory => Ok(()),
            _ => Err(Errno::EEXIST),
        }
    }

    /// Makes a file, fifo, socket or device; `mode` carries the type.
    ///
    /// # Errors
    /// As `mkdir`.
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, rdev: u32) -> Result<Attr> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let new = Self::new_node(mode, rdev);
        attr(self.call(Request::MkNod { parent, name, new }))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As `mkdir`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Attr> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let target = path::bytes(target.as_ref()).into();
        attr(self.call(Request::Symlink { parent, name, target }))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    pub fn readlink(&self, path: impl AsRef<Path>) -> Result<Box<[u8]>> {
        let node = self.lstat(path)?.node();
        match self.call(Request::ReadLink { node })? {
            Reply::Target(target) => Ok(target),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for directories, `EMLINK`.
    pub fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Attr> {
        let node = self.lstat(existing)?.node();
        let (parent, name) = self.parent_of(path.as_ref())?;
        attr(self.call(Request::Link { node, parent, name }))
    }

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        self.call(Request::Unlink { parent, name }).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`, `ENOTDIR`.
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        self.call(Request::RmDir { parent, name }).map(drop)
    }

    /// Moves a name, replacing what is there.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, 0)
    }

    /// As `rename`, with `proto::request::rename_flags`.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: u32) -> Result<()> {
        let (parent, name) = self.parent_of(from.as_ref())?;
        let (new_parent, new_name) = self.parent_of(to.as_ref())?;
        self.call(Request::Rename { parent, name, new_parent, new_name, flags }).map(drop)
    }

    /// Lists a directory, without "." and "..".
    ///
    /// # Errors
    /// `ENOTDIR`; each entry may fail on its own later.
    pub fn readdir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let attr = self.stat(path)?;
        match attr.kind() {
            FileKind::Directory => Ok(ReadDir::new(self.clone(), attr.node())),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn getxattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Box<[u8]>> {
        let (node, name) = (self.node(path)?, Name::new(name)?);
        match self.call(Request::GetXattr { node, name })? {
            Reply::Xattr(value) => Ok(value),
            _ => Err(Errno::EPROTO),
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As `stat`.
    pub fn listxattr(&self, path: impl AsRef<Path>) -> Result<Vec<Box<[u8]>>> {
        let node = self.node(path)?;
        match self.call(Request::ListXattr { node })? {
            Reply::XattrNames(names) => {
                Ok(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(Into::into).collect())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA` by `mode`; `ENOSPC`, `ERANGE`, `EOPNOTSUPP`.
    pub fn setxattr(&self, path: impl AsRef<Path>, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (node, name) = (self.node(path)?, Name::new(name)?);
        self.call(Request::SetXattr { node, name, value: value.into(), mode }).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn removexattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        let (node, name) = (self.node(path)?, Name::new(name)?);
        self.call(Request::RemoveXattr { node, name }).map(drop)
    }

    /// Everything answered so far is durable when this returns.
    ///
    /// # Errors
    /// `EIO` when the rank cannot make it so; what failed after it was answered.
    pub fn syncfs(&self) -> Result<()> {
        self.call(Request::SyncFs)?;
        self.mount.late_error_of_all()
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// What the rank answers.
    pub fn statfs(&self) -> Result<StatFs> {
        match self.call(Request::StatFs)? {
            Reply::StatFs(stat) => Ok(stat),
            _ => Err(Errno::EPROTO),
        }
    }

    pub(crate) const fn new_node(mode: u32, rdev: u32) -> NewNode {
        NewNode { mode, umask: UMASK, rdev }
    }
}

pub(crate) fn attr(outcome: Outcome) -> Result<Attr> {
    match outcome? {
        Reply::Attr(attr) | Reply::Created { attr, .. } => Ok(attr),
        _ => Err(Errno::EPROTO),
    }
}
