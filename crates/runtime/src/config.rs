//! `pando.toml`, read and validated once into typed values. Option names are CephFS's where the
//! meaning is equal.
//!
//! Absent: changing options at run time; environment variables, which the command line reads.

mod value;

use crate::addr::Addr;
use crate::log::{LogFormat, LogLevel};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use value::Bytes;

/// Where a process looks for its configuration when told nothing.
pub const PATH_DEFAULT: &str = "/etc/pando/pando.toml";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// When whole directories are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirPrefetch {
    /// Keyed reads; a directory that misses often is loaded in the background.
    #[default]
    Auto,
    Keyed,
    Full,
}

/// Every option of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes each rank's cache may use.
    pub mds_cache_memory_limit: u64,
    pub mds_dir_prefetch: DirPrefetch,
    /// Load all names when the rank begins to serve, until its cache is nearly full.
    pub mds_warmup_on_start: bool,
    /// Seconds a client's lease lasts without renewal.
    pub session_timeout: u64,
    /// Inodes that one client may keep anything of.
    pub mds_max_caps_per_client: u64,
    /// Who keeps something of no more inodes is asked for nothing because memory is short.
    pub mds_min_caps_per_client: u64,
    /// Inodes that one client is asked for to make room, and that it has not given back.
    pub mds_recall_max_caps: u64,
    /// Inode numbers delegated to a client at a time, in per cent of 8,192; 0: clients make and remove nothing by themselves.
    pub mds_client_delegate_inos_pct: u64,
    /// Names at which a directory that is placed by hash is spread over several ranks; 0: none is by itself.
    pub mds_bal_split_size: u64,
    /// With fewer names a directory that was spread by itself is merged by itself; 0: none is.
    pub mds_bal_merge_size: u64,
    /// Reads, and writes, of late at which a directory that is placed by hash is spread also with fewer names; 0: none is for that.
    pub mds_bal_split_rd: u64,
    pub mds_bal_split_wr: u64,
    /// Directories are spread and merged by themselves.
    pub mds_bal_fragment_dirs: bool,
    /// One that is spread by itself has at least as many parts as 2 to the power of this.
    pub mds_bal_split_bits: u64,
    /// Seconds in which half of what was asked of a directory is forgotten.
    pub mds_decay_halflife: u64,
    /// Milliseconds that nobody is served for where something moves, before that is given up and tried again with more.
    pub mds_move_seal_ms: u64,
    /// Each rank slot of a server has a part of the CPUs of its own.
    pub mds_rank_affinity: bool,
    /// Seconds after which a request without an answer is blocked, and what takes longer is slow.
    pub mds_op_complaint_time: u64,
    /// The most that `dir.pin.random` may be, in millionths.
    pub mds_export_ephemeral_random_max: u32,
    /// Seconds between two signs of life of a daemon, and after how many without one it is taken for dead.
    pub mds_beacon_interval: u64,
    pub mds_beacon_grace: u64,
    /// With fewer standbys `health` warns; 0: with none, too, it does not.
    pub standby_count_wanted: u64,
    /// A checkpoint starts when the journal has this many bytes.
    pub journal_size: u64,
    /// Bytes of file data kept in the page cache.
    pub data_cache_limit: u64,
    /// Data of files above this size is not kept in the page cache.
    pub data_cache_max_filesize: u64,
    /// Where `serve` listens besides DIR/pando.sock.
    pub listen: Vec<Addr>,
    /// Where a server has its metrics page, `HOST:PORT`.
    pub metrics: Option<String>,
    /// Without that place there is no server: it was asked for by name, not by a file that several servers read.
    pub metrics_must: bool,
    /// The server that commands talk to when none is named.
    pub cluster: Option<String>,
    pub log_file: Option<PathBuf>,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mds_cache_memory_limit: 4 * GIB,
            mds_dir_prefetch: DirPrefetch::Auto,
            mds_warmup_on_start: false,
            session_timeout: 10,
            mds_max_caps_per_client: 1_000_000,
            mds_min_caps_per_client: 100,
            mds_recall_max_caps: 1024,
            mds_client_delegate_inos_pct: 50,
            mds_bal_split_size: 10_000,
            mds_bal_merge_size: 50,
            mds_bal_split_rd: 25_000,
            mds_bal_split_wr: 10_000,
            mds_bal_fragment_dirs: true,
            mds_bal_split_bits: 3,
            mds_decay_halflife: 5,
            mds_move_seal_ms: 100,
            mds_rank_affinity: false,
            mds_op_complaint_time: 30,
            mds_export_ephemeral_random_max: 10_000,
            mds_beacon_interval: 4,
            mds_beacon_grace: 15,
            standby_count_wanted: 0,
            journal_size: GIB,
            data_cache_limit: 2 * GIB,
            data_cache_max_filesize: GIB,
            listen: Vec::new(),
            metrics: None,
            metrics_must: false,
            cluster: None,
            log_file: None,
            log_format: LogFormat::Logfmt,
            log_level: LogLevel::Info,
        }
    }
}

