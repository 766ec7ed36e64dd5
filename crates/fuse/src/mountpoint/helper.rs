//! Mounting and unmounting through the setuid program fusermount3.
//! Absent: its `auto_unmount` watcher, which would outlive a daemon's restart.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use super::{Config, MountError, Unmount, UnmountError};
use crate::init;

const PROGRAM: &str = "fusermount3";
/// Tells the program which descriptor to send the connection through.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

pub(super) fn mount(path: &Path, config: &Config) -> Result<OwnedFd, MountError> {
    let system = |source| MountError::system("talk to fusermount3", source);
    let (ours, theirs) = UnixStream::pair().map_err(system)?;
    keep_across_exec(&theirs).map_err(system)?;
    let options = &config.mount;
    let names =
        [format!("fsname={}", escape(&options.fsname)), format!("subtype={}", escape(&options.subtype))];
    let words = [options.words(), options.fuse_words(init::payload_bytes(config)), names.to_vec()].concat();
    let output = Command::new(PROGRAM)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .args(["-o", &words.join(","), "--"])
        .arg(path)
        .output()
        .map_err(MountError::NoHelper)?;
    drop(theirs);
    if output.status.success() {
        return receive_descriptor(&ours).map_err(system);
    }
    let message = complaint(&output);
    if message.contains("No such device") || message.contains("fuse device not found") {
        let source = io::Error::new(io::ErrorKind::NotFound, message);
        return Err(MountError::NoDevice(source));
    }
    Err(MountError::NotPermitted { message })
}

pub(super) fn unmount(path: &Path, how: Unmount) -> Result<(), UnmountError> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if how != Unmount::Plain {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).output().map_err(UnmountError::NoHelper)?;
    if output.status.success() {
        return Ok(());
    }
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounted = super::topmost(&table, path.as_os_str().as_bytes()).is_some();
    Err(refusal(complaint(&output), mounted))
}

/// Why it refused. Of another user's mount it says that it is not found, too: `mounted` tells them apart.
fn refusal(message: String, mounted: bool) -> UnmountError {
    match &message {
        text if text.contains("busy") => UnmountError::Busy,
        text if text.contains("not found in") && mounted => UnmountError::NotPermitted { message },
        text if text.contains("not found in") || text.contains("Invalid argument") => {
            UnmountError::NotMounted
        }
        _ => UnmountError::NotPermitted { message },
    }
}

/// A comma would end an option.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn keep_across_exec(socket: &UnixStream) -> io::Result<()> {
    // SAFETY: fcntl with these commands takes no pointers; the descriptor is open.
    let result = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the descriptor the program passed along with one byte.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    const DESCRIPTOR_BYTES: u32 = size_of::<libc::c_int>() as u32;
    let mut byte = [0_u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // Aligned for the header that the kernel puts first.
    let mut control = [0_u64; 8];
    // SAFETY: a msghdr of zeroes is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points at live buffers with their true lengths.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled the control buffer that the message describes; the first header is in it or
    // the pointer is null, and a header that says SCM_RIGHTS with this length is followed by a descriptor,
    // opened for us.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let passed = !header.is_null()
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len >= libc::CMSG_LEN(DESCRIPTOR_BYTES) as usize;
        if !passed {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "fusermount3 passed no descriptor"));
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_mount_is_told_from_none() {
        let message = "fusermount3: entry for /m not found in /etc/mtab";
        assert!(matches!(refusal(message.into(), true), UnmountError::NotPermitted { .. }));
        assert!(matches!(refusal(message.into(), false), UnmountError::NotMounted));
        let busy = "fusermount3: failed to unmount /m: Device or resource busy";
        assert!(matches!(refusal(busy.into(), true), UnmountError::Busy));
    }
}
