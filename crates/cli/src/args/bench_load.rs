//! `pando bench`: the flags of the verbs that put load on a server, step the rank alone, or stand between a server and its
//! clients.
//!
//! Absent: what they measure (crate `bench`).

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `bench step`.
#[derive(Debug, Args)]
pub struct BenchStep {
    /// Files in all
    #[arg(long, default_value_t = 1_000_000)]
    pub files: u64,
    /// Directories, filled one after the other
    #[arg(long, default_value_t = 100)]
    pub dirs: u64,
    /// Requests stepped before the journal says that everything is durable
    #[arg(long, default_value_t = 32)]
    pub batch: u64,
    /// Answers wait for durability, as a client's over a socket do
    #[arg(long)]
    pub held: bool,
    /// Ask for files in an order without locality
    #[arg(long)]
    pub random: bool,
    /// In this order: create, lookup, getattr, unlink
    #[arg(long, value_delimiter = ',', default_value = "create,lookup,getattr,unlink")]
    pub tests: Vec<String>,
}

/// `bench calls`.
#[derive(Debug, Args)]
pub struct BenchCalls {
    /// A server, or a data folder (made a file system if it is empty)
    pub source: String,
    /// Processes with a session each; more than one needs a server
    #[arg(long, default_value_t = 1)]
    pub procs: u32,
    /// Threads of each, which share its session
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// Calls each thread keeps under way
    #[arg(long, default_value_t = 1)]
    pub depth: u64,
    /// Files per thread, in a directory of its own (PREFIX.PROCESS.THREAD, made unless it is there)
    #[arg(long, default_value_t = 100_000)]
    pub files: u64,
    /// All in one directory, PREFIX
    #[arg(long)]
    pub shared: bool,
    /// By path, each component looked up, instead of by reference
    #[arg(long)]
    pub paths: bool,
    /// Changes are answered as to a mount by root: before they are on the disk; without it when they are
    #[arg(long)]
    pub nowsync: bool,
    /// In this order: create, lookup, getattr, getdir (attributes of the directory, once for each file), unlink
    #[arg(long, value_delimiter = ',', default_value = "create,lookup,getattr,unlink")]
    pub tests: Vec<String>,
    /// Name of the directories
    #[arg(long, default_value = "calls")]
    pub prefix: String,
    /// Report CPU seconds of this process, the server
    #[arg(long, value_name = "PID")]
    pub watch_pid: Option<u32>,
}

/// `bench crowd`.
#[derive(Debug, Args)]
pub struct BenchCrowd {
    /// A server, or a data folder (made a file system if it is empty)
    #[arg(required_unless_present = "path")]
    pub source: Option<String>,
    /// Through the kernel, on this folder of any mount
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "source")]
    pub path: Option<PathBuf>,
    /// Name of the listed directory
    #[arg(long = "dir", value_name = "NAME", default_value = "crowd")]
    pub dir: String,
    /// Files in it; made first, except those that are there
    #[arg(long, default_value_t = 40_000)]
    pub entries: u64,
    /// Clients that list
    #[arg(long, default_value_t = 8)]
    pub listers: u32,
    /// How long they list
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Report CPU seconds of this process, the server
    #[arg(long, value_name = "PID")]
    pub watch_pid: Option<u32>,
}

/// `bench steady`.
#[derive(Debug, Args)]
pub struct BenchSteady {
    /// The server
    pub source: String,
    /// Folders below the root, each a group that is counted by itself; made if they are not there
    #[arg(long, value_delimiter = ',', default_value = "steady")]
    pub groups: Vec<String>,
    /// Rename files to the directories of these folders, one for each group, and back; without it they are created, asked for and unlinked
    #[arg(long, value_delimiter = ',')]
    pub to: Vec<String>,
    /// Directories of each; one number, or one for each group; made first, except those that are there
    #[arg(long, value_delimiter = ',', default_value = "100")]
    pub dirs: Vec<u32>,
    /// Clients of each group
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// 0: only make the directories
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Write each call to this file, every second: when it began (seconds since 1970), microseconds, group, client, call, `ok` or the error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub calls: Option<PathBuf>,
}

/// `bench sessions`.
#[derive(Debug, Args)]
pub struct BenchSessions {
    /// The server
    pub source: String,
    /// Sessions there are at once
    #[arg(long, default_value_t = 5_000)]
    pub sessions: u64,
    /// Files each has open, read-only
    #[arg(long, default_value_t = 200)]
    pub opens: u64,
    /// Files there are
    #[arg(long, default_value_t = 10_000)]
    pub files: u64,
    /// The sessions ask for capabilities, as mounts do
    #[arg(long)]
    pub caps: bool,
    /// Files made after the last checkpoint; then says `ready` on stderr and waits until the server was killed and started again
    #[arg(long, default_value_t = 0)]
    pub tail: u64,
    /// Threads that open, and that connect again
    #[arg(long, default_value_t = 8)]
    pub threads: u64,
    /// The server's process
    #[arg(long, value_name = "PID")]
    pub watch_pid: u32,
}

/// `bench proxy`.
#[derive(Debug, Args)]
pub struct BenchProxy {
    /// Where to listen: unix:PATH or HOST:PORT
    #[arg(long, value_name = "ADDR")]
    pub listen: String,
    /// Where to connect to
    #[arg(long, value_name = "ADDR")]
    pub to: String,
    /// Delay of each direction, in microseconds: half the round trip
    #[arg(long, default_value_t = 500)]
    pub delay_us: u64,
}