/// One option for `config help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHelp {
    pub name: &'static str,
    pub default: &'static str,
    pub help: &'static str,
}

/// All options, in the order people read them.
pub const OPTIONS: &[OptionHelp] = &[
    help("mds_cache_memory_limit", "4G", "memory of each rank's cache, 16M to 64T"),
    help(
        "mds_dir_prefetch",
        "auto",
        "load whole directories: auto, keyed (never; also false) or full (at the first miss, if it fits; also true)",
    ),
    help(
        "mds_warmup_on_start",
        "false",
        "true: a server loads all names when it starts, as `pando warmup / --metadata` would",
    ),
    help(
        "session_timeout",
        "10",
        "seconds a client's lease lasts without renewal, and a hanging mount delays others, 1 to 3600",
    ),
    help(
        "mds_max_caps_per_client",
        "1000000",
        "inodes that one client may keep, 100 to 4294967296; 19 to 23 bytes of the server each",
    ),
    help(
        "mds_min_caps_per_client",
        "100",
        "inodes that one client keeps even where memory is short, 0 to 1000000",
    ),
    help(
        "mds_recall_max_caps",
        "1024",
        "inodes that one client is asked for at a time to make room, 1 to 30000",
    ),
    help(
        "mds_client_delegate_inos_pct",
        "50",
        "inode numbers a client gets to make files by itself, in % of 8192, 0 to 100; 0: it waits for each answer",
    ),
    help(
        "mds_bal_split_size",
        "10000",
        "names at which a directory that is placed by hash is spread over several ranks, 0 to 1099511627776; 0: never",
    ),
    help(
        "mds_bal_merge_size",
        "50",
        "with fewer names a directory that was spread by itself goes back to one part, 0 to 549755813888, below half of mds_bal_split_size; 0: never",
    ),
    help(
        "mds_bal_split_rd",
        "25000",
        "reads, of which half are forgotten in mds_decay_halflife, that spread a directory placed by hash with fewer names, 0 to 1000000; 0: never",
    ),
    help("mds_bal_split_wr", "10000", "the same for writes, 0 to 1000000; 0: never"),
    help(
        "mds_bal_fragment_dirs",
        "true",
        "false: no directory is spread or merged by itself, whatever the four above say",
    ),
    help(
        "mds_bal_split_bits",
        "3",
        "a directory that is spread by itself has 2 to the power of this many parts, or four for each rank if that is more, 1 to 8",
    ),
    help(
        "mds_decay_halflife",
        "5",
        "seconds in which the counts of `pando top --by subtree`, mds_bal_split_rd and mds_bal_split_wr lose half, 1 to 10",
    ),
    help("mds_export_ephemeral_random_max", "0.01", "the most that `dir.pin.random` may be set to, 0 to 1"),
    help(
        "mds_move_seal_ms",
        "100",
        "milliseconds for which a move that does not come forward delays requests there, 1 to 10000; each further try may take twice as long",
    ),
    help(
        "mds_rank_affinity",
        "false",
        "true: each rank slot of a server has an equal part of the CPUs for itself",
    ),
    help(
        "mds_op_complaint_time",
        "30",
        "seconds after which a request without an answer is blocked, 1 to 3600",
    ),
    help(
        "mds_beacon_interval",
        "4",
        "seconds between two beacons of a daemon of `pando serve` to the coordinator, 1 to 60",
    ),
    help(
        "mds_beacon_grace",
        "15",
        "seconds without a beacon after which a daemon's rank is given to a standby, 2 to 3600",
    ),
    help("standby_count_wanted", "0", "with fewer standbys `pando health` warns, 0 to 63"),
    help("journal_size", "1G", "size of the journal at which a checkpoint starts, 16M to 1T"),
    help("data_cache_limit", "2G", "file data kept in the page cache, up to 64T"),
    help("data_cache_max_filesize", "1G", "data of larger files is not kept in the page cache"),
    help("listen", "[]", "addresses `pando serve` listens on besides DIR/pando.sock; TCP needs --insecure"),
    help("metrics", "", "where a server has its metrics page, HOST[:PORT]; nowhere when unset"),
    help("cluster", "", "the server commands talk to when none is named"),
    help("log_file", "DIR/log/pando.log", "the log, rotated at 64 MiB, 4 files"),
    help("log_format", "logfmt", "logfmt or json"),
    help("log_level", "info", "debug, info, warn or error"),
];

