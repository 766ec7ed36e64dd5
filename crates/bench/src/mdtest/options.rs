//! The options of a run, named as mdtest's flags.
//!
//! Absent: parsing; the command line does it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One run. The letter in each comment is mdtest's flag.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// -d: where to work.
    pub dir: PathBuf,
    /// Number of processes (mpirun's -np).
    pub np: u32,
    /// -F: files only.
    pub files_only: bool,
    /// -D: directories only.
    pub dirs_only: bool,
    /// -L: items in leaf directories only.
    pub leaf_only: bool,
    /// -w: bytes written to each file after its creation.
    pub write_bytes: usize,
    /// -e: bytes read from each file.
    pub read_bytes: usize,
    /// -y: fsync after writing.
    pub fsync: bool,
    /// -z: depth of the tree.
    pub depth: u32,
    /// -b: branching factor.
    pub branch: u32,
    /// -I: items per directory; 0 = use `items`.
    pub items_per_dir: u64,
    /// -n: items per task over the whole tree, when `items_per_dir` is 0.
    pub items: u64,
    /// -u: each task has a directory of its own.
    pub unique: bool,
    /// -N: tasks work on the files of the task this many further in stat, read and remove.
    pub stride: u32,
    /// -C, -T, -E, -r: only these phases; none given = all.
    pub create: bool,
    pub stat: bool,
    pub read: bool,
    pub remove: bool,
    /// -R: stat in random order.
    pub random: bool,
    /// -t: time the making and removing of the unique directories as phases of their own.
    pub time_unique: bool,
    /// -W: seconds after which creation stops (0 = never); every task then works on what it made.
    pub stonewall_seconds: u64,
    /// -i: iterations.
    pub iterations: u32,
    /// Process whose CPU seconds are reported per phase.
    pub watch_pid: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("."),
            np: 1,
            files_only: false,
            dirs_only: false,
            leaf_only: false,
            write_bytes: 0,
            read_bytes: 0,
            fsync: false,
            depth: 0,
            branch: 1,
            items_per_dir: 0,
            items: 0,
            unique: false,
            stride: 0,
            create: false,
            stat: false,
            read: false,
            remove: false,
            random: false,
            time_unique: false,
            stonewall_seconds: 0,
            iterations: 1,
            watch_pid: None,
        }
    }
}

impl Options {
    /// Whether the phase letter is wanted: all are when none was named.
    #[must_use]
    pub fn wants(&self, phase: bool) -> bool {
        phase || !(self.create || self.stat || self.read || self.remove)
    }
}
