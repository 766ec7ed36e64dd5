//! A client's hello: a new session, or one that comes back on a new connection; and refusals.
//!
//! Absent: what a session reclaims, how it ends (`life.rs`); who may keep what (`caps.rs`); the wire.

use super::{Session, WaitingHello};
use crate::config::State;
use crate::early::is_eager;
use crate::hold::Waiting;
use crate::input::{ConnId, Peer};
use crate::output::Output;
use crate::rank::Rank;
use proto::caps::Bits;
use proto::message::{At, ClientInfo, JoinToken, PROTOCOL, ServerMsg};
use proto::mutation::Mutation;
use proto::system::session_flags;
use proto::{Errno, Ino, SessionId};
use stdx::{Now, Outbox};

/// The client's description in a `Session` mutation.
const CLIENT_BYTES_MAX: usize = 240;
/// It is encoded as a name.
const _: () = assert!(CLIENT_BYTES_MAX <= 255);
/// Why a session is refused that is not here, or whose client does not show that it has it.
const UNKNOWN: &str = "the session is unknown or was evicted";
/// Where the end of a long place is left out.
const LEFT_OUT: &[u8] = b"...";

/// Before a limit in it.
const LIMIT: &[u8] = b"in=0x";
/// Digits of a limit.
const LIMIT_DIGITS: usize = 16;

/// What the journal says of a client. What the rank knows comes before what the client says of itself.
fn describe(uid: u32, limit: Ino, info: &ClientInfo) -> Box<[u8]> {
    let pid = format!(" pid {}", info.pid).into_bytes();
    let within = if limit == Ino::NONE { String::new() } else { format!("in=0x{:016x} ", limit.0) };
    let mut text = format!("uid={uid} {within}{}:{}", info.host, info.mount).into_bytes();
    // The process is what others look for; of a long place its beginning will do.
    if text.len() + pid.len() > CLIENT_BYTES_MAX {
        text.truncate(CLIENT_BYTES_MAX - pid.len() - LEFT_OUT.len());
        text.extend(LEFT_OUT);
    }
    text.extend(pid);
    text.into()
}

/// The user in such a description.
pub(super) fn uid_of(client: &[u8]) -> Option<u32> {
    let digits = client.strip_prefix(b"uid=")?.split(|byte| *byte == b' ').next()?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// The directory in such a description that its session is limited to; `Ino::NONE`: it says none.
pub(super) fn limit_of(client: &[u8]) -> Ino {
    let limit = || {
        let rest = client.strip_prefix(b"uid=")?;
        let (_, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')? + 1)?;
        let (digits, rest) = rest.strip_prefix(LIMIT)?.split_at_checked(LIMIT_DIGITS)?;
        let is_whole = digits.iter().all(u8::is_ascii_hexdigit) && rest.first() == Some(&b' ');
        u64::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_whole)?, 16).ok()
    };
    let restored = limit().filter(|_| !stdx::mutant!("mds_limit_not_restored"));
    restored.map_or(Ino::NONE, Ino)
}

/// To what a session is limited whose connection is limited to `decided` and which wants to be to `wished`.
fn effective(decided: Ino, wished: Ino) -> Result<Ino, &'static str> {
    // All is below the root.
    let [decided, wished] = [decided, wished].map(|limit| if limit == Ino::ROOT { Ino::NONE } else { limit });
    let limit = if decided == Ino::NONE { wished } else { decided };
    match () {
        () if limit != Ino::NONE && limit.is_reserved() => Err("nobody can be limited to that"),
        () if wished != Ino::NONE && wished != limit => Err("this connection is limited to something else"),
        () => Ok(limit),
    }
}

/// Whether the peer may take up this session again: its user must be the same.
fn may_resume(peer: &Peer, session: &Session) -> bool {
    match peer {
        Peer::Embedded => false,
        Peer::Trusted => true,
        Peer::User(cred) => session.uid == Some(cred.uid),
    }
}

