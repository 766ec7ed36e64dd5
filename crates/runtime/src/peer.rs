//! Who is at the other end of a socket, as the kernel says.
//!
//! Absent: certificates; a TCP peer is trusted because its listener was opened as insecure.

use proto::Cred;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What a peer may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPeer {
    /// Root on a unix socket, or anyone on an insecure network: may act for any user.
    Trusted,
    /// Acts only as this user.
    User(Cred),
}

/// Asks the kernel for the credentials the unix peer had when it connected.
///
/// # Errors
/// Those of `getsockopt`, and `InvalidData` for more groups than a credential carries.
pub(crate) fn of_unix(socket: BorrowedFd<'_>) -> io::Result<SocketPeer> {
    let (uid, gid) = credentials(socket)?;
    if uid == 0 {
        return Ok(SocketPeer::Trusted);
    }
    let groups = groups(socket)?;
    Ok(SocketPeer::User(Cred { uid, gid, groups }))
}

fn credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and so open; `cred` and `len` are valid for writes of the
    // sizes given, and the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    if rc == 0 { Ok((cred.uid, cred.gid)) } else { Err(io::Error::last_os_error()) }
}

fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; Cred::GROUPS_MAX];
    let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: as above; the buffer is `len` bytes long.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(len as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_pair_has_our_own_credentials() {
        let (a, _b) = UnixStream::pair().expect("pair");
        let (uid, _) = credentials(a.as_fd()).expect("credentials");
        // SAFETY: geteuid has no preconditions.
        assert_eq!(uid, unsafe { libc::geteuid() });
        assert!(groups(a.as_fd()).is_ok());
        let peer = of_unix(a.as_fd()).expect("peer");
        assert_eq!(peer == SocketPeer::Trusted, uid == 0);
    }
}
