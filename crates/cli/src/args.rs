//! The command tree, as clap reads it. The structs here are the whole interface of this version: help,
//! completion and man pages come from them.
//!
//! Absent: verbs of later versions (`later.rs` answers them), and any effect.

mod bench;
mod bench_load;
mod cluster;
mod running;
mod trial;

pub use bench::{Bench, BenchCold, BenchFolder, BenchList, BenchMdtest, BenchMemory, BenchRm, BenchSurvey};
pub use bench_load::{BenchCalls, BenchCrowd, BenchProxy, BenchSessions, BenchSteady, BenchStep};
pub use cluster::{Dirfrag, Fs, Mds, Subtree, Tell};
pub use running::{By, Cache, Client, Health, Ops, Perf, Stats, Status, Top, Warmup};
pub use trial::{Demo, Load, LoadPhase, LoadWrite, Phase};

use crate::output::Format;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

/// One POSIX namespace, served by one metadata rank or several.
#[derive(Debug, Parser)]
#[command(name = "pando", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "SOURCE is /DATA-DIR (served by the mount itself), unix:SOCK, or HOST[:7420][,HOST...][:/subdir]."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options every verb takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// How results are written
    #[arg(long, global = true, value_enum, default_value_t = Format::Plain, value_name = "FORMAT")]
    pub format: Format,
    /// As `--format json`: what people type who come from tools that have it
    #[arg(long, global = true, hide = true)]
    pub json: bool,
    /// No messages on stderr except errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// More messages on stderr
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// No colours
    #[arg(long, global = true)]
    pub no_color: bool,
    /// The server to ask
    #[arg(long, global = true, value_name = "SOURCE")]
    pub cluster: Option<String>,
    /// Configuration file of this process
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub conf: Option<PathBuf>,
}

impl Global {
    /// How results and errors are written.
    #[must_use]
    pub const fn form(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make an empty folder a file system
    Format(Format_),
    /// Mount a file system; a data folder is made one if it is empty
    Mount(Mount),
    /// Unmount
    Umount(Umount),
    /// Serve a data folder to mounts on this host
    Serve(Serve),
    /// State of a server: cluster, services, data, io, journal
    Status(Status),
    /// What is wrong with a server, in Ceph's codes and words
    Health(Health),
    /// The file system as a whole: its ranks, the cluster map, its settings
    #[command(subcommand)]
    Fs(Fs),
    /// Ranks and the daemons that carry them
    #[command(subcommand)]
    Mds(Mds),
    /// One rank's counters, cache, sessions, requests
    Tell(Tell),
    /// Directories whose content is with a rank of their own
    #[command(subcommand)]
    Subtree(Subtree),
    /// Parts of a directory's names, which several ranks may have
    #[command(subcommand)]
    Dirfrag(Dirfrag),
    /// Who asks how much of a server
    Top(Top),
    /// What a mount does, line by line
    Stats(Stats),
    /// Requests under way and what they wait for
    Ops(Ops),
    /// Counters of a server
    #[command(subcommand)]
    Perf(Perf),
    /// The server's cache of metadata
    #[command(subcommand)]
    Cache(Cache),
    /// Bring a tree into the server's cache before somebody asks for it
    Warmup(Warmup),
    /// Check a data folder that nobody serves
    ///
    /// Exit codes are those of fsck(8): 0 clean, 1 corrected, 4 errors left, 8 operational error, 16 usage.
    Fsck(Fsck),
    /// Write a checkpoint; of a folder that nobody serves also give back the metadata store's free space
    ///
    /// On a folder that is served, or without a folder, the server is told to begin a checkpoint, and nothing is
    /// given back. File data needs no command: the server compacts it by itself.
    Compact(Compact),
    /// Consistent copies of a file system
    #[command(subcommand)]
    Backup(Backup),
    /// Look into a journal
    #[command(subcommand)]
    Journal(Journal),
    /// Settings of processes on this host (pando.toml)
    #[command(subcommand)]
    Config(Config),
    /// Clients of a server
    #[command(subcommand)]
    Client(Client),
    /// Performance runs
    #[command(subcommand, after_help = "`--json` is short for `--format json`.")]
    Bench(Bench),
    /// Version of this program and of the format it writes
    Version,
    /// Print a completion script
    Completion(Completion),
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man(Man),
    /// The last three steps of `make run`
    #[command(hide = true)]
    Demo(Demo),
    /// A load that notes what was made durable, and its verification
    #[command(hide = true, subcommand)]
    Load(Load),
}

/// `format`.
#[derive(Debug, Args)]
pub struct Format_ {
    /// The empty folder; made if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Name of the file system
    #[arg(long, default_value = "pandofs")]
    pub name: String,
    /// Where metadata lies, if not in DIR
    #[arg(long, value_name = "D", value_hint = ValueHint::DirPath)]
    pub meta_dir: Option<PathBuf>,
    /// Where the journal lies, if not in DIR
    #[arg(long, value_name = "D", value_hint = ValueHint::DirPath)]
    pub journal_dir: Option<PathBuf>,
    /// Where file data lies, if not in DIR
    #[arg(long, value_name = "D", value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// Files up to this size are packed together
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = stdx::size::parse)]
    pub small_file: u64,
}