/// CephFS's options that are not in this version, and how things are instead.
const LATER: [(&str, &str); 17] = [
    ("mds_allow_async_dirops", "`mds_client_delegate_inos_pct = 0` has clients wait for each answer"),
    ("mds_bal_fragment_fast_factor", FRAGMENT_NOW),
    ("mds_bal_fragment_interval", FRAGMENT_NOW),
    ("mds_bal_fragment_size_max", NO_LIMIT),
    ("mds_bal_interval", NO_BALANCER),
    ("mds_bal_min_rebalance", NO_BALANCER),
    ("mds_bal_overload_epochs", NO_BALANCER),
    ("mds_bal_replicate_threshold", "a rank has a copy of a directory's inode when it needs one"),
    ("mds_dir_max_entries", NO_LIMIT),
    ("mds_dir_prefetch_backend", "mds_dir_prefetch says what is loaded ahead"),
    ("mds_export_ephemeral_distributed", "`dir.pin.distributed` counts wherever it is set"),
    (
        "mds_export_ephemeral_distributed_factor",
        "`pando dirfrag split PATH BITS` says how many parts there are",
    ),
    ("mds_export_ephemeral_random", "`dir.pin.random` counts wherever it is set"),
    ("mds_freeze_tree_timeout", "mds_move_seal_ms says for how long a move delays requests"),
    ("mds_join_fs", "a server has one file system, and its slots take any rank of it"),
    ("mds_max_export_size", "a move of any size goes in slices"),
    ("mds_reconnect_timeout", "session_timeout says how long clients have to come back"),
];
const NO_BALANCER: &str =
    "no directory moves because a rank is busy; `pando subtree move PATH RANK` moves one";
const FRAGMENT_NOW: &str = "a directory is spread as soon as mds_bal_split_size says so";
const NO_LIMIT: &str = "a directory may have any number of names";

/// Why an option of CephFS's is none here; none: nobody knows it.
#[must_use]
pub fn later(key: &str) -> Option<String> {
    let (_, instead) = LATER.iter().find(|(name, _)| *name == key)?;
    Some(format!("not in this version: {instead}"))
}

