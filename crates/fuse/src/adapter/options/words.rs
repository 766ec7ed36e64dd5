//! The table of mount options: what the parser takes and what help and man pages show are the same lines.
//!
//! Absent: the texts of refusals (`options.rs`).

use super::{Locks, Options, Sync};
use crate::mountpoint::Atime;
use crate::transport::Transport;

/// What a word does.
pub(super) enum Meaning {
    /// Stands alone.
    Switch(fn(&mut Options)),
    /// Wants a value; false when it is none of its values, which are these.
    Value(fn(&mut Options, &str) -> bool, &'static str),
    /// Accepted, without a meaning here: mount(8)'s own, and what this version always does.
    Nothing,
    /// Promised for later versions.
    Later,
}

/// Options that people choose between, or one of its own.
pub struct OptionLine {
    /// As it is written.
    pub shown: &'static str,
    /// In a sentence; empty: not shown, because it comes later.
    pub help: &'static str,
    pub(super) words: &'static [(&'static str, Meaning)],
}

use Meaning::{Later, Nothing, Switch, Value};

/// All mount options, in the order people read them.
pub static OPTION_LINES: &[OptionLine] = &[
    OptionLine {
        shown: "ro | rw",
        help: "read only, or not (default)",
        words: &[("ro", Switch(|o| o.read_only = true)), ("rw", Switch(|o| o.read_only = false))],
    },
    OptionLine {
        shown: "noatime | relatime | strictatime | nodiratime",
        help: "when reading changes the access time (default: relatime)",
        words: &[
            ("noatime", Switch(|o| o.atime = Atime::Never)),
            ("relatime", Switch(|o| o.atime = Atime::Relative)),
            ("strictatime", Switch(|o| o.atime = Atime::Strict)),
            ("nodiratime", Switch(|o| o.atime = Atime::NeverOfDirectories)),
        ],
    },
    OptionLine {
        shown: "atime | diratime | norelatime | nostrictatime",
        help: "as relatime",
        words: &[
            ("atime", Switch(|o| o.atime = Atime::Relative)),
            ("diratime", Switch(|o| o.atime = Atime::Relative)),
            ("norelatime", Switch(|o| o.atime = Atime::Relative)),
            ("nostrictatime", Switch(|o| o.atime = Atime::Relative)),
        ],
    },
    OptionLine {
        shown: "suid | nosuid",
        help: "whether set-user-ID programs work (default: suid)",
        words: &[("suid", Switch(|o| o.allow_suid = true)), ("nosuid", Switch(|o| o.allow_suid = false))],
    },
    OptionLine {
        shown: "dev | nodev",
        help: "whether device files work (default: dev)",
        words: &[("dev", Switch(|o| o.allow_dev = true)), ("nodev", Switch(|o| o.allow_dev = false))],
    },
    OptionLine {
        shown: "exec | noexec",
        help: "whether programs can be run (default: exec)",
        words: &[("exec", Switch(|o| o.noexec = false)), ("noexec", Switch(|o| o.noexec = true))],
    },
    OptionLine {
        shown: "allow_other",
        help: "users other than the one who mounts get in (default as root)",
        words: &[("allow_other", Switch(|o| o.allow_other = Some(true)))],
    },
    OptionLine {
        shown: "nowsync",
        help: "nothing waits for the disk that need not (default)",
        words: &[("nowsync", Switch(|o| o.sync = Sync::No))],
    },
    OptionLine {
        shown: "wsync | dirsync",
        help: "changes of names, over a socket of all metadata, return when durable",
        words: &[("wsync", Switch(|o| o.sync = Sync::Names)), ("dirsync", Switch(|o| o.sync = Sync::Names))],
    },
    OptionLine {
        shown: "sync",
        help: "every change returns when durable, as with O_SYNC",
        words: &[("sync", Switch(|o| o.sync = Sync::All))],
    },
    OptionLine {
        shown: "acl | noacl",
        help: "whether POSIX ACLs work (default: acl)",
        words: &[("acl", Switch(|o| o.no_acl = false)), ("noacl", Switch(|o| o.no_acl = true))],
    },
    OptionLine {
        shown: "locks=cluster|local",
        help: "file locks are seen by all mounts (default), or by this one only",
        words: &[("locks", Value(locks, "cluster or local"))],
    },
    OptionLine {
        shown: "noopen",
        help: "with locks=local: opening and closing files asks nobody",
        words: &[("noopen", Switch(|o| o.no_open = true))],
    },
    OptionLine {
        shown: "subdir=PATH",
        help: "mount this directory of the file system as the root",
        words: &[("subdir", Value(subdir, "a path in the file system, without `..`"))],
    },
    OptionLine {
        shown: "limited",
        help: "with subdir=: the server refuses this mount all that is elsewhere",
        words: &[("limited", Switch(|o| o.limited = true))],
    },
    OptionLine {
        shown: "nocreate",
        help: "make neither a file system nor MNT where there is none",
        words: &[("nocreate", Switch(|o| o.nocreate = true))],
    },
    OptionLine {
        shown: "conf=FILE",
        help: "configuration file of this mount",
        words: &[("conf", Value(|o, value| text(&mut o.conf, value), "a file"))],
    },
    OptionLine {
        shown: "log=FILE",
        help: "where this mount logs",
        words: &[("log", Value(|o, value| text(&mut o.log, value), "a file"))],
    },
    OptionLine {
        shown: "mount_timeout=SECONDS",
        help: "as --timeout",
        words: &[("mount_timeout", Value(mount_timeout, "a whole number of seconds"))],
    },
    OptionLine {
        shown: "metrics=HOST[:PORT]",
        help: "serve the metrics page for Prometheus there; of a mount with its server in it",
        words: &[("metrics", Value(|o, value| text(&mut o.metrics, value), "HOST or HOST:PORT"))],
    },
    OptionLine {
        shown: "rasize=SIZE",
        help: "what the kernel reads ahead; K, M, G and T may follow",
        words: &[("rasize", Value(rasize, "a size below 4G, as 4096, 64K or 1M"))],
    },
    OptionLine {
        shown: "data_cache=SIZE",
        help: "file data kept in the page cache, of a mount with its server in it",
        words: &[("data_cache", Value(data_cache, "a size, as 64K, 512M or 2G"))],
    },
    OptionLine {
        shown: "caps_max=N",
        help: "keep something of at most so many inodes (default: 0, as the server likes)",
        words: &[("caps_max", Value(caps_max, "a whole number, at most 4294967295"))],
    },
    OptionLine {
        shown: "client_cache_size=N",
        help: "the kernel is to know at most so many inodes (default: what a quarter of the memory holds, at 200 bytes each; 0: no limit)",
        words: &[("client_cache_size", Value(client_cache_size, "a whole number"))],
    },
    OptionLine {
        shown: "recover_session=no|clean",
        help: "after an eviction fail (default), or begin a new session",
        words: &[("recover_session", Value(recover_session, "no or clean"))],
    },
    OptionLine {
        shown: "io_uring=auto|on|off",
        help: "how requests come from the kernel (default: auto)",
        words: &[("io_uring", Value(io_uring, "auto, on or off"))],
    },
    OptionLine {
        shown: "async, _netdev, nofail, defaults, user, users, nouser, owner, group, auto, noauto, norbytes, x-*",
        help: "accepted, mean nothing here",
        words: &[
            ("async", Nothing),
            ("_netdev", Nothing),
            ("nofail", Nothing),
            ("defaults", Nothing),
            ("user", Nothing),
            ("users", Nothing),
            ("nouser", Nothing),
            ("owner", Nothing),
            ("group", Nothing),
            ("auto", Nothing),
            ("noauto", Nothing),
            ("norbytes", Nothing),
        ],
    },
    OptionLine {
        shown: "id, cert, key, ca, snapdirname, rbytes",
        help: "",
        words: &[
            ("id", Later),
            ("cert", Later),
            ("key", Later),
            ("ca", Later),
            ("snapdirname", Later),
            ("rbytes", Later),
        ],
    },
    // CephFS's, of a cluster with identities or several file systems: a runbook has them.
    OptionLine {
        shown: "name, secret, secretfile, keyring, fs, mds_namespace, client_mds_namespace, fsid, mon_addr, ms_mode",
        help: "",
        words: &[
            ("name", Later),
            ("secret", Later),
            ("secretfile", Later),
            ("keyring", Later),
            ("fs", Later),
            ("mds_namespace", Later),
            ("client_mds_namespace", Later),
            ("fsid", Later),
            ("mon_addr", Later),
            ("ms_mode", Later),
        ],
    },
];

