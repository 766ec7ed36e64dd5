//! A connector and a listener over real sockets: order, bounds, hostile bytes, ends.

use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Reply;
use proto::request::Request;
use proto::storeio::Payload;
use proto::{Cred, Ino, NodeRef, Tid};
use runtime::port::{Connector, Port, PortError, Sink};
use runtime::{Acceptor, Addr, Clients, Door, Guest, ListenError, Listener, Log, Origin, SocketConnector};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Answers reads with that many bytes: even tids at once, odd ones through the sink. A lookup ends
/// the connection.
#[derive(Default)]
struct Echo {
    closed: Arc<(Mutex<u32>, Condvar)>,
    sinks: Mutex<Vec<Arc<dyn Sink>>>,
    batches: Arc<Mutex<Vec<Batch>>>,
}

/// How many messages came together, and since when they were waiting.
type Batch = (usize, Instant);

struct EchoPort {
    sink: Arc<dyn Sink>,
    closed: Arc<(Mutex<u32>, Condvar)>,
    batches: Arc<Mutex<Vec<Batch>>>,
}

impl Acceptor for Echo {
    fn accept(&self, _: Origin, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        self.sinks.lock().expect("lock").push(sink.clone());
        Ok(Arc::new(EchoPort { sink, closed: self.closed.clone(), batches: self.batches.clone() }))
    }
}

impl Port for EchoPort {
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        for message in messages {
            let ClientMsg::Request { tid, request, .. } = message else { continue };
            let Request::Read { len, .. } = request else {
                self.sink.disconnected();
                continue;
            };
            let data = Payload::Owned(vec![tid.0 as u8; len as usize]);
            let reply = ServerMsg::Reply { tid, outcome: Ok(Reply::Data(data)) };
            if tid.0 % 2 == 0 {
                answers.push(reply);
            } else {
                self.sink.messages(vec![reply]);
            }
        }
        Ok(())
    }

    fn send_since(
        &self,
        messages: Vec<ClientMsg>,
        since: Instant,
        answers: &mut Vec<ServerMsg>,
    ) -> Result<(), PortError> {
        self.batches.lock().expect("lock").push((messages.len(), since));
        self.send(messages, answers)
    }

    fn close(&self) {
        *self.closed.0.lock().expect("lock") += 1;
        self.closed.1.notify_all();
    }
}

impl Echo {
    fn wait_closed(&self, n: u32) {
        let closed = self.closed.0.lock().expect("lock");
        drop(self.closed.1.wait_while(closed, |c| *c < n).expect("lock"));
    }
}

#[derive(Default)]
struct Mailbox {
    replies: Mutex<(Vec<(Tid, usize)>, u32)>,
    more: Condvar,
}

impl Sink for Mailbox {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let mut replies = self.replies.lock().expect("lock");
        for message in batch {
            let ServerMsg::Reply { tid, outcome: Ok(Reply::Data(data)) } = message else { panic!("reply") };
            replies.0.push((tid, data.len() as usize));
        }
        self.more.notify_all();
    }

    fn disconnected(&self) {
        self.replies.lock().expect("lock").1 += 1;
        self.more.notify_all();
    }
}

impl Mailbox {
    fn wait(&self, until: impl Fn(&(Vec<(Tid, usize)>, u32)) -> bool) -> Vec<(Tid, usize)> {
        let replies = self.replies.lock().expect("lock");
        self.more.wait_while(replies, |r| !until(r)).expect("lock").0.clone()
    }
}

fn read(tid: u64, len: u32) -> ClientMsg {
    let request = Request::Read { node: NodeRef::bare(Ino::ROOT), offset: 0, len, into: None };
    ClientMsg::Request { tid: Tid(tid), floor: Tid(0), cred: Cred::ROOT, request }
}

/// Takes all clients into one loop; a question is answered with itself, from another thread.
struct Hall(Clients);

impl Door for Hall {
    fn admit(&self, guest: Guest) {
        self.0.admit(guest);
    }

    fn ask(&self, _: &Origin, id: u64, command: String, answers: Arc<dyn Sink>) {
        std::thread::spawn(move || answers.messages(vec![ServerMsg::Admin { id, answer: command }]));
    }
}