impl Rank {
    pub(crate) fn refuse(&mut self, conn: ConnId, errno: Errno, reason: &str, out: &mut Outbox<Output>) {
        let message = ServerMsg::Refused { errno: errno.0 as u32, reason: reason.to_owned() };
        out.push(Output::Send { conn, message });
        self.close_conn(conn, out);
    }

    /// Refuses a greeting that may succeed later, or elsewhere by a newer map.
    fn not_now(&mut self, conn: ConnId, at: At, reason: &str, out: &mut Outbox<Output>) {
        self.tell_map_to(conn, at.map_version, out);
        self.refuse(conn, Errno::ESHUTDOWN, reason, out);
    }

    /// Ends a connection; nobody tells the rank of its end once more.
    pub(crate) fn close_conn(&mut self, conn: ConnId, out: &mut Outbox<Output>) {
        self.disconnected(self.view.now, conn, out);
        out.push(Output::Close { conn });
    }

    pub(crate) fn hello(
        &mut self,
        now: Now,
        conn: ConnId,
        (protocol, session): (u16, SessionId),
        (info, wants, at): (ClientInfo, Bits, At),
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.conns.get(&conn) else { return };
        if known.session.is_some() {
            return self.refuse(conn, Errno::EPROTO, "this connection has a session already", out);
        }
        if protocol != PROTOCOL {
            let reason = format!("protocol {protocol} is not spoken here (this is {PROTOCOL})");
            return self.refuse(conn, Errno::EPROTO, &reason, out);
        }
        let me = self.view.config.rank;
        if at.rank != me {
            let reason = format!("this is rank {}, not rank {}", me.0, at.rank.0);
            return self.not_now(conn, at, &reason, out);
        }
        let at = match effective(known.limit, at.limit) {
            Ok(limit) => At { limit, ..at },
            Err(reason) => return self.refuse(conn, Errno::EPROTO, reason, out),
        };
        // Whoever is unknown would find nothing; and the number of one that was ended here may be known elsewhere. Who is unknown says
        // the journal, once it has been read.
        let unknown = self.sessions.map.get(&session).is_none_or(|known| known.evicted);
        let dismissed = self.leaving.is_over() && unknown;
        if dismissed && (self.state.serves() || stdx::mutant!("mds_dismisses_unread")) {
            self.tell_map_to(conn, at.map_version, out);
            return self.dismiss(conn, out);
        }
        match self.state {
            State::Boot | State::Replay => {
                self.sessions.greeting.insert(conn, WaitingHello { session, info, wants, at });
            }
            state @ (State::Stopping | State::Stopped | State::Damaged) => {
                self.not_now(conn, at, &format!("the rank is {}", state.name()), out);
            }
            State::Reconnect | State::Active
                if session == SessionId(0) || (at.join && !self.sessions.map.contains_key(&session)) =>
            {
                self.new_session(now, conn, session, (&info, wants, at), out);
            }
            State::Reconnect | State::Active => self.resume(now, conn, session, (&info, wants, at), out),
        }
    }

    /// Answers the greetings that came before the rank could.
    pub(crate) fn greet_waiting(&mut self, now: Now, out: &mut Outbox<Output>) {
        for (conn, hello) in std::mem::take(&mut self.sessions.greeting) {
            self.hello(now, conn, (PROTOCOL, hello.session), (hello.info, hello.wants, hello.at), out);
        }
    }

