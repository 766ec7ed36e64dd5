//! A listing, page by page.
//!
//! Absent: "." and "..".

use super::Fs;
use crate::error::Result;
use proto::reply::{DirEntry, Reply};
use proto::request::Request;
use proto::{Errno, NodeRef};
use std::collections::VecDeque;

const PAGE_BYTES: u32 = 64 << 10;

/// Entries of a directory in cookie order. Names present throughout appear exactly once.
pub struct ReadDir {
    fs: Fs,
    dir: NodeRef,
    after: u64,
    page: VecDeque<DirEntry>,
    end: bool,
    attrs: bool,
}

impl ReadDir {
    pub(super) const fn new(fs: Fs, dir: NodeRef) -> Self {
        Self { fs, dir, after: 0, page: VecDeque::new(), end: false, attrs: false }
    }

    /// Asks for attributes with the names.
    #[must_use]
    pub const fn with_attrs(mut self) -> Self {
        self.attrs = true;
        self
    }

    fn fill(&mut self) -> Result<()> {
        let Self { dir, after, attrs, .. } = *self;
        match self.fs.call(Request::ReadDir { dir, after, attrs, bytes_max: PAGE_BYTES })? {
            Reply::Entries { entries, end } => {
                self.end = end || entries.is_empty();
                if let Some(last) = entries.last() {
                    self.after = last.hash.cookie();
                }
                self.page = entries.into();
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                return Some(Ok(entry));
            }
            if self.end {
                return None;
            }
            if let Err(errno) = self.fill() {
                self.end = true;
                return Some(Err(errno));
            }
        }
    }
}