fn hall(acceptor: Arc<dyn Acceptor>) -> Arc<Hall> {
    Arc::new(Hall(Clients::start(acceptor, Arc::new(Log::silent()), None).expect("a loop")))
}

fn start(at: &Addr, insecure: bool, acceptor: Arc<dyn Acceptor>) -> Result<Listener, ListenError> {
    Listener::start(std::slice::from_ref(at), insecure, Ino::NONE, hall(acceptor), Arc::new(Log::silent()))
}

fn listen(at: &Addr) -> (Arc<Echo>, Listener) {
    let echo = Arc::new(Echo::default());
    let listener = start(at, true, echo.clone()).expect("listen");
    (echo, listener)
}

fn unix(dir: &tempfile::TempDir) -> Addr {
    Addr::Unix(dir.path().join("s.sock"))
}

#[test]
fn requests_and_answers_cross_unix_and_tcp() {
    let dir = tempfile::tempdir().expect("dir");
    for at in [unix(&dir), Addr::Tcp("127.0.0.1:0".into())] {
        let (_echo, listener) = listen(&at);
        let mailbox = Arc::new(Mailbox::default());
        let port =
            SocketConnector::new(listener.addrs()[0].clone()).connect(mailbox.clone()).expect("connect");
        for tid in 0..500 {
            port.send(vec![read(2 * tid, 3), read(2 * tid + 1, 70_000)], &mut Vec::new()).expect("send");
        }
        let replies = mailbox.wait(|r| r.0.len() == 1000);
        assert!(replies.iter().all(|(tid, len)| *len == if tid.0 % 2 == 0 { 3 } else { 70_000 }));
    }
}

/// Sends every request away, as a rank does with what is another's.
struct Away;

struct AwayPort;

impl Acceptor for Away {
    fn accept(&self, _: Origin, _: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        Ok(Arc::new(AwayPort))
    }
}

impl Port for AwayPort {
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        for message in messages {
            if let Some((tid, _)) = message.asked() {
                answers.push(ServerMsg::NotMine { tid, owner: None, version: 1 });
            }
        }
        Ok(())
    }

    fn close(&self) {}
}

/// What was sent away counted as unanswered for ever: after 32 MiB of promised answers the connection was not read any more.
#[test]
fn what_is_sent_away_is_not_owed() {
    let dir = tempfile::tempdir().expect("dir");
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let _listener = start(&Addr::Unix(path.clone()), false, Arc::new(Away)).expect("listen");
    let mut stream = UnixStream::connect(&path).expect("connect");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
    for tid in 0..100 {
        let mut w = proto::Writer::new();
        proto::frame::put_frame(&mut w, |w| read(tid, 1 << 20).encode(w));
        stream.write_all(&w.0).expect("written");
        let (mut bytes, mut buf) = (Vec::new(), [0; 64]);
        let message = loop {
            if let Some((body, _)) = proto::frame::take_frame(&bytes).expect("frame") {
                break ServerMsg::decode(body).expect("a message");
            }
            let n = stream.read(&mut buf).expect("it is read");
            bytes.extend_from_slice(&buf[..n]);
        };
        assert!(matches!(message, ServerMsg::NotMine { tid: Tid(n), .. } if n == tid), "{message:?}");
    }
}

