//! Groups of operations as patterns, for matches that must not end in `_`: each operation is in one group, so a new one joins a
//! group, and is treated as its others are, or does not compile.
//!
//! Absent: what a match does with them; which operations change something (`classes.rs`).

/// What looks names up, makes, moves or removes them, or reads a symlink.
macro_rules! name_operations {
    () => {
        $crate::request::Operation::Lookup { .. }
            | $crate::request::Operation::ReadLink
            | $crate::request::Operation::Symlink { .. }
            | $crate::request::Operation::MkNod { .. }
            | $crate::request::Operation::MkDir { .. }
            | $crate::request::Operation::Unlink { .. }
            | $crate::request::Operation::RmDir { .. }
            | $crate::request::Operation::Rename { .. }
            | $crate::request::Operation::Link { .. }
    };
}
pub(crate) use name_operations;

/// What asks for or sets the attributes of an inode.
macro_rules! attribute_operations {
    () => {
        $crate::request::Operation::GetAttr { .. }
            | $crate::request::Operation::Statx { .. }
            | $crate::request::Operation::SetAttr(_)
    };
}
pub(crate) use attribute_operations;

macro_rules! xattr_operations {
    () => {
        $crate::request::Operation::SetXattr { .. }
            | $crate::request::Operation::GetXattr { .. }
            | $crate::request::Operation::ListXattr { .. }
            | $crate::request::Operation::RemoveXattr { .. }
    };
}
pub(crate) use xattr_operations;

/// What works on an open directory.
macro_rules! listing_operations {
    () => {
        $crate::request::Operation::OpenDir { .. }
            | $crate::request::Operation::ReadDir { .. }
            | $crate::request::Operation::ReadDirPlus { .. }
            | $crate::request::Operation::FSyncDir { .. }
            | $crate::request::Operation::ReleaseDir(_)
    };
}
pub(crate) use listing_operations;

/// What takes, tests and drops locks.
macro_rules! lock_operations {
    () => {
        $crate::request::Operation::GetLk(_)
            | $crate::request::Operation::SetLk { .. }
            | $crate::request::Operation::Flush { .. }
    };
}
pub(crate) use lock_operations;

/// What opens files and works on their content.
macro_rules! data_operations {
    () => {
        $crate::request::Operation::Open { .. }
            | $crate::request::Operation::Create { .. }
            | $crate::request::Operation::TmpFile { .. }
            | $crate::request::Operation::Read(_)
            | $crate::request::Operation::Write(_)
            | $crate::request::Operation::FSync { .. }
            | $crate::request::Operation::Release(_)
            | $crate::request::Operation::Fallocate { .. }
            | $crate::request::Operation::Lseek { .. }
            | $crate::request::Operation::CopyFileRange(_)
    };
}
pub(crate) use data_operations;

/// What is about the mount as a whole or the kernel's own books, and what PandoFS does not do.
macro_rules! mount_operations {
    () => {
        $crate::request::Operation::Forget { .. }
            | $crate::request::Operation::BatchForget { .. }
            | $crate::request::Operation::Interrupt { .. }
            | $crate::request::Operation::NotifyReply { .. }
            | $crate::request::Operation::Destroy
            | $crate::request::Operation::StatFs
            | $crate::request::Operation::SyncFs
            | $crate::request::Operation::Access { .. }
            | $crate::request::Operation::BMap { .. }
            | $crate::request::Operation::Ioctl { .. }
            | $crate::request::Operation::Poll { .. }
    };
}
pub(crate) use mount_operations;
