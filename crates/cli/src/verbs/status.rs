//! `pando status`: what a server says of itself.
//!
//! Absent: the checks behind the health line (`health.rs`).

use crate::output::{Output, bytes, grouped};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin, mount_status, mounts, place};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the verb. Of a path in a mount: also how that mount is, which first of all does not depend on its server.
///
/// # Errors
/// No server, no answer, no such path; a mount in which everything fails (exit 5).
pub fn run(path: Option<&Path>, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    let mount = path.and_then(mounts::containing);
    let state = mount.as_ref().and_then(|mount| Some((mount, mount_status::state(&mount.path)?)));
    let wrong = state.as_ref().and_then(|(_, state)| state.wrong.clone());
    let mut answer = admin::ask(&source, &json!({"cmd": "status"}), ANSWER_TIME);
    // Asked of the mount itself, which would wait for a server that is gone.
    let asks = path.filter(|_| wrong.is_none() && answer.is_ok());
    let is_root = |path: &Path| mount.as_ref().is_some_and(|mount| mounts::resolve(path) == mount.path);
    if let Some(path) = asks.filter(|path| !is_root(path)) {
        std::fs::symlink_metadata(path).map_err(|error| Problem::io(path.display(), &error))?;
    }
    if let Some((mount, state)) = &state {
        // Another server may have been named.
        let is_its_own = Source::parse(&mount.source).as_ref() == Ok(&source);
        if is_its_own && state.numbers["session"] != "open" {
            answer = answer.map_err(|problem| cut_off(problem, &mounts::shown(&mount.path)));
        }
    }
    let told = state.map(|(mount, state)| mount_status::told(&state.numbers, &mounts::shown(&mount.path)));
    let (shown, verdict) = joined(told, answer, wrong);
    if let Some((text, json)) = shown {
        out.result(&text, json);
    }
    verdict
}

/// Of a mount that lost its server there is more to say than that nobody answers. The words are those of `umount`.
fn cut_off(problem: Problem, place: &str) -> Problem {
    if problem.code != Exit::Unreachable as u8 {
        return problem;
    }
    let step =
        format!("start its server again, or `pando umount --force {place}`: what waits for it fails then");
    let what = format!("{place}: its server is gone or not reachable ({})", problem.what);
    Problem { what, ..problem }.do_this(step)
}

/// The mount's part comes first, whether or not a server answers; that everything in the mount fails is worse than a server's
/// silence.
fn joined(
    mount: Option<(String, Value)>,
    answer: Result<Value, Problem>,
    wrong: Option<Problem>,
) -> (Option<(String, Value)>, Verdict) {
    let (server, silent) = match answer {
        Ok(answer) => (Some((text(&answer), answer)), None),
        Err(problem) => (None, Some(problem)),
    };
    let shown = match (mount, server) {
        (Some((mount, part)), Some((text, mut json))) => {
            json["mount"] = part;
            Some((mount + &text, json))
        }
        (Some((mount, part)), None) => Some((format!("{}\n", mount.trim_end()), json!({"mount": part}))),
        (None, server) => server,
    };
    (shown, wrong.or(silent).map_or(Ok(0), Err))
}

/// As `ceph -s`: cluster, services, data; then the journal. What the server does not say is left out.
fn text(answer: &Value) -> String {
    let word = |key: &str| answer.get(key).and_then(Value::as_str).map(Into::into);
    let number = |key: &str| answer.get(key).and_then(Value::as_u64);
    let id = word("fsid").map(|fsid: String| place::short(&fsid).to_string());
    let rank = word("state").map(|state: String| match number("pid") {
        Some(pid) => format!("{}{state} (pid {pid})", daemons(answer)),
        None => format!("{}{state}", daemons(answer)),
    });
    let cached = number("cached_inodes").map(|count| format!("{} inodes", grouped(count)));
    let parts = [
        part(
            "cluster",
            &[("id", id), ("name", word("name")), ("health", health(answer)), ("state", word("state"))],
        ),
        part("services", &[("mds", rank), ("clients", number("clients").map(grouped))]),
        part("data", &[("folder", word("dir")), ("usage", usage(answer)), ("cached", cached)]),
    ];
    let mut text = parts.concat();
    text.push_str(&io(answer));
    if let Some(count) = number("journal_operations") {
        let seconds = answer.get("replay_seconds").and_then(Value::as_f64).unwrap_or(0.0);
        let count = grouped(count);
        text.push_str(&format!("  journal: {count} ops not checkpointed (replay about {seconds:.1} s)\n"));
    }
    text
}

/// `1/1 up, 1 standby, `
fn daemons(answer: &Value) -> String {
    let number = |key: &str| answer["mds"][key].as_u64();
    let (Some(up), Some(all)) = (number("up"), number("in")) else { return String::new() };
    let standby = match number("standby") {
        None | Some(0) => String::new(),
        Some(standby) => format!("{standby} standby, "),
    };
    format!("{up}/{all} up, {standby}")
}