/// One connection that asks for much does not keep the others waiting until all of it is done.
#[test]
fn what_comes_at_once_is_handed_over_in_pieces() {
    let dir = tempfile::tempdir().expect("dir");
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let (echo, _listener) = listen(&Addr::Unix(path.clone()));
    let mut w = proto::Writer::new();
    for tid in 0..1_000 {
        proto::frame::put_frame(&mut w, |w| read(2 * tid, 0).encode(w));
    }
    let begin = Instant::now();
    let mut stream = UnixStream::connect(&path).expect("connect");
    stream.write_all(&w.0).expect("requests fit the socket");
    let mut next = 0;
    let (mut bytes, mut buf) = (Vec::new(), vec![0; 1 << 16]);
    while next < 1_000 {
        let n = stream.read(&mut buf).expect("read");
        assert!(n > 0, "closed after {next}");
        bytes.extend_from_slice(&buf[..n]);
        while let Some((body, len)) = proto::frame::take_frame(&bytes).expect("frame") {
            let reply = ServerMsg::decode(body).expect("reply");
            assert!(matches!(reply, ServerMsg::Reply { tid, .. } if tid.0 == 2 * next), "in order");
            next += 1;
            bytes.drain(..len);
        }
    }
    let batches = echo.batches.lock().expect("lock");
    assert_eq!(batches.iter().map(|(len, _)| len).sum::<usize>(), 1_000);
    assert!(batches.iter().all(|(len, _)| *len <= 64));
    assert!(batches.iter().all(|(_, since)| *since > begin && since.elapsed() > std::time::Duration::ZERO));
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let dir = tempfile::tempdir().expect("dir");
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let (_echo, _listener) = listen(&Addr::Unix(path.clone()));
    let mut stream = UnixStream::connect(&path).expect("connect");
    // 400 MiB of answers are asked for, none is read: the server must stop reading and not hold them.
    let mut w = proto::Writer::new();
    for tid in 0..400 {
        proto::frame::put_frame(&mut w, |w| read(tid, 1 << 20).encode(w));
    }
    stream.write_all(&w.0).expect("requests fit the socket");
    // Read slowly now: all 400 come.
    let mut bytes = Vec::new();
    let mut buf = vec![0; 1 << 20];
    let mut count = 0;
    while count < 400 {
        let n = stream.read(&mut buf).expect("read");
        assert!(n > 0, "closed after {count}");
        bytes.extend_from_slice(&buf[..n]);
        while let Some((_, len)) = proto::frame::take_frame(&bytes).expect("frame") {
            bytes.drain(..len);
            count += 1;
        }
    }
}

#[test]
fn hostile_bytes_end_their_connection_only() {
    let dir = tempfile::tempdir().expect("dir");
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let (echo, listener) = listen(&Addr::Unix(path.clone()));
    let mut framed = proto::Writer::new();
    proto::frame::put_frame(&mut framed, |w| {
        w.raw(&[200, 1, 2, 3]);
    });
    let mut seed = stdx::Prng::new(7);
    let noise: Vec<u8> = (0..10_000).map(|_| seed.next_u64() as u8).collect();
    let attacks: [&[u8]; 4] = [&[0xFF; 64], &framed.0, &noise, &[0, 0, 0, 0, 1, 1, 1, 1]];
    for (n, attack) in attacks.iter().enumerate() {
        let mut stream = UnixStream::connect(&path).expect("connect");
        // The server may close while we still write.
        let _cut_short = stream.write_all(attack);
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
        echo.wait_closed(n as u32 + 1);
    }
    let mailbox = Arc::new(Mailbox::default());
    let port = SocketConnector::new(listener.addrs()[0].clone()).connect(mailbox.clone()).expect("connect");
    port.send(vec![read(1, 1)], &mut Vec::new()).expect("send");
    mailbox.wait(|r| r.0.len() == 1);
}

#[test]
fn ends_are_told_once_on_both_sides() {
    let dir = tempfile::tempdir().expect("dir");
    let (echo, listener) = listen(&unix(&dir));
    let connector = SocketConnector::new(listener.addrs()[0].clone());
    // Closed by the client: its sink hears nothing, the server does.
    let quiet = Arc::new(Mailbox::default());
    let port = connector.connect(quiet.clone()).expect("connect");
    port.send(vec![read(0, 1)], &mut Vec::new()).expect("send");
    quiet.wait(|r| r.0.len() == 1);
    port.close();
    echo.wait_closed(1);
    // Closed by the server.
    let told = Arc::new(Mailbox::default());
    let port = connector.connect(told.clone()).expect("connect");
    let name = proto::Name::new(b"n").expect("name");
    let request = Request::Lookup { parent: NodeRef::bare(Ino::ROOT), name };
    let bye = ClientMsg::Request { tid: Tid(1), floor: Tid(0), cred: Cred::ROOT, request };
    port.send(vec![bye], &mut Vec::new()).expect("send");
    told.wait(|r| r.1 == 1);
    assert!(matches!(port.send(vec![read(2, 1)], &mut Vec::new()), Err(PortError::Lost)));
    // The server goes away.
    let left = Arc::new(Mailbox::default());
    let _port = connector.connect(left.clone()).expect("connect");
    listener.stop();
    left.wait(|r| r.1 == 1);
    assert!(matches!(connector.connect(left), Err(PortError::Unreachable { .. })));
    assert_eq!(quiet.replies.lock().expect("lock").1, 0);
}

