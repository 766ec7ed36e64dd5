//! `pando config`: settings of processes on this host.
//!
//! Absent: telling running processes; they read the file when they start.

use crate::args::Config;
use crate::conf::{self, Setting};
use crate::output::{Output, table};
use crate::problem::{Exit, Problem, Verdict};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Runs the verb.
///
/// # Errors
/// Unknown settings and bad values (exit 2), files that cannot be read or written.
pub fn run(verb: &Config, file: Option<&Path>, out: &Output) -> Verdict {
    match verb {
        Config::Ls => ls(file, out),
        Config::Get { key } => get(known(key)?, file, out),
        Config::Set { key, value } => {
            let setting = known(key)?;
            conf::accepts(setting, value)
                .map_err(|why| Problem::new(Exit::Usage, format!("{key}: {value}: {why}")))?;
            edit(setting, Some(value), file, out)
        }
        Config::Rm { key } => edit(known(key)?, None, file, out),
        Config::Help { key } => help(key.as_deref(), out),
    }
}

fn known(key: &str) -> Result<&'static Setting, Problem> {
    let unknown =
        || Problem::new(Exit::Usage, format!("{key}: unknown setting")).do_this("`pando config help`");
    conf::setting(key).ok_or_else(unknown)
}

fn ls(file: Option<&Path>, out: &Output) -> Verdict {
    let set = conf::table(file)?;
    let mut rows = vec![vec!["KEY".into(), "VALUE".into(), "FROM".into()]];
    let mut json = Map::new();
    for setting in conf::SETTINGS {
        let (value, from) = match set.get(setting.key) {
            Some(value) => (conf::shown(value), "file"),
            None => (setting.default.into(), "default"),
        };
        json.insert(setting.key.into(), json!({"value": value, "from": from}));
        let shown = if value.is_empty() { "-".into() } else { value };
        rows.push(vec![setting.key.into(), shown, from.into()]);
    }
    out.result(&table(&rows), json!({"settings": json}));
    Ok(0)
}

fn get(setting: &Setting, file: Option<&Path>, out: &Output) -> Verdict {
    let set = conf::table(file)?;
    let value = set.get(setting.key).map_or_else(|| setting.default.into(), conf::shown);
    out.result(&value, json!({"key": setting.key, "value": value}));
    Ok(0)
}

fn edit(setting: &Setting, value: Option<&str>, file: Option<&Path>, out: &Output) -> Verdict {
    // A file that is damaged is not made worse.
    let path = file.unwrap_or(Path::new(conf::PATH));
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Problem::io(path.display(), &error)),
    };
    if !old.is_empty() {
        conf::table(Some(path))?;
    }
    conf::write(path, &conf::edited(&old, setting.key, value))?;
    out.detail(&format!("wrote {}; processes read it when they start", path.display()));
    Ok(0)
}

fn help(key: Option<&str>, out: &Output) -> Verdict {
    let settings: Vec<&Setting> = match key {
        Some(key) => vec![known(key)?],
        None => conf::SETTINGS.iter().collect(),
    };
    let mut text = String::new();
    let mut json = Vec::new();
    for setting in settings {
        let default = if setting.default.is_empty() { "unset" } else { setting.default };
        text.push_str(&format!("{} (default: {default})\n    {}\n", setting.key, setting.help));
        json.push(json!({"key": setting.key, "default": setting.default, "help": setting.help}));
    }
    out.result(&text, json!({"settings": Value::Array(json)}));
    Ok(0)
}
