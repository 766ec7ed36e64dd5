//! pando.toml: settings of the processes on this host. Each setting is declared once here, with its
//! kind, default and meaning; reading, checking, `pando config` and its help come from the table.
//!
//! `config set` edits the one line and leaves comments and order alone.
//!
//! Absent: settings of the cluster, which servers share (they come with many ranks).

use crate::problem::{Exit, Problem};
use crate::{size, source};
use std::path::Path;
use toml::{Table, Value};

/// Where the file is unless `--conf` or `-o conf=` says otherwise.
pub const PATH: &str = "/etc/pando/pando.toml";

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SOURCE.
    Source,
    /// Bytes, as a number or as `"64K"`, not below the minimum.
    Size {
        min: u64,
    },
    Seconds {
        min: u64,
        max: u64,
    },
    Choice(&'static [&'static str]),
    /// Mount options, separated by commas.
    Options,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub key: &'static str,
    pub kind: Kind,
    /// As `config ls` shows it; empty: unset.
    pub default: &'static str,
    pub help: &'static str,
}

/// Every setting.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "cluster",
        kind: Kind::Source,
        default: "",
        help: "The server that commands ask when nothing else says which: /DATA-DIR, unix:SOCK or HOST[:7420].",
    },
    Setting {
        key: "mount_options",
        kind: Kind::Options,
        default: "",
        help: "Options of every mount on this host; those on the command line win.",
    },
    Setting {
        key: "mds_cache_memory_limit",
        kind: Kind::Size { min: 64 << 20 },
        default: "4G",
        help: "Memory of a rank's cache. Clean entries beyond it are forgotten.",
    },
    Setting {
        key: "journal_size",
        kind: Kind::Size { min: 16 << 20 },
        default: "1G",
        help: "A checkpoint starts when the journal is this large. Larger: fewer store writes, longer replay.",
    },
    Setting {
        key: "log_format",
        kind: Kind::Choice(&["logfmt", "json"]),
        default: "logfmt",
        help: "Form of log lines.",
    },
    Setting {
        key: "log_level",
        kind: Kind::Choice(&["debug", "info", "warn", "error"]),
        default: "info",
        help: "Events below this level are not logged.",
    },
];

/// The file's content, checked: nothing in it is unknown or out of range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    pub cluster: Option<String>,
    pub mount_options: Option<String>,
    pub cache_bytes: Option<u64>,
    pub journal_bytes: Option<u64>,
    pub log_json: bool,
    pub log_level: Option<String>,
}

/// The setting of this name.
#[must_use]
pub fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Reads and checks the file; one that is not there is empty, unless it was named.
///
/// # Errors
/// Exit 1 or 4: unreadable; exit 2: line and reason.
pub fn read(path: Option<&Path>) -> Result<Conf, Problem> {
    let table = table(path)?;
    let text = |key: &str| table.get(key).map(shown);
    let bytes = |key: &str| text(key).and_then(|text| size::parse(&text).ok());
    Ok(Conf {
        cluster: text("cluster"),
        mount_options: text("mount_options"),
        cache_bytes: bytes("mds_cache_memory_limit"),
        journal_bytes: bytes("journal_size"),
        log_json: text("log_format").as_deref() == Some("json"),
        log_level: text("log_level"),
    })
}

/// The checked top-level table.
///
/// # Errors
/// As `read`.
pub fn table(path: Option<&Path>) -> Result<Table, Problem> {
    let file = path.unwrap_or(Path::new(PATH));
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_none() => {
            return Ok(Table::new());
        }
        Err(error) => return Err(Problem::io(file.display(), &error)),
    };
    check(&text).map_err(|why| {
        Problem::new(Exit::Usage, format!("{}: {why}", file.display())).do_this("`pando config help`")
    })
}

/// Parses and checks the text of a file.
fn check(text: &str) -> Result<Table, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    for (key, value) in &table {
        let setting = setting(key).ok_or_else(|| format!("unknown setting {key}"))?;
        if !matches!(value, Value::String(_) | Value::Integer(_)) {
            return Err(format!("{key}: a text or a number is wanted"));
        }
        accepts(setting, &shown(value)).map_err(|why| format!("{key}: {why}"))?;
    }
    Ok(table)
}

/// A value without quotes.
#[must_use]
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether the setting takes this value.
///
/// # Errors
/// Why not.
pub fn accepts(setting: &Setting, text: &str) -> Result<(), String> {
    match setting.kind {
        Kind::Source => source::Source::parse(text).map(drop),
        Kind::Options => crate::options::MountOptions::parse(&[text]).map(drop),
        Kind::Size { min } => match size::parse(text)? {
            bytes if bytes < min => Err(format!("at least {}", crate::output::bytes(min))),
            _ => Ok(()),
        },
        Kind::Seconds { min, max } => match text.parse::<u64>() {
            Ok(value) if (min..=max).contains(&value) => Ok(()),
            _ => Err(format!("{min} to {max} seconds")),
        },
        Kind::Choice(words) if words.contains(&text) => Ok(()),
        Kind::Choice(words) => Err(format!("one of {}", words.join(", "))),
    }
}

/// The text with the setting's line replaced, added (before the first table), or taken out.
#[must_use]
pub fn edited(text: &str, key: &str, value: Option<&str>) -> String {
    let is_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let new = value.map(|value| format!("{key} = {}", Value::String(value.into())));
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    match (lines.iter().position(|line| is_key(line)), new) {
        (Some(at), Some(line)) => lines[at] = line,
        (Some(at), None) => drop(lines.remove(at)),
        (None, Some(line)) => lines.push(line),
        (None, None) => {}
    }
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Replaces the file whole: a crash leaves the old one or the new one.
///
/// # Errors
/// The file system's, named.
pub fn write(path: &Path, text: &str) -> Result<(), Problem> {
    let place = |error: &std::io::Error| Problem::io(path.display(), error);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| place(&error))?;
    }
    let new = path.with_extension("toml.new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::File::open(&new)?.sync_all());
    written.and_then(|()| std::fs::rename(&new, path)).map_err(|error| place(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_its_setting_takes() {
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            assert_eq!(accepts(setting, setting.default), Ok(()), "{}", setting.key);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("frob = 1", "unknown setting frob"),
            ("mds_cache_memory_limit = \"1K\"", "mds_cache_memory_limit: at least 64.0 MiB"),
            ("log_level = \"loud\"", "log_level: one of debug, info, warn, error"),
            ("log_level = [1]", "log_level: a text or a number is wanted"),
            ("mount_options = \"frob\"", "mount_options: unknown mount option frob"),
        ];
        for (text, why) in wrong {
            assert_eq!(check(text), Err(why.into()));
        }
        assert!(check("a = \nb = 1").is_err_and(|why| why.starts_with("line 1: ")));
    }

    #[test]
    fn an_edit_keeps_what_people_wrote() {
        let text = "# mine\njournal_size = \"2G\" \n# end\n";
        let set = edited(text, "journal_size", Some("4G"));
        assert_eq!(set, "# mine\njournal_size = \"4G\"\n# end\n");
        assert_eq!(edited(&set, "journal_size", None), "# mine\n# end\n");
        assert_eq!(edited("", "cluster", Some("a\"b")), "cluster = 'a\"b'\n");
        assert_eq!(edited("log_format_x = 1\n", "log_format", None), "log_format_x = 1\n");
    }

    #[test]
    fn sizes_are_numbers_or_texts() {
        let table = check("journal_size = 134217728\nmds_cache_memory_limit = \"1G\"").expect("good");
        assert_eq!(shown(&table["journal_size"]), "134217728");
    }
}