#[test]
fn addresses_are_refused_or_taken_over() {
    let dir = tempfile::tempdir().expect("dir");
    let start = |at: &Addr, insecure| start(at, insecure, Arc::new(Echo::default()));
    let tcp = Addr::Tcp("127.0.0.1:0".into());
    let refused = start(&tcp, false).expect_err("no TLS");
    assert_eq!(refused.to_string(), "127.0.0.1:0: refusing to listen without TLS");
    // A live socket is not taken; what a killed server left is.
    let at = unix(&dir);
    let live = start(&at, false).expect("listen");
    assert!(matches!(start(&at, false), Err(ListenError::Io { .. })));
    drop(live);
    let Addr::Unix(path) = &at else { unreachable!() };
    drop(std::os::unix::net::UnixListener::bind(path).expect("bind"));
    assert!(path.exists());
    drop(start(&at, false).expect("taken over"));
    assert!(!path.exists());
}

/// Holds the reader in its first batch until the rest and the end have arrived: epoll tells of both with one event.
struct Slow {
    inner: Mailbox,
    rest: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

impl Sink for Slow {
    fn messages(&self, batch: Vec<ServerMsg>) {
        if let Some(rest) = self.rest.lock().expect("lock").take() {
            rest.recv().expect("the server's side");
        }
        self.inner.messages(batch);
    }

    fn disconnected(&self) {
        self.inner.disconnected();
    }
}

/// The last bytes and the end came together, a short read was taken for all, and the client waited for
/// ever.
#[test]
fn an_end_right_behind_the_last_bytes_is_told_on_both_sides() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("raw.sock");
    let raw = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let frame = |tid| {
        let reply = ServerMsg::Reply { tid: Tid(tid), outcome: Ok(Reply::Data(Payload::Owned(vec![1]))) };
        let mut w = proto::Writer::new();
        proto::frame::put_frame(&mut w, |w| reply.encode(w));
        w.0
    };
    let (go, rest) = std::sync::mpsc::channel();
    let slow = Arc::new(Slow { inner: Mailbox::default(), rest: Mutex::new(Some(rest)) });
    let _port = SocketConnector::new(Addr::Unix(path)).connect(slow.clone()).expect("connect");
    let (mut server, _) = raw.accept().expect("accept");
    server.write_all(&frame(1)).expect("first");
    // The reader is in `messages` now, or will be before it polls again.
    server.write_all(&frame(2)).expect("second");
    drop(server);
    go.send(()).expect("the reader waits");
    slow.inner.wait(|r| r.1 == 1);

    // A client that says something and goes before the server looks.
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let (echo, _listener) = listen(&Addr::Unix(path.clone()));
    for n in 0..20 {
        let mut w = proto::Writer::new();
        proto::frame::put_frame(&mut w, |w| read(2, 1).encode(w));
        let mut stream = UnixStream::connect(&path).expect("connect");
        stream.write_all(&w.0).expect("send");
        drop(stream);
        echo.wait_closed(n + 1);
    }
}

/// Keeps every write unanswered until it is opened, as a rank does while a backup runs.
#[derive(Default)]
struct Stalled {
    state: Mutex<Kept>,
    more: Condvar,
}

#[derive(Default)]
struct Kept {
    sink: Option<Arc<dyn Sink>>,
    tids: Vec<Tid>,
    bytes: usize,
    renewals: u32,
    open: bool,
    closed: bool,
}

