//! What is wrong with a server, as Ceph tells it: checks with codes, each with a summary and details.
//!
//! Absent: gathering the numbers (`report.rs`), texts for people (crate `cli`).

use crate::cluster::ClusterFacts;
use crate::machine::{ClientName, RankFacts};
use mds::State;
use proto::cluster::RankState;
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

/// What a server is judged by.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// `None` of a stand-in, of a rank without a life, and of one that does not answer.
    pub(crate) rank: Option<RankFacts>,
    /// `None` without a coordinator.
    pub(crate) cluster: Option<ClusterFacts>,
    /// Of the file system.
    pub(crate) name: String,
    /// Where the file system lies.
    pub(crate) dir: String,
    /// Why the rank is damaged.
    pub(crate) why: Option<String>,
    /// How often the metadata store has failed, and how the first time.
    pub(crate) damage: Option<(u64, String)>,
    /// `None`: the device does not answer.
    pub(crate) space: Option<Space>,
}

/// Space of the device that holds file data, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) total: u64,
    pub(crate) free: u64,
    /// For new data.
    pub(crate) available: u64,
}

impl Space {
    pub(crate) fn json(self) -> Value {
        json!({ "total": self.total, "free": self.free, "available": self.available })
    }
}

/// What is wrong.
pub(crate) fn checks(facts: &Facts) -> Vec<Check> {
    let mut found = Vec::new();
    if let Some(rank) = &facts.rank {
        found.extend(rank_state(rank.state, facts.why.as_deref()));
        found.extend(damage(facts).filter(|_| rank.state != State::Damaged));
        found.extend(of_rank(rank));
        found.extend(late_release(rank));
        found.extend(cache_pressure(rank));
        found.extend(oldest_tid(rank));
    }
    if let Some(cluster) = &facts.cluster {
        found.extend(of_cluster(cluster, facts));
    }
    found.extend(space(facts));
    found
}

fn check(code: &'static str, severity: Severity, summary: &str, detail: String) -> Check {
    Check { code, severity, summary: summary.to_owned(), count: 1, detail: vec![detail] }
}

fn rank_state(state: State, why: Option<&str>) -> Option<Check> {
    match state {
        State::Active => None,
        State::Damaged => {
            let detail = format!("mds.0: {}", why.unwrap_or("see the log"));
            Some(check("MDS_DAMAGE", Severity::Err, "1 mds daemon damaged", detail))
        }
        State::Boot | State::Replay | State::Reconnect | State::Stopping | State::Stopped => {
            let detail = format!("mds.0: the rank is {}", state.name());
            Some(check("FS_DEGRADED", Severity::Warn, "1 filesystem is degraded", detail))
        }
    }
}

/// What the cluster map says, of ranks that do not say it themselves.
fn of_cluster(cluster: &ClusterFacts, facts: &Facts) -> Vec<Check> {
    let name = &facts.name;
    let mut found = Vec::new();
    let count = |wanted: RankState| cluster.ranks.iter().filter(|(_, state)| *state == wanted).count();
    let (failed, damaged) = (count(RankState::Failed), count(RankState::Damaged));
    let is_up = |state: &RankState| *state != RankState::Failed && *state != RankState::Damaged;
    if !cluster.ranks.iter().any(|(_, state)| is_up(state)) && cluster.version > 0 {
        let detail = format!("fs {name} is offline because no MDS is active for it.");
        found.push(check("MDS_ALL_DOWN", Severity::Err, "1 filesystem is offline", detail));
    }
    if facts.rank.is_some() {
        // It has told how it is.
    } else if damaged > 0 {
        let detail = format!("fs {name} mds.0 is damaged");
        found.push(check("MDS_DAMAGE", Severity::Err, "1 mds daemon damaged", detail));
    } else if cluster.version > 0 {
        let detail = format!("fs {name} is degraded");
        found.push(check("FS_DEGRADED", Severity::Warn, "1 filesystem is degraded", detail));
    }
    if failed > 0 {
        let summary = "1 filesystem has a failed mds daemon";
        let detail = format!("fs {name} has {failed} failed mds");
        found.push(check("FS_WITH_FAILED_MDS", Severity::Warn, summary, detail));
    }
    if let Some(error) = &cluster.trouble {
        let detail = format!("cluster/map: {error}: no rank changes hands before it can be read and written");
        found.push(check(
            "CLUSTER_MAP_UNWRITABLE",
            Severity::Err,
            "the cluster map cannot be read or written",
            detail,
        ));
    }
    if cluster.standbys < cluster.standbys_wanted {
        let summary = "insufficient standby MDS daemons available";
        let missing = cluster.standbys_wanted - cluster.standbys;
        let detail = format!("have {}; want {missing} more", cluster.standbys);
        found.push(check("MDS_INSUFFICIENT_STANDBY", Severity::Warn, summary, detail));
    }
    found
}

/// The rank serves what it can read.
fn damage(facts: &Facts) -> Option<Check> {
    let (count, first) = facts.damage.as_ref()?;
    let detail = format!("mds.0: Metadata damage detected ({count} errors, the first: {first})");
    Some(check("MDS_DAMAGE", Severity::Err, "1 MDSs report damaged metadata", detail))
}

