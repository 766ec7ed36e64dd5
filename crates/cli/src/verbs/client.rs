//! `pando client`: who has sessions with a server.
//!
//! Absent: dirty capabilities, of which there are none yet: DIRTY shows 0.

use crate::args::Client;
use crate::output::{Output, table};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};

const COLUMNS: [&str; 9] = ["ID", "HOST", "MOUNT", "USER", "CAPS", "DIRTY", "OPS/s", "LATE", "AGE"];

/// A client's number: `4305`, or as `pando.client_id` and logs have it, `client4305`; as Ceph writes it, `client.4305`.
///
/// # Errors
/// A sentence for a person.
pub fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("client").map_or(text, |rest| rest.strip_prefix('.').unwrap_or(rest));
    let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| "not a client's number (use 4305 or client4305)".into())
}

/// What shows which clients there are.
const LIST: &str = "`pando client ls`";

/// Runs the verb.
///
/// # Errors
/// No server, no answer, no such client (exit 5).
pub fn run(verb: &Client, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    match verb {
        Client::Ls => {
            let answer = admin::ask(&source, &json!({"cmd": "client ls"}), ANSWER_TIME)?;
            out.result(&listing(&answer), answer);
        }
        Client::Evict { id } => {
            let answer = admin::ask(&source, &json!({"cmd": "client evict", "id": id}), ANSWER_TIME)?;
            out.result(&format!("evicted client {id}"), answer);
        }
        Client::Info { id } => {
            let answer = admin::ask(&source, &json!({"cmd": "client ls"}), ANSWER_TIME)?;
            let client = clients(&answer).iter().find(|client| client["id"] == *id).cloned();
            let client = client.ok_or_else(|| {
                Problem::new(Exit::State, format!("{source}: no client {id}")).do_this(LIST)
            })?;
            out.result(&pairs(&client), client);
        }
    }
    Ok(0)
}

fn clients(answer: &Value) -> &[Value] {
    answer.get("clients").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn listing(answer: &Value) -> String {
    let mut rows = vec![COLUMNS.iter().map(|name| (*name).to_string()).collect()];
    for client in clients(answer) {
        let cell = |key: &str| client.get(key).map_or_else(|| "-".into(), shown);
        let age = client.get("age_ms").and_then(Value::as_u64).map_or_else(|| "-".into(), age);
        let mut row = vec![cell("id"), cell("host"), cell("mount"), cell("user")];
        row.extend(["caps", "dirty", "ops", "late"].map(cell));
        row.push(age);
        rows.push(row);
    }
    table(&rows)
}

fn pairs(client: &Value) -> String {
    let Some(object) = client.as_object() else { return String::new() };
    object.iter().map(|(key, value)| format!("{key}: {}\n", shown(value))).collect()
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}

fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place;
    use proto::SessionId;
    use proto::caps::Bits;
    use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
    use runtime::Config;
    use runtime::port::Sink;
    use std::sync::Arc;

    struct Deaf;

    impl Sink for Deaf {
        fn messages(&self, _: Vec<ServerMsg>) {}
        fn disconnected(&self) {}
    }

    #[test]
    fn a_client_is_named_by_number_or_as_its_mount_says() {
        for text in ["4305", "client4305", "client.4305"] {
            assert_eq!(number(text), Ok(4305), "{text}");
        }
        for text in ["", "client", "client-5", "+5", "client..5", "mount4305", "99999999999999999999"] {
            assert!(number(text).is_err(), "{text}");
        }
    }

    /// Against what a real server reports: a column that it does not fill, or fills under another name, is found here.
    #[test]
    fn the_columns_are_those_promised() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("fs");
        place::format(&dir, &place::format_options()).expect("formatted");
        let server = place::open_unheard(&dir, &Config::default()).expect("opened");
        let port = server.embedded().connect(Arc::new(Deaf)).expect("connected");
        let info = ClientInfo { host: "a".into(), mount: "/m".into(), pid: 7, caps_max: 0 };
        let hello = ClientMsg::Hello {
            protocol: PROTOCOL,
            session: SessionId(0),
            info,
            wants: Bits::NONE,
            at: At::default(),
        };
        port.send(vec![hello], &mut Vec::new()).expect("sent");
        let mut answer = server.admin(&json!({"cmd": "client ls"}))["result"].take();
        let client = &mut answer["clients"][0];
        assert!(client["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{client}");
        // Only these two are not the same in every run.
        client["age_ms"] = json!(61_000);
        client["id"] = json!(4);
        let expected = "ID  HOST  MOUNT  USER  CAPS  DIRTY  OPS/s  LATE  AGE\n4   a     /m     0     0     0      0      0s    61s\n";
        assert_eq!(listing(&answer), expected);
    }
}
