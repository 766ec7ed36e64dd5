//! What a mount writes into its log about its session, one line for each event, each with the mount point and the client's id: many
//! mounts may share a log. The words are those of Ceph's clients where these have some ("socket closed", "hung", "came back",
//! "reconnect success", "rejected session"), so that what searches their logs finds these.
//!
//! Absent: what the server logs about the same session, under the same number.

use mount::{LateError, Mount, SessionEvent, SessionNews};
use proto::SessionId;
use runtime::{Log, LogLevel};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// The target of these lines.
const TARGET: &str = "mount";
/// Of so many errors at once that came too late each is logged.
const LATE_MAX: usize = 20;
/// Inodes named in one line.
const INODES_SHOWN: usize = 16;

/// As the extended attribute `pando.client_id` has it.
#[must_use]
pub fn client(session: SessionId) -> String {
    format!("client{}", session.0)
}

/// From here on what becomes of the mount's session is logged.
pub fn follow(mount: &Arc<Mount>, log: &Arc<Log>, at: &str) {
    let (told, place) = (Arc::clone(log), at.to_owned());
    mount.on_session(Box::new(move |news| session_event(&told, &place, news)));
    // The mount keeps its hooks: they must not keep it.
    let (asked, log, at) = (Arc::downgrade(mount), Arc::clone(log), at.to_owned());
    mount.on_late(Box::new(move |errors| {
        let session = asked.upgrade().map_or(SessionId(0), |mount| mount.session());
        late(&log, &at, session, errors);
    }));
}

fn session_event(log: &Log, at: &str, news: &SessionNews) {
    use LogLevel::{Error, Info, Warn};
    let why = |why: &String| Some(("why", why.clone()));
    let ms = |key, time: &Duration| Some((key, time.as_millis().to_string()));
    let (level, text, more) = match &news.event {
        SessionEvent::Lost { why: said } => {
            let said = said.as_ref().and_then(why);
            (Warn, "socket closed: calls wait for the server", said)
        }
        SessionEvent::Hung => (Warn, "hung", None),
        SessionEvent::Back { silent } => (Info, "came back", ms("silent_ms", silent)),
        SessionEvent::Damaged => (Error, "is damaged: calls fail until its server is started again", None),
        SessionEvent::Resumed { away } => (Info, "reconnect success", ms("away_ms", away)),
        SessionEvent::Rejected { why: said } => (Warn, "rejected session", why(said)),
        SessionEvent::Replaced { former } => {
            (Warn, "new session after an eviction", Some(("former", client(*former))))
        }
        SessionEvent::Ended { why: said } => {
            (Error, "session ended: calls fail until it is mounted again", why(said))
        }
    };
    let who = client(news.session);
    let text = format!("mds.{} {text}", news.rank.0);
    let mut fields: Vec<(&str, &dyn Display)> = vec![("at", &at), ("client", &who)];
    fields.extend(more.as_ref().map(|(key, value)| (*key, value as &dyn Display)));
    log.event(level, TARGET, &text, &fields);
}

/// What failed after its caller was told of success. Of many at once, as after an eviction, a few and how many.
fn late(log: &Log, at: &str, session: SessionId, errors: &[LateError]) {
    let who = client(session);
    for error in errors.iter().take(LATE_MAX) {
        let name =
            error.name.as_ref().map_or_else(String::new, |name| name.as_bytes().escape_ascii().to_string());
        let mut inos: Vec<String> =
            error.inos.iter().take(INODES_SHOWN).map(|ino| ino.0.to_string()).collect();
        if error.inos.len() > INODES_SHOWN {
            inos.push(format!("and {} more", error.inos.len() - INODES_SHOWN));
        }
        let fields: [(&str, &dyn Display); 6] = [
            ("at", &at),
            ("client", &who),
            ("operation", &error.kind.name()),
            ("name", &name),
            ("inodes", &inos.join(" ")),
            ("error", &error.errno),
        ];
        log.warn(TARGET, "an operation failed after its caller was told of success", &fields);
    }
    if errors.len() > LATE_MAX {
        let more = errors.len() - LATE_MAX;
        let fields: [(&str, &dyn Display); 3] = [("at", &at), ("client", &who), ("more", &more)];
        log.warn(TARGET, "more operations failed after their callers were told of success", &fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::log::LogOptions;

    #[test]
    fn every_line_names_the_mount_and_its_client() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("log");
        let log =
            Log::open(LogOptions { file: Some(file.clone()), ..LogOptions::default() }).expect("opened");
        let (why, time) = ("evicted: it is late".to_owned(), Duration::from_millis(1500));
        let events = [
            SessionEvent::Lost { why: None },
            SessionEvent::Lost { why: Some("the rank is stopping".into()) },
            SessionEvent::Hung,
            SessionEvent::Back { silent: time },
            SessionEvent::Resumed { away: time },
            SessionEvent::Rejected { why: why.clone() },
            SessionEvent::Replaced { former: SessionId(4) },
            SessionEvent::Ended { why },
        ];
        let (session, rank) = (SessionId(7), proto::RankId(0));
        for event in events.clone() {
            session_event(&log, "/mnt/a b", &SessionNews { event, session, rank });
        }
        let error = LateError {
            kind: proto::Kind::WRITE,
            name: None,
            inos: vec![proto::Ino(9)],
            errno: proto::Errno::ENOSPC,
        };
        late(&log, "/mnt/a b", SessionId(7), &vec![error; LATE_MAX + 2]);
        let text = std::fs::read_to_string(file).expect("written");
        assert_eq!(text.lines().count(), events.len() + LATE_MAX + 1);
        let named = |line: &str| line.contains(r#" at="/mnt/a b" client=client7"#);
        assert!(text.lines().all(named), "{text}");
        let lines: Vec<&str> =
            text.lines().filter_map(|line| line.split_once(" level=")).map(|(_, rest)| rest).collect();
        assert!(lines[4].starts_with(r#"info target=mount msg="mds.0 reconnect success""#), "{}", lines[4]);
        assert!(lines[4].ends_with(" away_ms=1500") && lines[6].ends_with(" former=client4"), "{text}");
        assert!(
            lines[7].starts_with("error ") && lines[7].ends_with(r#" why="evicted: it is late""#),
            "{text}"
        );
    }
}
