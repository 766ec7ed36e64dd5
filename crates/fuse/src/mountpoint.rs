//! Putting a FUSE connection on a directory and taking it off: mount(2) as root, fusermount3 as a user.
//! Absent: /etc/fstab and the `mount` command line, which belong to the `pando` binary.

mod helper;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{MountError, UnmountError};
use crate::init;
use crate::kernel_mount::Config;
use crate::transport::device::Device;

/// Who performs the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounter {
    /// mount(2) for root, fusermount3 for others.
    #[default]
    Auto,
    Direct,
    Fusermount,
}

impl Mounter {
    /// Never `Auto`.
    fn resolved(self) -> Mounter {
        match self {
            Mounter::Auto if is_root() => Mounter::Direct,
            Mounter::Auto | Mounter::Fusermount => Mounter::Fusermount,
            Mounter::Direct => Mounter::Direct,
        }
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid cannot fail and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// What shows in the mount table and what the kernel enforces by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// First column of the mount table.
    pub fsname: String,
    /// Makes the type `fuse.SUBTYPE`.
    pub subtype: String,
    /// The kernel checks mode bits and ACLs.
    pub default_permissions: bool,
    /// Other users may enter. For users this needs `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    pub read_only: bool,
    pub nosuid: bool,
    pub nodev: bool,
    pub noexec: bool,
    pub atime: Atime,
}

/// When reading changes the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    #[default]
    Relative,
    Strict,
    Never,
    NeverOfDirectories,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            fsname: "pando".into(),
            subtype: "pando".into(),
            default_permissions: true,
            allow_other: is_root(),
            read_only: false,
            nosuid: true,
            nodev: true,
            noexec: false,
            atime: Atime::Relative,
        }
    }
}

impl MountOptions {
    fn flags(&self) -> libc::c_ulong {
        let atime = match self.atime {
            Atime::Relative => libc::MS_RELATIME,
            Atime::Strict => libc::MS_STRICTATIME,
            Atime::Never => libc::MS_NOATIME,
            Atime::NeverOfDirectories => libc::MS_NODIRATIME,
        };
        let optional = [
            (self.read_only, libc::MS_RDONLY),
            (self.nosuid, libc::MS_NOSUID),
            (self.nodev, libc::MS_NODEV),
            (self.noexec, libc::MS_NOEXEC),
        ];
        optional.iter().filter(|(set, _)| *set).fold(atime, |flags, (_, flag)| flags | flag)
    }

    /// The same as words, for fusermount3.
    fn words(&self) -> Vec<String> {
        let atime = match self.atime {
            Atime::Relative => None,
            Atime::Strict => Some("strictatime"),
            Atime::Never => Some("noatime"),
            Atime::NeverOfDirectories => Some("nodiratime"),
        };
        let flags = [
            Some(if self.read_only { "ro" } else { "rw" }),
            self.nosuid.then_some("nosuid"),
            self.nodev.then_some("nodev"),
            self.noexec.then_some("noexec"),
            atime,
        ];
        flags.into_iter().flatten().map(String::from).collect()
    }

    /// Options the FUSE module itself reads.
    fn fuse_words(&self, max_read: usize) -> Vec<String> {
        let flags = [
            self.default_permissions.then_some("default_permissions"),
            self.allow_other.then_some("allow_other"),
        ];
        let mut words: Vec<String> = flags.into_iter().flatten().map(String::from).collect();
        words.push(format!("max_read={max_read}"));
        words
    }
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refused while files are open.
    Plain,
    /// Gone from the tree at once, served until the last file closes.
    Lazy,
    /// Gone at once; requests under way fail. As a user this is as `Lazy`.
    Force,
}

/// Mounts; returns the mount point made absolute, the connection, and who mounted.
pub(crate) fn mount(path: &Path, config: &Config) -> Result<(PathBuf, OwnedFd, Mounter), MountError> {
    let path = check_mountpoint(path, &config.mount.subtype)?;
    let mounter = config.mounter.resolved();
    let by = if mounter == Mounter::Fusermount { helper::mount } else { mount_directly };
    let fd = by(&path, config)?;
    Ok((path, fd, mounter))
}

/// The directory as an absolute path, if a mount can go there.
fn check_mountpoint(path: &Path, subtype: &str) -> Result<PathBuf, MountError> {
    let bad = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOTCONN) => MountError::StaleEndpoint { path: path.into() },
        _ => MountError::BadMountpoint { path: path.into(), source },
    };
    let metadata = std::fs::metadata(path).map_err(bad)?;
    if !metadata.is_dir() {
        return Err(bad(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let path = std::fs::canonicalize(path).map_err(bad)?;
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|source| MountError::system("read the mount table", source))?;
    if is_mounted(&table, path.as_os_str().as_bytes(), subtype) {
        return Err(MountError::AlreadyMounted { path });
    }
    Ok(path)
}

/// Lets the kernel read ahead as far as was agreed. INIT can only lower what the kernel allows by itself,
/// 128 KiB; the rest is said here. Who may not say it reads ahead less.
pub(crate) fn set_readahead(path: &Path, bytes: u32) {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return };
    let Some(line) = topmost(&table, path.as_os_str().as_bytes()) else { return };
    // The number of the device is no path: digits and a colon.
    if let Ok(device) = std::str::from_utf8(line.device)
        && device.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    {
        let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
        let _less = std::fs::write(file, (bytes / 1024).to_string());
    }
}

