//! One question to a server's driver and its answer, as JSON over the server's socket.
//!
//! Absent: sessions and file-system requests (crate `mount`), deciding which server (`discover.rs`).

use crate::problem::{Exit, Problem, plain};
use crate::source::Source;
use proto::Writer;
use proto::admin::Refusal;
use proto::frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, put_frame, take_frame};
use proto::message::{ClientMsg, ServerMsg};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Asks the server at `source`; its answer's `result`.
///
/// # Errors
/// Unreachable or no answer in time (exit 3), refused (exit 4), or what the server says.
pub fn ask(source: &Source, command: &Value, timeout: Duration) -> Result<Value, Problem> {
    let unreachable = |error: &io::Error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer within {} s", timeout.as_secs())
            }
            _ => plain(error),
        };
        let problem = Problem::new(Exit::Unreachable, format!("{source}: {why}"));
        Problem { step: source.advice(error), ..problem }
    };
    let mut stream = connect(source, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Problem::new(Exit::Refused, format!("{source}: permission denied"))
        }
        _ => unreachable(&error),
    })?;
    let answer = exchange(&mut *stream, command).map_err(|error| unreachable(&error))?;
    let answer: Value = serde_json::from_str(&answer)
        .map_err(|_| Problem::failed(source, "the server's answer is not JSON"))?;
    unwrap(source, answer)
}

/// `{"ok": false, "error": TEXT, "code": N}` is the server's way to say no.
fn unwrap(source: &Source, mut answer: Value) -> Result<Value, Problem> {
    if answer["ok"] == true {
        return Ok(answer["result"].take());
    }
    let text = answer["error"].as_str().unwrap_or("an answer without meaning");
    let exit = match answer["code"].as_u64().and_then(Refusal::of_code) {
        Some(Refusal::Usage) => Exit::Usage,
        Some(Refusal::Denied) => Exit::Refused,
        Some(Refusal::State) => Exit::State,
        None => Exit::Failed,
    };
    let step = answer["do"].as_str().map(Into::into);
    Err(Problem { step, ..Problem::new(exit, format!("{source}: {text}")) })
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Whether somebody answers on a unix socket.
#[must_use]
pub fn is_alive(socket: &std::path::Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

fn connect(source: &Source, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    if let Some(path) = source.socket() {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        return Ok(Box::new(stream));
    }
    let Source::Tcp { hosts, .. } = source else {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (host, port) in hosts {
        let addresses = match (host.as_str(), *port).to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(error) => {
                last = error;
                continue;
            }
        };
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    return Ok(Box::new(stream));
                }
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

fn exchange(stream: &mut dyn Stream, command: &Value) -> io::Result<String> {
    let mut w = Writer::new();
    put_frame(&mut w, |w| ClientMsg::Admin { id: 1, command: command.to_string() }.encode(w));
    stream.write_all(&w.0)?;
    let mut bytes = Vec::new();
    loop {
        let broken = |error: proto::DecodeError| io::Error::other(error.to_string());
        if let Some((body, len)) = take_frame(&bytes).map_err(broken)? {
            match ServerMsg::decode(body).map_err(broken)? {
                ServerMsg::Admin { id: 1, answer } => return Ok(answer),
                ServerMsg::Refused { reason, .. } => return Err(io::Error::other(reason)),
                _ => drop(bytes.drain(..len)),
            }
            continue;
        }
        let mut chunk = [0; 65_536];
        let count = stream.read(&mut chunk)?;
        if count == 0 || bytes.len() > FRAME_BYTES_MAX + FRAME_HEADER_BYTES {
            return Err(io::Error::other("connection lost"));
        }
        bytes.extend_from_slice(&chunk[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;

    /// A server that answers one question with what `answer` makes of it.
    fn server(answer: impl FnOnce(String) -> ServerMsg + Send + 'static) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut bytes = vec![0; 4096];
            let count = stream.read(&mut bytes).expect("a question");
            let (body, _) = take_frame(&bytes[..count]).expect("a frame").expect("a whole frame");
            let ClientMsg::Admin { command, .. } = ClientMsg::decode(body).expect("a message") else {
                panic!("not an admin question");
            };
            let mut w = Writer::new();
            put_frame(&mut w, |w| answer(command).encode(w));
            stream.write_all(&w.0).expect("the answer leaves");
        });
        (folder, Source::Unix(path))
    }

    #[test]
    fn a_question_gets_its_answer() {
        let (_folder, source) = server(|command| ServerMsg::Admin {
            id: 1,
            answer: format!("{{\"ok\":true,\"result\":{command}}}"),
        });
        let answer = ask(&source, &json!({"cmd": "status"}), Duration::from_secs(5));
        assert_eq!(answer, Ok(json!({"cmd": "status"})));
    }

    #[test]
    fn the_servers_no_keeps_its_code() {
        let (_folder, source) = server(|_| ServerMsg::Admin {
            id: 1,
            answer: "{\"ok\":false,\"error\":\"no client 7\",\"code\":5}".into(),
        });
        let problem = ask(&source, &json!({}), Duration::from_secs(5)).expect_err("refused");
        assert_eq!((problem.code, problem.what), (5, format!("{source}: no client 7")));
    }

    #[test]
    fn nobody_there_is_unreachable() {
        let problem = ask(&Source::Unix("/nowhere.sock".into()), &json!({}), Duration::from_secs(1))
            .expect_err("nobody");
        assert_eq!(problem.code, Exit::Unreachable as u8);
    }
}
