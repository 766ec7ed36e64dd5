//! The module parameter that lets FUSE use io_uring, on while a mount needs it.
//! The kernel looks at it when it sends INIT, takes the answer, and registers queues; a mount keeps its rings
//! afterwards. Absent: leaving it on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

const PATH: &str = "/sys/module/fuse/parameters/enable_uring";
/// How long another mount that starts is waited for. One that hangs there must not keep the others from starting.
const WAIT: Duration = Duration::from_secs(3);

/// Keeps the parameter on; dropping it restores what was there.
pub(crate) struct Enabled {
    /// Locked, so that two mounts starting at once do not restore under each other.
    file: File,
    was_on: bool,
}

impl Enabled {
    pub(crate) fn new() -> io::Result<Enabled> {
        // Without write access the value may still be what is wanted.
        let writable = OpenOptions::new().read(true).write(true).open(PATH);
        let mut file = writable.or_else(|_| File::open(PATH))?;
        // Without the lock the other mount may switch the parameter off before the kernel has looked at it, and this one serves
        // /dev/fuse.
        let _locked = lock(&file, WAIT)?;
        let mut value = String::new();
        file.read_to_string(&mut value)?;
        let was_on = value.starts_with('Y');
        if !was_on {
            write(&mut file, b"Y")?;
        }
        Ok(Enabled { file, was_on })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if !self.was_on {
            // It was writable a moment ago; if no longer, there is nobody to tell who could do more.
            let _refused = write(&mut self.file, b"N");
        }
    }
}

/// Locks the file. Whether it is locked by then.
fn lock(file: &File, wait: Duration) -> io::Result<bool> {
    let copy = file.try_clone()?;
    let (done, locked) = sync_channel(1);
    let wait_for_it = move || {
        // SAFETY: flock on an open descriptor touches no memory.
        let result = match unsafe { libc::flock(copy.as_raw_fd(), libc::LOCK_EX) } {
            0 => Ok(true),
            _ => Err(io::Error::last_os_error()),
        };
        // Nobody listens any more if it came too late; the lock goes with the last descriptor.
        let _late = done.send(result);
    };
    std::thread::Builder::new().name("mount-lock".to_owned()).spawn(wait_for_it)?;
    match locked.recv_timeout(wait) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Ok(false),
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("the thread that waits for the lock ended"))
        }
    }
}

fn write(file: &mut File, value: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_hangs_holds_others_up_for_a_while_only() {
        let path = std::env::temp_dir().join(format!("pando-parameter-{}", std::process::id()));
        let (first, second) = (File::create(&path).expect("made"), File::open(&path).expect("opened"));
        let locked = |file: &File, wait| lock(file, wait).expect("no error");
        assert!(locked(&first, WAIT), "it is free");
        assert!(!locked(&second, Duration::from_millis(20)), "goes on without");
        drop(first);
        assert!(locked(&second, WAIT), "its own");
        std::fs::remove_file(&path).expect("removed");
    }
}
