//! How a mount is, as it tells by itself: `pando.stats` of its root, asked so that nothing else of the mount is asked before. So it is
//! answered also while the server is away, and after the session's end.
//!
//! Absent: what its server knows of it (`pando client info`).

use crate::mounts;
use crate::problem::{Exit, Problem, Verdict};
use runtime::log::Timestamp;
use serde_json::{Value, json};
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

/// For this name the kernel looks at no permissions, for which it might have to ask for attributes.
const XATTR: &str = "system.pando.stats";
/// How long a mount's daemon may take to tell.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the number of an error, where a mount does not tell.
const ERRNO: &str = "errno ";
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
const ECONNABORTED: i32 = 103;
const ENOTCONN: i32 = 107;

/// The mount's numbers as they are. `place`: as the person named it.
///
/// # Errors
/// Somebody else's mount, one of an earlier version, one whose daemon died.
pub fn look(mount: &Path, place: &str) -> Result<Value, Problem> {
    let text = runtime::process::xattr(mount, XATTR).map_err(|error| explain(place, &error))?;
    serde_json::from_slice(&text).map_err(|_| {
        Problem::failed(place, "its daemon tells no numbers").do_this("unmount and mount it again")
    })
}

/// How a mount is.
#[derive(Clone, Debug)]
pub struct State {
    /// Its numbers; of one whose daemon died only that.
    pub numbers: Value,
    /// Why everything in it fails, if it does.
    pub wrong: Option<Problem>,
}

/// How a mount is. Of another user's mount, or one of an earlier version, nothing is told.
#[must_use]
pub fn state(mount: &Path) -> Option<State> {
    let place = mounts::shown(mount);
    match asked_by_another(mount) {
        Some(told) => read(told, &place),
        None => Some(hung(&place)),
    }
}

/// The kernel lets nobody go, by any signal, whose request a daemon has taken and does not answer. So another process asks, which is left
/// alone if there is no answer in time (`None`).
fn asked_by_another(mount: &Path) -> Option<Result<Vec<u8>, Error>> {
    let asks = |program: PathBuf| {
        let mut command = Command::new(program);
        command.args(["stats", "--raw"]).arg(mount);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let Ok(mut child) = std::env::current_exe().and_then(asks) else {
        return Some(runtime::process::xattr(mount, XATTR));
    };
    let mut stdout = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.read_to_end(&mut text);
        let _nobody_waits_any_more = send.send(read.map(|_| text));
    });
    let text = receive.recv_timeout(PATIENCE).ok()?;
    let _status = child.wait();
    Some(text.and_then(from_raw))
}

/// What `asked_by_another` asks for: the numbers, or the error's number.
///
/// # Errors
/// Nobody reads it.
pub fn tell_raw(mount: &Path) -> Verdict {
    let told = match runtime::process::xattr(mount, XATTR) {
        Ok(text) => text,
        Err(error) => format!("{ERRNO}{}", error.raw_os_error().unwrap_or(0)).into_bytes(),
    };
    std::io::stdout().write_all(&told).map_err(|error| Problem::io("stdout", &error))?;
    Ok(0)
}

fn from_raw(text: Vec<u8>) -> Result<Vec<u8>, Error> {
    let errno =
        text.strip_prefix(ERRNO.as_bytes()).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    errno.map_or(Ok(text), |errno: i32| Err(Error::from_raw_os_error(errno)))
}

fn hung(place: &str) -> State {
    let what = format!("{place}: its daemon does not answer: it is stopped, or hangs");
    let step =
        format!("`kill -CONT` the daemon; or `pando umount --force {place}`: what waits in it fails then");
    State {
        numbers: json!({"session": "hung", "why": "its daemon does not answer"}),
        wrong: Some(Problem::new(Exit::Unreachable, what).do_this(step)),
    }
}

fn read(told: Result<Vec<u8>, Error>, place: &str) -> Option<State> {
    match told {
        Ok(text) => {
            let numbers: Value = serde_json::from_slice(&text).ok()?;
            let wrong = ended(&numbers, place).or_else(|| damaged(&numbers, place));
            Some(State { numbers, wrong })
        }
        Err(error) if is_dead(&error) => {
            let numbers = json!({"session": "dead", "why": "its daemon died"});
            Some(State { numbers, wrong: Some(explain(place, &error)) })
        }
        Err(_) => None,
    }
}

/// The daemon is gone: the kernel answers for it, with one word while it clears the connection away, with another afterwards.
fn is_dead(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOTCONN | ECONNABORTED))
}

fn explain(place: &str, error: &Error) -> Problem {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::PermissionDenied, _) => {
            Problem::new(Exit::Refused, format!("{place}: only root and whoever mounted it may look"))
                .do_this("run it as root, or as whoever mounted it")
        }
        (_, Some(EINVAL | ENODATA | EOPNOTSUPP)) => Problem::new(
            Exit::State,
            format!("{place}: its daemon is of an earlier version and does not tell"),
        )
        .do_this("unmount and mount it again"),
        _ if is_dead(error) => crate::verbs::mount::dead(Path::new(place)),
        _ => Problem::io(place, error).do_this(format!("`pando status {place}`")),
    }
}

