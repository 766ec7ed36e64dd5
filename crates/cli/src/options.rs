//! Mount options: `-o a,b=c` of `pando mount` and of mount(8).
//!
//! Absent: options whose effect this version does not have yet; they are refused by name rather than
//! ignored, except those that by contract mean nothing.

use crate::size;
use std::path::PathBuf;

/// When reads change the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    #[default]
    Relative,
    Strict,
    Never,
    NeverOfDirectories,
}

/// Whether io_uring carries the kernel's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uring {
    #[default]
    Auto,
    On,
    Off,
}

/// What `-o` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    pub read_only: bool,
    pub atime: Atime,
    /// `None`: as root yes, else no.
    pub allow_other: Option<bool>,
    pub suid: bool,
    pub dev: bool,
    pub noexec: bool,
    pub subdir: Option<String>,
    pub conf: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub mount_timeout: Option<u64>,
    pub io_uring: Uring,
    /// Never create a file system in an empty folder.
    pub nocreate: bool,
    pub data_cache: Option<u64>,
}

/// Options that are accepted and mean nothing here: mount(8)'s own, and modes this version always has.
const IGNORED: &[&str] = &[
    "async", "_netdev", "nofail", "defaults", "user", "users", "nouser", "owner", "group", "auto", "noauto",
    // Every directory operation waits for its reply until asynchronous ones come.
    "wsync", "dirsync", "nowsync", "acl", "rbytes", "norbytes",
];

/// Options of INTERFACE whose time has not come.
const LATER: &[&str] = &[
    "sync",
    "id",
    "cert",
    "key",
    "ca",
    "snapdirname",
    "noacl",
    "recover_session",
    "caps_max",
    "client_cache_size",
    "rasize",
    "metrics",
    "noopen",
];

impl MountOptions {
    /// Reads all `-o` texts, in order; later ones win.
    ///
    /// # Errors
    /// The sentence for the person: unknown, not in this version, or a value that cannot be.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, String> {
        let mut options = Self { suid: true, dev: true, ..Self::default() };
        for word in texts.iter().flat_map(|text| text.as_ref().split(',')).filter(|word| !word.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            options.set(name, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("relatime", None) | ("atime" | "diratime" | "norelatime" | "nostrictatime", None) => {
                self.atime = Atime::Relative;
            }
            ("strictatime", None) => self.atime = Atime::Strict,
            ("noatime", None) => self.atime = Atime::Never,
            ("nodiratime", None) => self.atime = Atime::NeverOfDirectories,
            ("suid", None) => self.suid = true,
            ("nosuid", None) => self.suid = false,
            ("dev", None) => self.dev = true,
            ("nodev", None) => self.dev = false,
            ("exec", None) => self.noexec = false,
            ("noexec", None) => self.noexec = true,
            ("allow_other", None) => self.allow_other = Some(true),
            ("noallow_other", None) => self.allow_other = Some(false),
            ("nocreate", None) => self.nocreate = true,
            ("locks", Some("cluster")) => {}
            ("subdir", Some(path)) => self.subdir = Some(path.into()),
            ("conf", Some(path)) => self.conf = Some(path.into()),
            ("log", Some(path)) => self.log = Some(path.into()),
            ("mount_timeout", Some(text)) => self.mount_timeout = Some(number(name, text)?),
            ("data_cache", Some(text)) => {
                self.data_cache = Some(size::parse(text).map_err(|why| format!("data_cache={text}: {why}"))?);
            }
            ("io_uring", Some("auto")) => self.io_uring = Uring::Auto,
            ("io_uring", Some("on")) => self.io_uring = Uring::On,
            ("io_uring", Some("off")) => self.io_uring = Uring::Off,
            _ if name.starts_with("x-") || (value.is_none() && IGNORED.contains(&name)) => {}
            ("locks", Some("local")) => return Err("mount option locks=local: not in this version".into()),
            _ if LATER.contains(&name) => return Err(format!("mount option {name}: not in this version")),
            ("io_uring" | "locks", Some(text)) => {
                return Err(format!("mount option {name}={text}: no such value"));
            }
            _ => return Err(format!("unknown mount option {name}")),
        }
        Ok(())
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("mount option {name}={text}: not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MountOptions, String> {
        MountOptions::parse(&[text])
    }

    #[test]
    fn what_means_nothing_changes_nothing() {
        let plain = parse("");
        let text =
            "rw,async,_netdev,nofail,x-systemd.automount,x-a=b,defaults,user,nowsync,relatime,locks=cluster";
        assert_eq!(parse(text), plain);
    }

    #[test]
    fn later_words_win() {
        let options = MountOptions::parse(&["ro,noatime", "rw,subdir=/a,io_uring=off"]);
        assert_eq!(
            options.map(|o| (o.read_only, o.atime, o.subdir, o.io_uring)),
            Ok((false, Atime::Never, Some("/a".into()), Uring::Off))
        );
    }

    #[test]
    fn anything_else_is_named() {
        assert_eq!(parse("rw,frob"), Err("unknown mount option frob".into()));
        assert_eq!(parse("ro=1"), Err("unknown mount option ro".into()));
        assert_eq!(parse("caps_max=5"), Err("mount option caps_max: not in this version".into()));
        assert_eq!(parse("io_uring=maybe"), Err("mount option io_uring=maybe: no such value".into()));
        assert_eq!(parse("mount_timeout=x"), Err("mount option mount_timeout=x: not a number".into()));
    }
}
