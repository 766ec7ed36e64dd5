//! `pando load`: a writer that notes on another file system what was made durable, and the check that
//! all of it is still there. For `make run` and for tests that kill the server.
//!
//! Absent: other workloads (`pando bench`).

pub mod phase;

use crate::args::{Load, LoadWrite};
use crate::output::{Output, grouped};
use crate::problem::{Exit, Problem, Verdict};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Files per folder: keeps listings of a long run short.
const FOLDER_FILES: u64 = 1000;

/// Runs the verb.
///
/// # Errors
/// Lost or wrong files (exit 1).
pub fn run(verb: &Load, out: &Output) -> Verdict {
    match verb {
        Load::Phase(args) => phase::run(args),
        Load::Write(args) => write(args),
        Load::Verify { folder, ack } => {
            let (good, bad) = verify(folder, ack)?;
            let total = good + bad.len() as u64;
            let text = format!("{} of {} synced files verified", grouped(good), grouped(total));
            out.result(&text, json!({"verified": good, "synced": total, "bad": bad}));
            if bad.is_empty() { Ok(0) } else { Err(Problem::new(Exit::Failed, bad.join("\n"))) }
        }
    }
}

fn write(args: &LoadWrite) -> Verdict {
    let mut ack = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&args.ack)
        .map_err(|error| Problem::io(args.ack.display(), &error))?;
    let end = args.first.saturating_add(args.count);
    for number in args.first..end {
        let path = path(&args.folder, number);
        put(&path, number, args.bytes).map_err(|error| Problem::io(path.display(), &error))?;
        // One write call: a kill leaves whole lines.
        ack.write_all(format!("{number} {}\n", args.bytes).as_bytes())
            .map_err(|error| Problem::io(args.ack.display(), &error))?;
    }
    Ok(0)
}

/// The file of a number.
#[must_use]
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("d{}", number / FOLDER_FILES)).join(format!("f{number}"))
}

/// Makes a number's file and everything about it durable.
///
/// # Errors
/// The file system's.
pub fn put(path: &Path, number: u64, bytes: u64) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    if !folder.is_dir() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(path)?;
    file.write_all(&content(number, bytes))?;
    file.sync_all()?;
    // fsync of a file does not promise its name by POSIX; here we ask for both.
    File::open(folder)?.sync_all()
}

/// What a number's file holds: different for each number, so that swapped files are noticed.
#[must_use]
pub fn content(number: u64, bytes: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(usize::try_from(bytes).unwrap_or(usize::MAX)).collect()
}

/// How many noted files are right, and a line for each that is not.
///
/// # Errors
/// The notes cannot be read.
pub fn verify(folder: &Path, ack: &Path) -> Result<(u64, Vec<String>), Problem> {
    let notes = fs::read_to_string(ack).map_err(|error| Problem::io(ack.display(), &error))?;
    let (mut good, mut bad) = (0, Vec::new());
    for line in notes.lines() {
        let Some((number, bytes)) = line.split_once(' ') else { continue };
        let (Ok(number), Ok(bytes)) = (number.parse(), bytes.parse()) else { continue };
        let path = path(folder, number);
        let mut found = Vec::new();
        match File::open(&path).and_then(|mut file| file.read_to_end(&mut found)) {
            Ok(_) if found == content(number, bytes) => good += 1,
            Ok(_) => bad.push(format!("{}: wrong content ({} bytes)", path.display(), found.len())),
            Err(error) => bad.push(format!("{}: {error}", path.display())),
        }
    }
    Ok((good, bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let ack = folder.path().join("ack");
        let args =
            LoadWrite { folder: folder.path().into(), ack: ack.clone(), first: 998, count: 4, bytes: 100 };
        write(&args).expect("written");
        assert_eq!(verify(folder.path(), &ack), Ok((4, vec![])));
        fs::write(path(folder.path(), 999), content(1000, 100)).expect("swapped");
        fs::remove_file(path(folder.path(), 1001)).expect("removed");
        let (good, bad) = verify(folder.path(), &ack).expect("checked");
        assert_eq!((good, bad.len()), (2, 2));
    }
}