impl Stalled {
    fn wait(&self, until: impl Fn(&Kept) -> bool) -> std::sync::MutexGuard<'_, Kept> {
        let limit = std::time::Duration::from_secs(20);
        let kept = self.state.lock().expect("lock");
        let (kept, late) = self.more.wait_timeout_while(kept, limit, |kept| !until(kept)).expect("lock");
        assert!(!late.timed_out(), "{} bytes, {} renewals", kept.bytes, kept.renewals);
        kept
    }

    fn open(&self) {
        let mut kept = self.state.lock().expect("lock");
        kept.open = true;
        let answer = |tid| ServerMsg::Reply { tid, outcome: Ok(Reply::Ok) };
        let answers = std::mem::take(&mut kept.tids).into_iter().map(answer).collect();
        let sink = kept.sink.clone().expect("connected");
        drop(kept);
        sink.messages(answers);
    }
}

struct StalledAcceptor(Arc<Stalled>);

impl Acceptor for StalledAcceptor {
    fn accept(&self, _: Origin, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        self.0.state.lock().expect("lock").sink = Some(sink);
        Ok(Arc::new(StalledPort(self.0.clone())))
    }
}

struct StalledPort(Arc<Stalled>);

impl Port for StalledPort {
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        let mut kept = self.0.state.lock().expect("lock");
        for message in messages {
            match message {
                ClientMsg::Request { tid, request: Request::Write { data, .. }, .. } => {
                    kept.bytes += data.len() as usize;
                    if kept.open {
                        answers.push(ServerMsg::Reply { tid, outcome: Ok(Reply::Ok) });
                    } else {
                        kept.tids.push(tid);
                    }
                }
                ClientMsg::Renew { .. } => kept.renewals += 1,
                other => panic!("{other:?}"),
            }
        }
        self.0.more.notify_all();
        Ok(())
    }

    fn close(&self) {
        self.0.state.lock().expect("lock").closed = true;
        self.0.more.notify_all();
    }
}

const WRITES: usize = 100;

/// Sends 100 MiB of writes as fast as the server reads; every number is used twice.
fn pipeline(path: &std::path::Path) -> (UnixStream, std::thread::JoinHandle<bool>) {
    let mut stream = UnixStream::connect(path).expect("connect");
    let same = stream.try_clone().expect("clone");
    let sender = std::thread::spawn(move || {
        for n in 0..WRITES {
            let request = Request::Write {
                node: NodeRef::bare(Ino::ROOT),
                offset: 0,
                append: false,
                kill_suidgid: false,
                data: Payload::Owned(vec![7; 1 << 20]),
            };
            let tid = Tid(n as u64 / 2);
            let message = ClientMsg::Request { tid, floor: Tid(0), cred: Cred::ROOT, request };
            let mut w = proto::Writer::new();
            proto::frame::put_frame(&mut w, |w| message.encode(w));
            if stream.write_all(&w.0).is_err() {
                return false;
            }
        }
        true
    });
    (same, sender)
}

fn listen_stalled(dir: &tempfile::TempDir) -> (Arc<Stalled>, Listener, std::path::PathBuf) {
    let stalled = Arc::new(Stalled::default());
    let at = unix(dir);
    let acceptor = Arc::new(StalledAcceptor(stalled.clone()));
    let listener = start(&at, false, acceptor);
    let Addr::Unix(path) = at else { unreachable!() };
    (stalled, listener.expect("listen"), path)
}

/// A client that pipelined writes made the server keep all of their bytes: only requests and promised answers were
/// counted.
#[test]
fn what_a_client_writes_is_not_read_while_it_is_not_answered() {
    let dir = tempfile::tempdir().expect("dir");
    let (stalled, _listener, path) = listen_stalled(&dir);
    let (_stream, sender) = pipeline(&path);
    // The client renews nothing: that the listener does it in its name shows that it is not read.
    let kept = stalled.wait(|kept| kept.renewals > 0 || kept.bytes == WRITES << 20);
    assert!(kept.bytes <= 33 << 20, "{} bytes are kept", kept.bytes);
    drop(kept);
    stalled.open();
    drop(stalled.wait(|kept| kept.bytes == WRITES << 20));
    assert!(sender.join().expect("sender"));
}

