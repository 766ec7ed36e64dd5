//! `pando backup`: one file that holds a file system, made of a folder whether it is served or not.
//!
//! Absent: the container's layout (crate `server`), schedules.

use crate::args::Backup;
use crate::output::{Output, bytes, grouped, table};
use crate::problem::{Exit, Problem, Verdict, chain, words};
use crate::source::Source;
use crate::{ANSWER_TIME, admin, conf, overlap, place};
use serde_json::{Value, json};
use server::backup::{self, BackupError, Summary};
use std::path::Path;
use std::time::Duration;
use store::folder::{SOCKET, full_id, short_id};

/// Between two looks at a backup that a server makes.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the verb.
///
/// # Errors
/// The folder's, the server's and the backup's refusals.
pub fn run(verb: &Backup, conf_file: Option<&Path>, out: &Output) -> Verdict {
    match verb {
        Backup::Create { dir, file } => create(dir, file, conf_file, out),
        Backup::Ls { folder } => ls(folder, out),
        Backup::Verify { file } => {
            let summary = backup::verify(file).map_err(|error| explain(file, &error))?;
            out.result(&format!("good: {}", text(&summary)), value(&summary));
            Ok(0)
        }
        Backup::Restore { file, dir } => {
            let options = place::format_options();
            let summary = backup::restore(file, dir, &options).map_err(|error| explain(file, &error))?;
            out.result(&format!("restored into {}: {}", dir.display(), text(&summary)), value(&summary));
            Ok(0)
        }
    }
}

fn create(dir: &Path, file: &Path, conf_file: Option<&Path>, out: &Output) -> Verdict {
    if file == Path::new("-") {
        let what = "-: a backup is a file, not a stream";
        return Err(Problem::new(Exit::Usage, what).do_this("name a file (`./-`, if that is its name)"));
    }
    place::expect_existing(dir, "backup create DIR FILE")?;
    overlap::refuse_backup(dir, file)?;
    if file.try_exists().map_err(|error| Problem::io(file.display(), &error))? {
        return Err(
            Problem::new(Exit::State, format!("{}: exists", file.display())).do_this("choose another name")
        );
    }
    if admin::is_alive(&dir.join(SOCKET)) {
        return by_server(dir, file, out);
    }
    let server = place::open_unheard(dir, &conf::read(conf_file)?)?;
    let made = backup::create(&server, file).map_err(|error| {
        if error.is_damage() { damaged_folder(dir, file, chain(&error)) } else { explain(file, &error) }
    });
    let stopped = server.stop().map_err(|error| Problem::failed(dir.display(), chain(&error)));
    let summary = made?;
    stopped?;
    out.result(&format!("wrote {}: {}", file.display(), text(&summary)), value(&summary));
    Ok(0)
}

/// The server that has the folder makes it; we look until it is done.
fn by_server(dir: &Path, file: &Path, out: &Output) -> Verdict {
    let source = Source::Folder(dir.into());
    let absolute = std::path::absolute(file).map_err(|error| Problem::io(file.display(), &error))?;
    let path = absolute.to_str().ok_or_else(|| Problem::failed(file.display(), "the name is not text"))?;
    admin::ask(&source, &json!({"cmd": "backup create", "path": path}), ANSWER_TIME)?;
    loop {
        std::thread::sleep(LOOK);
        let state = admin::ask(&source, &json!({"cmd": "backup status"}), ANSWER_TIME)?;
        match state["state"].as_str() {
            Some("running") => {}
            Some("done") => {
                let count = |key: &str| state[key].as_u64().unwrap_or(0);
                let text = counts(count("records"), count("files"), count("data_bytes"), count("bytes"));
                out.result(&format!("wrote {}: {text}", file.display()), state);
                return Ok(0);
            }
            _ => {
                let why = words(state["why"].as_str().unwrap_or("the server knows of no backup"));
                return Err(match (state["damaged"] == true, state["wrong_state"] == true) {
                    (true, _) => damaged_folder(dir, file, why),
                    (false, true) => Problem::new(Exit::State, format!("{}: {why}", file.display())),
                    (false, false) => Problem::failed(file.display(), why),
                });
            }
        }
    }
}

fn ls(folder: &Path, out: &Output) -> Verdict {
    let entries = std::fs::read_dir(folder).map_err(|error| Problem::io(folder.display(), &error))?;
    let mut paths: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let mut rows = vec![["FILE", "NAME", "ID", "FILES", "DATA", "SIZE"].map(String::from).to_vec()];
    let mut list: Vec<Value> = Vec::new();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match backup::verify(&path) {
            Ok(summary) => {
                let id = short_id(&summary.record);
                let (data, size) = (bytes(summary.data_bytes), bytes(summary.bytes));
                rows.push(vec![
                    name.clone(),
                    summary.record.name.clone(),
                    id,
                    grouped(summary.files),
                    data,
                    size,
                ]);
                let mut value = value(&summary);
                value["file"] = name.into();
                list.push(value);
            }
            Err(BackupError::Foreign) => {}
            Err(error) => {
                out.say(&format!("{name}: {}", chain(&error)));
                list.push(json!({"file": name, "error": chain(&error)}));
            }
        }
    }
    out.result(&table(&rows), json!({"backups": list}));
    Ok(0)
}

fn text(summary: &Summary) -> String {
    let Summary { record, records, files, data_bytes, bytes, .. } = summary;
    format!("{} {}, {}", record.name, short_id(record), counts(*records, *files, *data_bytes, *bytes))
}

fn counts(records: u64, files: u64, data: u64, size: u64) -> String {
    let (records, files) = (grouped(records), grouped(files));
    format!("{records} records, {files} files with {} of data, {} in all", bytes(data), bytes(size))
}

fn value(summary: &Summary) -> Value {
    json!({
        "name": summary.record.name,
        "fsid": full_id(&summary.record),
        "records": summary.records,
        "files": summary.files,
        "data_bytes": summary.data_bytes,
        "bytes": summary.bytes,
    })
}

/// There is no backup, because what it should hold is damaged.
fn damaged_folder(dir: &Path, file: &Path, why: impl std::fmt::Display) -> Problem {
    Problem::new(Exit::Refused, format!("{}: {why}", file.display()))
        .do_this(format!("`pando fsck {}`", dir.display()))
}

fn explain(file: &Path, error: &BackupError) -> Problem {
    match error {
        damaged if damaged.is_damage() => {
            Problem::new(Exit::Refused, format!("{}: {}", file.display(), chain(damaged)))
                .do_this("use another backup: `pando backup ls FOLDER`")
        }
        BackupError::Foreign => Problem::failed(file.display(), chain(error))
            .do_this("name a file that `pando backup create` wrote: `pando backup ls FOLDER`"),
        BackupError::Folder(error) => place::explain(error),
        state if state.is_state() => {
            Problem::new(Exit::State, format!("{}: {}", file.display(), chain(error)))
        }
        BackupError::Io(error) => Problem::io(file.display(), error),
        BackupError::InsideMount { .. } => {
            Problem::new(Exit::Usage, chain(error)).do_this("write it to another file system")
        }
        other => Problem::failed(file.display(), chain(other)),
    }
}
