//! The metrics page: what a server counts, in the text format of OpenMetrics. Counters go on over `perf reset`.
//!
//! Names are a promise, like commands: dashboards and alert rules (`monitoring/`) are tested against them.
//!
//! Absent: HTTP (crate `runtime`), counting.

use crate::health::{self, Facts, Severity};
use crate::life::RankLife;
use crate::machine::RankFacts;
use crate::perf;
use crate::server::Server;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use proto::cluster::RankState;
use runtime::http::{Content, Page};
use runtime::process;
use serde_json::Value;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, PoisonError};

const PATH: &str = "/metrics";
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters of the rank: name, part and key in `perf::counted`, help.
const COUNTERS: &[(&str, &str, &str, &str)] = &[
    ("pando_mds_read_bytes", "rank", "read_bytes", "File bytes read by clients"),
    ("pando_mds_written_bytes", "rank", "written_bytes", "File bytes written by clients"),
    ("pando_mds_transactions", "rank", "transactions", "Journal transactions"),
    ("pando_mds_loads", "rank", "loads", "Records asked of the metadata store"),
    ("pando_mds_parks", "rank", "parks", "Times that a request had to wait for something"),
    ("pando_mds_checkpoints", "rank", "checkpoints", "Checkpoints completed"),
    ("pando_mds_turns", "driver", "turns", "Times that a thread stepped the rank"),
    ("pando_mds_turn_nanoseconds", "driver", "turn_nanos", "Time that the rank was being stepped"),
    ("pando_mds_turns_over_5ms", "driver", "turns_over_5ms", "Turns that took longer than they should"),
    (
        "pando_mds_waits_over_5ms",
        "driver",
        "waits_over_5ms",
        "Waits for the rank that took longer than they should",
    ),
    ("pando_mds_queued", "driver", "queued", "Requests that came over sockets"),
    ("pando_mds_queue_nanoseconds", "driver", "queue_nanos", "Time from a request's arrival to its turn"),
    (
        "pando_mds_queue_over_5ms",
        "driver",
        "queue_over_5ms",
        "Requests that waited longer for their turn than they should",
    ),
    ("pando_mds_journal_bytes", "driver", "journal_bytes", "Bytes appended to the journal"),
    ("pando_mds_journal_commits", "driver", "journal_commits", "Syncs of the journal"),
];

/// Gauges of the rank: name, key, help.
const GAUGES: &[(&str, &str, &str)] = &[
    ("pando_mds_in_flight", "in_flight", "Requests without an answer"),
    ("pando_mds_sessions", "sessions", "Sessions of clients"),
    ("pando_mds_caps", "caps", "Inodes on which sessions hold capabilities, each session counted"),
    ("pando_mds_caps_bytes", "caps_bytes", "Memory of the records of capabilities"),
    ("pando_mds_recalls", "recalls", "Capabilities that were recalled and are not given back yet"),
    ("pando_mds_lined_up", "lined_up", "Requests that wait behind what their session performed"),
    ("pando_mds_cached_names", "cached_names", "Names in the cache, absent ones included"),
    ("pando_mds_cached_inodes", "cached_inodes", "Inodes in the cache"),
    ("pando_mds_cached_dirs", "cached_dirs", "Directories in the cache"),
    ("pando_mds_cache_bytes", "cache_bytes", "Memory of the cache, with that of the records of capabilities"),
    ("pando_mds_dirty", "dirty", "Names whose records differ from the store"),
    ("pando_mds_journal_backlog_bytes", "journal_backlog", "Journal that a replay would read"),
    ("pando_mds_busy_files", "busy_files", "Inodes that are open or have data operations under way"),
    ("pando_mds_locks", "locks", "File locks held"),
];

/// Each has a series from the beginning, so that what is not there reads 0.
const STATES: [RankState; 8] = [
    RankState::Failed,
    RankState::Creating,
    RankState::Replay,
    RankState::Resolve,
    RankState::Reconnect,
    RankState::Active,
    RankState::Stopping,
    RankState::Damaged,
];

impl Server {
    /// Serves the metrics page, and returns where it listens.
    ///
    /// # Errors
    /// Of starting a thread.
    pub fn metrics(self: &Arc<Self>, listener: TcpListener) -> io::Result<String> {
        let server = Arc::downgrade(self);
        let text = move || server.upgrade().map_or_else(String::new, |server| page(&server));
        let content = Content { path: PATH, kind: KIND, text: Box::new(text) };
        let page = Page::start(listener, content, self.log.clone())?;
        let at = page.at().to_string();
        self.log.info("metrics", "listening", &[("at", &at), ("path", &PATH)]);
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
        Ok(at)
    }
}