/// `mount`.
#[derive(Debug, Args)]
#[command(override_usage = "pando mount [OPTIONS] SOURCE MNT\n       pando mount [OPTIONS] --data DIR MNT")]
#[command(after_help = crate::mount_words::help())]
pub struct Mount {
    /// Where the file system is, and where to put it
    #[arg(num_args = 1..=2, required = true, value_names = ["SOURCE", "MNT"], value_hint = ValueHint::DirPath)]
    pub places: Vec<String>,
    /// The same as SOURCE
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<String>,
    /// Stay in the foreground
    #[arg(short)]
    pub foreground: bool,
    /// Mount options, separated by commas; see below
    #[arg(short, value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub timeout: u64,
    /// This process is the daemon: tells on stdout when the mount stands
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// `umount`.
#[derive(Debug, Args)]
pub struct Umount {
    /// Where it is mounted
    #[arg(value_name = "MNT", value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// At once; requests under way fail
    #[arg(long, conflicts_with = "lazy")]
    pub force: bool,
    /// From the tree at once, served until the last file is closed
    #[arg(long)]
    pub lazy: bool,
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The data folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Where to listen, besides DIR/pando.sock
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub listen: Vec<String>,
    /// An address as of `--listen` for mounts of the directory PATH of the file system: all else is refused there
    #[arg(long, value_name = "PATH=ADDRESS")]
    pub limited: Vec<String>,
    /// Listen on TCP without TLS: only on a trusted network
    #[arg(long)]
    pub insecure: bool,
    /// Slots for ranks in this process, 1 to 64: `max_mds` of them are active, the others stand by and take over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(server::RANK_SLOTS_MAX)))]
    pub ranks: u16,
    /// Serve the metrics page for Prometheus there, over HTTP: http://HOST:PORT/metrics
    #[arg(long, value_name = "HOST[:PORT]")]
    pub metrics: Option<String>,
    #[arg(long, hide = true)]
    pub tls_cert: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub tls_key: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub tls_ca: Option<PathBuf>,
}

/// `fsck`.
#[derive(Debug, Args)]
pub struct Fsck {
    /// The data folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Put right what can be; what is taken out is kept as text, inodes without a name go to /lost+found
    #[arg(long)]
    pub repair: bool,
}

/// `compact`.
#[derive(Debug, Args)]
pub struct Compact {
    /// The data folder (default: that of the server that is found, which only writes a checkpoint)
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// `backup`.
#[derive(Debug, Subcommand)]
pub enum Backup {
    /// Copy the file system of a data folder, served or not, into one file
    Create {
        /// The data folder
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// The backup, which is made
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// What backups a folder holds
    Ls {
        /// A folder with backups in it
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Read a backup whole and check every record
    Verify {
        /// The backup
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Make an empty folder the file system a backup holds
    Restore {
        /// The backup
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The data folder; made if it is not there
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// `journal`.
#[derive(Debug, Subcommand)]
pub enum Journal {
    /// List the transactions in a data folder's journal
    Inspect {
        /// The data folder
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// The rank whose journal is meant
        #[arg(long, default_value_t = 0)]
        rank: u16,
        /// Start at this position
        #[arg(long, default_value_t = 0, value_name = "POSITION")]
        from: u64,
        /// Stop after so many transactions
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
}

/// `config`.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum Config {
    /// Every setting with its value
    Ls,
    /// One setting's value
    Get {
        /// Its name
        key: String,
    },
    /// Write a setting into the configuration file
    Set {
        /// Its name
        key: String,
        /// What it is to be
        value: String,
    },
    /// Take a setting out of the configuration file
    Rm {
        /// Its name
        key: String,
    },
    /// What a setting means; all of them without KEY
    Help {
        /// Its name
        key: Option<String>,
    },
}

/// `completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// For which shell
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}