    fn new_session(
        &mut self,
        now: Now,
        conn: ConnId,
        joined: SessionId,
        (info, wants, at): (&ClientInfo, Bits, At),
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.conns.get(&conn) else { return };
        if let Some(reason) = self.sessions.crowded(&known.peer, &self.view.config.limits) {
            return self.refuse(conn, Errno::EAGAIN, &reason, out);
        }
        if joined != SessionId(0) {
            let token = JoinToken::of(&self.view.config.join_key, joined);
            if at.token != token && !stdx::mutant!("mds_joins_without_token") {
                return self.refuse(conn, Errno::ESTALE, UNKNOWN, out);
            }
            // What is left of it goes by the number.
            if self.sessions.is_closing(joined) {
                return self.not_now(conn, at, "the session's end here is under way", out);
            }
        }
        // One that joins has its number from another rank.
        let number = match joined {
            SessionId(0) => self.sessions.number(self.view.config.incarnation.0),
            joined => Some(joined),
        };
        let Some(id) = number else {
            let reason = "all session numbers are used up: the server must be restarted";
            return self.refuse(conn, Errno::EAGAIN, reason, out);
        };
        let Some(known) = self.sessions.conns.get_mut(&conn) else { return };
        known.session = Some(id);
        let embedded = known.peer == Peer::Embedded;
        let check = if let Peer::User(cred) = &known.peer { Some(cred.clone()) } else { None };
        let uid = if let Peer::User(cred) = &known.peer { cred.uid } else { 0 };
        let client = describe(uid, at.limit, info);
        let keeps_nothing = wants.is_empty();
        if !embedded {
            Mutation::Session { id, open: true, client: &client }.encode(&mut self.view.txn.muts);
            if keeps_nothing {
                let flags = session_flags::KEEPS_NOTHING;
                Mutation::SessionFlags { id, flags }.encode(&mut self.view.txn.muts);
            }
            self.commit(now, None, out);
        } else {
            self.view.mounts.insert(id);
        }
        let place = if wants.is_empty() { None } else { self.view.book.enter(id, false) };
        if let Some(place) = place {
            self.view.book.ask_for(place, info.caps_max);
        }
        let session = Session {
            conn: Some(conn),
            embedded,
            limit: at.limit,
            check,
            client,
            uid: Some(uid),
            keeps_nothing,
            wants,
            place,
            settled: true,
            fresh: true,
            map_version: at.map_version,
            seed_told: false,
            ..Default::default()
        };
        let noted = self.notes().is_some();
        out.push(session.note(id, "opened"));
        self.sessions.insert(id, session);
        self.sessions.count_eager();
        self.begin_notes(noted);
        self.sessions.lease(id, now, self.view.config.lease_ns);
        self.welcome(id, false, out);
    }

    fn resume(
        &mut self,
        now: Now,
        conn: ConnId,
        id: SessionId,
        (info, wants, at): (&ClientInfo, Bits, At),
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.conns.get_mut(&conn) else { return };
        let session = self.sessions.map.get_mut(&id);
        // What it asked for before was looked at by that limit.
        let is_within = |s: &Session| s.limit == at.limit || stdx::mutant!("mds_resumes_without_limit");
        let may =
            |s: &&mut Session| s.is_clients() && !s.evicted && may_resume(&known.peer, s) && is_within(s);
        let Some(session) = session.filter(may) else {
            self.refuse(conn, Errno::ESTALE, UNKNOWN, out);
            return;
        };
        known.session = Some(id);
        out.push(session.note(id, "resumed"));
        session.check = if let Peer::User(cred) = &known.peer { Some(cred.clone()) } else { None };
        let old = session.conn.replace(conn);
        if let Some(old) = old {
            self.close_conn(old, out);
            self.drop_line(id);
        }
        self.fade_later(id, now);
        self.take_place(id, info, wants);
        if let Some(session) = self.sessions.map.get_mut(&id) {
            (session.last_request, session.map_version) = (now.mono, at.map_version);
        }
        self.sessions.lease(id, now, self.view.config.lease_ns);
        self.welcome(id, true, out);
        self.numbers_again(id);
        if self.sessions.map.get(&id).is_some_and(|session| !is_eager(session)) {
            self.presented(id);
        }
    }

