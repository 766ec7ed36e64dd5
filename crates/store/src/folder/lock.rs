//! The lock of a data folder: one process at a time, and the name of whoever holds it.
//!
//! The file says `PID HOST`, and ` ending` behind it once its holder takes nobody new: whoever comes then waits a
//! moment instead of giving up.
//!
//! Absent: waiting.

use super::error::{FolderError, io_error, is_closed};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

pub(super) const LOCK: &str = "pando.lock";
const ENDING: &str = "ending";
/// The kernel's mark of a process that is being taken down (PF_EXITING).
const EXITING: u64 = 4;
/// SIGKILL in a mask of signals.
const KILL: u64 = 1 << 8;

/// The held lock; it goes with this value.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Locks the folder for this process, or says whose it is.
    pub(super) fn take(dir: &Path) -> Result<Self, FolderError> {
        let path = dir.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file =
            opened.map_err(|error| io_error(if is_closed(error.kind()) { dir } else { &path }, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                // Whoever holds it may be about to write its name; then it stays unnamed.
                let _ = file.read_to_string(&mut owner);
                return Err(in_use(dir, &owner));
            }
            Err(TryLockError::Error(error)) => return Err(io_error(&path, error)),
        }
        let mut lock = Self(file);
        lock.write("").map_err(|error| io_error(&path, error))?;
        Ok(lock)
    }

    /// Says that this process is about to let go.
    pub(super) fn mark_ending(&self) -> io::Result<()> {
        Self(self.0.try_clone()?).write(&format!(" {ENDING}"))
    }

    fn write(&mut self, state: &str) -> io::Result<()> {
        let owner = format!("{} {}{state}\n", std::process::id(), host());
        // Cut last: who reads meanwhile takes the first line, the old one or the new one, never none.
        self.0.rewind()?;
        self.0.write_all(owner.as_bytes())?;
        self.0.set_len(owner.len() as u64)
    }
}

fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn in_use(dir: &Path, owner: &str) -> FolderError {
    let mut words = owner.lines().next().unwrap_or_default().split_whitespace();
    let pid = words.next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let holder = words.next().unwrap_or_default().to_owned();
    let ending = words.next() == Some(ENDING) || (pid > 0 && holder == host() && is_going(pid));
    FolderError::InUse { dir: dir.into(), pid, host: holder, ending }
}

/// Whether a process of this machine was killed and is only being cleared away: its lock falls with its last file. A busy machine may
/// take a while until the process notices.
fn is_going(pid: u32) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    // In this order: what is not pending any more has set the flag.
    let (Ok(status), Ok(stat)) = (read("status"), read("stat")) else { return true };
    // Behind the name in parentheses: state, five numbers, flags.
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
    has_kill(&status)
        || flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & EXITING != 0)
}

/// Whether SIGKILL is pending, by the masks of proc_pid_status(5).
fn has_kill(status: &str) -> bool {
    let masks =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut masks = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.any(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(error: &FolderError) -> Option<bool> {
        if let FolderError::InUse { ending, .. } = error { Some(*ending) } else { None }
    }

    #[test]
    fn a_holder_that_ends_says_so() {
        let place = tempfile::tempdir().expect("a folder");
        let lock = Lock::take(place.path()).expect("free");
        let error = Lock::take(place.path()).expect_err("held");
        assert_eq!(ending(&error), Some(false));
        lock.mark_ending().expect("written");
        let error = Lock::take(place.path()).expect_err("held");
        assert_eq!(ending(&error), Some(true));
        let whole =
            format!("{} is in use by pid {} (host {})", place.path().display(), std::process::id(), host());
        assert_eq!(error.to_string(), whole, "the text is the same");
        drop(lock);
        let _mine = Lock::take(place.path()).expect("free again");
        assert_eq!(
            ending(&Lock::take(place.path()).expect_err("held")),
            Some(false),
            "the word went with its holder"
        );
    }

    #[test]
    fn a_process_that_has_not_noticed_its_end_is_ending() {
        let status = |own: &str, shared: &str| {
            format!("Threads:\t9\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0100\n")
        };
        let (none, kill) = ("0000000000000000", "0000000000000100");
        assert!(has_kill(&status(kill, none)) && has_kill(&status(none, kill)));
        assert!(!has_kill(&status(none, none)) && !has_kill(&status("0000000000004000", "x")));
    }

    #[test]
    fn a_process_that_is_gone_is_ending_and_others_are_not() {
        assert!(!is_going(std::process::id()));
        // Beyond the highest number a process can have.
        assert!(is_going(1 << 30));
        let told = |owner: &str| ending(&in_use(Path::new("/x"), owner));
        assert_eq!(told(&format!("{} {}\n", 1 << 30, host())), Some(true));
        assert_eq!(told("1073741824 elsewhere\n"), Some(false), "of another machine nothing is known");
        assert_eq!(told(""), Some(false));
    }
}
