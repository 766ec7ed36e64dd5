//! Why there is no mount. Errors of single operations are `proto::Errno`.
//!
//! Absent: texts for people; the command line makes them.

use runtime::port::PortError;
use thiserror::Error;

/// Why `Mount::open` gave up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    #[error("cannot reach {at}")]
    Unreachable { at: String, source: PortError },
    #[error("{at} refused the session: {reason}")]
    Refused { at: String, reason: String },
    #[error("{at} did not welcome the session within {seconds} s")]
    TimedOut { at: String, seconds: u64 },
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
}

/// The result of one file-system operation.
pub type Result<T> = std::result::Result<T, proto::Errno>;