/// What `status` says of a mount: the part of its text, and of its JSON.
#[must_use]
pub fn told(numbers: &Value, at: &str) -> (String, Value) {
    let word = |key: &str| numbers[key].as_str().unwrap_or("-");
    let mut state = word("session").to_owned();
    if numbers["session_ms"].is_null() {
        state.push_str(&format!(" ({})", word("why")));
    } else if state != "open" {
        state.push_str(&format!(" since {}", since(numbers)));
    }
    let text =
        format!("  mount:\n    at:       {at}\n    client:   {}\n    session:  {state}\n\n", word("client"));
    let mut json = json!({"at": at});
    for key in ["client", "session", "session_ms", "why"] {
        json[key] = numbers[key].clone();
    }
    (text, json)
}

/// What is wrong with the mount, if its session has ended.
#[must_use]
pub fn ended(numbers: &Value, place: &str) -> Option<Problem> {
    if numbers["session"] != "ended" {
        return None;
    }
    let why = numbers["why"].as_str().unwrap_or("the server ended its session");
    let what = format!("{place}: its session ended {}: {why}: everything in it fails", since(numbers));
    let step = format!(
        "`pando umount {place}` and mount it again; with `-o recover_session=clean` a mount goes on by itself"
    );
    Some(Problem::new(Exit::State, what).do_this(step))
}

/// Its server answers, and every answer is an error.
fn damaged(numbers: &Value, place: &str) -> Option<Problem> {
    if numbers["session"] != "damaged" {
        return None;
    }
    let why = numbers["why"].as_str().unwrap_or("it is damaged");
    let what = format!("{place}: {why} {}: everything in it fails", since(numbers));
    let step =
        "`pando health detail`; stop the server, see to its disk, `pando fsck` its folder, start it again";
    Some(Problem::new(Exit::State, what).do_this(step))
}

/// Since when it is as it is.
fn since(numbers: &Value) -> String {
    let age = Duration::from_millis(numbers["session_ms"].as_u64().unwrap_or(0));
    let at = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    format!("{} ({} s ago)", Timestamp(at), age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_was_evicted_is_no_healthy_mount() {
        let numbers = json!({
            "client": "client7", "session": "ended", "session_ms": 12_400, "why": "evicted: an operator ended it"
        });
        let problem = ended(&numbers, "./mnt").expect("a problem");
        assert_eq!(problem.code, Exit::State as u8);
        assert!(problem.what.starts_with("./mnt: its session ended 2"), "{}", problem.what);
        let end = "(12 s ago): evicted: an operator ended it: everything in it fails";
        assert!(problem.what.ends_with(end), "{}", problem.what);
        assert!(problem.step.is_some_and(|step| step.starts_with("`pando umount ./mnt`")));
        let open = json!({"client": "client7", "session": "open", "session_ms": 5});
        assert_eq!(ended(&open, "./mnt"), None);
        let expected = "  mount:\n    at:       /mnt\n    client:   client7\n    session:  open\n\n";
        assert_eq!(told(&open, "/mnt").0, expected);
        assert!(told(&numbers, "/mnt").0.contains("    session:  ended since 2"));
    }

    /// What broke: everything in it failed, and `status` said that it is open.
    #[test]
    fn a_mount_of_a_damaged_server_is_no_healthy_mount() {
        let numbers =
            json!({"session": "damaged", "session_ms": 5, "why": "its server's journal or store failed"});
        let state = read(Ok(numbers.to_string().into_bytes()), "/mnt").expect("a state");
        let problem = state.wrong.expect("a problem");
        assert!(problem.what.starts_with("/mnt: its server's journal or store failed 2"), "{}", problem.what);
        assert_eq!(problem.code, Exit::State as u8);
    }

    /// What broke: nothing was told of it, and its server is well.
    #[test]
    fn a_mount_whose_daemon_died_is_no_healthy_mount() {
        for errno in [ENOTCONN, ECONNABORTED] {
            let state = read(Err(Error::from_raw_os_error(errno)), "/mnt").expect("a state");
            let expected =
                "  mount:\n    at:       /mnt\n    client:   -\n    session:  dead (its daemon died)\n\n";
            let (text, json) = told(&state.numbers, "/mnt");
            assert_eq!((text.as_str(), &json["session"]), (expected, &json!("dead")));
            assert_eq!(state.wrong, Some(crate::verbs::mount::dead(Path::new("/mnt"))));
        }
        assert!(read(Err(Error::from_raw_os_error(13)), "/mnt").is_none(), "another user's");
        let open = read(Ok(br#"{"session": "open", "session_ms": 5}"#.to_vec()), "/mnt").expect("a state");
        assert_eq!(open.wrong, None);
    }

    /// What broke: the daemon was stopped, and so was whoever asked how its mount is.
    #[test]
    fn a_mount_whose_daemon_does_not_answer_is_hung() {
        let state = hung("/mnt");
        let (text, json) = told(&state.numbers, "/mnt");
        assert!(text.contains("    session:  hung (its daemon does not answer)\n"), "{text}");
        assert_eq!(
            (&json["session"], state.wrong.map(|p| p.code)),
            (&json!("hung"), Some(Exit::Unreachable as u8))
        );
    }

    #[test]
    fn what_another_process_was_told_is_read_back() {
        assert_eq!(from_raw(b"{}".to_vec()).expect("numbers"), b"{}");
        let error = from_raw(b"errno 107".to_vec()).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(ENOTCONN));
    }

    #[test]
    fn every_error_says_what_to_do() {
        for errno in [1, 2, 5, 13, EINVAL, ENODATA, EOPNOTSUPP, ENOTCONN, 108] {
            let problem = explain("./mnt", &Error::from_raw_os_error(errno));
            assert!(problem.step.is_some(), "{errno}: {}", problem.what);
        }
    }
}
