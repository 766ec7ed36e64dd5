//! Mount options, `-o a,b=c`: the one place that knows their names, values and meaning (`words.rs` is the table).
//!
//! Absent: options of features this version does not have; they are refused by name rather than
//! ignored, except those that by contract mean nothing.

mod words;

pub use words::{OPTION_LINES, OptionLine, stays_inside};

use std::fmt;

use super::Behaviour;
use crate::abi::InitFlags;
use crate::kernel_mount::Config;
use crate::mountpoint::{Atime, MountOptions};
use crate::transport::Transport;
use words::Meaning;

/// Why `-o` cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    Unknown(String),
    NotInThisVersion(String),
    NoValueWanted(String),
    /// How the option is written.
    ValueWanted(&'static str),
    /// The option needs another value.
    BadValue {
        name: String,
        value: String,
        wanted: &'static str,
    },
    /// `noopen` without `locks=local`.
    NoOpenNeedsLocalLocks,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::Unknown(name) => write!(f, "unknown mount option {name}"),
            OptionsError::NotInThisVersion(name) => write!(f, "mount option {name}: not in this version"),
            OptionsError::NoValueWanted(name) => write!(f, "mount option {name}: takes no value"),
            OptionsError::ValueWanted(shown) => write!(f, "mount option {shown}: the value is missing"),
            OptionsError::BadValue { name, value, wanted } => {
                write!(f, "mount option {name}={value}: not {wanted}")
            }
            OptionsError::NoOpenNeedsLocalLocks => f.write_str("mount option noopen: only with locks=local"),
        }
    }
}

impl std::error::Error for OptionsError {}

/// Whose business file locks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// All clients see each other's.
    #[default]
    Cluster,
    /// The kernel of this mount keeps them; other mounts do not see them.
    Local,
}

/// When a directory operation is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When it is applied.
    #[default]
    No,
    /// Directory operations: when durable.
    Names,
    /// Every change: when durable.
    All,
}

/// What `-o` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub read_only: bool,
    pub atime: Atime,
    /// `None`: as root yes, else no.
    pub allow_other: Option<bool>,
    pub allow_suid: bool,
    pub allow_dev: bool,
    pub noexec: bool,
    pub sync: Sync,
    pub no_acl: bool,
    pub locks: Locks,
    /// Nobody is told when a file is opened or closed.
    pub no_open: bool,
    /// Never make a file system where there is none.
    pub nocreate: bool,
    /// `recover_session=clean`.
    pub recover_clean: bool,
    pub subdir: Option<String>,
    /// The session is limited to the directory that is mounted.
    pub limited: bool,
    pub conf: Option<String>,
    pub log: Option<String>,
    /// Where the server of this mount has its metrics page.
    pub metrics: Option<String>,
    /// Bytes the kernel reads ahead.
    pub rasize: Option<u32>,
    /// Bytes of file data the server may cache.
    pub data_cache: Option<u64>,
    /// Seconds.
    pub mount_timeout: Option<u64>,
    pub transport: Transport,
    /// The server is asked to let this mount keep something of so many inodes at most; 0: as many as it likes.
    pub caps_max: u32,
    /// Inodes that the kernel is to know at most; 0: as many as it likes. None: nothing was said.
    pub client_cache_size: Option<usize>,
}