    /// Says welcome, when everything the session's existence depends on is durable.
    pub(crate) fn welcome(&mut self, id: SessionId, resumed: bool, out: &mut Outbox<Output>) {
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        let Some(conn) = session.conn else { return };
        let embedded = session.embedded;
        let root = if session.limit == Ino::NONE { Ino::ROOT } else { session.limit };
        let message = ServerMsg::Welcome {
            protocol: PROTOCOL,
            session: id,
            incarnation: self.view.config.incarnation,
            fsid: self.view.config.fsid,
            resumed,
            lease_ms: (self.view.config.lease_ns / stdx::time::MS) as u32,
            root,
            // A checkpoint syncs data, and a write is a transaction that states the inode: without one behind the last
            // checkpoint nothing was left to sync.
            synced: !self.replayed_files,
            former: self.former,
            token: JoinToken::of(&self.view.config.join_key, id),
        };
        if embedded {
            return out.push(Output::Send { conn, message });
        }
        self.hold(Waiting::Message { conn, message });
        for message in self.map_to_perform_by(id) {
            self.hold(Waiting::Message { conn, message });
        }
    }

    /// What a session that comes back has a use for now.
    fn take_place(&mut self, id: SessionId, info: &ClientInfo, wants: Bits) {
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        // After a restart nobody waits for one whose record says that it keeps nothing.
        session.wants = if session.keeps_nothing { Bits::NONE } else { wants };
        let wants = session.wants;
        if !wants.is_empty() && session.place.is_none() {
            session.place = self.view.book.enter(id, false);
        }
        if let Some(place) = session.place {
            self.view.book.ask_for(place, info.caps_max);
        }
        let noted = self.notes().is_some();
        self.sessions.count_eager();
        self.begin_notes(noted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_read_out_of_what_was_written() {
        let info = ClientInfo { host: "h 7".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        for uid in [0, 1000, u32::MAX] {
            assert_eq!(uid_of(&describe(uid, Ino::NONE, &info)), Some(uid));
            assert_eq!(uid_of(&describe(uid, Ino(1 << 48), &info)), Some(uid));
        }
        for odd in ["", "uid=", "uid=x h", "uid=-1 h", "uid=4294967296 h", "h uid=0 "] {
            assert_eq!(uid_of(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn the_limit_is_read_out_of_what_was_written() {
        let info = |host: &str| ClientInfo { host: host.into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        for limit in [Ino::NONE, Ino(1 << 48), Ino(u64::MAX)] {
            assert_eq!(limit_of(&describe(u32::MAX, limit, &info("h"))), limit);
            let long = describe(7, limit, &info(&"h".repeat(255)));
            assert_eq!((limit_of(&long), long.len()), (limit, CLIENT_BYTES_MAX));
        }
        // What the server decided comes before what a client calls itself.
        let odd = "in=0x00000000deadbeef h";
        assert_eq!(limit_of(&describe(7, Ino(1 << 48), &info(odd))), Ino(1 << 48));
        assert_eq!(limit_of(&describe(7, Ino::NONE, &info(odd))), Ino(0xdead_beef), "it limits itself");
        for none in
            ["in=0x12 h", "in=0x+00000000deadbe h", "in=0x00000000deadbeefh", "in=0xg000000000000000 h"]
        {
            assert_eq!(limit_of(format!("uid=0 {none}:/m pid 1").as_bytes()), Ino::NONE, "{none}");
        }
        for odd in ["", "uid=", "uid=0", "uid=0 ", "uid=0 in=0x", "h in=0x0000000000001000 "] {
            assert_eq!(limit_of(odd.as_bytes()), Ino::NONE, "{odd}");
        }
    }

    #[test]
    fn the_servers_limit_counts_and_a_wish_beside_it_is_the_same() {
        let (one, other) = (Ino(1 << 48), Ino((1 << 48) + 1));
        for none in [Ino::NONE, Ino::ROOT] {
            assert_eq!(effective(none, none), Ok(Ino::NONE));
            assert_eq!((effective(none, one), effective(one, none)), (Ok(one), Ok(one)));
            assert!(effective(none, Ino::LINKS).is_err() && effective(Ino::SYSTEM, none).is_err());
        }
        assert_eq!(effective(one, one), Ok(one));
        assert!(effective(one, other).is_err());
    }
}
