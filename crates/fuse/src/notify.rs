//! Messages to the kernel unasked: dropping what it caches.
//! Absent: STORE, RETRIEVE, RESEND and POLL, which PandoFS does not need.
//!
//! Dropping an entry, or an inode with its data, waits in the kernel for locks that a request under way in the
//! same directory or file may hold: call these from a thread that holds no lock and answers no requests.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::abi::{NotifyCode, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPruneOut, Plain};
use crate::transport::device::{Device, header};
use crate::transport::uring::{Given, Outgoing};

/// Sends notifications of one mount, from any thread.
#[derive(Clone)]
pub struct Notifier {
    device: Arc<Device>,
    /// Answers over rings, which notifications overtake.
    rings: Arc<OnceLock<Outgoing>>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The kernel did not take a notification.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotifyError {
    /// The mount is gone.
    Unmounted,
    /// A directory still holds entries, or a mount is on the entry (DELETE).
    Busy,
    System(io::Error),
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotifyError::Unmounted => f.write_str("the mount is gone"),
            NotifyError::Busy => f.write_str("the entry is in use"),
            NotifyError::System(_) => f.write_str("the kernel refused a notification"),
        }
    }
}

impl std::error::Error for NotifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotifyError::System(source) => Some(source),
            NotifyError::Unmounted | NotifyError::Busy => None,
        }
    }
}

/// Whether the kernel had what was to be dropped.
type Notified = Result<bool, NotifyError>;

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Notifier {
        Notifier { device, rings: Arc::default() }
    }

    /// Requests come over rings from here on.
    pub(crate) fn rings_started(&self, outgoing: Outgoing) {
        // Once.
        let _first = self.rings.set(outgoing);
    }

    /// Which answers were given by now; without rings the kernel has each when its caller goes on.
    pub(crate) fn answers_given(&self) -> Given {
        self.rings.get().map(Outgoing::given).unwrap_or_default()
    }

    /// Waits until the kernel has these; whether it had to. On no thread that answers requests.
    pub(crate) fn wait_for_answers(&self, given: &Given) -> bool {
        self.rings.get().is_some_and(|outgoing| outgoing.wait(given))
    }

    /// Forgets a name and everything below it. Waits while a request changes the directory.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Notified {
        let namelen = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let out = NotifyInvalEntryOut { parent, namelen, flags: 0 };
        self.send(NotifyCode::InvalEntry, &[out.bytes(), name, &[0]].concat())
    }

    /// Forgets the attributes of a node; waits only while the kernel frees it.
    pub fn inval_attributes(&self, nodeid: u64) -> Notified {
        // A negative offset means no data.
        self.inode(nodeid, -1, 0)
    }

    /// Forgets attributes and the cached data from `offset`, `length` bytes or, at 0, to the end. Waits while
    /// a READ of them is unanswered.
    pub fn inval_inode(&self, nodeid: u64, offset: u64, length: u64) -> Notified {
        let clamp = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.inode(nodeid, clamp(offset), clamp(length))
    }

    /// Asks the kernel to drop the names of these nodes, as far as they are not in use. May wait for pages of what it frees.
    /// Linux 6.18 and later.
    pub fn prune(&self, nodeids: &[u64]) -> Notified {
        let count = u32::try_from(nodeids.len()).unwrap_or(u32::MAX);
        let mut body = NotifyPruneOut { count, padding: 0, spare: 0 }.bytes().to_vec();
        nodeids.iter().for_each(|nodeid| body.extend_from_slice(nodeid.bytes()));
        self.send(NotifyCode::Prune, &body)
    }

    fn inode(&self, ino: u64, off: i64, len: i64) -> Notified {
        self.send(NotifyCode::InvalInode, NotifyInvalInodeOut { ino, off, len }.bytes())
    }

    fn send(&self, code: NotifyCode, body: &[u8]) -> Notified {
        match self.device.send(&header(0, code as i32, body.len()), body) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(false),
                Some(libc::ENODEV | libc::ENOTCONN | libc::ECONNABORTED | libc::EPERM) => {
                    Err(NotifyError::Unmounted)
                }
                Some(libc::ENOTEMPTY | libc::EBUSY) => Err(NotifyError::Busy),
                _ => Err(NotifyError::System(error)),
            },
        }
    }
}
