//! What a client machine is told at construction, and every limit it keeps.
//!
//! Absent: mount options; the edges translate them.

use proto::Ino;
use proto::caps::Bits;
use proto::message::ClientInfo;
use stdx::time::{MS, SECOND};

/// How a client behaves for its whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientConfig {
    pub info: ClientInfo,
    /// What the edge keeps: `Bits::ATTRS`, and `Bits::FC` if file data; `Bits::DX` to be answered early and to have
    /// directories delegated. Nothing: it is never recalled anything.
    pub wants: Bits,
    /// Keep unanswered requests, to send them again after a reconnect. Off where the connection lasts
    /// exactly as long as the rank (one process): nothing could be resumed, and payloads need no copy.
    pub retry: bool,
    /// After an eviction go on in a new session (`recover_session=clean`): locks are lost and said to
    /// be. Otherwise the client ends (`recover_session=no`).
    pub recover_clean: bool,
    /// The directory to which each of its sessions is to be limited; `Ino::NONE`: to none.
    pub limit: Ino,
    pub limits: Limits,
}

/// Every queue and table has a bound; at the bound the named answer is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests at the rank at once, lock waits apart. More wait here.
    pub in_flight_max: usize,
    /// Bytes of requests at the rank and of their largest answers. A server stops reading a connection that owes more than
    /// 32 MiB, and capabilities that are given back would lie unread in it.
    pub bytes_max: usize,
    /// Lock waits at the rank at once. Beyond: ENOLCK.
    pub lock_waits_max: usize,
    /// Requests waiting here. Beyond: EAGAIN.
    pub queued_max: usize,
    /// Distance between the oldest unanswered tid and the newest: what the rank has to remember
    /// results for. A lock wait that falls behind is renewed under a new tid.
    pub tid_span_max: u64,
    /// Inodes open at once. Beyond: ENFILE.
    pub open_inodes_max: usize,
    /// Ranges locked at once. Beyond: ENOLCK.
    pub locks_max: usize,
    /// What was granted and does not run out by itself is offered to the rank when it was not used for so long, looked at with
    /// each renewal of the lease (60 s: Ceph's `caps_wanted_delay_max`).
    pub idle_ns: u64,
    /// Files of which pages may be kept. Beyond, the oldest that are closed are offered.
    pub files_kept_max: usize,
    /// Directories delegated at once, and files. Beyond, the oldest are offered; the rank's own limit is a little higher.
    pub delegated_max: usize,
    /// Bytes kept of what was written and not synced. Beyond: if the server dies, a sync of the file is answered EIO.
    pub unsynced_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_max: 256,
            bytes_max: 24 << 20,
            lock_waits_max: 4096,
            queued_max: 65_536,
            tid_span_max: 16_384,
            open_inodes_max: 1 << 20,
            locks_max: 1 << 16,
            idle_ns: 60 * SECOND,
            files_kept_max: 1 << 20,
            delegated_max: 896,
            unsynced_bytes_max: 64 << 20,
        }
    }
}

impl Limits {
    /// The span in force: always wide enough that lock waits alone cannot fill it, else renewing one
    /// would make room for nothing but the next renewal.
    pub(crate) const fn tid_span(&self) -> u64 {
        let least = 2 * (self.in_flight_max as u64 + self.lock_waits_max as u64);
        if self.tid_span_max > least { self.tid_span_max } else { least }
    }

    /// Small enough that every bound is met in every test.
    #[must_use]
    pub const fn tiny() -> Self {
        Self {
            in_flight_max: 2,
            bytes_max: 8 << 10,
            lock_waits_max: 2,
            queued_max: 8,
            tid_span_max: 8,
            open_inodes_max: 4,
            locks_max: 8,
            idle_ns: 300 * MS,
            files_kept_max: 3,
            delegated_max: 2,
            unsynced_bytes_max: 64 << 10,
        }
    }
}
