//! `pando bench`: its verbs and their flags; mdtest's are those of hpc/ior.
//!
//! Absent: what they measure (crate `bench`).

use super::bench_load::{BenchCalls, BenchCrowd, BenchProxy, BenchSessions, BenchSteady, BenchStep};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// mdtest (hpc/ior) on a directory, with processes instead of MPI tasks
    Mdtest(BenchMdtest),
    /// One task of a running mdtest
    #[command(hide = true)]
    MdtestTask { task: u32 },
    /// Time `rm -r` of a directory of empty files
    Rm(BenchRm),
    /// The rank with journal and store, no kernel, no network, as Lustre's mds-survey
    Survey(BenchSurvey),
    /// Lookups of names the rank does not have in memory
    Cold(BenchCold),
    /// Memory a cached file costs
    Memory(BenchMemory),
    /// One large directory: listed without end while another client changes it
    List(BenchList),
    /// The rank machine alone, stepped in one thread: no journal, store or socket
    Step(BenchStep),
    /// Programs on the Rust API: threads, processes, many calls under way
    Calls(BenchCalls),
    /// One process of running calls
    #[command(hide = true)]
    CallsTask { task: u32 },
    /// Many clients that list one directory, beside one that changes another and one that stats
    Crowd(BenchCrowd),
    /// Memory of idle sessions with open files, and their way back after a crash
    Sessions(BenchSessions),
    /// A load that goes on, and what each second brought, for ranks that come, go and die meanwhile
    Steady(BenchSteady),
    /// Between a server and its clients: delays what they say, as a network does
    Proxy(BenchProxy),
}

/// `bench mdtest`: mdtest's flags.
#[derive(Debug, Args)]
pub struct BenchMdtest {
    /// Where to work
    #[arg(short = 'd', long = "dir", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Number of processes
    #[arg(long, default_value_t = 1)]
    pub np: u32,
    /// Files only
    #[arg(short = 'F')]
    pub files_only: bool,
    /// Directories only
    #[arg(short = 'D')]
    pub dirs_only: bool,
    /// Items in leaf directories only
    #[arg(short = 'L')]
    pub leaf_only: bool,
    /// Bytes to write to each file after creation
    #[arg(short = 'w', default_value_t = 0)]
    pub write_bytes: usize,
    /// Bytes to read from each file
    #[arg(short = 'e', default_value_t = 0)]
    pub read_bytes: usize,
    /// fsync after writing
    #[arg(short = 'y')]
    pub fsync: bool,
    /// Depth of the tree
    #[arg(short = 'z', default_value_t = 0)]
    pub depth: u32,
    /// Branching factor of the tree
    #[arg(short = 'b', default_value_t = 1)]
    pub branch: u32,
    /// Items per directory
    #[arg(short = 'I', default_value_t = 0)]
    pub items_per_dir: u64,
    /// Items per process over the whole tree
    #[arg(short = 'n', default_value_t = 0)]
    pub items: u64,
    /// A directory of its own for each process
    #[arg(short = 'u')]
    pub unique: bool,
    /// Stat, read and remove the files of the process this much further
    #[arg(short = 'N', default_value_t = 0)]
    pub stride: u32,
    /// Only create
    #[arg(short = 'C')]
    pub create: bool,
    /// Only stat
    #[arg(short = 'T')]
    pub stat: bool,
    /// Only read
    #[arg(short = 'E')]
    pub read: bool,
    /// Only remove
    #[arg(short = 'r')]
    pub remove: bool,
    /// Stat in random order
    #[arg(short = 'R')]
    pub random: bool,
    /// Show the making and removing of the tree as phases
    #[arg(short = 't')]
    pub time_unique: bool,
    /// Stop creating after this many seconds
    #[arg(short = 'W', default_value_t = 0)]
    pub stonewall_seconds: u64,
    /// Iterations
    #[arg(short = 'i', default_value_t = 1)]
    pub iterations: u32,
    /// Process whose CPU seconds are shown per phase
    #[arg(long)]
    pub watch_pid: Option<u32>,
}

