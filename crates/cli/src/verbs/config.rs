//! `pando config`: settings of processes on this host.
//!
//! Absent: telling running processes; they read the file when they start.

use crate::args::Config;
use crate::conf;
use crate::output::{Output, table};
use crate::problem::{Exit, Problem, Verdict};
use runtime::config::{OPTIONS, OptionHelp};
use serde_json::{Map, json};
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
            let name = known(key)?.name;
            let literal = conf::literal(name, value)
                .map_err(|why| Problem::new(Exit::Usage, format!("{key}: {value}: {why}")))
                .map_err(|problem| problem.do_this(format!("`pando config help {key}`")))?;
            edit(name, &literal, file, out)
        }
        Config::Rm { key } => remove(key, file, out),
        Config::Help { key } => help(key.as_deref(), out),
    }
}

fn known(key: &str) -> Result<&'static OptionHelp, Problem> {
    let unknown = || {
        let (why, step) = if conf::is_shared(key) {
            let step = format!("`pando fs get FS`, or `pando fs set FS {key} VALUE`");
            ("a setting of the file system".to_owned(), step)
        } else {
            let why = runtime::config::later(key).unwrap_or_else(|| "unknown setting".to_owned());
            (why, "`pando config help`".to_owned())
        };
        Problem::new(Exit::Usage, format!("{key}: {why}")).do_this(step)
    };
    conf::setting(key).ok_or_else(unknown)
}

fn ls(file: Option<&Path>, out: &Output) -> Verdict {
    let set = conf::table(file)?;
    let mut rows = vec![vec!["KEY".into(), "VALUE".into(), "FROM".into()]];
    let mut json = Map::new();
    for option in OPTIONS {
        let (value, from) = match set.get(option.name) {
            Some(value) => (conf::shown(value), "file"),
            None => (option.default.into(), "default"),
        };
        json.insert(option.name.into(), json!({"value": value, "from": from}));
        let shown = if value.is_empty() { "-".into() } else { value };
        rows.push(vec![option.name.into(), shown, from.into()]);
    }
    out.result(&table(&rows), json!({"settings": json}));
    Ok(0)
}

fn get(option: &OptionHelp, file: Option<&Path>, out: &Output) -> Verdict {
    let set = conf::table(file)?;
    let value = set.get(option.name).map_or_else(|| option.default.into(), conf::shown);
    out.result(&value, json!({"key": option.name, "value": value}));
    Ok(0)
}

fn edit(key: &str, literal: &str, file: Option<&Path>, out: &Output) -> Verdict {
    let path = conf::path(file);
    let old = present(&path)?;
    let new = conf::edited(&old, key, Some(literal));
    // What is wrong already is named as it stands in the file, not where the edit would have moved it.
    conf::check(&path, &new).map_err(|problem| conf::check(&path, &old).err().unwrap_or(problem))?;
    written(&path, &new, out)
}

/// Takes out any line of that name, also of a setting nobody knows: else nothing could mend a file that has one. What is wrong
/// elsewhere in the file does not get worse by it and is only told.
fn remove(key: &str, file: Option<&Path>, out: &Output) -> Verdict {
    let path = conf::path(file);
    let old = present(&path)?;
    let new = conf::edited(&old, key, None);
    if new == old {
        return known(key).map(|_| 0);
    }
    if let Err(problem) = conf::check(&path, &new) {
        out.say(&format!("pando config: still wrong: {}", problem.what));
    }
    written(&path, &new, out)
}

/// The file's text; one that is not there is empty.
fn present(path: &Path) -> Result<String, Problem> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Problem::io(path.display(), &error)),
    }
}

fn written(path: &Path, text: &str, out: &Output) -> Verdict {
    conf::write(path, text)?;
    out.detail(&format!("wrote {}; processes read it when they start", path.display()));
    Ok(0)
}

fn help(key: Option<&str>, out: &Output) -> Verdict {
    let options: Vec<&OptionHelp> = match key {
        Some(key) => vec![known(key)?],
        None => OPTIONS.iter().collect(),
    };
    let mut text = String::new();
    let mut json = Vec::new();
    for option in options {
        let default = if option.default.is_empty() { "unset" } else { option.default };
        text.push_str(&format!("{} (default: {default})\n    {}\n", option.name, option.help));
        json.push(json!({"key": option.name, "default": option.default, "help": option.help}));
    }
    out.result(&text, json!({"settings": json}));
    Ok(0)
}
