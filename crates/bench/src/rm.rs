//! Makes a directory of N empty files, then times `rm -r` of it.
//!
//! Absent: comparison of modes; run it once per mode.

use crate::report::{Phase, histogram};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Runs the script with `files` files under `dir`; the phase holds one operation per file.
///
/// # Errors
/// When a file cannot be made or `rm` fails.
pub fn run(dir: &Path, files: u64) -> Result<Phase> {
    let test = dir.join(format!("test.{}", std::process::id()));
    // The folders above it, too, as mdtest does.
    std::fs::create_dir_all(&test).with_context(|| format!("cannot make {}", test.display()))?;
    for i in 1..=files {
        let path = test.join(i.to_string());
        std::fs::File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let start = Instant::now();
    let status = Command::new("rm").arg("-r").arg(&test).status().context("cannot run rm")?;
    let elapsed = start.elapsed();
    ensure!(status.success(), "rm -r {} failed", test.display());
    let mut latencies = histogram();
    let each = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) / files.max(1);
    latencies.record_n(each.max(1), files)?;
    Ok(Phase::new("rm -r", &latencies, elapsed, None))
}

#[cfg(test)]
mod tests {
    #[test]
    fn removes_what_it_made() {
        let dir = tempfile::tempdir().expect("temp dir");
        let phase = super::run(dir.path(), 10).expect("run");
        assert_eq!(phase.ops, 10);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
        // A folder that is not there yet stays, as after mdtest.
        let absent = dir.path().join("a/b");
        assert_eq!(super::run(&absent, 1).expect("run").ops, 1);
        assert_eq!(std::fs::read_dir(&absent).expect("list").count(), 0);
    }
}
