//! What is wrong with a server, as Ceph tells it: checks with codes, each with a summary and details.
//!
//! Absent: gathering the numbers (`report.rs`), texts for people (crate `cli`).

use crate::cluster::ClusterFacts;
use crate::machine::{ClientName, RankFacts};
use mds::State;
use proto::RankId;
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
    /// Those that have told of themselves: not a stand-in, nor a rank without a life, nor one that does not answer.
    pub(crate) ranks: Vec<OfRank>,
    /// `None` without a coordinator.
    pub(crate) cluster: Option<ClusterFacts>,
    /// Of the file system.
    pub(crate) name: String,
    /// Where the file system lies.
    pub(crate) dir: String,
    /// `None`: the device does not answer.
    pub(crate) space: Option<Space>,
}

/// What one rank is judged by.
#[derive(Clone, Debug)]
pub(crate) struct OfRank {
    pub(crate) rank: RankId,
    pub(crate) facts: RankFacts,
    /// Why it is damaged.
    pub(crate) why: Option<String>,
    /// How often the metadata store has failed it, and how the first time.
    pub(crate) damage: Option<(u64, String)>,
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
    let ranks = &facts.ranks;
    let mut found = Vec::new();
    found.extend(damage(facts));
    found.extend(degraded(facts));
    found.extend(of_ranks(ranks));
    found.extend(late_release(ranks));
    found.extend(cache_pressure(ranks));
    found.extend(oldest_tid(ranks));
    if let Some(cluster) = &facts.cluster {
        found.extend(of_cluster(cluster, facts));
    }
    found.extend(space(facts));
    found
}

fn check(code: &'static str, severity: Severity, summary: &str, detail: String) -> Check {
    Check { code, severity, summary: summary.to_owned(), count: 1, detail: vec![detail] }
}

/// A check with a line for each that it is about; none where there is no line. `words` makes the summary of their number.
fn check_each(
    code: &'static str,
    severity: Severity,
    words: impl FnOnce(usize) -> String,
    detail: Vec<String>,
) -> Option<Check> {
    let count = detail.len();
    (count > 0).then(|| Check { code, severity, summary: words(count), count, detail })
}

/// Those of the map that do not tell how they are.
fn silent(facts: &Facts) -> impl Iterator<Item = (RankId, RankState)> {
    let told = |rank: RankId| facts.ranks.iter().any(|of| of.rank == rank);
    let all = facts.cluster.iter().flat_map(|cluster| cluster.ranks.iter().copied());
    all.filter(move |(rank, _)| !told(*rank))
}

/// One check of two findings: what shows checks has each code once.
fn damage(facts: &Facts) -> Option<Check> {
    let mut both = [damaged(facts), unreadable(&facts.ranks)].into_iter().flatten();
    let mut check = both.next()?;
    for other in both {
        check.summary = format!("{}; {}", check.summary, other.summary);
        check.count += other.count;
        check.detail.extend(other.detail);
    }
    Some(check)
}

/// Ranks that serve no more.
fn damaged(facts: &Facts) -> Option<Check> {
    let own = facts.ranks.iter().filter(|of| of.facts.state == State::Damaged);
    let own = own.map(|of| format!("mds.{}: {}", of.rank.0, of.why.as_deref().unwrap_or("see the log")));
    let mapped = silent(facts).filter(|(_, state)| *state == RankState::Damaged);
    let mapped = mapped.map(|(rank, _)| format!("fs {} mds.{} is damaged", facts.name, rank.0));
    let words = |count| match count {
        1 => "1 mds daemon damaged".to_owned(),
        count => format!("{count} mds daemons damaged"),
    };
    check_each("MDS_DAMAGE", Severity::Err, words, own.chain(mapped).collect())
}

fn degraded(facts: &Facts) -> Option<Check> {
    let on_its_way = |of: &&OfRank| match of.facts.state {
        State::Active | State::Damaged => false,
        State::Boot | State::Replay | State::Reconnect | State::Stopping | State::Stopped => true,
    };
    let own = facts.ranks.iter().filter(on_its_way);
    let own = own.map(|of| format!("mds.{}: the rank is {}", of.rank.0, of.facts.state.name()));
    let mut detail: Vec<String> = own.collect();
    let mapped = facts.cluster.as_ref().is_some_and(|cluster| {
        let nobody = cluster.ranks.is_empty() && facts.ranks.is_empty();
        cluster.version > 0 && (nobody || silent(facts).any(|(_, state)| state != RankState::Damaged))
    });
    if mapped {
        detail.push(format!("fs {} is degraded", facts.name));
    }
    let mut check =
        check_each("FS_DEGRADED", Severity::Warn, |_| "1 filesystem is degraded".to_owned(), detail)?;
    check.count = 1;
    Some(check)
}