#[test]
fn a_peer_that_goes_while_it_is_not_read_is_let_go() {
    let dir = tempfile::tempdir().expect("dir");
    let (stalled, _listener, path) = listen_stalled(&dir);
    let (stream, sender) = pipeline(&path);
    drop(stalled.wait(|kept| kept.renewals > 0));
    stream.shutdown(std::net::Shutdown::Both).expect("shutdown");
    drop(stalled.wait(|kept| kept.closed));
    assert!(!sender.join().expect("sender"), "the server did not read it all");
}

/// Who asks one thing after the other, and all at once; the answers come in order.
fn asks(stream: &mut UnixStream, questions: &[&str]) -> Vec<String> {
    let mut w = proto::Writer::new();
    for (id, command) in (0..).zip(questions) {
        let message = ClientMsg::Admin { id, command: (*command).to_owned() };
        proto::frame::put_frame(&mut w, |w| message.encode(w));
    }
    stream.write_all(&w.0).expect("asked");
    let (mut bytes, mut buf, mut answers) = (Vec::new(), vec![0; 4096], Vec::new());
    while answers.len() < questions.len() {
        let n = stream.read(&mut buf).expect("read");
        assert!(n > 0, "closed after {answers:?}");
        bytes.extend_from_slice(&buf[..n]);
        while let Some((body, len)) = proto::frame::take_frame(&bytes).expect("frame") {
            match ServerMsg::decode(body).expect("an answer") {
                ServerMsg::Admin { id, answer } if id == answers.len() as u64 => answers.push(answer),
                other => panic!("{other:?}"),
            }
            bytes.drain(..len);
        }
    }
    answers
}

/// A port whose rank never comes back.
struct Stuck(std::sync::mpsc::Sender<()>);

impl Port for Stuck {
    fn send(&self, _: Vec<ClientMsg>, _: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        let _heard_or_over = self.0.send(());
        loop {
            std::thread::park();
        }
    }

    fn close(&self) {}
}

struct StuckAcceptor(Mutex<std::sync::mpsc::Sender<()>>);

impl Acceptor for StuckAcceptor {
    fn accept(&self, _: Origin, _: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        Ok(Arc::new(Stuck(self.0.lock().expect("lock").clone())))
    }
}

#[test]
fn operators_are_answered_and_clients_let_go_while_the_rank_hangs() {
    let dir = tempfile::tempdir().expect("dir");
    let Addr::Unix(path) = unix(&dir) else { unreachable!() };
    let (stuck_in, stuck) = std::sync::mpsc::channel();
    let hall = hall(Arc::new(StuckAcceptor(Mutex::new(stuck_in))));
    let at = [Addr::Unix(path.clone())];
    let _listener =
        Listener::start(&at, false, Ino::NONE, hall.clone(), Arc::new(Log::silent())).expect("listen");
    let mut operator = UnixStream::connect(&path).expect("connect");
    assert_eq!(asks(&mut operator, &["one", "two", "three"]), ["one", "two", "three"]);
    let told = Arc::new(Mailbox::default());
    let port = SocketConnector::new(at[0].clone()).connect(told.clone()).expect("connect");
    port.send(vec![read(2, 1)], &mut Vec::new()).expect("send");
    stuck.recv().expect("its thread is in the rank");
    assert_eq!(asks(&mut operator, &["four"]), ["four"]);
    assert!(!hall.0.stop(std::time::Duration::ZERO), "the thread is still there");
    told.wait(|r| r.1 == 1);
    assert_eq!(asks(&mut UnixStream::connect(&path).expect("connect"), &["five"]), ["five"]);
}

/// Tells who brought what arrived; the first answer makes it ask three times at another connection.
#[derive(Default)]
struct Asker {
    other: Mutex<Option<Arc<dyn Port>>>,
    brought_by: Mutex<Vec<std::thread::ThreadId>>,
    ended: Mutex<u32>,
    more: Condvar,
}

impl Sink for Asker {
    fn messages(&self, batch: Vec<ServerMsg>) {
        if let Some(other) = self.other.lock().expect("lock").take() {
            for tid in 0..3 {
                other.send(vec![read(2 * tid, 1)], &mut Vec::new()).expect("send");
            }
        }
        let by = std::iter::repeat_n(std::thread::current().id(), batch.len());
        self.brought_by.lock().expect("lock").extend(by);
        self.more.notify_all();
    }

