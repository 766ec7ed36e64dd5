//! The file that keeps what a repair takes out of the tables.
//!
//! Absent: putting anything back.

use crate::folder::{FsckError, io_error, sync_dir};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FILES_MAX: u32 = 1 << 16;

/// Records moved aside, as text: place, key and stored bytes.
pub(super) struct Dump {
    root: PathBuf,
    text: String,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Dump {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), text: String::new() }
    }

    pub(super) fn add(&mut self, place: &str, key: &[u8], value: &[u8]) {
        let (key, value) = (hex(key), hex(value));
        self.text.push_str(&format!("{place}\nkey {key}\nvalue {value}\n\n"));
    }

    /// Makes what was added durable in a new file, if anything was.
    pub(super) fn finish(&mut self) -> Result<(), FsckError> {
        if self.text.is_empty() {
            return Ok(());
        }
        for number in 1..FILES_MAX {
            let path = self.root.join(format!("fsck-removed-{number}"));
            let mut file = match File::create_new(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(io_error(&path))?,
            };
            let written = file.write_all(self.text.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(io_error(&path))?;
            self.text.clear();
            return sync_dir(&self.root);
        }
        let what = format!("{FILES_MAX} files fsck-removed-N are there already");
        Err(FsckError::Unreadable { dir: self.root.clone(), what })
    }
}
