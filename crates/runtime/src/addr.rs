//! Where a server listens and a client connects: `unix:PATH` or `HOST:PORT`.
//!
//! Absent: name resolution beyond what std does; data folders, which the command line handles.

use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// The port when none is named.
pub const PORT_DEFAULT: u16 = 7420;
/// The port of the metrics page when none is named.
pub const METRICS_PORT_DEFAULT: u16 = 7421;

/// A place on a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Addr {
    Unix(PathBuf),
    /// `HOST:PORT`, resolved when used.
    Tcp(String),
}

/// The text names no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}: not unix:PATH or HOST[:PORT]")]
pub struct AddrError {
    pub text: String,
}

/// Where a metrics page is to be: `HOST:PORT` of `HOST` or `HOST:PORT`; `None` for what is neither.
#[must_use]
pub fn metrics_place(text: &str) -> Option<String> {
    match Addr::parse(text) {
        Ok(Addr::Tcp(at)) if at == text => Some(at),
        Ok(Addr::Tcp(_)) => Some(format!("{text}:{METRICS_PORT_DEFAULT}")),
        Ok(Addr::Unix(_)) | Err(_) => None,
    }
}

impl Addr {
    /// Reads `unix:PATH`, `HOST`, `HOST:PORT` or `[V6]:PORT`.
    ///
    /// # Errors
    /// `AddrError` naming the text.
    pub fn parse(text: &str) -> Result<Self, AddrError> {
        let wrong = || AddrError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        if text.contains('/') {
            return Err(wrong());
        }
        let host_end = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[host_end..].rsplit_once(':') {
            None => (text, None),
            Some((rest, port)) => (&text[..host_end + rest.len()], Some(port)),
        };
        // "unix" alone is a path forgotten, and would print as a path; a bare IPv6 address needs its brackets.
        if host.is_empty() || host == "unix" || host_end == 0 && host.contains(':') {
            return Err(wrong());
        }
        match port {
            None => Ok(Self::Tcp(format!("{host}:{PORT_DEFAULT}"))),
            Some(port) if port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.to_owned()))
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(at) => f.write_str(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metrics_page_has_a_port_of_its_own() {
        assert_eq!(metrics_place("h").as_deref(), Some("h:7421"));
        assert_eq!(metrics_place("[::1]:9").as_deref(), Some("[::1]:9"));
        assert_eq!((metrics_place("unix:/x"), metrics_place("")), (None, None));
    }

    #[test]
    fn texts_name_places() {
        assert_eq!(Addr::parse("unix:/a/b"), Ok(Addr::Unix("/a/b".into())));
        assert_eq!(Addr::parse("host"), Ok(Addr::Tcp("host:7420".into())));
        assert_eq!(Addr::parse("[::1]"), Ok(Addr::Tcp("[::1]:7420".into())));
        assert_eq!(Addr::parse("h:1").map(|a| a.to_string()), Ok("h:1".into()));
        for bad in ["", "unix:", "unix", "h:x", "/data", "h:99999", ":7420", "h:+1", "::1"] {
            assert!(Addr::parse(bad).is_err(), "{bad}");
        }
    }
}
