//! A mount with its threads: configuration, start, end.
//! Absent: file-system semantics (the handler's) and how bytes travel (`transport`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::abi::InitFlags;
use crate::error::{MountError, UnmountError};
use crate::init::{self, Negotiated};
use crate::mountpoint::{self, MountOptions, Mounter, Unmount};
use crate::notify::Notifier;
use crate::reply::KernelReply;
use crate::request::KernelRequest;
use crate::transport::classic::{self, Duty};
use crate::transport::device::Device;
use crate::transport::uring::parameter::Enabled;
use crate::transport::uring::{Decline, Rings, Shape};
use crate::transport::{Core, Transport};

/// Answers the requests of a mount. Called on transport threads, several at once: a call that waits keeps
/// the requests of its CPU or reader waiting. A panic in it aborts the process.
pub trait Handler: Send + Sync + 'static {
    /// Once, before the first request.
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier);

    /// One request; `reply` may be kept and answered later from any thread.
    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply);
}

/// How to mount and serve. The default suits PandoFS on one machine.
#[derive(Clone, Debug)]
pub struct Config {
    pub transport: Transport,
    /// Threads reading /dev/fuse without io_uring; 0 means one per CPU, at most 8.
    pub readers: usize,
    /// Unanswered requests per CPU over io_uring; further ones wait in the kernel. A lock that is waited for gets ENOLCK when an eighth
    /// of the slots is left. Memory: up to `ring_depth` x `max_write` bytes per CPU, touched as used.
    pub ring_depth: u16,
    /// Largest WRITE, in bytes.
    pub max_write: u32,
    /// Largest READ, in pages.
    pub max_pages: u16,
    /// How far the kernel reads ahead of a sequential reader. Beyond 128 KiB this takes root.
    pub max_readahead: u32,
    /// Most background requests (readahead, asynchronous writes) at once.
    pub max_background: u16,
    /// Background requests from which the kernel calls the mount congested.
    pub congestion_threshold: u16,
    /// Granularity of time stamps, in nanoseconds.
    pub time_gran: u32,
    /// Features to take where offered; OVER_IO_URING follows `transport`.
    pub wanted: InitFlags,
    pub mount: MountOptions,
    pub mounter: Mounter,
}

impl Config {
    /// What PandoFS wants of the kernel: all that a distributed POSIX file system needs, and not the writeback
    /// cache, which would hide remote sizes, nor skipping OPEN: the rank counts opens. Nor O_TRUNC within OPEN: the kernel
    /// looks only after it whether the file is being executed, and would answer ETXTBSY for a program that is gone. Nor
    /// READDIRPLUS_AUTO: which listings carry attributes is decided here (`adapter/plus.rs`).
    pub const WANTED: InitFlags = InitFlags::ASYNC_READ
        .with(InitFlags::POSIX_LOCKS)
        .with(InitFlags::FLOCK_LOCKS)
        .with(InitFlags::EXPORT_SUPPORT)
        .with(InitFlags::BIG_WRITES)
        .with(InitFlags::PARALLEL_DIROPS)
        .with(InitFlags::DO_READDIRPLUS)
        .with(InitFlags::POSIX_ACL)
        .with(InitFlags::DONT_MASK)
        .with(InitFlags::HANDLE_KILLPRIV_V2)
        .with(InitFlags::SETXATTR_EXT)
        .with(InitFlags::CREATE_SUPP_GROUP)
        .with(InitFlags::AUTO_INVAL_DATA)
        .with(InitFlags::CACHE_SYMLINKS)
        .with(InitFlags::DIRECT_IO_ALLOW_MMAP);
}

impl Default for Config {
    fn default() -> Config {
        Config {
            transport: Transport::Auto,
            readers: 0,
            ring_depth: 256,
            max_write: 1 << 20,
            max_pages: 256,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            time_gran: 1,
            wanted: Config::WANTED,
            mount: MountOptions::default(),
            mounter: Mounter::default(),
        }
    }
}

