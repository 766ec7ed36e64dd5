//! A page over HTTP/1.1, for what a monitoring system fetches now and then: one request of a connection, one connection at a
//! time, each bounded in bytes and time. Written here because a page is all there is: the smallest server crates bring more
//! than this crate's loop does.
//!
//! Absent: TLS, connections that stay, anything but GET and HEAD.

use crate::log::Log;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A longer head of a request is refused.
const HEAD_BYTES_MAX: usize = 8192;
/// A peer that takes longer is left.
const PEER_TIME: Duration = Duration::from_secs(5);
/// How long accepting rests after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is served under which path.
pub struct Content {
    pub path: &'static str,
    /// `Content-Type`.
    pub kind: &'static str,
    pub text: Box<dyn Fn() -> String + Send>,
}

/// A thread that serves one page.
#[derive(Debug)]
pub struct Page {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Page {
    /// Takes a place, `HOST:PORT`: who comes waits for `start`.
    ///
    /// # Errors
    /// Of binding.
    pub fn listen(at: &str) -> io::Result<TcpListener> {
        let place = at.to_socket_addrs()?.next().ok_or(ErrorKind::AddrNotAvailable)?;
        TcpListener::bind(place)
    }

    /// Serves.
    ///
    /// # Errors
    /// Of starting the thread.
    pub fn start(listener: TcpListener, content: Content, log: Arc<Log>) -> io::Result<Self> {
        let at = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || serve(&listener, &content, &stopped, &log);
        let thread = thread::Builder::new().name("pando-metrics".into()).spawn(run)?;
        Ok(Self { at, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Where it listens, with the port the kernel chose.
    #[must_use]
    pub const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Ends the thread; a peer that is being answered is waited for. It may be called by the page's own text, which may hold
    /// what is served last: then nobody waits.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread out of `accept`.
        let _nobody_listens_any_more = TcpStream::connect_timeout(&self.at, PEER_TIME);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _panic_was_told = thread.join();
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(listener: &TcpListener, content: &Content, stop: &AtomicBool, log: &Log) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            // A peer that goes away or is slow is its own loss.
            Ok((stream, _)) => drop(answer(stream, content)),
            Err(error) => {
                log.warn("metrics", "accept failed", &[("error", &error)]);
                thread::park_timeout(ACCEPT_PAUSE);
            }
        }
    }
}

fn answer(mut stream: TcpStream, content: &Content) -> io::Result<()> {
    stream.set_write_timeout(Some(PEER_TIME))?;
    let head = head(&mut stream)?;
    let mut words = head.split(|byte| byte.is_ascii_whitespace());
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match method {
        b"GET" | b"HEAD" if path == content.path.as_bytes() => ("200 OK", content.kind, (content.text)()),
        b"GET" | b"HEAD" => ("404 Not Found", "text/plain", format!("the page is {}\n", content.path)),
        _ => ("405 Method Not Allowed", "text/plain", "GET or HEAD\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// Reads to the end of the request's head, or of patience.
fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PEER_TIME;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let content = Content { path: "/metrics", kind: "text/x", text: Box::new(|| "a 1\n".to_owned()) };
        let listener = Page::listen("127.0.0.1:0").expect("a place");
        Page::start(listener, content, Arc::new(Log::silent())).expect("a page")
    }

    fn ask(page: &Page, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(page.at()).expect("connected");
        stream.write_all(request).expect("sent");
        let mut text = String::new();
        // Where the request was refused unread, the connection may end with an error after the answer, or without one.
        let _end = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let page = page();
        let whole = ask(&page, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\na 1\n"), "{whole}");
        assert!(
            whole.contains("Content-Type: text/x\r\n") && whole.contains("Content-Length: 4\r\n"),
            "{whole}"
        );
        let head = ask(&page, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(&page, b"GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&page, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }

    /// The thread that makes the text can be the one that drops the server, and it waited for itself.
    #[test]
    fn a_page_can_be_ended_by_its_own_text() {
        let slot: Arc<Mutex<Option<Page>>> = Arc::default();
        let held = Arc::clone(&slot);
        let text = move || {
            drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
            "last\n".to_owned()
        };
        let content = Content { path: "/", kind: "text/x", text: Box::new(text) };
        let listener = Page::listen("127.0.0.1:0").expect("a place");
        let page = Page::start(listener, content, Arc::new(Log::silent())).expect("a page");
        let mut stream = TcpStream::connect(page.at()).expect("connected");
        *slot.lock().expect("nobody panicked") = Some(page);
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.ends_with("last\n"), "{answer}");
    }

    #[test]
    fn a_hostile_peer_gets_nothing_and_the_next_one_is_served() {
        let page = page();
        assert_eq!(ask(&page, &[b'x'; 64 << 10]), "");
        drop(TcpStream::connect(page.at()).expect("connected"));
        assert!(ask(&page, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("a 1\n"));
        page.stop();
        assert!(TcpStream::connect(page.at()).is_err(), "nobody listens");
    }
}