/// The word's line and meaning.
pub(super) fn find(name: &str) -> Option<(&'static OptionLine, &'static Meaning)> {
    let in_line = |line: &'static OptionLine| {
        line.words.iter().find(|(word, _)| *word == name).map(|(_, meaning)| (line, meaning))
    };
    OPTION_LINES.iter().find_map(in_line)
}

fn text(to: &mut Option<String>, value: &str) -> bool {
    *to = Some(value.to_owned());
    !value.is_empty()
}

/// Whether a path stays below where it begins.
#[must_use]
pub fn stays_inside(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}

fn subdir(options: &mut Options, value: &str) -> bool {
    text(&mut options.subdir, value) && stays_inside(value)
}

fn locks(options: &mut Options, value: &str) -> bool {
    options.locks = match value {
        "cluster" => Locks::Cluster,
        "local" => Locks::Local,
        _ => return false,
    };
    true
}

fn mount_timeout(options: &mut Options, value: &str) -> bool {
    options.mount_timeout = value.parse().ok();
    options.mount_timeout.is_some()
}

fn rasize(options: &mut Options, value: &str) -> bool {
    options.rasize = stdx::size::parse(value).ok().and_then(|v| u32::try_from(v).ok());
    options.rasize.is_some()
}

fn data_cache(options: &mut Options, value: &str) -> bool {
    options.data_cache = stdx::size::parse(value).ok();
    options.data_cache.is_some()
}

fn caps_max(options: &mut Options, value: &str) -> bool {
    let number = value.parse();
    options.caps_max = *number.as_ref().unwrap_or(&0);
    number.is_ok()
}

fn client_cache_size(options: &mut Options, value: &str) -> bool {
    options.client_cache_size = value.parse().ok();
    options.client_cache_size.is_some()
}

fn recover_session(options: &mut Options, value: &str) -> bool {
    options.recover_clean = value == "clean";
    matches!(value, "no" | "clean")
}

fn io_uring(options: &mut Options, value: &str) -> bool {
    options.transport = match value {
        "auto" => Transport::Auto,
        "on" => Transport::Uring,
        "off" => Transport::Classic,
        _ => return false,
    };
    true
}