/// A running mount. Dropped, it is taken down by force.
pub struct KernelMount {
    path: PathBuf,
    mounter: Mounter,
    core: Arc<Core>,
    notifier: Notifier,
    transport: Transport,
    negotiated: Negotiated,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Mounts `handler` on the directory `path` and returns once requests are being served.
pub fn mount<H: Handler>(path: &Path, config: &Config, handler: Arc<H>) -> Result<KernelMount, MountError> {
    let enabled = match config.transport {
        Transport::Classic => None,
        Transport::Auto => Enabled::new().ok(),
        Transport::Uring => Some(Enabled::new().map_err(MountError::NoUring)?),
    };
    let mut config = config.clone();
    config.wanted = match enabled {
        Some(_) => config.wanted | InitFlags::OVER_IO_URING,
        None => config.wanted.without(InitFlags::OVER_IO_URING),
    };
    let (path, fd, mounter) = mountpoint::mount(path, &config)?;
    let device = Arc::new(Device::new(fd, init::payload_bytes(&config)));
    let opened = open_connection(&config, &device, handler);
    if opened.is_ok() {
        mountpoint::set_readahead(&path, config.max_readahead);
    }
    opened
        .map(|Connection { negotiated, core, notifier, transport, threads }| KernelMount {
            path: path.clone(),
            mounter,
            core,
            notifier,
            transport,
            negotiated,
            threads: Mutex::new(threads),
        })
        .inspect_err(|_| {
            // Nothing is served here; what remains of the mount must not stay in anyone's way.
            let _gone_already = mountpoint::unmount_with(mounter, &path, Unmount::Force);
        })
}

/// A connection that is served.
struct Connection {
    negotiated: Negotiated,
    core: Arc<Core>,
    notifier: Notifier,
    transport: Transport,
    threads: Vec<JoinHandle<()>>,
}

/// INIT, then the threads of whichever transport came out of it.
fn open_connection<H: Handler>(
    config: &Config,
    device: &Arc<Device>,
    handler: Arc<H>,
) -> Result<Connection, MountError> {
    let (mut negotiated, unique) = init::receive(device, config)?;
    let uring_offered = negotiated.flags.contains(InitFlags::OVER_IO_URING);
    let decline = uring_offered.then(|| Decline::prepare(device).ok()).flatten();
    if decline.is_none() {
        negotiated.flags = negotiated.flags.without(InitFlags::OVER_IO_URING);
    }
    let notifier = Notifier::new(Arc::clone(device));
    handler.init(&negotiated, &notifier);
    let core = Arc::new(Core::new(handler, negotiated.dialect()));
    init::answer(device, unique, &negotiated);
    let shape = Shape { depth: config.ring_depth, payload_bytes: init::payload_bytes(config) };
    let rings = match &decline {
        Some(_) => Rings::start(&core, device, shape),
        None => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    };
    let (transport, readers, on_end, mut threads) = match rings {
        Ok(rings) => {
            notifier.rings_started(rings.outgoing());
            let on_end: Arc<dyn Fn() + Send + Sync> = Arc::new(rings.stopper());
            (Transport::Uring, (1, Duty::BesideRings), on_end, rings.into_threads())
        }
        Err(error) if config.transport == Transport::Uring => return Err(MountError::NoUring(error)),
        Err(_) => {
            if let Some(decline) = decline {
                decline.decline().map_err(|source| MountError::system("decline io_uring", source))?;
            }
            let on_end: Arc<dyn Fn() + Send + Sync> = Arc::new(|| ());
            (Transport::Classic, (reader_count(config.readers), Duty::Everything), on_end, Vec::new())
        }
    };
    let started = classic::start(&core, device, readers, &on_end).inspect_err(|_| on_end());
    threads.extend(started.map_err(|source| MountError::system("start threads", source))?);
    Ok(Connection { negotiated, core, notifier, transport, threads })
}

/// More readers than CPUs make everything slower.
fn reader_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(8)),
        count => count,
    }
}

impl KernelMount {
    /// The transport in use, never `Auto`.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Asks the kernel to unmount; see [`KernelMount::wait`] for the end.
    pub fn unmount(&self, how: Unmount) -> Result<(), UnmountError> {
        mountpoint::unmount_with(self.mounter, &self.path, how)
    }

    /// Waits until the mount is gone, whoever unmounts it, and all threads ended.
    pub fn wait(&self) -> io::Result<()> {
        // Locked throughout: a second caller waits too.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panicking transport thread aborts the process, so there is no error to see.
            let _ended = thread.join();
        }
        self.core.take_failure().map_or(Ok(()), Err)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pending = threads.iter().any(|thread| !thread.is_finished());
        if pending && self.unmount(Unmount::Force).is_ok() {
            let _reported_to_nobody = self.wait();
        }
    }
}