/// What the cluster map says, of ranks that do not say it themselves.
fn of_cluster(cluster: &ClusterFacts, facts: &Facts) -> Vec<Check> {
    let name = &facts.name;
    let mut found = Vec::new();
    let count = |wanted: RankState| cluster.ranks.iter().filter(|(_, state)| *state == wanted).count();
    let failed = count(RankState::Failed);
    let up = cluster.ranks.len() - failed - count(RankState::Damaged);
    if up > 0 && up < usize::from(cluster.max_mds) {
        let summary = "1 filesystem is online with fewer MDS than max_mds";
        let detail = format!("fs {name} has {up} MDS online, but wants {}", cluster.max_mds);
        found.push(check("MDS_UP_LESS_THAN_MAX", Severity::Warn, summary, detail));
    }
    if up == 0 && cluster.version > 0 {
        let detail = format!("fs {name} is offline because no MDS is active for it.");
        found.push(check("MDS_ALL_DOWN", Severity::Err, "1 filesystem is offline", detail));
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

/// Ranks that serve what they can read.
fn unreadable(ranks: &[OfRank]) -> Option<Check> {
    let serving = ranks.iter().filter(|of| of.facts.state != State::Damaged);
    let detail = serving.filter_map(|of| {
        let (count, first) = of.damage.as_ref()?;
        let rank = of.rank.0;
        Some(format!("mds.{rank}: Metadata damage detected ({count} errors, the first: {first})"))
    });
    let words = |count| format!("{count} MDSs report damaged metadata");
    check_each("MDS_DAMAGE", Severity::Err, words, detail.collect())
}

/// What ranks are behind with.
fn of_ranks(ranks: &[OfRank]) -> Vec<Check> {
    let warn = |code, report: &str, line: &dyn Fn(&RankFacts) -> Option<String>| {
        let line = |of: &OfRank| Some(format!("mds.{}: {}", of.rank.0, line(&of.facts)?));
        let words = |count| format!("{count} MDSs {report}");
        check_each(code, Severity::Warn, words, ranks.iter().filter_map(line).collect())
    };
    let slow = warn("MDS_SLOW_REQUEST", "report slow requests", &|rank| {
        let text = format!("{} slow requests are blocked > {} secs", rank.blocked, rank.complaint_s);
        (rank.blocked > 0).then_some(text)
    });
    let large = warn("MDS_CACHE_OVERSIZED", "report oversized cache", &|rank| {
        let (used, limit) = (rank.cache_bytes, rank.cache_limit);
        let text = format!("MDS cache is too large ({}/{})", gib(used), gib(limit));
        (limit > 0 && used / CACHE_HALVES > limit / 2).then_some(text)
    });
    let behind = warn("MDS_TRIM", "behind on trimming", &|rank| {
        let (backlog, size) = (rank.journal_backlog, rank.journal_size);
        let text = format!("Behind on trimming ({}/{})", gib(backlog), gib(size));
        (size > 0 && backlog / JOURNAL_HALVES > size / 2).then_some(text)
    });
    [slow, large, behind].into_iter().flatten().collect()
}

fn late_release(ranks: &[OfRank]) -> Option<Check> {
    let what = "failing to respond to capability release";
    of_clients(ranks, |rank| &rank.late, "MDS_CLIENT_LATE_RELEASE", (what, ""))
}

fn cache_pressure(ranks: &[OfRank]) -> Option<Check> {
    let what = "failing to respond to cache pressure";
    of_clients(ranks, |rank| &rank.pressed, "MDS_CLIENT_RECALL", (what, ""))
}

fn oldest_tid(ranks: &[OfRank]) -> Option<Check> {
    let words = ("failing to advance ", "oldest client/flush tid");
    of_clients(ranks, |rank| &rank.behind, "MDS_CLIENT_OLDEST_TID", words)
}

/// A check of clients: what they fail to do, and to what; in the line of one client it is its own.
fn of_clients(
    ranks: &[OfRank],
    who: impl Fn(&RankFacts) -> &[ClientName],
    code: &'static str,
    (what, to): (&str, &str),
) -> Option<Check> {
    let its = if to.is_empty() { "" } else { "its " };
    let line = |(rank, client): (RankId, &ClientName)| {
        let ClientName { id, host, mount } = client;
        format!("mds.{}: Client {host}:{mount} {what}{its}{to}. client_id: {}", rank.0, id.0)
    };
    let all = ranks.iter().flat_map(|of| who(&of.facts).iter().map(|client| (of.rank, client)));
    check_each(code, Severity::Warn, |count| format!("{count} clients {what}{to}"), all.map(line).collect())
}

fn space(facts: &Facts) -> Option<Check> {
    let place = &facts.dir;
    if facts.ranks.iter().any(|of| of.facts.full) {
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
        let rank = OfRank { rank: RankId(0), facts: rank, why: None, damage: None };
        Facts { ranks: vec![rank], cluster, name, dir: "/srv/p".into(), space: Some(space) }
    }

    /// What is found if only this is changed.
    fn found(change: impl FnOnce(&mut RankFacts)) -> (Severity, Vec<(&'static str, String)>) {
        let mut facts = good();
        change(&mut facts.ranks[0].facts);
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
        let mut damaged = good();
        damaged.ranks[0].why = Some("no journal".into());
        damaged.ranks[0].facts.state = State::Damaged;
        let mut unread = good();
        unread.ranks[0].damage = Some((2, "meta/03: is damaged".into()));
        let text = "mds.0: Metadata damage detected (2 errors, the first: meta/03: is damaged)";
        assert_eq!(of(&unread), (Severity::Err, vec![("MDS_DAMAGE", text.to_owned())]));
        let damage = (Severity::Err, vec![("MDS_DAMAGE", "mds.0: no journal".to_owned())]);
        assert_eq!(of(&damaged), damage);
    }

    /// What broke: the second of two checks with one code took the first one's place in what is shown.
    #[test]
    fn damage_of_two_kinds_is_one_check() {
        let mut facts = good();
        let mut other = facts.ranks[0].clone();
        other.rank = RankId(1);
        facts.ranks.push(other);
        facts.ranks[0].damage = Some((2, "meta/03: is damaged".into()));
        facts.ranks[1].why = Some("no journal".into());
        facts.ranks[1].facts.state = State::Damaged;
        let found = checks(&facts);
        let shown = json(&found);
        let damage = &shown["checks"]["MDS_DAMAGE"];
        assert_eq!(damage["summary"]["message"], "1 mds daemon damaged; 1 MDSs report damaged metadata");
        assert_eq!(damage["summary"]["count"], 2);
        assert_eq!(damage["detail"][0]["message"], "mds.1: no journal");
        let mut codes: Vec<_> = found.iter().map(|check| check.code).collect();
        codes.dedup();
        assert_eq!(codes.len(), found.len(), "each code once: {codes:?}");
    }

    #[test]
    fn what_the_cluster_map_says_has_cephs_codes_too() {
        let with = |rank: bool, state, standbys, wanted| {
            let mut facts = good();
            facts.ranks.retain(|_| rank);
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
            line("FS_DEGRADED", "fs pandofs is degraded"),
            line("MDS_ALL_DOWN", "fs pandofs is offline because no MDS is active for it."),
            line("FS_WITH_FAILED_MDS", "fs pandofs has 1 failed mds"),
        ];
        assert_eq!(with(false, RankState::Failed, 0, 0), failed);
        let damaged = [
            line("MDS_DAMAGE", "fs pandofs mds.0 is damaged"),
            line("MDS_ALL_DOWN", "fs pandofs is offline because no MDS is active for it."),
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
    fn several_ranks_are_one_check_with_a_line_each() {
        let mut facts = good();
        let mut other = facts.ranks[0].clone();
        other.rank = RankId(1);
        facts.ranks.push(other);
        let cluster = facts.cluster.as_mut().expect("good");
        cluster.max_mds = 4;
        cluster.ranks = [0, 1, 2].map(|rank| (RankId(rank), RankState::Active)).into();
        cluster.ranks[2].1 = RankState::Failed;
        facts.ranks.iter_mut().for_each(|of| of.facts.blocked = 3);
        let found = checks(&facts);
        let slow = found.iter().find(|check| check.code == "MDS_SLOW_REQUEST").expect("slow");
        assert_eq!((slow.summary.as_str(), slow.count), ("2 MDSs report slow requests", 2));
        assert_eq!(slow.detail[1], "mds.1: 3 slow requests are blocked > 30 secs");
        let line = |code| found.iter().find(|check| check.code == code).map(|check| check.detail[0].as_str());
        assert_eq!(line("FS_DEGRADED"), Some("fs pandofs is degraded"), "{found:?}");
        assert_eq!(line("FS_WITH_FAILED_MDS"), Some("fs pandofs has 1 failed mds"));
        assert_eq!(line("MDS_UP_LESS_THAN_MAX"), Some("fs pandofs has 2 MDS online, but wants 4"));
        assert_eq!(line("MDS_ALL_DOWN"), None);
    }

    #[test]
    fn the_worst_check_is_the_state() {
        let mut facts = good();
        let rank = &mut facts.ranks[0].facts;
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
