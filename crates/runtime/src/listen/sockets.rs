//! Listening sockets, unix and TCP.
//!
//! Absent: what happens to accepted streams.

use crate::addr::Addr;
use crate::stream::Stream;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A bound socket. A unix socket's file is removed when it is dropped.
pub(super) enum Acceptable {
    Unix { socket: UnixListener, path: PathBuf },
    Tcp(TcpListener),
}

impl Acceptable {
    pub(super) fn bind(at: &Addr, registry: &Registry, token: Token) -> io::Result<Self> {
        match at {
            Addr::Unix(path) => {
                remove_stale(path)?;
                let mut socket = UnixListener::bind(path)?;
                // Everyone may connect: a peer acts only as the user the kernel says it is.
                fs::set_permissions(path, Permissions::from_mode(0o666))?;
                registry.register(&mut socket, token, Interest::READABLE)?;
                Ok(Self::Unix { socket, path: path.clone() })
            }
            Addr::Tcp(text) => {
                let place = text.to_socket_addrs()?.next().ok_or(ErrorKind::AddrNotAvailable)?;
                let mut socket = TcpListener::bind(place)?;
                registry.register(&mut socket, token, Interest::READABLE)?;
                Ok(Self::Tcp(socket))
            }
        }
    }

    /// Where it listens, with the port the kernel chose.
    pub(super) fn addr(&self, asked: &Addr) -> Addr {
        match self {
            Self::Unix { .. } => asked.clone(),
            Self::Tcp(socket) => {
                socket.local_addr().map_or_else(|_| asked.clone(), |at| Addr::Tcp(at.to_string()))
            }
        }
    }

    /// The next connection; `None` when nobody waits.
    pub(super) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self {
            Self::Unix { socket, .. } => socket.accept().map(|(s, _)| Stream::Unix(s)),
            Self::Tcp(socket) => socket.accept().and_then(|(s, _)| {
                s.set_nodelay(true)?;
                Ok(Stream::Tcp(s))
            }),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            // The peer left before it was accepted: look at the next one.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => self.accept(),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Acceptable {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            let _already_gone = fs::remove_file(path);
        }
    }
}

/// A socket file nobody answers on is what a killed server left. The folder's lock keeps two
/// servers of one folder apart; this check keeps us from taking another program's live socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(meta) if !meta.file_type().is_socket() => Err(ErrorKind::AlreadyExists.into()),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
    }
}
