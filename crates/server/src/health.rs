//! What is wrong with a server, as Ceph tells it: checks with codes, each with a summary and details.
//!
//! Absent: gathering the numbers (`report.rs`), texts for people (room `cli`).

use serde_json::{Map, Value, json};

/// How bad it is; the worst check is the state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Ok,
    Warn,
    Err,
}

impl Severity {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) code: &'static str,
    pub(crate) severity: Severity,
    pub(crate) summary: String,
    /// How many ranks or clients it is about.
    pub(crate) count: usize,
    pub(crate) detail: Vec<String>,
}

/// The cache is oversized beyond so many halves of its limit (Ceph's `mds_health_cache_threshold` 1.5).
const CACHE_HALVES: u64 = 3;
/// The journal is behind when its backlog is so many halves of the size at which a checkpoint starts. Ceph's `mds_log_warn_factor`
/// is 2; here changes are held up before that.
const JOURNAL_HALVES: u64 = 3;
/// A device is nearly full with less than 15 of 100 left (Ceph's `mon_osd_nearfull_ratio`).
const NEAR_FULL_PERCENT: u64 = 15;

/// What is wrong. `facts`: the rank's answer to `health`, with `space` and `why` of the server.
pub(crate) fn checks(facts: &Value) -> Vec<Check> {
    let number = |key: &str| facts[key].as_u64().unwrap_or(0);
    let of_rank = |code, severity, summary: &str, detail: String| Check {
        code,
        severity,
        summary: summary.to_owned(),
        count: 1,
        detail: vec![format!("mds.0: {detail}")],
    };
    let mut found = Vec::new();
    match facts["state"].as_str().unwrap_or("active") {
        "active" => {}
        "damaged" => {
            let why = facts["why"].as_str().unwrap_or("see the log");
            found.push(of_rank("MDS_DAMAGE", Severity::Err, "1 mds daemon damaged", why.to_owned()));
        }
        state => {
            let detail = format!("the rank is {state}");
            found.push(of_rank("FS_DEGRADED", Severity::Warn, "1 filesystem is degraded", detail));
        }
    }
    let blocked = number("blocked");
    if blocked > 0 {
        let detail = format!("{blocked} slow requests are blocked > {} secs", number("complaint_s"));
        found.push(of_rank("MDS_SLOW_REQUEST", Severity::Warn, "1 MDSs report slow requests", detail));
    }
    let (used, limit) = (number("cache_bytes"), number("cache_limit"));
    if limit > 0 && used / CACHE_HALVES > limit / 2 {
        let detail = format!("MDS cache is too large ({}/{})", gib(used), gib(limit));
        found.push(of_rank("MDS_CACHE_OVERSIZED", Severity::Warn, "1 MDSs report oversized cache", detail));
    }
    let (backlog, size) = (number("journal_backlog"), number("journal_size"));
    if size > 0 && backlog / JOURNAL_HALVES > size / 2 {
        let detail = format!("Behind on trimming ({}/{})", gib(backlog), gib(size));
        found.push(of_rank("MDS_TRIM", Severity::Warn, "1 MDSs behind on trimming", detail));
    }
    found.extend(late(facts));
    found.extend(pressed(facts));
    found.extend(behind(facts));
    found.extend(space(facts));
    found
}

/// Clients that do not give back what others wait for.
fn late(facts: &Value) -> Option<Check> {
    of_clients(
        &facts["clients_late"],
        "MDS_CLIENT_LATE_RELEASE",
        "failing to respond to capability release",
        "",
    )
}

/// Clients that do not give back what is to make room.
fn pressed(facts: &Value) -> Option<Check> {
    of_clients(&facts["clients_recall"], "MDS_CLIENT_RECALL", "failing to respond to cache pressure", "")
}

/// Clients that do not say which answers they have, so that the rank must keep them.
fn behind(facts: &Value) -> Option<Check> {
    of_clients(
        &facts["clients_behind"],
        "MDS_CLIENT_OLDEST_TID",
        "failing to advance ",
        "oldest client/flush tid",
    )
}

/// A check of clients: what they fail to do, and to what; in the line of one client it is its own.
fn of_clients(list: &Value, code: &'static str, what: &str, to: &str) -> Option<Check> {
    let clients = list.as_array().filter(|clients| !clients.is_empty())?;
    let word = |client: &Value, key: &str| client[key].as_str().unwrap_or("").to_owned();
    let its = if to.is_empty() { "" } else { "its " };
    let line = |client: &Value| {
        let (host, mount) = (word(client, "host"), word(client, "mount"));
        format!("mds.0: Client {host}:{mount} {what}{its}{to}. client_id: {}", client["id"])
    };
    Some(Check {
        code,
        severity: Severity::Warn,
        summary: format!("{} clients {what}{to}", clients.len()),
        count: clients.len(),
        detail: clients.iter().map(line).collect(),
    })
}

