//! A delaying proxy: a network's round trip between a client and a server of one machine.
//!
//! What arrives is stamped and leaves that much later, each direction for itself, in order: many messages under way are late by
//! one delay, not by the sum of theirs. Absent: limits of bandwidth, loss, jitter, and the peer's identity: a server behind a
//! unix socket sees this process.

use anyhow::{Context, Result};
use runtime::Addr;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 64 << 10;
/// Accepting rests this long after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that is listened at.
#[derive(Debug)]
pub struct Proxy {
    socket: Socket,
    to: Addr,
    delay: Duration,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// One end of a connection.
#[derive(Debug)]
enum End {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Bytes that came at that time; none: the sender has ended.
struct Chunk {
    came: Instant,
    bytes: Vec<u8>,
}

impl Proxy {
    /// Listens. `delay` is that of one direction: half the round trip.
    ///
    /// # Errors
    /// When the place cannot be listened at.
    pub fn bind(listen: &Addr, to: Addr, delay: Duration) -> Result<Self> {
        // The kernel may wake a sleeper 50 us late, to wake several at once; the threads made here inherit this. Best effort.
        let _coarser = std::fs::write("/proc/self/timerslack_ns", "1");
        let socket = match listen {
            Addr::Unix(path) => UnixListener::bind(path).map(Socket::Unix),
            Addr::Tcp(at) => TcpListener::bind(at.as_str()).map(Socket::Tcp),
        };
        let socket = socket.with_context(|| format!("cannot listen at {listen}"))?;
        Ok(Self { socket, to, delay })
    }

    /// Where it really listens, if that is not what was asked for: port 0 is resolved.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(socket) => socket.local_addr().ok().map(|addr| addr.port()),
        }
    }