/// Whether the topmost mount on `path` has this subtype.
fn is_mounted(table: &[u8], path: &[u8], subtype: &str) -> bool {
    let wanted = format!("fuse.{subtype}");
    topmost(table, path).is_some_and(|line| line.kind == wanted.as_bytes())
}

fn topmost<'a>(table: &'a [u8], path: &[u8]) -> Option<MountLine<'a>> {
    table.split(|&byte| byte == b'\n').filter_map(mount_line).rfind(|line| line.point == path)
}

/// A line of mountinfo.
struct MountLine<'a> {
    device: &'a [u8],
    point: Vec<u8>,
    kind: &'a [u8],
}

/// Reads `ID PARENT DEV ROOT POINT OPTIONS [TAGS] - TYPE ...`.
fn mount_line(line: &[u8]) -> Option<MountLine<'_>> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = words.nth(2)?;
    let point = words.nth(1)?;
    words.find(|word| *word == b"-")?;
    Some(MountLine { device, point: unescape(point), kind: words.next()? })
}

/// The kernel writes blanks, newlines and backslashes as `\ooo`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        plain.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    plain
}

fn mount_directly(path: &Path, config: &Config) -> Result<OwnedFd, MountError> {
    let options = &config.mount;
    let fd = Device::open_fd().map_err(open_error)?;
    let mut words = options.fuse_words(init::payload_bytes(config));
    // SAFETY: getuid and getgid cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    words.push(format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", fd.as_raw_fd()));
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|error| MountError::system("mount: an option has a NUL", error.into()))
    };
    let (source, target) = (text(options.fsname.as_bytes())?, text(path.as_os_str().as_bytes())?);
    let (kind, data) =
        (text(format!("fuse.{}", options.subtype).as_bytes())?, text(words.join(",").as_bytes())?);
    // SAFETY: four NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), options.flags(), data.as_ptr().cast())
    };
    if result == 0 { Ok(fd) } else { Err(mount_error(io::Error::last_os_error(), path)) }
}

fn open_error(source: io::Error) -> MountError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::NoDevice(source),
        Some(libc::EACCES | libc::EPERM) => {
            MountError::NotPermitted { message: format!("cannot open /dev/fuse: {source}") }
        }
        _ => MountError::system("open /dev/fuse", source),
    }
}

fn mount_error(source: io::Error, path: &Path) -> MountError {
    match source.raw_os_error() {
        Some(libc::ENODEV) => MountError::NoDevice(source),
        Some(libc::EPERM | libc::EACCES) => {
            MountError::NotPermitted { message: format!("mount needs the capability SYS_ADMIN: {source}") }
        }
        Some(libc::ENOTCONN) => MountError::StaleEndpoint { path: path.into() },
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => {
            MountError::BadMountpoint { path: path.into(), source }
        }
        _ => MountError::system("mount", source),
    }
}

/// Unmounts whatever is on `path`, by mount(2)'s counterpart for root and fusermount3 for others. Also takes
/// away what a dead daemon left.
pub fn unmount(path: &Path, how: Unmount) -> Result<(), UnmountError> {
    unmount_with(Mounter::Auto.resolved(), path, how)
}

pub(crate) fn unmount_with(mounter: Mounter, path: &Path, how: Unmount) -> Result<(), UnmountError> {
    if mounter == Mounter::Fusermount {
        return helper::unmount(path, how);
    }
    let target =
        CString::new(path.as_os_str().as_bytes()).map_err(|error| UnmountError::System(error.into()))?;
    match how {
        Unmount::Plain => umount2(&target, 0),
        Unmount::Lazy => umount2(&target, libc::MNT_DETACH),
        Unmount::Force => umount2(&target, libc::MNT_FORCE | libc::MNT_DETACH),
    }
}

fn umount2(target: &CStr, flags: libc::c_int) -> Result<(), UnmountError> {
    // SAFETY: a NUL-terminated string that outlives the call.
    if unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        Some(libc::EBUSY) => UnmountError::Busy,
        Some(libc::EINVAL | libc::ENOENT) => UnmountError::NotMounted,
        Some(libc::EPERM) => UnmountError::NotPermitted { message: source.to_string() },
        _ => UnmountError::System(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = b"21 1 0:20 / /a\\040b rw shared:1 - fuse.pando pando rw\n\
            22 1 0:21 / /c rw - fuse.pando pando rw\n\
            23 22 0:22 / /c rw master:2 - tmpfs tmpfs rw\n";
        assert!(is_mounted(table, b"/a b", "pando"));
        assert!(!is_mounted(table, b"/a b", "other"));
        assert!(!is_mounted(table, b"/c", "pando"));
        assert!(!is_mounted(table, b"/", "pando"));
        assert_eq!(topmost(table, b"/c").expect("listed").device, b"0:22");
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(b"a\\040b\\134c"), b"a b\\c");
        assert_eq!(unescape(b"\\"), b"\\");
        assert_eq!(unescape(b"\\08"), b"\\08");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = check_mountpoint(Path::new("/nonexistent/place"), "pando").expect_err("nothing is there");
        assert_eq!(error.to_string(), "/nonexistent/place: unusable mount point");
        let error = check_mountpoint(Path::new("/dev/null"), "pando").expect_err("no directory");
        assert!(matches!(error, MountError::BadMountpoint { .. }));
    }
}
