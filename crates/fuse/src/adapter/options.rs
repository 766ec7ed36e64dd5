//! Mount options, `-o a,b=c`: the one place that knows their names, values and meaning.
//!
//! Absent on purpose: options of features this version does not have; they are refused by name rather than
//! ignored, except those that by contract mean nothing.

use std::fmt;

use super::Behaviour;
use crate::abi::InitFlags;
use crate::mountpoint::{Atime, MountOptions};
use crate::session::Config;
use crate::transport::Transport;

/// Why `-o` cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    Unknown(String),
    NotInThisVersion(String),
    /// The option needs a value, or another one.
    BadValue {
        name: String,
        value: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::Unknown(name) => write!(f, "unknown mount option {name}"),
            OptionsError::NotInThisVersion(name) => write!(f, "mount option {name}: not in this version"),
            OptionsError::BadValue { name, value } => write!(f, "mount option {name}={value}: no such value"),
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
    /// Never make a file system where there is none.
    pub nocreate: bool,
    /// `recover_session=clean`.
    pub recover_clean: bool,
    pub subdir: Option<String>,
    pub conf: Option<String>,
    pub log: Option<String>,
    /// Bytes the kernel reads ahead.
    pub rasize: Option<u32>,
    /// Bytes of file data the server may cache.
    pub data_cache: Option<u64>,
    /// Seconds.
    pub mount_timeout: Option<u64>,
    pub transport: Transport,
}

/// Accepted, without a meaning here: mount(8)'s own, and what this version always does.
const NOTHING: &[&str] = &[
    "async", "_netdev", "nofail", "defaults", "user", "users", "nouser", "owner", "group", "auto", "noauto",
    "norbytes",
];

/// Promised for later versions.
const LATER: &[&str] = &[
    "id",
    "cert",
    "key",
    "ca",
    "snapdirname",
    "rbytes",
    "caps_max",
    "client_cache_size",
    "metrics",
    // The rank counts opens, so that an unlinked file lives while it is open.
    "noopen",
];

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
            let known = match value {
                None => options.switch(name),
                Some(value) => options.assign(name, value)?,
            };
            if known || name.starts_with("x-") || (value.is_none() && NOTHING.contains(&name)) {
                continue;
            }
            return Err(match LATER.contains(&name) {
                true => OptionsError::NotInThisVersion(name.to_owned()),
                false => OptionsError::Unknown(name.to_owned()),
            });
        }
        Ok(options)
    }

    /// A word without a value; false when there is no such word.
    fn switch(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "relatime" | "atime" | "diratime" | "norelatime" | "nostrictatime" => {
                self.atime = Atime::Relative;
            }
            "strictatime" => self.atime = Atime::Strict,
            "noatime" => self.atime = Atime::Never,
            "nodiratime" => self.atime = Atime::NeverOfDirectories,
            "suid" => self.allow_suid = true,
            "nosuid" => self.allow_suid = false,
            "dev" => self.allow_dev = true,
            "nodev" => self.allow_dev = false,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "nowsync" => self.sync = Sync::No,
            "wsync" | "dirsync" => self.sync = Sync::Names,
            "sync" => self.sync = Sync::All,
            "allow_other" => self.allow_other = Some(true),
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            "nocreate" => self.nocreate = true,
            _ => return false,
        }
        true
    }

    /// A word with a value; false when there is no such word.
    fn assign(&mut self, name: &str, value: &str) -> Result<bool, OptionsError> {
        let bad = || OptionsError::BadValue { name: name.to_owned(), value: value.to_owned() };
        let size = || stdx::size::parse(value).ok();
        match (name, value) {
            ("subdir" | "conf" | "log", "") => return Err(bad()),
            ("subdir", _) => self.subdir = Some(value.to_owned()),
            ("conf", _) => self.conf = Some(value.to_owned()),
            ("log", _) => self.log = Some(value.to_owned()),
            ("rasize", _) => {
                self.rasize = Some(size().and_then(|v| u32::try_from(v).ok()).ok_or_else(bad)?);
            }
            ("data_cache", _) => self.data_cache = Some(size().ok_or_else(bad)?),
            ("mount_timeout", _) => self.mount_timeout = Some(value.parse().map_err(|_| bad())?),
            ("recover_session", "no") => self.recover_clean = false,
            ("recover_session", "clean") => self.recover_clean = true,
            ("io_uring", "auto") => self.transport = Transport::Auto,
            ("io_uring", "on") => self.transport = Transport::Uring,
            ("io_uring", "off") => self.transport = Transport::Classic,
            ("locks", "cluster") => self.locks = Locks::Cluster,
            ("locks", "local") => self.locks = Locks::Local,
            ("recover_session" | "io_uring" | "locks", _) => return Err(bad()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the answers depend on.
    #[must_use]
    pub fn behaviour(&self) -> Behaviour {
        Behaviour {
            read_only: self.read_only,
            sync_names: self.sync != Sync::No,
            sync_all: self.sync == Sync::All,
            no_acl: self.no_acl,
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
        assert!(config.wanted.contains(InitFlags::ATOMIC_O_TRUNC));
    }

    #[test]
    fn anything_else_is_named() {
        assert_eq!(text("rw,frob"), "unknown mount option frob");
        assert_eq!(text("ro=1"), "unknown mount option ro");
        assert_eq!(text("subdir"), "unknown mount option subdir");
        assert_eq!(text("caps_max=5"), "mount option caps_max: not in this version");
        assert_eq!(text("io_uring=maybe"), "mount option io_uring=maybe: no such value");
        assert_eq!(text("mount_timeout=x"), "mount option mount_timeout=x: no such value");
        assert_eq!(text("rasize=5KK"), "mount option rasize=5KK: no such value");
        assert_eq!(text("rasize=4G"), "mount option rasize=4G: no such value");
        assert_eq!(text("noopen"), "mount option noopen: not in this version");
    }
}