/// The word, and below it what it is for.
fn health(answer: &Value) -> Option<String> {
    let summaries = answer.get("health_summary").and_then(Value::as_array).into_iter().flatten();
    let lines: String =
        summaries.filter_map(Value::as_str).map(|line| format!("\n              {line}")).collect();
    Some(format!("{}{lines}", answer.get("health")?.as_str()?))
}

/// What clients do of late.
fn io(answer: &Value) -> String {
    let Some(requests) = answer.get("requests_per_s").and_then(Value::as_u64) else { return String::new() };
    let number = |key: &str| answer.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (read, written) = (bytes(number("read_bytes_per_s")), bytes(number("written_bytes_per_s")));
    part("io", &[("client", Some(format!("{read}/s rd, {written}/s wr, {} op/s", grouped(requests))))])
}

fn part(name: &str, lines: &[(&str, Option<String>)]) -> String {
    let known: Vec<String> = lines
        .iter()
        .filter_map(|(key, value)| Some(format!("    {:<9} {}\n", format!("{key}:"), value.as_ref()?)))
        .collect();
    if known.is_empty() { String::new() } else { format!("  {name}:\n{}\n", known.concat()) }
}

fn usage(answer: &Value) -> Option<String> {
    let space = answer.get("space")?;
    let (total, available) = (space.get("total")?.as_u64()?, space.get("available")?.as_u64()?);
    Some(format!("{} available of {}", bytes(available), bytes(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_that_of_ceph() {
        let answer = json!({
            "fsid": "3f1c9a02-6dbe-63d8-9f41-0ca539912327", "name": "pandofs", "state": "active", "pid": 4242, "clients": 2,
            "mds": {"up": 1, "in": 1, "standby": 1}, "dir": "/srv/pando", "space": {"total": 1_u64 << 30, "available": 1_u64 << 29},
            "journal_operations": 81_000, "replay_seconds": 0.4, "health": "HEALTH_WARN",
            "health_summary": ["1 pool(s) nearfull"],
            "requests_per_s": 1_200, "read_bytes_per_s": 3_u64 << 20, "written_bytes_per_s": 512
        });
        let expected = "  cluster:\n    id:       3f1c9a02\n    name:     pandofs\n    health:   HEALTH_WARN\n              1 pool(s) nearfull\n    state:    active\n\n  \
            services:\n    mds:      1/1 up, 1 standby, active (pid 4242)\n    clients:  2\n\n  \
            data:\n    folder:   /srv/pando\n    usage:    512.0 MiB available of 1.0 GiB\n\n  \
            io:\n    client:   3.0 MiB/s rd, 512 B/s wr, 1,200 op/s\n\n  \
            journal: 81,000 ops not checkpointed (replay about 0.4 s)\n";
        assert_eq!(text(&answer), expected);
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        assert_eq!(text(&json!({})), "");
    }

    /// What broke: with its server away nothing was told of the mount, and of a dead one neither.
    #[test]
    fn the_mount_comes_first_whatever_its_server_says() {
        let part = || Some(("  mount:\n    session:  lost\n\n".to_owned(), json!({"session": "lost"})));
        let silent = || Problem::new(Exit::Unreachable, "unix:/s: connection refused");
        let dead = || Problem::new(Exit::State, "/mnt: its daemon died");
        let alone =
            Some(("  mount:\n    session:  lost\n".to_owned(), json!({"mount": {"session": "lost"}})));
        assert_eq!(joined(part(), Err(silent()), None), (alone.clone(), Err(silent())));
        assert_eq!(joined(part(), Err(silent()), Some(dead())), (alone, Err(dead())));
        let (shown, verdict) = joined(part(), Ok(json!({"clients": 2})), Some(dead()));
        let (text, json) = shown.expect("something");
        assert!(text.starts_with("  mount:\n    session:  lost\n\n  services:\n"), "{text}");
        assert_eq!(json, json!({"clients": 2, "mount": {"session": "lost"}}));
        assert_eq!(verdict, Err(dead()));
        assert_eq!(joined(None, Err(silent()), None), (None, Err(silent())));
    }

    #[test]
    fn a_mount_that_is_cut_off_says_what_to_do() {
        let silent =
            Problem::new(Exit::Unreachable, "unix:/s: connection refused").do_this("start its server");
        let expected = "pando status: /mnt: its server is gone or not reachable (unix:/s: connection refused)\n  \
            do: start its server again, or `pando umount --force /mnt`: what waits for it fails then\n";
        let problem = cut_off(silent, "/mnt");
        assert_eq!((problem.text("status").as_str(), problem.code), (expected, 3));
        let other = Problem::new(Exit::Refused, "no");
        assert_eq!(cut_off(other.clone(), "/mnt"), other);
    }
}