/// What one rank is behind with.
fn of_rank(rank: &RankFacts) -> Vec<Check> {
    let warn =
        |code, summary, detail: String| check(code, Severity::Warn, summary, format!("mds.0: {detail}"));
    let mut found = Vec::new();
    if rank.blocked > 0 {
        let detail = format!("{} slow requests are blocked > {} secs", rank.blocked, rank.complaint_s);
        found.push(warn("MDS_SLOW_REQUEST", "1 MDSs report slow requests", detail));
    }
    let (used, limit) = (rank.cache_bytes, rank.cache_limit);
    if limit > 0 && used / CACHE_HALVES > limit / 2 {
        let detail = format!("MDS cache is too large ({}/{})", gib(used), gib(limit));
        found.push(warn("MDS_CACHE_OVERSIZED", "1 MDSs report oversized cache", detail));
    }
    let (backlog, size) = (rank.journal_backlog, rank.journal_size);
    if size > 0 && backlog / JOURNAL_HALVES > size / 2 {
        let detail = format!("Behind on trimming ({}/{})", gib(backlog), gib(size));
        found.push(warn("MDS_TRIM", "1 MDSs behind on trimming", detail));
    }
    found
}

fn late_release(rank: &RankFacts) -> Option<Check> {
    of_clients(&rank.late, "MDS_CLIENT_LATE_RELEASE", "failing to respond to capability release", "")
}

fn cache_pressure(rank: &RankFacts) -> Option<Check> {
    of_clients(&rank.pressed, "MDS_CLIENT_RECALL", "failing to respond to cache pressure", "")
}

fn oldest_tid(rank: &RankFacts) -> Option<Check> {
    of_clients(&rank.behind, "MDS_CLIENT_OLDEST_TID", "failing to advance ", "oldest client/flush tid")
}

/// A check of clients: what they fail to do, and to what; in the line of one client it is its own.
fn of_clients(clients: &[ClientName], code: &'static str, what: &str, to: &str) -> Option<Check> {
    if clients.is_empty() {
        return None;
    }
    let its = if to.is_empty() { "" } else { "its " };
    let line = |client: &ClientName| {
        let ClientName { id, host, mount } = client;
        format!("mds.0: Client {host}:{mount} {what}{its}{to}. client_id: {}", id.0)
    };
    Some(Check {
        code,
        severity: Severity::Warn,
        summary: format!("{} clients {what}{to}", clients.len()),
        count: clients.len(),
        detail: clients.iter().map(line).collect(),
    })
}

