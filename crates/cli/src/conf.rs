//! pando.toml as `pando config` shows and edits it. What settings there are, their ranges and defaults
//! is `runtime::config`'s; every edit is checked by it before it is written.
//!
//! An edit touches the setting's own line and leaves comments and order alone.
//!
//! Absent: settings of the file system, which all servers share (`pando fs set`).

use crate::problem::{Exit, Problem, chain};
use runtime::config::{Config, ConfigError, OPTIONS, OptionHelp, PATH_DEFAULT};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The file meant.
#[must_use]
pub fn path(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| PATH_DEFAULT.into(), Into::into)
}

/// Settings of the file system, which are in no file.
const SHARED: &[&str] = &["max_mds", "max_ranks", "joinable", "bal_rank_mask", "placement", "rank_weight"];

/// Whether a setting is one of the file system.
#[must_use]
pub fn is_shared(key: &str) -> bool {
    SHARED.contains(&key)
}

/// The setting of this name.
#[must_use]
pub fn setting(key: &str) -> Option<&'static OptionHelp> {
    OPTIONS.iter().find(|option| option.name == key)
}

/// Reads and checks the file; one that is not there is empty, unless it was named.
///
/// # Errors
/// Exit 1 or 4: unreadable; exit 2: line and reason.
pub fn read(named: Option<&Path>) -> Result<Config, Problem> {
    let (file, text) = text(named)?;
    check(&file, &text)
}

/// What the checked file sets.
///
/// # Errors
/// As `read`.
pub fn table(named: Option<&Path>) -> Result<Table, Problem> {
    let (file, text) = text(named)?;
    check(&file, &text)?;
    text.parse().map_err(|error: toml::de::Error| Problem::failed(file.display(), error.message()))
}

/// The file's path and text.
///
/// # Errors
/// As `read`.
pub fn text(named: Option<&Path>) -> Result<(PathBuf, String), Problem> {
    let file = path(named);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok((file, text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => {
            Ok((file, String::new()))
        }
        // Named, so that it matters: with its defaults a process would not do what was meant.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Problem::io(file.display(), &error).do_this(format!(
                "name a file that is there, or make it: `pando config set KEY VALUE --conf {}`",
                file.display()
            )))
        }
        Err(error) => Err(Problem::io(file.display(), &error)),
    }
}

/// Checks a file's text.
///
/// # Errors
/// Exit 2: line and reason.
pub fn check(file: &Path, text: &str) -> Result<Config, Problem> {
    Config::parse(text, &file.display().to_string())
        .map_err(|error| Problem::new(Exit::Usage, chain(&error).trim_end()).do_this("`pando config help`"))
}

/// A value without quotes.
#[must_use]
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value as it stands in the file: a number or list if the setting takes the text so, else a text.
///
/// # Errors
/// Why the setting takes neither.
pub fn literal(key: &str, text: &str) -> Result<String, String> {
    let parse = |value: &str| Config::parse(&format!("{key} = {value}\n"), "");
    let quoted = Value::String(text.into()).to_string();
    match (parse(text), parse(&quoted)) {
        (Ok(_), _) => Ok(text.into()),
        (_, Ok(_)) => Ok(quoted),
        (Err(ConfigError::Range { what, .. }), _)
        | (_, Err(ConfigError::Range { what, .. } | ConfigError::Syntax { what, .. })) => {
            Err(what.trim_end().into())
        }
        (_, Err(other)) => Err(other.to_string()),
    }
}

/// The text with the setting's line replaced, added at the end, or taken out.
#[must_use]
pub fn edited(text: &str, key: &str, literal: Option<&str>) -> String {
    let is_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let new = literal.map(|literal| format!("{key} = {literal}"));
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
    let place = |error: std::io::Error| Problem::io(path.display(), &error);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(place)?;
    }
    let new = path.with_extension("toml.new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::File::open(&new)?.sync_all());
    written.and_then(|()| std::fs::rename(&new, path)).map_err(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that sets a default changes nothing.
    #[test]
    fn every_default_that_is_shown_is_the_one_that_counts() {
        let mut places = Vec::new();
        for OptionHelp { name, default, .. } in OPTIONS {
            if default.is_empty() || default.starts_with("DIR/") {
                // Nothing, or a place in the data folder, which is not known here.
                places.push(*name);
                continue;
            }
            let literal = literal(name, default).unwrap_or_else(|why| panic!("{name}: {why}"));
            let config = Config::parse(&format!("{name} = {literal}\n"), "f").expect("a literal");
            assert_eq!(config, Config::default(), "{name}");
        }
        let Config { metrics, cluster, log_file, .. } = Config::default();
        assert_eq!(places, ["metrics", "cluster", "log_file"]);
        assert_eq!((metrics, cluster, log_file), (None, None, None));
    }

    #[test]
    fn no_setting_is_both_present_and_later() {
        assert!(OPTIONS.iter().all(|option| !is_shared(option.name)));
    }

    #[test]
    fn values_get_the_form_their_setting_takes() {
        assert_eq!(literal("session_timeout", "20"), Ok("20".into()));
        assert_eq!(literal("journal_size", "2G"), Ok("\"2G\"".into()));
        assert_eq!(literal("log_level", "warn"), Ok("\"warn\"".into()));
        assert_eq!(literal("listen", "[\"h:1\"]"), Ok("[\"h:1\"]".into()));
    }

    #[test]
    fn what_a_setting_does_not_take_is_refused() {
        assert_eq!(literal("session_timeout", "0"), Err("0 is not between 1 and 3600".into()));
        let small = "1024 is not between 16777216 and 1099511627776";
        assert_eq!(literal("journal_size", "1K"), Err(small.into()));
        for (key, value) in [("session_timeout", "soon"), ("journal_size", "5X"), ("log_level", "loud")] {
            assert!(literal(key, value).is_err(), "{key}");
        }
    }

    #[test]
    fn an_edit_keeps_what_people_wrote() {
        let text = "# mine\njournal_size = \"2G\" \n# end\n";
        let set = edited(text, "journal_size", Some("\"4G\""));
        assert_eq!(set, "# mine\njournal_size = \"4G\"\n# end\n");
        assert_eq!(edited(&set, "journal_size", None), "# mine\n# end\n");
        assert_eq!(edited("log_format_x = 1\n", "log_format", None), "log_format_x = 1\n");
    }
}