fn space(facts: &Value) -> Option<Check> {
    let place = facts["dir"].as_str().unwrap_or("store");
    let (total, available) = (facts["space"]["total"].as_u64(), facts["space"]["available"].as_u64());
    let check = |code, severity, summary: &str, detail| {
        Some(Check { code, severity, summary: summary.to_owned(), count: 1, detail: vec![detail] })
    };
    if facts["full"] == true {
        let detail = format!("pool '{place}' is full (no space): new data refused, unlink still works");
        return check("POOL_FULL", Severity::Err, "1 pool(s) full", detail);
    }
    let (total, available) = (total?, available?);
    let percent = available.saturating_mul(100) / total.max(1);
    if percent < NEAR_FULL_PERCENT {
        let detail = format!("pool '{place}' is nearfull ({percent} % of {} left)", gib(total));
        return check("POOL_NEARFULL", Severity::Warn, "1 pool(s) nearfull", detail);
    }
    None
}

fn gib(bytes: u64) -> String {
    format!("{:.1}GiB", bytes as f64 / (1_u64 << 30) as f64)
}

/// The worst of them.
pub(crate) fn overall(checks: &[Check]) -> Severity {
    checks.iter().map(|check| check.severity).max().unwrap_or(Severity::Ok)
}

/// With the keys of `ceph health detail --format json`.
pub(crate) fn json(checks: &[Check]) -> Value {
    let shown: Map<String, Value> = checks
        .iter()
        .map(|check| {
            let detail: Vec<Value> = check.detail.iter().map(|line| json!({ "message": line })).collect();
            let value = json!({
                "severity": check.severity.name(),
                "summary": { "message": check.summary, "count": check.count },
                "detail": detail,
                "muted": false,
            });
            (check.code.to_owned(), value)
        })
        .collect();
    json!({ "status": overall(checks).name(), "checks": shown, "mutes": [] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn good() -> Value {
        json!({
            "state": "active", "blocked": 0, "complaint_s": 30, "cache_bytes": 4 * GIB, "cache_limit": 4 * GIB,
            "journal_backlog": GIB, "journal_size": GIB, "full": false, "clients_behind": [],
            "dir": "/srv/p", "space": { "total": 100 * GIB, "available": 50 * GIB },
        })
    }

    fn told(key: &str, value: Value) -> (Severity, Vec<(&'static str, String)>) {
        let mut facts = good();
        facts[key] = value;
        let found = checks(&facts);
        (overall(&found), found.into_iter().map(|check| (check.code, check.detail.join("|"))).collect())
    }

    #[test]
    fn nothing_wrong_is_ok() {
        assert_eq!(checks(&good()), []);
        assert_eq!(json(&[]), json!({ "status": "HEALTH_OK", "checks": {}, "mutes": [] }));
        assert_eq!(told("cache_bytes", json!(6 * GIB)).1, []);
        assert_eq!(told("journal_backlog", json!(3 * GIB / 2)).1, []);
    }

    #[test]
    fn each_check_has_cephs_code_and_words() {
        let warn = |code, text: &str| (Severity::Warn, vec![(code, text.to_owned())]);
        let slow = warn("MDS_SLOW_REQUEST", "mds.0: 1253 slow requests are blocked > 30 secs");
        assert_eq!(told("blocked", json!(1253)), slow);
        let large = warn("MDS_CACHE_OVERSIZED", "mds.0: MDS cache is too large (7.0GiB/4.0GiB)");
        assert_eq!(told("cache_bytes", json!(7 * GIB)), large);
        let trim = warn("MDS_TRIM", "mds.0: Behind on trimming (1.8GiB/1.0GiB)");
        assert_eq!(told("journal_backlog", json!(7 * GIB / 4)), trim);
        let late = warn(
            "MDS_CLIENT_OLDEST_TID",
            "mds.0: Client a:/m failing to advance its oldest client/flush tid. client_id: 7",
        );
        assert_eq!(told("clients_behind", json!([{ "id": 7, "host": "a", "mount": "/m" }])), late);
        let late = warn(
            "MDS_CLIENT_LATE_RELEASE",
            "mds.0: Client a:/m failing to respond to capability release. client_id: 7",
        );
        assert_eq!(told("clients_late", json!([{ "id": 7, "host": "a", "mount": "/m" }])), late);
        let pressed = warn(
            "MDS_CLIENT_RECALL",
            "mds.0: Client a:/m failing to respond to cache pressure. client_id: 7",
        );
        assert_eq!(told("clients_recall", json!([{ "id": 7, "host": "a", "mount": "/m" }])), pressed);
        let near = warn("POOL_NEARFULL", "pool '/srv/p' is nearfull (14 % of 100.0GiB left)");
        assert_eq!(told("space", json!({ "total": 100 * GIB, "available": 15 * GIB - 1 })), near);
        let start = warn("FS_DEGRADED", "mds.0: the rank is reconnect");
        assert_eq!(told("state", json!("reconnect")), start);
    }

    #[test]
    fn the_worst_check_is_the_state() {
        let mut facts = good();
        facts["blocked"] = json!(1);
        facts["full"] = json!(true);
        let shown = json(&checks(&facts));
        assert_eq!(
            (&shown["status"], &shown["checks"]["POOL_FULL"]["severity"]),
            (&json!("HEALTH_ERR"), &json!("HEALTH_ERR"))
        );
        let slow = &shown["checks"]["MDS_SLOW_REQUEST"];
        assert_eq!(slow["summary"], json!({ "message": "1 MDSs report slow requests", "count": 1 }));
        assert_eq!(slow["detail"][0]["message"], json!("mds.0: 1 slow requests are blocked > 30 secs"));
    }
}
