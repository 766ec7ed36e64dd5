//! What can be chosen about a mount, and what is chosen where nobody does.
//!
//! Absent: mount options and their names; the command line has them.

use client::Limits;
use proto::Ino;
use proto::caps::Bits;
use std::time::Duration;

/// What can be chosen about a mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// After an eviction go on in a new session (`recover_session=clean`).
    pub recover_clean: bool,
    /// How long `open` waits for the first Welcome.
    pub open_timeout: Duration,
    /// How long `close` waits for answers.
    pub close_timeout: Duration,
    /// Between attempts to connect again: from the first, doubled, to the second. After a restart of the rank changes
    /// of others wait for this client, so not long.
    pub backoff: (Duration, Duration),
    pub limits: Limits,
    /// The directory to which the session is limited: the server refuses it all else; `Ino::NONE`: it is not.
    pub limit: Ino,
    /// What is kept of answers, by whoever sets `Mount::on_caps`; with `Bits::DX` changes are answered before they are durable,
    /// and directories may be delegated to the session. Nothing: the rank grants nothing, and recalls nothing.
    pub wants: Bits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            recover_clean: false,
            open_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
            backoff: (Duration::from_millis(20), Duration::from_millis(250)),
            limits: Limits::default(),
            limit: Ino::NONE,
            wants: Bits::NONE,
        }
    }
}