const fn help(name: &'static str, default: &'static str, help: &'static str) -> OptionHelp {
    OptionHelp { name, default, help }
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
    #[error("{file}: line {line}: {what}")]
    Syntax { file: String, line: usize, what: String },
    #[error("{file}: {option}: {what}")]
    Range { file: String, option: &'static str, what: String },
}

/// The file as written; every key may be absent, an unknown one is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    mds_cache_memory_limit: Option<Bytes>,
    mds_dir_prefetch: Option<value::Prefetch>,
    mds_warmup_on_start: Option<bool>,
    session_timeout: Option<u64>,
    mds_max_caps_per_client: Option<u64>,
    mds_min_caps_per_client: Option<u64>,
    mds_recall_max_caps: Option<u64>,
    mds_client_delegate_inos_pct: Option<u64>,
    mds_bal_split_size: Option<u64>,
    mds_bal_merge_size: Option<u64>,
    mds_bal_split_rd: Option<u64>,
    mds_bal_split_wr: Option<u64>,
    mds_bal_fragment_dirs: Option<bool>,
    mds_bal_split_bits: Option<u64>,
    mds_decay_halflife: Option<u64>,
    mds_move_seal_ms: Option<u64>,
    mds_rank_affinity: Option<bool>,
    mds_op_complaint_time: Option<u64>,
    mds_export_ephemeral_random_max: Option<value::Fraction>,
    mds_beacon_interval: Option<u64>,
    mds_beacon_grace: Option<u64>,
    standby_count_wanted: Option<u64>,
    journal_size: Option<Bytes>,
    data_cache_limit: Option<Bytes>,
    data_cache_max_filesize: Option<Bytes>,
    listen: Option<Vec<value::Place>>,
    metrics: Option<value::Page>,
    cluster: Option<String>,
    log_file: Option<PathBuf>,
    log_format: Option<value::Format>,
    log_level: Option<value::Level>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// `Io`, and those of `parse`.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Io { file: file.clone(), source })?;
        Self::parse(&text, &file)
    }

    /// Reads a text; `file` names it in errors.
    ///
    /// # Errors
    /// `Syntax` (an unknown key included) with the line, `Range` for a value that cannot work.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let raw: Raw = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count();
            // The parser quotes the key that it does not know.
            let unknown = e.message().strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
            let what = unknown.and_then(|key| Some(format!("{key}: {}", later(key)?)));
            let what = what.unwrap_or_else(|| e.message().to_owned());
            ConfigError::Syntax { file: file.to_owned(), line, what }
        })?;
        let config = Self::from_raw(raw);
        config.check(file)?;
        Ok(config)
    }

    fn from_raw(raw: Raw) -> Self {
        let d = Self::default();
        let bytes = |value: Option<Bytes>, default| value.map_or(default, |b| b.0);
        Self {
            mds_cache_memory_limit: bytes(raw.mds_cache_memory_limit, d.mds_cache_memory_limit),
            mds_dir_prefetch: raw.mds_dir_prefetch.map_or(d.mds_dir_prefetch, |p| p.0),
            mds_warmup_on_start: raw.mds_warmup_on_start.unwrap_or(d.mds_warmup_on_start),
            session_timeout: raw.session_timeout.unwrap_or(d.session_timeout),
            mds_max_caps_per_client: raw.mds_max_caps_per_client.unwrap_or(d.mds_max_caps_per_client),
            mds_min_caps_per_client: raw.mds_min_caps_per_client.unwrap_or(d.mds_min_caps_per_client),
            mds_recall_max_caps: raw.mds_recall_max_caps.unwrap_or(d.mds_recall_max_caps),
            mds_client_delegate_inos_pct: raw
                .mds_client_delegate_inos_pct
                .unwrap_or(d.mds_client_delegate_inos_pct),
            mds_bal_split_size: raw.mds_bal_split_size.unwrap_or(d.mds_bal_split_size),
            mds_bal_merge_size: raw.mds_bal_merge_size.unwrap_or_else(|| usual_merge_size(&raw)),
            mds_bal_split_rd: raw.mds_bal_split_rd.unwrap_or(d.mds_bal_split_rd),
            mds_bal_split_wr: raw.mds_bal_split_wr.unwrap_or(d.mds_bal_split_wr),
            mds_bal_fragment_dirs: raw.mds_bal_fragment_dirs.unwrap_or(d.mds_bal_fragment_dirs),
            mds_bal_split_bits: raw.mds_bal_split_bits.unwrap_or(d.mds_bal_split_bits),
            mds_decay_halflife: raw.mds_decay_halflife.unwrap_or(d.mds_decay_halflife),
            mds_move_seal_ms: raw.mds_move_seal_ms.unwrap_or(d.mds_move_seal_ms),
            mds_rank_affinity: raw.mds_rank_affinity.unwrap_or(d.mds_rank_affinity),
            mds_op_complaint_time: raw.mds_op_complaint_time.unwrap_or(d.mds_op_complaint_time),
            mds_export_ephemeral_random_max: raw
                .mds_export_ephemeral_random_max
                .map_or(d.mds_export_ephemeral_random_max, |most| most.0),
            mds_beacon_interval: raw.mds_beacon_interval.unwrap_or(d.mds_beacon_interval),
            mds_beacon_grace: raw.mds_beacon_grace.unwrap_or(d.mds_beacon_grace),
            standby_count_wanted: raw.standby_count_wanted.unwrap_or(d.standby_count_wanted),
            journal_size: bytes(raw.journal_size, d.journal_size),
            data_cache_limit: bytes(raw.data_cache_limit, d.data_cache_limit),
            data_cache_max_filesize: bytes(raw.data_cache_max_filesize, d.data_cache_max_filesize),
            listen: raw.listen.map_or(d.listen, |l| l.into_iter().map(|p| p.0).collect()),
            metrics: raw.metrics.map(|page| page.0),
            metrics_must: d.metrics_must,
            cluster: raw.cluster,
            log_file: raw.log_file,
            log_format: raw.log_format.map_or(d.log_format, |f| f.0),
            log_level: raw.log_level.map_or(d.log_level, |l| l.0),
        }
    }

    fn check(&self, file: &str) -> Result<(), ConfigError> {
        let range = |option, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let what = format!("{value} is not between {low} and {high}");
            Err(ConfigError::Range { file: file.to_owned(), option, what })
        };
        range("mds_cache_memory_limit", self.mds_cache_memory_limit, 16 * MIB, 1 << 46)?;
        range("session_timeout", self.session_timeout, 1, 3600)?;
        range("mds_max_caps_per_client", self.mds_max_caps_per_client, 100, 1 << 32)?;
        range("mds_min_caps_per_client", self.mds_min_caps_per_client, 0, 1_000_000)?;
        range("mds_recall_max_caps", self.mds_recall_max_caps, 1, 30_000)?;
        range("mds_client_delegate_inos_pct", self.mds_client_delegate_inos_pct, 0, 100)?;
        range("mds_bal_split_size", self.mds_bal_split_size, 0, 1 << 40)?;
        // One that is merged is not to be spread again with the next few names.
        let split = self.mds_bal_split_size;
        if split > 0 && self.mds_bal_merge_size > 0 && self.mds_bal_merge_size >= split / 2 {
            let what =
                format!("{} is not below half of mds_bal_split_size, {split}", self.mds_bal_merge_size);
            return Err(ConfigError::Range { file: file.to_owned(), option: "mds_bal_merge_size", what });
        }
        range("mds_bal_merge_size", self.mds_bal_merge_size, 0, 1 << 39)?;
        range("mds_bal_split_rd", self.mds_bal_split_rd, 0, 1_000_000)?;
        range("mds_bal_split_wr", self.mds_bal_split_wr, 0, 1_000_000)?;
        range("mds_bal_split_bits", self.mds_bal_split_bits, 1, 8)?;
        // Beyond it the count of a rank's CPU time would come to its end.
        range("mds_decay_halflife", self.mds_decay_halflife, 1, 10)?;
        range("mds_move_seal_ms", self.mds_move_seal_ms, 1, 10_000)?;
        range("mds_op_complaint_time", self.mds_op_complaint_time, 1, 3600)?;
        range("mds_beacon_interval", self.mds_beacon_interval, 1, 60)?;
        // One that is late by an interval is not dead.
        range("mds_beacon_grace", self.mds_beacon_grace, 2 * self.mds_beacon_interval, 3600)?;
        range("standby_count_wanted", self.standby_count_wanted, 0, 63)?;
        range("journal_size", self.journal_size, 16 * MIB, 1 << 40)?;
        range("data_cache_limit", self.data_cache_limit, 0, 1 << 46)?;
        range("data_cache_max_filesize", self.data_cache_max_filesize, 0, u64::MAX)
    }
}

