//! The module parameter that lets FUSE use io_uring, on while a mount needs it.
//! The kernel looks at it when it sends INIT, takes the answer, and registers queues; a mount keeps its rings
//! afterwards. Absent on purpose: leaving it on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;

const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

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
        // SAFETY: flock on an open descriptor touches no memory.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
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

fn write(file: &mut File, value: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value)
}
