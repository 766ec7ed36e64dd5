//! `pando warmup`: brings a tree into the server's cache before somebody asks for it, and its file data into the page cache.
//!
//! Absent: how names are loaded (crate `mds`, `warm.rs`).

use crate::args::Warmup;
use crate::output::{Output, bytes, grouped};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the server is asked how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// Files that are found and wait to be read.
const WAITING: usize = 1024;
const CHUNK: usize = 1 << 20;

/// What reading came to.
#[derive(Default)]
struct Sum {
    files: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

/// Runs the verb.
///
/// # Errors
/// Not inside a mount, no server, not permitted; exit 1 when files could not be read.
pub fn run(args: &Warmup, source: Result<Source, Problem>, out: &Output) -> Verdict {
    let source = source?;
    let begin = Instant::now();
    let failed = |error: io::Error| Problem::io(args.path.display(), &error);
    let found = fs::metadata(&args.path).map_err(failed)?;
    // The server begins with what it knows: now it knows this directory. A file's name is known by its being looked up.
    let dir = if found.is_dir() { Some(fs::read_dir(&args.path).map_err(failed)?.count()) } else { None };
    let names = if dir.is_some() {
        names(&source, found.ino())?
    } else {
        json!({"state": "done", "dirs": 0, "names": 1, "loaded": 0})
    };
    let mut text = told(&names, begin.elapsed());
    let mut result = json!({"metadata": names});
    let mut code = 0;
    if !args.metadata {
        let sum = Sum::default();
        read_all(&args.path, args.threads, &sum);
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.push_str(&format!(
            "read {} files, {}\n",
            grouped(number(&sum.files)),
            bytes(number(&sum.bytes))
        ));
        if number(&sum.failed) > 0 {
            out.say(&format!("{} could not be read", grouped(number(&sum.failed))));
            code = Exit::Failed as u8;
        }
        result["files"] = json!(number(&sum.files));
        result["bytes"] = json!(number(&sum.bytes));
        result["failed"] = json!(number(&sum.failed));
    }
    result["seconds"] = json!(begin.elapsed().as_secs_f64());
    out.result(&text, result);
    Ok(code)
}

/// `--cluster` names another server than that of the path, or the same once more.
#[must_use]
pub fn no_cluster() -> Problem {
    Problem::new(Exit::Usage, "--cluster: the server is that of the mount in which PATH is")
        .do_this("`pando warmup PATH`, on a host that has it mounted")
}

/// Has the server load all names below an inode; returns when it has.
fn names(source: &Source, ino: u64) -> Result<Value, Problem> {
    let failed = |exit, why: &str| Problem::new(exit, format!("{source}: {why}"));
    let began = admin::ask(source, &json!({"cmd": "warmup start", "ino": ino}), ANSWER_TIME)?;
    loop {
        let status = admin::ask(source, &json!({"cmd": "warmup status"}), ANSWER_TIME)?;
        if status["run"] != began["run"] {
            let why = "another warmup began, or the server is another one now";
            return Err(failed(Exit::State, why).do_this("run it again"));
        }
        match status["state"].as_str() {
            Some("running") if status["rank"] == "damaged" => {
                return Err(failed(Exit::Failed, "the rank is damaged").do_this("`pando health detail`"));
            }
            Some("running") => std::thread::sleep(LOOK),
            Some("nowhere") => {
                let why = "the server does not know the directory any more";
                return Err(failed(Exit::State, why).do_this("run it again"));
            }
            Some("stopped") => {
                let why = "a backup began, which ends warming";
                return Err(failed(Exit::State, why).do_this("run it again after the backup"));
            }
            _ => return Ok(status),
        }
    }
}

fn told(status: &Value, took: Duration) -> String {
    let number = |key: &str| grouped(status[key].as_u64().unwrap_or(0));
    let mut text = format!(
        "warmed {} names in {} directories in {:.1} s; {} were loaded, the others in the cache before\n",
        number("names"),
        number("dirs"),
        took.as_secs_f64(),
        number("loaded")
    );
    if status["state"] == "full" {
        text.push_str("the cache is full: the rest stays cold (mds_cache_memory_limit)\n");
    }
    if status["left_out"].as_u64().unwrap_or(0) > 0 {
        text.push_str(&format!(
            "{} directories were left out: warm them by themselves\n",
            number("left_out")
        ));
    }
    text
}

/// Reads all files below a path, so that the server's page cache has them.
fn read_all(path: &Path, threads: usize, sum: &Sum) {
    let (found, waiting) = sync_channel::<PathBuf>(WAITING);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| read_some(&waiting, sum));
        }
        let mut below = vec![path.to_path_buf()];
        while let Some(path) = below.pop() {
            let count = |result: io::Result<()>| {
                if result.is_err() {
                    sum.failed.fetch_add(1, Ordering::Relaxed);
                }
            };
            count(look(&path, &mut below, |file| {
                // Readers end only when this does.
                let _taken = found.send(file);
            }));
        }
        drop(found);
    });
}

/// One path: its entries wait, or it is a file.
fn look(path: &Path, below: &mut Vec<PathBuf>, file: impl FnOnce(PathBuf)) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_file() {
        file(path.to_path_buf());
    } else if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            below.push(entry?.path());
        }
    }
    Ok(())
}

fn read_some(waiting: &Mutex<Receiver<PathBuf>>, sum: &Sum) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(path) = next else { return };
        match read_one(&path, &mut chunk) {
            Ok(count) => {
                sum.files.fetch_add(1, Ordering::Relaxed);
                sum.bytes.fetch_add(count, Ordering::Relaxed);
            }
            Err(_) => {
                sum.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn read_one(path: &Path, chunk: &mut [u8]) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut all = 0;
    loop {
        match file.read(chunk)? {
            0 => return Ok(all),
            count => all += count as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_once_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        fs::create_dir_all(path.join("a/b")).expect("made");
        for (name, size) in [("x", 10), ("a/y", 3 << 20), ("a/b/z", 0)] {
            fs::write(path.join(name), vec![1; size]).expect("written");
        }
        std::os::unix::fs::symlink("..", path.join("a/up")).expect("linked");
        let sum = Sum::default();
        read_all(path, 3, &sum);
        let counts = [&sum.files, &sum.bytes, &sum.failed].map(|counter| counter.load(Ordering::Relaxed));
        assert_eq!(counts, [3, (3 << 20) + 10, 0]);
        read_all(&path.join("none"), 1, &sum);
        assert_eq!(sum.failed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_stays_cold_is_told() {
        let status = json!({"state": "full", "dirs": 12, "names": 120_000, "loaded": 90_000, "left_out": 3});
        let expected = "warmed 120,000 names in 12 directories in 1.5 s; 90,000 were loaded, the others in the cache before\n\
            the cache is full: the rest stays cold (mds_cache_memory_limit)\n\
            3 directories were left out: warm them by themselves\n";
        assert_eq!(told(&status, Duration::from_millis(1500)), expected);
    }
}
