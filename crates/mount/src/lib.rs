//! Crate `mount`: drives one client machine over a connection to each rank, and the Rust file-system API on top.
//!
//! Absent: caching (the kernel's, as far as the rank grants it; none here), the kernel's protocol (`fuse`),
//! and knowledge of how a connection is made (`runtime::port`).

mod answering;
mod calls;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod fs;
mod lane;
mod late;
mod link;
mod mount;
mod session;
mod settings;
mod shared;
mod state;
mod threads;

pub use calls::Asker;
pub use client::{CallId, Limits, Validity};
pub use error::{MountError, Result};
pub use fs::Fs;
pub use late::LateError;
pub use mount::{CapsEvent, Done, Mount, OnLate, OnSession};
pub use session::{SessionEvent, SessionNews, SessionState, SessionStatus};
pub use settings::Settings;
pub use state::Counts;
