//! `pando load phase`: one process's share of one phase. Prints how long each operation took, in
//! nanoseconds, one per line; whoever started it draws the conclusions.
//!
//! Absent: starting several (`demo/work.rs`).

use crate::args::{LoadPhase, Phase};
use crate::problem::{Problem, Verdict};
use crate::verbs::load;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Bytes of each file.
const FILE_BYTES: u64 = 4096;

/// Runs the phase.
///
/// # Errors
/// The first operation that failed, or whose answer was wrong.
pub fn run(args: &LoadPhase) -> Verdict {
    share(args).map(|()| 0).map_err(|error| {
        let word = format!("{:?}", args.phase).to_lowercase();
        Problem::io(format!("{word} in {}", args.folder.display()), &error)
    })
}

fn share(args: &LoadPhase) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 12, io::stdout().lock());
    if args.phase == Phase::List {
        let start = Instant::now();
        let found = list(&args.folder)?;
        check(found >= args.count, || format!("{found} names listed of {}", args.count))?;
        writeln!(out, "{}", start.elapsed().as_nanos())?;
        return out.flush();
    }
    for number in args.first..args.first + args.count {
        let path = load::path(&args.folder, number);
        let content = load::content(number, FILE_BYTES);
        let start = Instant::now();
        match args.phase {
            Phase::Create => create(&path, &content)?,
            Phase::Stat => check(fs::metadata(&path)?.len() == FILE_BYTES, || "wrong size".into())?,
            Phase::Read | Phase::List => check(fs::read(&path)? == content, || "wrong content".into())?,
        }
        writeln!(out, "{}", start.elapsed().as_nanos())?;
    }
    out.flush()
}

fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    match File::create(path) {
        Ok(mut file) => file.write_all(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            fs::write(path, content)
        }
        Err(error) => Err(error),
    }
}

fn check(good: bool, what: impl FnOnce() -> String) -> io::Result<()> {
    if good { Ok(()) } else { Err(io::Error::other(what())) }
}

/// Names of files in the folder and its subfolders.
fn list(folder: &Path) -> io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { list(&entry.path())? } else { 1 };
    }
    Ok(count)
}