/// Where nobody says it: the default, or less where directories are spread with few names.
fn usual_merge_size(raw: &Raw) -> u64 {
    let default = Config::default().mds_bal_merge_size;
    match raw.mds_bal_split_size.unwrap_or(0) {
        0 => default,
        split => default.min((split / 2).saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_empty_file_gives_the_defaults_and_values_are_read() {
        assert_eq!(Config::parse("", "f").expect("empty"), Config::default());
        let text = "mds_cache_memory_limit = \"512M\"\nmds_dir_prefetch = true\n\
                    listen = [\"unix:/run/pando/a.sock\", \"h:1\"]\nlog_format = \"json\"\njournal_size = 33554432\n";
        let config = Config::parse(text, "f").expect("good");
        assert_eq!(config.mds_cache_memory_limit, 512 * MIB);
        assert_eq!(config.mds_dir_prefetch, DirPrefetch::Full);
        assert_eq!(config.listen.len(), 2);
        assert_eq!((config.log_format, config.journal_size), (LogFormat::Json, 32 * MIB));
    }

    #[test]
    fn mistakes_name_key_and_line() {
        let text = "session_timeout = 10\n\nmds_cache_memory = 5\n";
        let error = Config::parse(text, "pando.toml").expect_err("unknown key").to_string();
        assert!(error.starts_with("pando.toml: line 3: unknown field `mds_cache_memory`"), "{error}");
        let error = Config::parse("journal_size = \"5X\"", "f").expect_err("unit").to_string();
        assert!(error.contains("line 1") && error.contains("5X"), "{error}");
        let error = Config::parse("session_timeout = 0", "f").expect_err("range").to_string();
        assert!(error.contains("session_timeout"), "{error}");
        assert!(Config::parse("listen = [\"/x\"]", "f").is_err());
        assert!(Config::parse("metrics = \"unix:/x\"", "f").is_err());
    }

    #[test]
    fn options_of_cephfs_that_are_none_here_say_what_is_instead() {
        let error =
            Config::parse("mds_bal_split_bits = 4\nmds_dir_max_entries = 5\n", "f").expect_err("none");
        let expected =
            "f: line 2: mds_dir_max_entries: not in this version: a directory may have any number of names";
        assert_eq!(error.to_string(), expected);
        assert!(LATER.iter().all(|(later, _)| OPTIONS.iter().all(|option| option.name != *later)));
        for (text, is_good) in [
            ("mds_decay_halflife = 10", true),
            ("mds_decay_halflife = 11", false),
            ("mds_bal_split_bits = 8", true),
            ("mds_bal_split_bits = 9", false),
            ("mds_bal_fragment_dirs = false", true),
        ] {
            assert_eq!(Config::parse(text, "f").is_ok(), is_good, "{text}");
        }
    }

    /// What is merged is far from being spread again, also where an older file says nothing of merging.
    #[test]
    fn nothing_is_merged_that_would_soon_be_spread() {
        let parse = |text: &str| Config::parse(text, "f");
        let error = parse("mds_bal_split_size = 100\nmds_bal_merge_size = 50").expect_err("half").to_string();
        assert_eq!(error, "f: mds_bal_merge_size: 50 is not below half of mds_bal_split_size, 100");
        for (text, merge) in [
            ("mds_bal_split_size = 100\nmds_bal_merge_size = 49", 49),
            ("mds_bal_split_size = 0\nmds_bal_merge_size = 70000", 70_000),
            ("mds_bal_merge_size = 0", 0),
            ("mds_bal_split_size = 20", 9),
            ("mds_bal_split_size = 1", 0),
            ("mds_bal_split_size = 0", 50),
        ] {
            assert_eq!(parse(text).expect("good").mds_bal_merge_size, merge, "{text}");
        }
    }

    #[test]
    fn help_names_every_option_the_parser_knows() {
        // The parser lists what it knows where it meets what it does not.
        let error = Config::parse("no_option = 1", "f").expect_err("unknown").to_string();
        let (_, known) = error.split_once("expected one of ").expect("the parser's list");
        let known: BTreeSet<&str> = known.split('`').skip(1).step_by(2).collect();
        let named: BTreeSet<&str> = OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(named.len(), OPTIONS.len(), "an option is there twice");
        assert_eq!(named, known);
    }

    #[test]
    fn a_fraction_is_between_0_and_1() {
        for (text, millionths) in [("0", 0), ("1", 1_000_000), ("0.25", 250_000)] {
            let text = format!("mds_export_ephemeral_random_max = {text}");
            let config = Config::parse(&text, "f").expect("good");
            assert_eq!(config.mds_export_ephemeral_random_max, millionths);
        }
        for text in ["-0.1", "1.5", "2", "\"0.5\"", "nan"] {
            let line = format!("mds_export_ephemeral_random_max = {text}");
            let refused = Config::parse(&line, "f");
            assert!(refused.is_err_and(|error| error.to_string().contains("from 0 to 1")), "{text}");
        }
    }

    /// An operator looks for them there.
    #[test]
    fn every_option_is_in_the_operators_table() {
        let text = include_str!("../../../docs/OPERATIONS.md");
        for OptionHelp { name, default, help } in OPTIONS {
            let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
            let row = format!("| `{name}` | {default} | {help} |");
            assert!(text.lines().any(|line| line == row), "not in docs/OPERATIONS.md: {row}");
        }
    }
}