impl BenchMdtest {
    /// As the run wants them.
    #[must_use]
    pub fn options(&self) -> bench::mdtest::Options {
        bench::mdtest::Options {
            dir: self.dir.clone(),
            np: self.np,
            files_only: self.files_only,
            dirs_only: self.dirs_only,
            leaf_only: self.leaf_only,
            write_bytes: self.write_bytes,
            read_bytes: self.read_bytes,
            fsync: self.fsync,
            depth: self.depth,
            branch: self.branch,
            items_per_dir: self.items_per_dir,
            items: self.items,
            unique: self.unique,
            stride: self.stride,
            create: self.create,
            stat: self.stat,
            read: self.read,
            remove: self.remove,
            random: self.random,
            time_unique: self.time_unique,
            stonewall_seconds: self.stonewall_seconds,
            iterations: self.iterations,
            watch_pid: self.watch_pid,
        }
    }
}

/// `bench rm`.
#[derive(Debug, Args)]
pub struct BenchRm {
    /// Where to work
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Files that are made and removed
    #[arg(long, default_value_t = 10_000)]
    pub files: u64,
}

/// A data folder for a run of its own.
#[derive(Debug, Args)]
pub struct BenchFolder {
    /// Data folder; made a file system if it is empty
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// `bench survey`.
#[derive(Debug, Args)]
pub struct BenchSurvey {
    #[command(flatten)]
    pub folder: BenchFolder,
    /// Threads that ask, each on its own
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// Directories: as many as threads (private) unless given; 1 = shared; more = each thread fills several of its own
    #[arg(long)]
    pub dirs: Option<u32>,
    /// Active ranks; thread N works at rank N modulo their number
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ranks: u16,
    /// Files per thread
    #[arg(long, default_value_t = 100_000)]
    pub files: u64,
    /// Requests handed over together
    #[arg(long, default_value_t = 32)]
    pub depth: u64,
    /// In this order: create, lookup, getattr, setxattr, unlink, mkdir, rmdir
    #[arg(long, value_delimiter = ',', default_value = "create,lookup,getattr,setxattr,unlink,mkdir,rmdir")]
    pub tests: Vec<String>,
    /// Name of the directories
    #[arg(long, default_value = "survey")]
    pub prefix: String,
}

/// `bench cold`.
#[derive(Debug, Args)]
pub struct BenchCold {
    #[command(flatten)]
    pub folder: BenchFolder,
    /// Threads that ask, each on its own
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// Requests each thread keeps under way
    #[arg(long, default_value_t = 64)]
    pub depth: u64,
    /// Directories the files are in
    #[arg(long, default_value_t = 100)]
    pub dirs: u64,
    /// Files in all
    #[arg(long, default_value_t = 1_000_000)]
    pub files: u64,
    /// Stop looking up after this long
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// The files are there from an earlier run
    #[arg(long)]
    pub keep: bool,
}

/// `bench memory`.
#[derive(Debug, Args)]
pub struct BenchMemory {
    #[command(flatten)]
    pub folder: BenchFolder,
    /// Files in all
    #[arg(long, default_value_t = 5_000_000)]
    pub files: u64,
    /// Directories they are in
    #[arg(long, default_value_t = 500)]
    pub dirs: u32,
    /// With one client's capabilities on each file
    #[arg(long)]
    pub caps: bool,
}

/// `bench list`.
#[derive(Debug, Args)]
pub struct BenchList {
    /// A server, or a data folder (made a file system if it is empty)
    pub source: String,
    /// Name of the directory
    #[arg(long = "dir", value_name = "NAME", default_value = "list")]
    pub dir: String,
    /// Names that stay; made first, except those that are there
    #[arg(long, default_value_t = 1_000_000)]
    pub entries: u64,
    /// No listing begins after this long; 0: only make the names
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Clients that list; 0: only the changes, for comparison
    #[arg(long, default_value_t = 1)]
    pub listers: u32,
    /// Bytes of a page
    #[arg(long, default_value_t = 65_536)]
    pub page_bytes: u32,
    /// Ask for attributes with the names
    #[arg(long)]
    pub attrs: bool,
    /// Report CPU seconds of this process instead of the run's own
    #[arg(long, value_name = "PID")]
    pub watch_pid: Option<u32>,
}