    /// Takes connections for ever; `failed` hears of those that could not be made.
    pub fn run(&self, failed: impl Fn(&anyhow::Error)) {
        loop {
            if let Err(error) = self.serve_one() {
                failed(&error);
                sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Takes one connection; its threads end with it. A server that is not there ends the connection, as a host does.
    fn serve_one(&self) -> Result<Vec<JoinHandle<()>>> {
        let near = self.accept().context("cannot accept")?;
        let far = End::connect(&self.to).with_context(|| format!("no server at {}", self.to))?;
        let mut threads = Vec::new();
        for (from, to) in [(near.again()?, far.again()?), (far, near)] {
            let (queue, late) = channel();
            let (reader, writer) = (from.again()?, to.again()?);
            threads.push(Builder::new().name("proxy-in".into()).spawn(move || take_in(reader, &queue))?);
            let delay = self.delay;
            let out = Builder::new().name("proxy-out".into());
            threads.push(out.spawn(move || hand_on(writer, &late, delay, &from))?);
        }
        Ok(threads)
    }

    fn accept(&self) -> io::Result<End> {
        match &self.socket {
            Socket::Unix(socket) => socket.accept().map(|(stream, _)| End::Unix(stream)),
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nodelay(true)?;
                Ok(End::Tcp(stream))
            }
        }
    }
}

impl End {
    fn connect(to: &Addr) -> io::Result<Self> {
        match to {
            Addr::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Addr::Tcp(at) => {
                let stream = TcpStream::connect(at.as_str())?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn again(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&*stream).read(bytes),
            Self::Tcp(stream) => (&*stream).read(bytes),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => (&*stream).write_all(bytes),
            Self::Tcp(stream) => (&*stream).write_all(bytes),
        }
    }

    fn shut(&self, how: Shutdown) {
        let _already_closed = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }
}

/// Stamps what arrives, without waiting for what left.
fn take_in(from: End, queue: &Sender<Chunk>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let got = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A connection that broke has ended; the other side learns no more than that.
            got => got.unwrap_or(0),
        };
        let chunk = Chunk { came: Instant::now(), bytes: buffer[..got].to_vec() };
        if queue.send(chunk).is_err() || got == 0 {
            return;
        }
    }
}

/// Sends on what has waited long enough. When the receiver is gone, so is the sender.
fn hand_on(to: End, late: &Receiver<Chunk>, delay: Duration, from: &End) {
    for chunk in late {
        let due = chunk.came + delay;
        // A sleep may end early by a signal, never by the clock.
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            sleep(left);
        }
        if chunk.bytes.is_empty() {
            return to.shut(Shutdown::Write);
        }
        if to.write_all(&chunk.bytes).is_err() {
            return from.shut(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(3);

    /// A client's stream, through a proxy, to a server's.
    fn through(folder: &std::path::Path) -> (UnixStream, UnixStream, Vec<JoinHandle<()>>) {
        let place = |name: &str| Addr::Unix(folder.join(name));
        let server = UnixListener::bind(folder.join("far")).expect("bound");
        let proxy = Proxy::bind(&place("near"), place("far"), DELAY).expect("bound");
        let client = UnixStream::connect(folder.join("near")).expect("connected");
        let threads = proxy.serve_one().expect("served");
        let (served, _) = server.accept().expect("accepted");
        (client, served, threads)
    }

    #[test]
    fn bytes_arrive_in_order_and_not_before_their_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut client, mut server, threads) = through(folder.path());
        let begin = Instant::now();
        for number in 0..1_000_u32 {
            client.write_all(&number.to_le_bytes()).expect("sent");
        }
        let mut bytes = vec![0; 4_000];
        server.read_exact(&mut bytes).expect("received");
        assert!(begin.elapsed() >= DELAY);
        let expected: Vec<u8> = (0..1_000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(bytes, expected);
        server.write_all(b"answer").expect("sent");
        let mut answer = [0; 6];
        client.read_exact(&mut answer).expect("received");
        assert!(begin.elapsed() >= DELAY * 2 && &answer == b"answer");
        drop(client);
        // The end comes behind the bytes, and nothing is left over.
        assert_eq!(server.read(&mut bytes).expect("ended"), 0);
        drop(server);
        for thread in threads {
            thread.join().expect("a thread of the proxy ends with its connection");
        }
    }

    #[test]
    fn one_direction_may_end_before_the_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut client, mut server, threads) = through(folder.path());
        client.write_all(b"question").expect("sent");
        client.shutdown(Shutdown::Write).expect("ended");
        let mut question = String::new();
        server.read_to_string(&mut question).expect("received");
        server.write_all(b"late answer").expect("sent");
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("received");
        assert_eq!((question.as_str(), answer.as_str()), ("question", "late answer"));
        threads.into_iter().for_each(|thread| thread.join().expect("ended"));
    }

    #[test]
    fn without_a_server_the_connection_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| Addr::Unix(folder.path().join(name));
        let proxy = Proxy::bind(&place("near"), place("far"), DELAY).expect("bound");
        let mut client = UnixStream::connect(folder.path().join("near")).expect("connected");
        assert!(proxy.serve_one().is_err());
        assert_eq!(client.read(&mut [0]).expect("ended"), 0);
    }

    #[test]
    fn tcp_is_passed_on_as_well() {
        let server = TcpListener::bind("127.0.0.1:0").expect("bound");
        let to = Addr::Tcp(server.local_addr().expect("bound").to_string());
        let proxy = Proxy::bind(&Addr::Tcp("127.0.0.1:0".into()), to, DELAY).expect("bound");
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port().expect("a port"))).expect("connected");
        let threads = proxy.serve_one().expect("served");
        let (mut served, _) = server.accept().expect("accepted");
        client.write_all(b"x").expect("sent");
        let mut byte = [0];
        served.read_exact(&mut byte).expect("received");
        assert_eq!(&byte, b"x");
        drop((client, served));
        threads.into_iter().for_each(|thread| thread.join().expect("ended"));
    }
}
