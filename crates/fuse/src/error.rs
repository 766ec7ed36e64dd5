//! What can go wrong with mounting and unmounting, in the terms a person can act on.
//! Absent: errors of requests, which are errno values in replies.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no mount.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// /dev/fuse is missing or the kernel has no FUSE.
    NoDevice(io::Error),
    /// This process may not mount here, or may not use an option.
    NotPermitted { message: String },
    /// The directory is the mount of a daemon that died; unmount it first.
    StaleEndpoint { path: PathBuf },
    /// A mount of the same subtype is on this directory.
    AlreadyMounted { path: PathBuf },
    /// The mount point does not exist, or is no directory, or cannot be looked at.
    BadMountpoint { path: PathBuf, source: io::Error },
    /// fusermount3 is needed and cannot be run.
    NoHelper(io::Error),
    /// The kernel speaks another major version of the protocol.
    Protocol { major: u32, minor: u32 },
    /// io_uring was demanded and the kernel does not offer it here.
    NoUring(io::Error),
    /// Any other failure, and what was being done.
    System { action: &'static str, source: io::Error },
}

impl MountError {
    pub(crate) fn system(action: &'static str, source: io::Error) -> MountError {
        MountError::System { action, source }
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::NoDevice(_) => f.write_str("/dev/fuse: no such device"),
            MountError::NotPermitted { message } => write!(f, "not permitted: {message}"),
            MountError::StaleEndpoint { path } => {
                write!(f, "{}: transport endpoint is not connected (its daemon died)", path.display())
            }
            MountError::AlreadyMounted { path } => write!(f, "{} is already mounted", path.display()),
            MountError::BadMountpoint { path, .. } => write!(f, "{}: unusable mount point", path.display()),
            MountError::NoHelper(_) => f.write_str("cannot run fusermount3"),
            MountError::Protocol { major, minor } => {
                write!(f, "the kernel speaks FUSE protocol {major}.{minor}, not 7.x")
            }
            MountError::NoUring(_) => f.write_str("the kernel offers no io_uring for FUSE"),
            MountError::System { action, .. } => write!(f, "cannot {action}"),
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MountError::NoDevice(source)
            | MountError::NoHelper(source)
            | MountError::NoUring(source)
            | MountError::BadMountpoint { source, .. }
            | MountError::System { source, .. } => Some(source),
            MountError::NotPermitted { .. }
            | MountError::StaleEndpoint { .. }
            | MountError::AlreadyMounted { .. }
            | MountError::Protocol { .. } => None,
        }
    }
}

/// Why the mount is still there.
#[derive(Debug)]
#[non_exhaustive]
pub enum UnmountError {
    /// Files are open or a process stands in it.
    Busy,
    /// Nothing is mounted there (any more).
    NotMounted,
    NotPermitted {
        message: String,
    },
    NoHelper(io::Error),
    System(io::Error),
}

impl fmt::Display for UnmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnmountError::Busy => f.write_str("busy"),
            UnmountError::NotMounted => f.write_str("not mounted"),
            UnmountError::NotPermitted { message } => write!(f, "not permitted: {message}"),
            UnmountError::NoHelper(_) => f.write_str("cannot run fusermount3"),
            UnmountError::System(_) => f.write_str("cannot unmount"),
        }
    }
}

impl std::error::Error for UnmountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UnmountError::NoHelper(source) | UnmountError::System(source) => Some(source),
            UnmountError::Busy | UnmountError::NotMounted | UnmountError::NotPermitted { .. } => None,
        }
    }
}
