//! The repository as the checks see it: its files, without build output and what tools put there.
//!
//! Absent: judgement.

use std::fs;
use std::path::{Path, PathBuf};

/// What holds no work of ours. `.git` is a folder, or in a worktree a file that names one.
const SKIPPED: &[&str] = &[".git", "target", "pando-data", "mnt", "node_modules"];

/// The crate's folder, as cargo says it now: clones that share a target folder share what was compiled for the first.
fn manifest_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The folder with the workspace's Cargo.toml.
#[must_use]
pub fn root() -> PathBuf {
    let here = manifest_dir();
    here.ancestors().nth(2).unwrap_or(&here).to_path_buf()
}

/// Every file, as paths relative to the root, sorted.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let (root, mut found) = (root(), Vec::new());
    walk(&root, &root, &mut found);
    found.sort();
    found
}

/// Files whose name ends so.
#[must_use]
pub fn files_ending(end: &str) -> Vec<PathBuf> {
    files().into_iter().filter(|path| path.to_string_lossy().ends_with(end)).collect()
}

/// The text of a file; `None` for one that is not text.
#[must_use]
pub fn text(path: &Path) -> Option<String> {
    fs::read(root().join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

/// The crates: folders in crates/ with a manifest.
#[must_use]
pub fn crates() -> Vec<String> {
    let crates = fs::read_dir(root().join("crates")).map(|entries| entries.flatten().collect());
    let crates: Vec<fs::DirEntry> = crates.unwrap_or_default();
    let mut crates: Vec<String> = crates
        .iter()
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    crates.sort();
    crates
}

/// The crate a path lies in.
#[must_use]
pub fn crate_of(path: &Path) -> Option<String> {
    let mut parts = path.components();
    match parts.next()?.as_os_str().to_str()? {
        "crates" => Some(parts.next()?.as_os_str().to_string_lossy().into_owned()),
        _ => None,
    }
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = name.to_str().is_some_and(|name| SKIPPED.contains(&name));
        match entry.file_type() {
            _ if skipped => {}
            Ok(kind) if kind.is_dir() => walk(root, &path, found),
            Ok(kind) if kind.is_file() => found.extend(path.strip_prefix(root).map(Path::to_path_buf)),
            _ => {}
        }
    }
}
