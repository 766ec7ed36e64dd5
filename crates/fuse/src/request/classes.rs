//! What is known of an operation before anybody looks at what it asks for. No match here ends in `_`: a new operation does not
//! compile until each question about it is answered.
//!
//! Absent: which part of the adapter serves it (`groups.rs`).

use super::Operation;
use super::groups::{
    attribute_operations, data_operations, listing_operations, lock_operations, mount_operations,
    name_operations, xattr_operations,
};

impl Operation<'_> {
    /// Whether it would change the file system: a mount that is read-only refuses it.
    pub(crate) fn changes(&self) -> bool {
        const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC) as u32;
        match self {
            Self::Open { flags, .. } => flags & WRITING != 0,
            Self::SetAttr(_)
            | Self::MkNod { .. }
            | Self::MkDir { .. }
            | Self::Symlink { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RmDir { .. }
            | Self::Rename { .. }
            | Self::Create { .. }
            | Self::TmpFile { .. }
            | Self::Write(_)
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Fallocate { .. }
            | Self::CopyFileRange(_) => true,
            Self::Lookup { .. }
            | Self::ReadLink
            | Self::GetAttr { .. }
            | Self::Statx { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::Read(_)
            | Self::FSync { .. }
            | Self::Release(_)
            | Self::Lseek { .. }
            | listing_operations!()
            | lock_operations!()
            | mount_operations!() => false,
        }
    }

    /// Whether the kernel asks it of a node that it came to by a name. Upon ESTALE it walks the path again, looking up each name.
    pub(crate) fn is_by_name(&self) -> bool {
        match self {
            Self::GetAttr { fh } | Self::Statx { fh, .. } => fh.is_none(),
            Self::SetAttr(set) => set.fh.is_none(),
            Self::Open { .. } | Self::ReadLink | xattr_operations!() => true,
            // Of a name in a directory, whose own name the kernel does not look at again.
            Self::Lookup { .. }
            | Self::MkNod { .. }
            | Self::MkDir { .. }
            | Self::Symlink { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RmDir { .. }
            | Self::Rename { .. }
            | Self::Create { .. }
            | Self::TmpFile { .. }
            // Of a handle.
            | Self::Read(_)
            | Self::Write(_)
            | Self::FSync { .. }
            | Self::Release(_)
            | Self::Fallocate { .. }
            | Self::Lseek { .. }
            | Self::CopyFileRange(_)
            | listing_operations!()
            | lock_operations!()
            | mount_operations!() => false,
        }
    }

    /// Whether somebody waits for the answer, and for no other program but us.
    pub(crate) fn is_waited_for(&self) -> bool {
        match self {
            Self::Forget { .. }
            | Self::BatchForget { .. }
            | Self::Interrupt { .. }
            | Self::NotifyReply { .. }
            | Self::Destroy => false,
            Self::SetLk { sleep, .. } => !sleep,
            Self::GetLk(_)
            | Self::Flush { .. }
            | Self::StatFs
            | Self::SyncFs
            | Self::Access { .. }
            | Self::BMap { .. }
            | Self::Ioctl { .. }
            | Self::Poll { .. }
            | name_operations!()
            | attribute_operations!()
            | xattr_operations!()
            | listing_operations!()
            | data_operations!() => true,
        }
    }
}
