//! What a daemon needs of the operating system: a session of its own, the signals that end it, the limit of
//! open files, and the first look at a mount.
//!
//! Absent: what to do when a signal comes (the binary's).

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Leaves the terminal's session: closing the terminal no longer ends this process.
///
/// # Errors
/// Those of setsid; a process that leads a group already may not.
pub fn leave_terminal() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory.
    match unsafe { libc::setsid() } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets this process open as many files as the system permits it. Best effort.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes and, in the second call, for reads.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Files that this process may have open at a time.
#[must_use]
pub fn file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        // What Linux begins with.
        _ => 1_024,
    }
}

/// The most bytes that Linux has in the value of an extended attribute.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The value of an extended attribute.
///
/// # Errors
/// Those of getxattr; a path or name with a NUL in it is `InvalidInput`.
pub fn xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    let mut value = vec![0_u8; XATTR_BYTES_MAX];
    // SAFETY: both strings end in NUL, and the buffer has as many bytes as is said.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
    Ok(value)
}

/// How much lower the priority of bulk work is: a tenth of another thread's share where both want a CPU.
const BULK_NICE: i32 = 10;

/// For a thread that may copy much: metadata beside streams of file data does not wait for a CPU behind it. Where others' work
/// keeps all CPUs busy, it gets less of them, too.
pub fn go_behind_others() {
    // SAFETY: plain calls; on Linux 0 is the calling thread. Where it is refused, everything is as before.
    let _refused = unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice + BULK_NICE)
    };
}

/// Bounds the heaps among which the C library spreads a process's threads. Each keeps what was freed in it: with its default,
/// eight for each CPU, a server with a hundred threads holds several bytes more for each cached file.
pub fn bound_heaps() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let heaps = i32::try_from(cpus.clamp(2, 8)).unwrap_or(2);
    // SAFETY: takes two numbers; called before other threads exist. A refusal leaves the default.
    let _refused = unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
}

/// CPUs on which threads may run.
#[derive(Clone, Copy)]
pub struct Cpus(libc::cpu_set_t);

impl Cpus {
    /// Those of the calling thread, which the threads that it starts inherit; `None`: the machine has more than can be told.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        // SAFETY: cpu_set_t is a plain bit array, for which all zeroes is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set outlives the call and its size is given; 0 is the calling thread.
        let told = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        (told == 0).then_some(Self(set))
    }

    /// Part N of that many that they are divided into, as equal as can be, neighbours together. Where there are fewer CPUs than parts,
    /// several parts are the same CPU.
    #[must_use]
    pub fn part(&self, number: usize, parts: usize) -> Self {
        let all = self.numbers();
        let parts = parts.clamp(1, all.len().max(1));
        let number = number % parts;
        // SAFETY: as above.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in &all[all.len() * number / parts..all.len() * (number + 1) / parts] {
            // SAFETY: `cpu` was found in a set of the same size.
            unsafe { libc::CPU_SET(*cpu, &mut set) };
        }
        Self(set)
    }

    /// The calling thread runs on them only, and threads that it starts from now on. Where it is refused, everything is as before.
    pub fn take(&self) {
        // SAFETY: the set outlives the call and its size is given; 0 is the calling thread.
        let _refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
    }

    /// Their numbers, in order.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        // SAFETY: no number is beyond the set.
        (0..size_of::<libc::cpu_set_t>() * 8)
            .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &self.0) })
            .collect()
    }
}

impl std::fmt::Debug for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.numbers()).finish()
    }
}

/// The signals that end a daemon in order: SIGTERM, SIGINT, SIGHUP.
#[derive(Debug)]
pub struct Endings {
    set: libc::sigset_t,
}