fn space(facts: &Facts) -> Option<Check> {
    let place = &facts.dir;
    if facts.rank.as_ref().is_some_and(|rank| rank.full) {
        let detail = format!("pool '{place}' is full (no space): new data refused, unlink still works");
        return Some(check("POOL_FULL", Severity::Err, "1 pool(s) full", detail));
    }
    let Space { total, available, .. } = facts.space?;
    let percent = available.saturating_mul(100) / total.max(1);
    (percent < NEAR_FULL_PERCENT).then(|| {
        let detail = format!("pool '{place}' is nearfull ({percent} % of {} left)", gib(total));
        check("POOL_NEARFULL", Severity::Warn, "1 pool(s) nearfull", detail)
    })
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
pub(crate) mod tests {
    use super::*;
    use proto::SessionId;

    const GIB: u64 = 1 << 30;

    /// Nothing is wrong.
    pub(crate) fn good() -> Facts {
        let rank = RankFacts {
            state: State::Active,
            blocked: 0,
            complaint_s: 30,
            cache_bytes: 4 * GIB,
            cache_limit: 4 * GIB,
            journal_backlog: GIB,
            journal_size: GIB,
            full: false,
            behind: Vec::new(),
            late: Vec::new(),
            pressed: Vec::new(),
        };
        let space = Space { total: 100 * GIB, free: 60 * GIB, available: 50 * GIB };
        let cluster = Some(ClusterFacts {
            version: 7,
            joinable: true,
            max_mds: 1,
            ranks: vec![(proto::RankId(0), RankState::Active)],
            ..ClusterFacts::default()
        });
        let name = "pandofs".into();
        Facts {
            rank: Some(rank),
            cluster,
            name,
            dir: "/srv/p".into(),
            why: None,
            damage: None,
            space: Some(space),
        }
    }

    /// What is found if only this is changed.
    fn found(change: impl FnOnce(&mut RankFacts)) -> (Severity, Vec<(&'static str, String)>) {
        let mut facts = good();
        change(facts.rank.as_mut().expect("good"));
        of(&facts)
    }

    fn of(facts: &Facts) -> (Severity, Vec<(&'static str, String)>) {
        let found = checks(facts);
        (overall(&found), found.into_iter().map(|check| (check.code, check.detail.join("|"))).collect())
    }

    #[test]
    fn nothing_wrong_is_ok() {
        assert_eq!(checks(&good()), []);
        assert_eq!(json(&[]), json!({ "status": "HEALTH_OK", "checks": {}, "mutes": [] }));
        assert_eq!(found(|rank| rank.cache_bytes = 6 * GIB).1, []);
        assert_eq!(found(|rank| rank.journal_backlog = 3 * GIB / 2).1, []);
    }

    #[test]
    fn each_check_has_cephs_code_and_words() {
        let warn = |code, text: &str| (Severity::Warn, vec![(code, text.to_owned())]);
        let one = || vec![ClientName { id: SessionId(7), host: "a".into(), mount: "/m".into() }];
        let slow = warn("MDS_SLOW_REQUEST", "mds.0: 1253 slow requests are blocked > 30 secs");
        assert_eq!(found(|rank| rank.blocked = 1253), slow);
        let large = warn("MDS_CACHE_OVERSIZED", "mds.0: MDS cache is too large (7.0GiB/4.0GiB)");
        assert_eq!(found(|rank| rank.cache_bytes = 7 * GIB), large);
        let trim = warn("MDS_TRIM", "mds.0: Behind on trimming (1.8GiB/1.0GiB)");
        assert_eq!(found(|rank| rank.journal_backlog = 7 * GIB / 4), trim);
        let late = warn(
            "MDS_CLIENT_OLDEST_TID",
            "mds.0: Client a:/m failing to advance its oldest client/flush tid. client_id: 7",
        );
        assert_eq!(found(|rank| rank.behind = one()), late);
        let late = warn(
            "MDS_CLIENT_LATE_RELEASE",
            "mds.0: Client a:/m failing to respond to capability release. client_id: 7",
        );
        assert_eq!(found(|rank| rank.late = one()), late);
        let pressed = warn(
            "MDS_CLIENT_RECALL",
            "mds.0: Client a:/m failing to respond to cache pressure. client_id: 7",
        );
        assert_eq!(found(|rank| rank.pressed = one()), pressed);
        let near = warn("POOL_NEARFULL", "pool '/srv/p' is nearfull (14 % of 100.0GiB left)");
        let space = Space { total: 100 * GIB, free: 60 * GIB, available: 15 * GIB - 1 };
        assert_eq!(of(&Facts { space: Some(space), ..good() }), near);
        let start = warn("FS_DEGRADED", "mds.0: the rank is reconnect");
        assert_eq!(found(|rank| rank.state = State::Reconnect), start);
        let mut damaged = Facts { why: Some("no journal".into()), ..good() };
        damaged.rank.as_mut().expect("good").state = State::Damaged;
        let unread = Facts { damage: Some((2, "meta/03: is damaged".into())), ..good() };
        let text = "mds.0: Metadata damage detected (2 errors, the first: meta/03: is damaged)";
        assert_eq!(of(&unread), (Severity::Err, vec![("MDS_DAMAGE", text.to_owned())]));
        let damage = (Severity::Err, vec![("MDS_DAMAGE", "mds.0: no journal".to_owned())]);
        assert_eq!(of(&damaged), damage);
    }

    #[test]
    fn what_the_cluster_map_says_has_cephs_codes_too() {
        let with = |rank: bool, state, standbys, wanted| {
            let mut facts = good();
            facts.rank = facts.rank.filter(|_| rank);
            let cluster = facts.cluster.as_mut().expect("good");
            cluster.ranks = vec![(proto::RankId(0), state)];
            (cluster.standbys, cluster.standbys_wanted) = (standbys, wanted);
            let checks = checks(&facts);
            checks.into_iter().map(|check| (check.code, check.detail.join("|"))).collect::<Vec<_>>()
        };
        let line = |code, text: &str| (code, text.to_owned());
        assert_eq!(with(true, RankState::Active, 1, 1), []);
        let standby = line("MDS_INSUFFICIENT_STANDBY", "have 1; want 2 more");
        assert_eq!(with(true, RankState::Active, 1, 3), [standby]);
        let failed = [
            line("MDS_ALL_DOWN", "fs pandofs is offline because no MDS is active for it."),
            line("FS_DEGRADED", "fs pandofs is degraded"),
            line("FS_WITH_FAILED_MDS", "fs pandofs has 1 failed mds"),
        ];
        assert_eq!(with(false, RankState::Failed, 0, 0), failed);
        let damaged = [
            line("MDS_ALL_DOWN", "fs pandofs is offline because no MDS is active for it."),
            line("MDS_DAMAGE", "fs pandofs mds.0 is damaged"),
        ];
        assert_eq!(with(false, RankState::Damaged, 0, 0), damaged);
        let hangs = [line("FS_DEGRADED", "fs pandofs is degraded")];
        assert_eq!(with(false, RankState::Active, 0, 0), hangs);
        let mut facts = good();
        let cluster = facts.cluster.as_mut().expect("good");
        cluster.trouble = Some(proto::storeio::StoreError::Poisoned);
        let (severity, found) = of(&facts);
        assert_eq!((severity, found.len(), found[0].0), (Severity::Err, 1, "CLUSTER_MAP_UNWRITABLE"));
    }

    #[test]
    fn the_worst_check_is_the_state() {
        let mut facts = good();
        let rank = facts.rank.as_mut().expect("good");
        (rank.blocked, rank.full) = (1, true);
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