/// The page's text now.
pub(crate) fn page(server: &Server) -> String {
    let of = |life: &Arc<RankLife>| {
        let (counters, gauges) = perf::counted(&life.driver);
        Counted { rank: life.identity.rank.0.to_string(), counters, gauges }
    };
    let snapshot = Snapshot {
        ranks: server.stage.all().iter().map(of).collect(),
        facts: crate::admin::facts(server),
        usage: process::usage().unwrap_or_default(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut page = String::new();
    // Writing into a text cannot fail; what a formatter could refuse would be cut, not wrong.
    let _whole = text::encode(&mut page, &registry);
    page
}

/// What one rank has counted.
#[derive(Debug)]
struct Counted {
    rank: String,
    counters: Value,
    gauges: Value,
}

/// The numbers of one moment.
#[derive(Debug)]
struct Snapshot {
    ranks: Vec<Counted>,
    facts: Facts,
    usage: process::Usage,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        self.requests(out)?;
        for (name, part, key, help) in COUNTERS {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            for of in &self.ranks {
                let labels = [("rank", of.rank.as_str())];
                ConstCounter::new(number(&of.counters[part], key)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, key, help) in GAUGES {
            let values = self.ranks.iter().map(|of| (of.rank.clone(), number(&of.gauges, key)));
            gauges(out, name, help, values)?;
        }
        let of_ranks = |value: fn(&RankFacts) -> u64| {
            self.facts.ranks.iter().map(move |of| (of.rank.0.to_string(), value(&of.facts)))
        };
        let help = "mds_cache_memory_limit";
        gauges(out, "pando_mds_cache_limit_bytes", help, of_ranks(|rank| rank.cache_limit))?;
        let help = "Journal at which a checkpoint starts";
        gauges(out, "pando_mds_journal_size_bytes", help, of_ranks(|rank| rank.journal_size))?;
        let help = "Requests under way beyond mds_op_complaint_time";
        gauges(out, "pando_mds_blocked_requests", help, of_ranks(|rank| rank.blocked))?;
        self.cluster(out)?;
        self.space(out)?;
        self.health(out)?;
        let usage = &self.usage;
        gauge(out, "process_resident_memory_bytes", "Memory of the process", usage.resident_bytes as f64)?;
        let help = "Memory of the process without pages of files, which the system takes back";
        gauge(out, "process_anonymous_memory_bytes", help, usage.anonymous_bytes as f64)?;
        let help = "CPU time of the process, all threads";
        let seconds = ConstCounter::new(usage.cpu_ms as f64 / 1e3);
        seconds.encode(out.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)
    }
}

impl Snapshot {
    /// By kind of request, also those that never came: a rate begins with a zero.
    fn requests(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let families = [
            ("pando_mds_requests", "count", "Requests answered"),
            ("pando_mds_request_errors", "errors", "Requests answered with an error"),
        ];
        for (name, key, help) in families {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, counts) in self.ops() {
                ConstCounter::new(number(counts, key)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Time from the rank's getting a request to its answer";
        let mut family =
            out.encode_descriptor("pando_mds_request_seconds", help, None, MetricType::Counter)?;
        for (labels, counts) in self.ops() {
            ConstCounter::new(number(counts, "nanos") as f64 / 1e9).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn ops(&self) -> impl Iterator<Item = ([(&str, &str); 2], &Value)> {
        self.ranks.iter().flat_map(|of| {
            let ops = of.counters["rank"]["ops"].as_object().into_iter().flatten();
            ops.map(|(op, counts)| ([("op", op.as_str()), ("rank", of.rank.as_str())], counts))
        })
    }

    fn cluster(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(cluster) = &self.facts.cluster else { return Ok(()) };
        gauge(out, "pando_cluster_map_version", "Version of the cluster map", cluster.version as f64)?;
        let help = "Ranks by state";
        let mut family = out.encode_descriptor("pando_mds_ranks", help, None, MetricType::Gauge)?;
        for state in STATES {
            let count = cluster.ranks.iter().filter(|(_, of)| *of == state).count();
            ConstGauge::new(count as f64).encode(family.encode_family(&[("state", state.name())])?)?;
        }
        gauge(out, "pando_mds_standbys", "Daemons that stand by", cluster.standbys as f64)?;
        let help = "Lives of ranks that followed another one in this process";
        counter(out, "pando_mds_failovers", help, cluster.failovers)?;
        let help = "Threads of lives that did not end";
        gauge(out, "pando_mds_threads_left_behind", help, cluster.left_behind as f64)
    }

    fn space(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Not told by a device that does not answer: a zero would be read as full.
        if let Some(space) = self.facts.space {
            let help = "Size of the device that holds file data";
            gauge(out, "pando_data_total_bytes", help, space.total as f64)?;
            gauge(out, "pando_data_available_bytes", "Room for new file data", space.available as f64)?;
        }
        Ok(())
    }

    fn health(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let checks = health::checks(&self.facts);
        let level = match health::overall(&checks) {
            Severity::Ok => 0.0,
            Severity::Warn => 1.0,
            Severity::Err => 2.0,
        };
        gauge(out, "pando_health_status", "0 HEALTH_OK, 1 HEALTH_WARN, 2 HEALTH_ERR", level)?;
        let help = "A health check that is not good";
        let mut family = out.encode_descriptor("pando_health_detail", help, None, MetricType::Gauge)?;
        for check in checks {
            let labels = [("name", check.code), ("severity", check.severity.name())];
            ConstGauge::new(1.0).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

fn counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    ConstCounter::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// One that each rank has.
fn gauges(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (String, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (rank, value) in values {
        ConstGauge::new(value as f64).encode(family.encode_family(&[("rank", rank)])?)?;
    }
    Ok(())
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
    ConstGauge::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Space;
    use crate::server::ServerOptions;
    use std::collections::BTreeSet;
    use stdx::Wall;
    use store::folder::{FormatOptions, format};

    fn snapshot() -> Snapshot {
        let create = serde_json::json!({ "count": 3, "errors": 1, "nanos": 1_500_000_000 });
        let never = serde_json::json!({ "count": 0, "errors": 0, "nanos": 0 });
        let space = Some(Space { total: 8, free: 4, available: 4 });
        let mut facts = Facts { space, ..health::tests::good() };
        facts.ranks[0].facts.blocked = 2;
        let counters = serde_json::json!({
            "rank": { "ops": { "create": create, "link": never }, "transactions": 4 },
            "driver": { "journal_bytes": 9 },
        });
        let gauges = serde_json::json!({ "cached_inodes": 12 });
        let other =
            Counted { rank: "1".into(), counters: Value::Null, gauges: serde_json::json!({ "dirty": 5 }) };
        Snapshot {
            ranks: vec![Counted { rank: "0".into(), counters, gauges }, other],
            facts,
            usage: process::Usage { cpu_ms: 2500, resident_bytes: 8192, anonymous_bytes: 4096 },
        }
    }

    fn text() -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot()));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a text");
        text
    }

    #[test]
    fn the_page_is_what_scrapers_read() {
        let text = text();
        for line in [
            "# TYPE pando_mds_requests counter",
            "pando_mds_requests_total{op=\"create\",rank=\"0\"} 3",
            "pando_mds_request_errors_total{op=\"create\",rank=\"0\"} 1",
            "pando_mds_request_seconds_total{op=\"create\",rank=\"0\"} 1.5",
            "pando_mds_transactions_total{rank=\"0\"} 4",
            "pando_mds_journal_bytes_total{rank=\"0\"} 9",
            "pando_mds_cached_inodes{rank=\"0\"} 12.0",
            "pando_mds_dirty{rank=\"1\"} 5.0",
            "pando_mds_blocked_requests{rank=\"0\"} 2.0",
            "pando_mds_requests_total{op=\"link\",rank=\"0\"} 0",
            "pando_data_available_bytes 4.0",
            "pando_cluster_map_version 7.0",
            "pando_mds_ranks{state=\"active\"} 1.0",
            "pando_mds_ranks{state=\"failed\"} 0.0",
            "pando_mds_failovers_total 0",
            "pando_health_status 1.0",
            "pando_health_detail{name=\"MDS_SLOW_REQUEST\",severity=\"HEALTH_WARN\"} 1.0",
            "process_cpu_seconds_total 2.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// A key that nobody counts under reads 0 for ever.
    #[test]
    fn a_started_server_counts_everything_that_the_page_names() {
        let dir = tempfile::tempdir().expect("dir");
        let folder = dir.path().join("fs");
        format(&folder, &FormatOptions::new(Wall(1))).expect("format");
        let server = Server::open(&folder, &ServerOptions::default()).expect("open");
        let (counters, gauges) = perf::counted(&server.driver().expect("a life"));
        let number = |of: &Value, key: &str| of[key].as_u64().is_some();
        let lost = COUNTERS.iter().filter(|(_, part, key, _)| !number(&counters[part], key));
        let lost = lost.map(|(name, ..)| *name);
        let lost: Vec<&str> = lost
            .chain(GAUGES.iter().filter(|(_, key, _)| !number(&gauges, key)).map(|(name, ..)| *name))
            .collect();
        assert!(lost.is_empty(), "counted by nobody: {lost:?}\n{counters}\n{gauges}");
        let ops = counters["rank"]["ops"].as_object().expect("kinds of request");
        assert!(ops.len() > 20, "{ops:?}");
        for (op, counts) in ops {
            assert!(["count", "errors", "nanos"].iter().all(|key| number(counts, key)), "{op}: {counts}");
        }
        assert!(
            page(&server).lines().any(|line| line == "pando_mds_requests_total{op=\"create\",rank=\"0\"} 0")
        );
        server.stop().expect("stop");
    }

    /// A rule about a metric that nobody serves never fires.
    #[test]
    fn rules_and_dashboards_name_what_is_served() {
        let text = text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let served: BTreeSet<String> = types
            .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
            .collect();
        let rules = include_str!("../../../monitoring/pando-alerts.yml");
        let dashboard = include_str!("../../../monitoring/grafana-pando.json");
        assert!(serde_json::from_str::<Value>(dashboard).is_ok_and(|board| board["panels"].is_array()));
        for file in [rules, dashboard] {
            let words = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names = words.filter(|word| word.starts_with("pando_") || word.starts_with("process_"));
            let names: BTreeSet<String> = names.map(str::to_owned).collect();
            let strange: Vec<&String> = names.difference(&served).collect();
            assert!(names.len() > 5 && strange.is_empty(), "not served: {strange:?}");
        }
    }
}
