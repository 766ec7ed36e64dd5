//! Node numbers and handles: which path a node is, which file a handle is.
//!
//! Nodes are never forgotten: a test disk holds few files. Absent: requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kernel's number of the root.
pub(crate) const ROOT: u64 = 1;

/// An open file and the path it was opened by, which follows renames.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) file: Arc<File>,
    pub(crate) node: u64,
}

/// All nodes and handles.
pub(crate) struct Nodes {
    paths: BTreeMap<u64, PathBuf>,
    numbers: BTreeMap<PathBuf, u64>,
    handles: BTreeMap<u64, Handle>,
    next: u64,
}

impl Nodes {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            paths: BTreeMap::from([(ROOT, root.clone())]),
            numbers: BTreeMap::from([(root, ROOT)]),
            handles: BTreeMap::new(),
            next: ROOT + 1,
        }
    }

    /// The path of a node; `None` for one whose name is gone.
    pub(crate) fn path(&self, node: u64) -> Option<PathBuf> {
        self.paths.get(&node).cloned()
    }

    /// The node of a path, numbered if it is new.
    pub(crate) fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.paths.insert(number, path.to_path_buf());
        self.numbers.insert(path.to_path_buf(), number);
        number
    }

    /// The name is gone; open handles go on.
    pub(crate) fn removed(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        self.removed(to);
        if let Some(number) = self.numbers.remove(from) {
            self.numbers.insert(to.to_path_buf(), number);
            self.paths.insert(number, to.to_path_buf());
        }
    }

    pub(crate) fn open(&mut self, file: File, node: u64) -> u64 {
        let handle = self.next;
        self.next += 1;
        self.handles.insert(handle, Handle { file: Arc::new(file), node });
        handle
    }

    pub(crate) fn handle(&self, handle: u64) -> Option<Handle> {
        self.handles.get(&handle).cloned()
    }

    pub(crate) fn close(&mut self, handle: u64) {
        self.handles.remove(&handle);
    }
}
