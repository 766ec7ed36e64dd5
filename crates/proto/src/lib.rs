//! Crate `proto`: the words every crate shares: domain values, messages, journal and store records,
//! their codecs and versions. docs/FORMAT.md and docs/PROTOCOL.md are normative; this is their code.
//!
//! Absent: behaviour. Nothing here decides anything or does I/O.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod admin;
pub mod attr;
pub mod caps;
pub mod cluster;
pub mod codec;
pub mod dentry;
pub mod errno;
pub mod frame;
pub mod fsrecord;
pub mod header;
pub mod holder;
pub mod ids;
pub mod inode;
pub mod journal;
pub mod kind;
pub mod message;
pub mod mutation;
pub mod name;
pub mod reply;
pub mod request;
pub mod storeio;
pub mod system;
pub mod transact;
pub mod unheard;

pub use attr::{Attr, Cred, FileKind, SetAttr};
pub use codec::{DecodeError, Fixed, Reader, Writer};
pub use errno::Errno;
pub use ids::*;
pub use kind::{Effect, Kind};
pub use name::Name;
