//! The FUSE transport of PandoFS: the kernel's protocol, typed requests and replies, and two ways to carry
//! them, /dev/fuse and io_uring.
//!
//! A [`Handler`] gets each [`KernelRequest`] with a [`KernelReply`] that it answers at once or later, from any thread.
//! [`mount`] puts a handler on a directory and returns the [`KernelMount`].
//!
//! [`adapter`] is PandoFS's handler; it alone knows other crates. `null`, behind a feature of its name, is a
//! stand-in for it in tests and benchmarks.
//!
//! Absent on purpose in the transport: file-system semantics, inode tables, path handling.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod abi;
pub mod adapter;
mod caller;
mod error;
mod init;
mod kernel_mount;
mod meter;
mod mountpoint;
mod notify;
#[cfg(feature = "null")]
#[expect(clippy::wildcard_enum_match_arm, reason = "a stand-in for tests: ENOSYS to whatever it does not do")]
pub mod null;
mod reply;
mod request;
mod transport;

pub use error::{MountError, UnmountError};
pub use init::Negotiated;
pub use kernel_mount::{Config, Handler, KernelMount, mount};
pub use mountpoint::{Atime, MountOptions, Mounter, Unmount, unmount};
pub use notify::{Notifier, NotifyError};
#[cfg(feature = "null")]
pub use reply::held::Held;
pub use reply::{DirSink, Entry, KernelReply, Loan, Opened};
pub use request::{
    CopyFileRange, Extensions, Forgets, KernelRequest, Lock, Operation, ParseError, Read, Release,
    SecurityContext, SetAttr, SetTime, Time, Write,
};
pub use transport::Transport;
