//! The log: one logfmt line per event (`ts level target msg k=v`), or one JSON object.
//!
//! Written to a file that is rotated by size. A log that cannot be written never stops the server: lines
//! are dropped.
//!
//! Absent: the journal (another thing), levels per target, journald's own protocol.

use crate::words::words;
use std::fmt::{self, Display, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A log file is rotated at this size.
pub const ROTATE_BYTES: u64 = 64 << 20;
/// Files kept, the current one included.
pub const ROTATE_FILES: u32 = 4;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    const fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Logfmt,
    Json,
}

/// Where and how to log.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The file, rotated to `.1`, `.2`, ...
    pub file: Option<PathBuf>,
    pub format: LogFormat,
    /// Below this level nothing is written. `None`: info.
    pub level: Option<LogLevel>,
}

/// The log of one process.
#[derive(Debug)]
pub struct Log {
    options: LogOptions,
    level: LogLevel,
    file: Mutex<Option<Rotated>>,
}

#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Log {
    /// Opens the file (and makes its folder).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(options: LogOptions) -> io::Result<Self> {
        let file = options.file.as_deref().map(Rotated::open).transpose()?;
        let level = options.level.unwrap_or(LogLevel::Info);
        Ok(Self { options, level, file: Mutex::new(file) })
    }

    /// A log that drops everything.
    #[must_use]
    pub fn silent() -> Self {
        Self { options: LogOptions::default(), level: LogLevel::Error, file: Mutex::new(None) }
    }

    /// Writes one event.
    pub fn event(&self, level: LogLevel, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) {
        if level < self.level {
            return;
        }
        let mut line = match self.options.format {
            LogFormat::Logfmt => logfmt(level, target, msg, fields),
            LogFormat::Json => json(level, target, msg, fields),
        };
        // The stores know errors by number.
        if line.contains("os error ") {
            line = words(&line);
        }
        line.push('\n');
        // The guarded value is a file and a count: good after a panic elsewhere, which is logged here.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = file.as_mut() {
            file.write(line.as_bytes());
        }
    }

    /// A state change.
    pub fn info(&self, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) {
        self.event(LogLevel::Info, target, msg, fields);
    }

    /// Unexpected but handled.
    pub fn warn(&self, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) {
        self.event(LogLevel::Warn, target, msg, fields);
    }

    /// A person must look.
    pub fn error(&self, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) {
        self.event(LogLevel::Error, target, msg, fields);
    }
}

impl Rotated {
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    fn write(&mut self, line: &[u8]) {
        if self.bytes + line.len() as u64 > ROTATE_BYTES && self.bytes > 0 {
            self.rotate();
        }
        if self.file.write_all(line).is_ok() {
            self.bytes += line.len() as u64;
        }
    }

    /// Moves `x` to `x.1`, `x.1` to `x.2`, and so on; the oldest is overwritten. When that fails the
    /// current file goes on growing: losing rotation is better than losing lines.
    fn rotate(&mut self) {
        let numbered = |n: u32| {
            let mut name = self.path.clone().into_os_string();
            if n > 0 {
                name.push(format!(".{n}"));
            }
            PathBuf::from(name)
        };
        for n in (0..ROTATE_FILES - 1).rev() {
            let _absent_or_kept = std::fs::rename(numbered(n), numbered(n + 1));
        }
        if let Ok(fresh) = Self::open(&self.path) {
            *self = fresh;
        }
    }
}

fn logfmt(level: LogLevel, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = String::with_capacity(160);
    let _infallible =
        write!(line, "ts={} level={} target={target} msg=", Timestamp(SystemTime::now()), level.word());
    logfmt_value(&mut line, msg);
    for (key, value) in fields {
        let _infallible = write!(line, " {key}=");
        logfmt_value(&mut line, &value.to_string());
    }
    line
}

/// Bare when it cannot be misread, else quoted. Control characters are escaped: names of files
/// reach the log, and must not forge lines or drive a terminal.
fn logfmt_value(line: &mut String, value: &str) {
    let bare = |c: char| c.is_ascii_graphic() && c != '"' && c != '=' && c != '\\';
    if !value.is_empty() && value.chars().all(bare) {
        line.push_str(value);
    } else {
        quoted(line, value);
    }
}

fn quoted(line: &mut String, value: &str) {
    line.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => {
                line.push('\\');
                line.push(c);
            }
            '\n' => line.push_str("\\n"),
            c if c.is_control() => {
                let _infallible = write!(line, "\\u{:04x}", c as u32);
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

fn json(level: LogLevel, target: &str, msg: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = String::with_capacity(200);
    let _infallible =
        write!(line, "{{\"ts\":\"{}\",\"level\":\"{}\"", Timestamp(SystemTime::now()), level.word());
    let mut pair = |key: &str, value: &str| {
        line.push(',');
        quoted(&mut line, key);
        line.push(':');
        quoted(&mut line, value);
    };
    pair("target", target);
    pair("msg", msg);
    for (key, value) in fields {
        pair(key, &value.to_string());
    }
    line.push('}');
    line
}

/// RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp(pub SystemTime);

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = civil(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            second / 3600,
            second / 60 % 60,
            second % 60,
            since.subsec_millis()
        )
    }
}

/// The Gregorian date of a day since 1970-01-01. Years are counted from 1 March, so that the leap
/// day is a year's last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_777), (2026, 11, 20));
    }

    #[test]
    fn values_cannot_forge_a_line() {
        let line = logfmt(LogLevel::Warn, "t", "a b", &[("name", &"x\nlevel=error \u{1b}[31m\"")]);
        assert!(!line.contains('\n') && !line.contains('\u{1b}'));
        assert!(line.ends_with(r#"msg="a b" name="x\nlevel=error \u001b[31m\"""#), "{line}");
        assert!(json(LogLevel::Info, "t", "m", &[("k", &1)]).ends_with(r#""msg":"m","k":"1"}"#));
    }

    #[test]
    fn errors_of_the_system_are_words() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("pando.log");
        let log = Log::open(LogOptions { file: Some(path.clone()), ..LogOptions::default() }).expect("open");
        log.error("store", "ballast not restored", &[("error", &"pando.ballast: os error 2")]);
        let text = std::fs::read_to_string(&path).expect("read");
        let end = "msg=\"ballast not restored\" error=\"pando.ballast: no such file or directory\"\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn files_are_rotated_and_only_four_are_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("log/pando.log");
        let mut rotated = Rotated::open(&path).expect("open");
        for n in 0..6_u8 {
            rotated.bytes = ROTATE_BYTES;
            rotated.write(&[b'0' + n, b'\n']);
        }
        let mut names: Vec<_> = std::fs::read_dir(dir.path().join("log"))
            .expect("folder")
            .map(|e| e.expect("entry").file_name().into_string().expect("name"))
            .collect();
        names.sort();
        assert_eq!(names, ["pando.log", "pando.log.1", "pando.log.2", "pando.log.3"]);
        assert_eq!(std::fs::read(&path).expect("read"), b"5\n");
    }
}
