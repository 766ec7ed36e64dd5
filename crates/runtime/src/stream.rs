//! One non-blocking stream socket, unix or TCP, shared between threads by reference.
//!
//! Absent: buffering (`wire.rs`).

use crate::addr::Addr;
use crate::peer::{self, SocketPeer};
use mio::net::{TcpStream, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects, blocking until it stands or fails.
    pub(crate) fn connect(addr: &Addr) -> io::Result<Self> {
        match addr {
            Addr::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(UnixStream::from_std(stream)))
            }
            Addr::Tcp(at) => {
                let stream = std::net::TcpStream::connect(at.as_str())?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(TcpStream::from_std(stream)))
            }
        }
    }

    /// Both ends of a connection within this process.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok((Self::Unix(UnixStream::from_std(near)), Self::Unix(UnixStream::from_std(far))))
    }

    /// Watches for both directions, edge-triggered: whoever writes may stop at `WouldBlock`, the
    /// loop hears when there is room again. What is there already is told at once.
    pub(crate) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&self.fd()), token, both)
    }

    /// Another loop may watch it from now on.
    pub(crate) fn deregister(&self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut SourceFd(&self.fd()))
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Unix(s) => s.as_raw_fd(),
            Self::Tcp(s) => s.as_raw_fd(),
        }
    }

    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => (&*s).read(buf),
            Self::Tcp(s) => (&*s).read(buf),
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => (&*s).write(bytes),
            Self::Tcp(s) => (&*s).write(bytes),
        }
    }

    /// Ends both directions; the loop hears it as a close. A socket already closed is no error.
    pub(crate) fn shutdown(&self) {
        let _already_closed = match self {
            Self::Unix(s) => s.shutdown(Shutdown::Both),
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> io::Result<SocketPeer> {
        match self {
            Self::Unix(s) => peer::of_unix(s.as_fd()),
            Self::Tcp(_) => Ok(SocketPeer::Trusted),
        }
    }
}