impl Endings {
    /// From here on these signals wait for `wait` instead of killing. Call it before any thread starts:
    /// threads inherit it.
    ///
    /// # Errors
    /// Those of pthread_sigmask.
    pub fn hold() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the whole set before it is used; the null pointer says that
        // the former mask is not wanted.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let rc = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if rc == 0 { Ok(Self { set: set.assume_init() }) } else { Err(io::Error::from_raw_os_error(rc)) }
        }
    }

    /// Waits for one of them; its number.
    ///
    /// # Errors
    /// Those of sigwait.
    pub fn wait(&self) -> io::Result<i32> {
        let mut signal = 0;
        // SAFETY: the set is initialised and `signal` is valid for a write.
        match unsafe { libc::sigwait(&raw const self.set, &raw mut signal) } {
            0 => Ok(signal),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Bytes of the file system that holds a path: total, and what a user may still write. Asks a mount's
/// daemon, so it is also the proof that one answers.
///
/// # Errors
/// Those of statvfs.
pub fn space_of(path: &Path) -> io::Result<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends with NUL and `stat` is valid for a write of its size.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statvfs succeeded, so it filled the structure.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

/// The inode number that stat(2) finds, symlinks followed. Rust's own `metadata` also asks for the birth time, which a kernel
/// never keeps for FUSE: each call would cost a request that a C program's stat does not cause.
///
/// # Errors
/// Those of stat.
pub fn stat_ino(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` ends with NUL and `stat` is valid for a write of its size.
    if unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: stat succeeded, so it filled the structure.
    Ok(unsafe { stat.assume_init() }.st_ino)
}

/// Whether a path lies on a FUSE file system: perhaps our own.
///
/// # Errors
/// Those of statfs.
pub fn is_fuse(path: &Path) -> io::Result<bool> {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` ends with NUL and `stat` is valid for a write of its size.
    if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statfs succeeded, so it filled the structure.
    Ok(unsafe { stat.assume_init() }.f_type == FUSE_SUPER_MAGIC)
}

/// What this process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, in milliseconds.
    pub cpu_ms: u64,
    pub resident_bytes: u64,
    /// Of these not of files: without the pages of the metadata store, which the system takes back when it wants them.
    pub anonymous_bytes: u64,
}

/// What this process has used until now.
///
/// # Errors
/// Where there is no /proc.
pub fn usage() -> io::Result<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    parse_usage(&stat, &status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// proc(5): times are the 14th and 15th field of `stat`, in hundredths of a second; the program's name, the second, is in
/// brackets and may have blanks and brackets.
fn parse_usage(stat: &str, status: &str) -> Option<Usage> {
    const MS_PER_TICK: u64 = 10;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut times = after_name.split(' ').skip(11).map(str::parse::<u64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    };
    let (resident_bytes, anonymous_bytes) = (bytes("VmRSS:")?, bytes("RssAnon:")?);
    Some(Usage { cpu_ms: (user + system) * MS_PER_TICK, resident_bytes, anonymous_bytes })
}

/// Whether this process may do what root may.
#[must_use]
pub fn is_root() -> bool {
    effective_ids().0 == 0
}

/// Effective user and group of this process.
#[must_use]
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: both take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// The host's name, for people.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_past_a_strange_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 3 0 250 50 0 0 20 0 9 0 5 1 2";
        let status = "Name:\ta\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n";
        let usage = Usage { cpu_ms: 3000, resident_bytes: 2 << 20, anonymous_bytes: 1024 };
        assert_eq!(parse_usage(stat, status), Some(usage));
        assert!(super::usage().is_ok_and(|usage| usage.resident_bytes > 0));
    }

    #[test]
    fn a_mounted_path_has_space_and_others_say_why_not() {
        assert!(space_of(Path::new("/")).is_ok_and(|(total, free)| total > 0 && free <= total));
        assert!(is_fuse(Path::new("/proc")).is_ok_and(|fuse| !fuse));
        let error = space_of(Path::new("/nonexistent/x")).expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_held_signal_is_waited_for() {
        let held = Endings::hold().expect("held");
        // SAFETY: sends a signal that this very thread holds back.
        let rc = unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
        assert_eq!(rc, 0);
        assert_eq!(held.wait().expect("waited"), libc::SIGHUP);
    }

    #[test]
    fn parts_of_the_cpus_are_disjoint_and_come_to_all_of_them() {
        let all = Cpus::of_this_thread().expect("few CPUs");
        let numbers = all.numbers();
        for parts in 1..=numbers.len() {
            let shared: Vec<usize> =
                (0..parts).flat_map(|number| all.part(number, parts).numbers()).collect();
            assert_eq!(shared, numbers, "in {parts} parts");
        }
        let more = numbers.len() + 1;
        assert_eq!(all.part(numbers.len(), more).numbers(), all.part(0, more).numbers(), "there are no more");
    }

    #[test]
    fn a_thread_takes_them_and_hands_them_on() {
        let all = Cpus::of_this_thread().expect("few CPUs");
        let first = all.part(0, usize::MAX);
        let seen = std::thread::spawn(move || {
            first.take();
            std::thread::spawn(Cpus::of_this_thread).join().expect("a thread")
        });
        assert_eq!(seen.join().expect("a thread").expect("few CPUs").numbers(), vec![all.numbers()[0]]);
    }
}