impl Options {
    /// Reads all `-o` texts in order; later words win.
    ///
    /// # Errors
    /// `OptionsError`, whose text is the one people are promised.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Options, OptionsError> {
        let mut options = Options { allow_suid: true, allow_dev: true, ..Options::default() };
        for word in texts.iter().flat_map(|text| text.as_ref().split(',')).filter(|word| !word.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if name.starts_with("x-") {
                continue;
            }
            let (line, meaning) = words::find(name).ok_or_else(|| OptionsError::Unknown(name.to_owned()))?;
            match (meaning, value) {
                (Meaning::Switch(set), None) => set(&mut options),
                (Meaning::Nothing, None) => {}
                (Meaning::Value(set, wanted), Some(value)) => {
                    if !set(&mut options, value) {
                        let (name, value) = (name.to_owned(), value.to_owned());
                        return Err(OptionsError::BadValue { name, value, wanted });
                    }
                }
                (Meaning::Switch(_) | Meaning::Nothing, Some(_)) => {
                    return Err(OptionsError::NoValueWanted(name.to_owned()));
                }
                (Meaning::Value(..), None) => return Err(OptionsError::ValueWanted(line.shown)),
                (Meaning::Later, _) => return Err(OptionsError::NotInThisVersion(name.to_owned())),
            }
        }
        // Locks of the cluster end when their file is closed, which nobody would hear of.
        if options.no_open && options.locks != Locks::Local {
            return Err(OptionsError::NoOpenNeedsLocalLocks);
        }
        Ok(options)
    }

    /// What the answers depend on.
    #[must_use]
    pub fn behaviour(&self) -> Behaviour {
        Behaviour {
            read_only: self.read_only,
            sync_names: self.sync != Sync::No,
            sync_all: self.sync == Sync::All,
            no_acl: self.no_acl,
            no_open: self.no_open,
            nodes_max: self.client_cache_size.unwrap_or(0),
        }
    }

    /// What the transport must ask of the kernel; `fsname` is the first column of the mount table.
    #[must_use]
    pub fn config(&self, fsname: &str) -> Config {
        let base = Config::default();
        let mut wanted = base.wanted;
        if self.no_acl {
            wanted = wanted.without(InitFlags::POSIX_ACL);
        }
        if self.locks == Locks::Local {
            wanted = wanted.without(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
        }
        let mount = MountOptions {
            fsname: fsname.to_owned(),
            allow_other: self.allow_other.unwrap_or(base.mount.allow_other),
            read_only: self.read_only,
            nosuid: !self.allow_suid,
            nodev: !self.allow_dev,
            noexec: self.noexec,
            atime: self.atime,
            ..base.mount.clone()
        };
        let max_readahead = self.rasize.unwrap_or(base.max_readahead);
        Config { transport: self.transport, max_readahead, wanted, mount, ..base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, OptionsError> {
        Options::parse(&[text])
    }

    fn text(options: &str) -> String {
        parse(options).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_means_nothing_changes_nothing() {
        let words =
            "rw,async,_netdev,nofail,x-systemd.automount,x-a=b,defaults,user,nowsync,acl,locks=cluster";
        assert_eq!(parse(words), parse(""));
    }

    #[test]
    fn later_words_win_and_values_are_typed() {
        let options = Options::parse(&["ro,noatime,sync", "rw,wsync,subdir=/a,io_uring=off,rasize=128K"]);
        let options = options.expect("all known");
        assert!(!options.read_only);
        assert_eq!((options.atime, options.sync), (Atime::Never, Sync::Names));
        assert_eq!((options.subdir.as_deref(), options.rasize), (Some("/a"), Some(128 << 10)));
        let config = options.config("x");
        assert_eq!((config.transport, config.max_readahead), (Transport::Classic, 128 << 10));
    }

    #[test]
    fn local_locks_and_no_acls_are_not_asked_of_the_kernel() {
        let config = parse("locks=local,noacl").expect("both known").config("x");
        assert!(!config.wanted.contains(InitFlags::POSIX_LOCKS));
        assert!(!config.wanted.contains(InitFlags::FLOCK_LOCKS));
        assert!(!config.wanted.contains(InitFlags::POSIX_ACL));
        assert!(config.wanted.contains(InitFlags::BIG_WRITES));
    }

    #[test]
    fn anything_else_is_named() {
        assert_eq!(text("rw,frob"), "unknown mount option frob");
        assert_eq!(text("ro=1"), "mount option ro: takes no value");
        assert_eq!(text("allow_other=yes"), "mount option allow_other: takes no value");
        assert_eq!(text("async=1"), "mount option async: takes no value");
        assert_eq!(text("subdir"), "mount option subdir=PATH: the value is missing");
        assert_eq!(text("subdir="), "mount option subdir=: not a path in the file system, without `..`");
        assert_eq!(
            text("caps_max=many"),
            "mount option caps_max=many: not a whole number, at most 4294967295"
        );
        assert_eq!(parse("caps_max=5").map(|options| options.caps_max), Ok(5));
        assert_eq!(text("client_cache_size=-1"), "mount option client_cache_size=-1: not a whole number");
        assert_eq!(parse("client_cache_size=5").map(|options| options.behaviour().nodes_max), Ok(5));
        for later in ["rbytes", "id=x", "snapdirname=.s", "mds_namespace=a", "name=admin", "secret=x"] {
            let name = later.split('=').next().unwrap_or_default();
            assert_eq!(text(later), format!("mount option {name}: not in this version"));
        }
        for (path, inside) in
            [("../..", false), ("/a/../..", false), ("a/..", false), ("/a/..b", true), ("a", true)]
        {
            assert_eq!(text(&format!("subdir={path}")).is_empty(), inside, "{path}");
        }
        assert_eq!(text("io_uring=maybe"), "mount option io_uring=maybe: not auto, on or off");
        assert_eq!(text("mount_timeout=x"), "mount option mount_timeout=x: not a whole number of seconds");
        assert_eq!(text("rasize=5KK"), "mount option rasize=5KK: not a size below 4G, as 4096, 64K or 1M");
        assert_eq!(text("rasize=4G"), "mount option rasize=4G: not a size below 4G, as 4096, 64K or 1M");
        assert_eq!(text("noopen"), "mount option noopen: only with locks=local");
        assert_eq!(text("locks=local,noopen,locks=cluster"), "mount option noopen: only with locks=local");
        assert_eq!(text("noopen,locks=local"), "");
    }

    /// What people read is what the parser takes: each word stands in its line, once in the table.
    #[test]
    fn help_shows_every_word_that_is_taken() {
        let mut seen = Vec::new();
        for line in OPTION_LINES {
            let shown: Vec<&str> = line.shown.split([' ', ',', '=']).collect();
            for (word, _) in line.words {
                assert!(shown.contains(word), "{word} is not in '{}'", line.shown);
                assert!(!seen.contains(word), "{word} is there twice");
                seen.push(word);
            }
            let later = line.words.iter().all(|(_, meaning)| matches!(meaning, Meaning::Later));
            assert_eq!(line.help.is_empty(), later, "{}", line.shown);
        }
    }

    #[test]
    fn every_value_that_help_shows_is_taken() {
        for line in OPTION_LINES {
            let Some((name, values)) = line.shown.split_once('=') else { continue };
            for value in values.split('|') {
                let value = if matches!(value, "SIZE" | "SECONDS" | "N") { "1" } else { value };
                assert_eq!(text(&format!("{name}={value}")), "");
            }
        }
    }
}
