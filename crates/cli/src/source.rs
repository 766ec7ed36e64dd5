//! SOURCE: where a file system is: a data folder, a unix socket, or hosts. One text everywhere: on the
//! command line, in $PANDO_CLUSTER, in pando.toml, in fstab.
//!
//! Absent: looking for a server when nobody said where (`discover.rs`).

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The TCP port of a server when none is given.
pub const PORT: u16 = 7420;

/// Where a file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A data folder: the file system is served by the process that mounts it.
    Folder(PathBuf),
    Unix(PathBuf),
    /// Hosts in the order to try; `subdir` is mounted as the root.
    Tcp {
        hosts: Vec<(String, u16)>,
        subdir: Option<String>,
    },
}

impl Source {
    /// Reads a SOURCE. A bare word is a folder if there is such a folder here, else a host.
    ///
    /// # Errors
    /// A sentence that names what cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty source".into());
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(format!("{text}: no socket path after unix:")),
                _ => without_subdir(text, path).map(|()| Self::Unix(path.into())),
            };
        }
        if text.starts_with(['/', '.']) || Path::new(text).is_dir() || is_relative_path(text) {
            return without_subdir(text, text).map(|()| Self::Folder(text.into()));
        }
        Self::parse_hosts(text)
    }

    fn parse_hosts(text: &str) -> Result<Self, String> {
        let (hosts, subdir) = match text.find(":/") {
            Some(at) => (&text[..at], Some(text[at + 1..].to_string())),
            None => (text, None),
        };
        if subdir.as_deref().is_some_and(|path| !fuse::adapter::stays_inside(path)) {
            return Err(format!("{text}: a subdirectory without `..` is wanted"));
        }
        let hosts = hosts.split(',').map(host_and_port).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::Tcp { hosts, subdir: subdir.filter(|path| path != "/") })
    }

    /// The same place, independent of the current directory.
    #[must_use]
    pub fn absolute(self) -> Self {
        let whole = |path: PathBuf| {
            let tidy = path.canonicalize().or_else(|_| std::path::absolute(&path));
            tidy.unwrap_or(path)
        };
        match self {
            Self::Folder(path) => Self::Folder(whole(path)),
            Self::Unix(path) => Self::Unix(whole(path)),
            tcp @ Self::Tcp { .. } => tcp,
        }
    }

    /// What helps when nobody answers there.
    #[must_use]
    pub fn advice(&self, error: &std::io::Error) -> Option<String> {
        const UNHEARD: [ErrorKind; 2] = [ErrorKind::ConnectionRefused, ErrorKind::TimedOut];
        let absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
        match self {
            Self::Folder(dir) if absent => Some(format!("is it served? `pando serve {}`", dir.display())),
            Self::Unix(_) if absent => Some("start its server, or name the data folder itself".into()),
            Self::Folder(_) | Self::Unix(_) => None,
            Self::Tcp { .. } if UNHEARD.contains(&error.kind()) => {
                let serve = "`pando serve DIR --listen HOST:PORT --insecure`";
                Some(format!("is the server started and listening? {serve}"))
            }
            Self::Tcp { hosts, subdir: None } => match hosts.as_slice() {
                // Perhaps a folder that is not there: a bare word is one only if it is.
                [(word, PORT)] if word.parse::<IpAddr>().is_err() => {
                    Some(format!("for a folder write ./{word}"))
                }
                _ => None,
            },
            Self::Tcp { .. } => None,
        }
    }

    /// The socket on which the server of this source answers; `None` for hosts.
    #[must_use]
    pub fn socket(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(dir) => Some(dir.join("pando.sock")),
            Self::Unix(path) => Some(path.clone()),
            Self::Tcp { .. } => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { hosts, subdir } => {
                for (index, (host, port)) in hosts.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    if host.contains(':') {
                        write!(f, "{comma}[{host}]:{port}")?
                    } else {
                        write!(f, "{comma}{host}:{port}")?
                    }
                }
                match subdir {
                    Some(path) => write!(f, ":{path}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Only hosts take `:/subdir`. Taken for a part of the path it would become a file system of its own, unless there is
/// such a path already: then it is meant.
fn without_subdir(text: &str, path: &str) -> Result<(), String> {
    match path.find(":/") {
        Some(at) if !Path::new(path).exists() => {
            let (source, subdir) = (&text[..text.len() - path.len() + at], &path[at + 1..]);
            Err(format!("{text}: only hosts take :/SUBDIR: write {source} and `-o subdir={subdir}`"))
        }
        _ => Ok(()),
    }
}

/// `a/b` is a path; `host:/b` and `host:7420` are not.
fn is_relative_path(text: &str) -> bool {
    text.find('/').is_some_and(|slash| !text[..slash].contains([':', ',']))
}

/// `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT`.
///
/// # Errors
/// A sentence that names the text.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| format!("{text}: no closing bracket"))?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(format!("{text}: not a host name"));
    }
    match port {
        None => Ok((host.into(), PORT)),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok((host.into(), number)),
            _ => Err(format!("{text}: {port} is not a port")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(hosts: &[(&str, u16)], subdir: Option<&str>) -> Source {
        let hosts = hosts.iter().map(|(host, port)| ((*host).to_string(), *port)).collect();
        Source::Tcp { hosts, subdir: subdir.map(Into::into) }
    }

    #[test]
    fn every_form_is_read_and_written_back() {
        let cases = [
            ("/srv/pando", Source::Folder("/srv/pando".into())),
            ("./pando-data", Source::Folder("./pando-data".into())),
            ("a/b", Source::Folder("a/b".into())),
            ("unix:/run/pando/a.sock", Source::Unix("/run/pando/a.sock".into())),
            ("h1:7420", tcp(&[("h1", 7420)], None)),
            ("h1:7420,h2:7421:/home", tcp(&[("h1", 7420), ("h2", 7421)], Some("/home"))),
            ("[::1]:9", tcp(&[("::1", 9)], None)),
        ];
        for (text, source) in cases {
            assert_eq!(Source::parse(text), Ok(source.clone()), "{text}");
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        assert_eq!(Source::parse("some-host"), Ok(tcp(&[("some-host", PORT)], None)));
        assert_eq!(Source::parse("some-host:/"), Ok(tcp(&[("some-host", PORT)], None)));
        assert_eq!(Source::parse("h:/x/y"), Ok(tcp(&[("h", PORT)], Some("/x/y"))));
    }

    #[test]
    fn a_bare_word_may_have_been_a_folder() {
        let error = std::io::Error::other("failed to lookup address information");
        let advice = |text: &str| Source::parse(text).ok().and_then(|source| source.advice(&error));
        assert_eq!(advice("nosuch"), Some("for a folder write ./nosuch".into()));
        for text in ["h:7421", "h1,h2", "h:/sub", "[::1]", "127.0.0.1:7420", "unix:/x"] {
            assert_eq!(advice(text), None, "{text}");
        }
    }

    #[test]
    fn where_nobody_listens_the_server_is_asked_for() {
        for text in ["nosuch", "127.0.0.1:1", "h1,h2:/sub"] {
            let advice = Source::parse(text).expect("a source").advice(&ErrorKind::ConnectionRefused.into());
            let expected =
                "is the server started and listening? `pando serve DIR --listen HOST:PORT --insecure`";
            assert_eq!(advice.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn only_hosts_take_a_subdirectory() {
        for (text, source) in [("./d1:/d", "./d1"), ("unix:/x.sock:/d", "unix:/x.sock"), ("/d:/d", "/d")] {
            let expected = format!("{text}: only hosts take :/SUBDIR: write {source} and `-o subdir=/d`");
            assert_eq!(Source::parse(text), Err(expected));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let odd = folder.path().join("d:/d");
        std::fs::create_dir_all(&odd).expect("made");
        let text = odd.display().to_string();
        assert_eq!(Source::parse(&text), Ok(Source::Folder(odd)));
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["", "unix:", "h:0", "h:/../x", "h:99999", "h:port", "[::1", ",h", "a b"] {
            assert!(Source::parse(text).is_err(), "{text}");
        }
    }
}