    fn disconnected(&self) {
        *self.ended.lock().expect("lock") += 1;
        self.more.notify_all();
    }
}

impl Asker {
    fn wait(&self, answers: usize) -> Vec<std::thread::ThreadId> {
        let brought_by = self.brought_by.lock().expect("lock");
        self.more.wait_while(brought_by, |by| by.len() < answers).expect("lock").clone()
    }
}

/// Who talks to several ranks woke each of them once for each call otherwise.
#[test]
fn what_is_asked_while_answers_are_handed_out_leaves_together() {
    let dir = tempfile::tempdir().expect("dir");
    let (echo, listener) = listen(&unix(&dir));
    let connector = SocketConnector::new(listener.addrs()[0].clone());
    let (first, second) = (Arc::new(Asker::default()), Arc::new(Asker::default()));
    let asks = connector.connect(first.clone()).expect("connect");
    let other = connector.connect(second.clone()).expect("connect");
    *first.other.lock().expect("lock") = Some(other.clone());
    asks.send(vec![read(0, 1)], &mut Vec::new()).expect("send");
    second.wait(3);
    let together: Vec<usize> =
        echo.batches.lock().expect("lock").iter().map(|(messages, _)| *messages).collect();
    assert_eq!(together, [1, 3]);
}

#[test]
fn one_thread_attends_to_all_connections_of_a_connector_while_there_are_any() {
    let dir = tempfile::tempdir().expect("dir");
    let (echo, listener) = listen(&unix(&dir));
    let connector = SocketConnector::new(listener.addrs()[0].clone());
    let askers: Vec<Arc<Asker>> = (0..3).map(|_| Arc::default()).collect();
    let ports: Vec<_> =
        askers.iter().map(|asker| connector.connect(asker.clone()).expect("connect")).collect();
    let ask = |port: &Arc<dyn Port>| port.send(vec![read(0, 1)], &mut Vec::new()).expect("send");
    ports.iter().for_each(ask);
    let threads: std::collections::HashSet<_> = askers.iter().flat_map(|asker| asker.wait(1)).collect();
    assert_eq!(threads.len(), 1);
    ports[1].close();
    echo.wait_closed(1);
    ask(&ports[2]);
    assert!(askers[2].wait(2).iter().all(|by| threads.contains(by)), "the others go on");
    drop(ports);
    echo.wait_closed(3);
    let again = Arc::new(Asker::default());
    let port = connector.connect(again.clone()).expect("connect");
    ask(&port);
    again.wait(1);
    listener.stop();
    let ended = again.ended.lock().expect("lock");
    drop(again.more.wait_while(ended, |n| *n == 0).expect("lock"));
    assert!(askers.iter().all(|asker| *asker.ended.lock().expect("lock") == 0), "who closed is not told");
}

struct Panicking;

impl Sink for Panicking {
    fn messages(&self, _: Vec<ServerMsg>) {
        panic!("as a caller's callback may");
    }

    fn disconnected(&self) {}
}

/// Nobody would read for any of them, nor for those that come later.
#[test]
fn all_connections_end_with_a_thread_that_panics() {
    let dir = tempfile::tempdir().expect("dir");
    let (_echo, listener) = listen(&unix(&dir));
    let connector = SocketConnector::new(listener.addrs()[0].clone());
    let other = Arc::new(Mailbox::default());
    let port = connector.connect(other.clone()).expect("connect");
    let ends = connector.connect(Arc::new(Panicking)).expect("connect");
    ends.send(vec![read(0, 1)], &mut Vec::new()).expect("send");
    other.wait(|r| r.1 == 1);
    assert!(matches!(port.send(vec![read(0, 1)], &mut Vec::new()), Err(PortError::Lost)));
    let again = Arc::new(Mailbox::default());
    let port = connector.connect(again.clone()).expect("connect");
    port.send(vec![read(0, 1)], &mut Vec::new()).expect("send");
    again.wait(|r| r.0.len() == 1);
}
