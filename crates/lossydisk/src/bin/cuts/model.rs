//! What one client was told, and what a folder may therefore look like after a cut.
//!
//! Absent: requests.

use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// A file's content as far as promises go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// What the last write left.
    pub(crate) bytes: Vec<u8>,
    /// What it was before each write since the fsync: a cut may bring any of it back.
    pub(crate) older: Vec<Vec<u8>>,
}

impl Content {
    /// A write of `data` at `offset` was acknowledged (or may have happened).
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        self.older.push(self.bytes.clone());
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(data);
    }

    /// The file was cut to `size`.
    pub(crate) fn cut(&mut self, size: usize) {
        self.bytes.truncate(size);
        self.older.iter_mut().for_each(|bytes| bytes.truncate(size));
    }

    /// An fsync returned.
    pub(crate) fn sync(&mut self) {
        self.older.clear();
    }

    /// Whether `found` keeps the promises: the size exactly, each byte the last one, or (unsynced) an older one or zero.
    fn allows(&self, found: &[u8]) -> bool {
        found.len() == self.bytes.len()
            && found.iter().enumerate().all(|(i, byte)| self.allows_byte(i, *byte))
    }

    fn allows_byte(&self, i: usize, byte: u8) -> bool {
        self.bytes.get(i) == Some(&byte)
            || !self.older.is_empty() && byte == 0
            || self.older.iter().any(|old| old.get(i) == Some(&byte))
    }

    /// The same while a write was under way: its bytes may be there in part, with the old size or the new one.
    fn allows_with(&self, next: &Self, found: &[u8]) -> bool {
        let sizes = [self.bytes.len(), next.bytes.len()];
        let byte = |(i, byte): (usize, &u8)| self.allows_byte(i, *byte) || next.allows_byte(i, *byte);
        sizes.contains(&found.len()) && found.iter().enumerate().all(byte)
    }
}

/// One client's folder: name -> content.
pub(crate) type Folder = BTreeMap<String, Content>;

/// What is true for sure, and what the operation under way may have made of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    pub(crate) sure: Folder,
    pub(crate) maybe: Option<Folder>,
    /// What was asked and acknowledged since the last check, for the text of a failure.
    pub(crate) told: Vec<String>,
}

impl Promise {
    /// Checks what was found and takes it as the truth from here on.
    pub(crate) fn check(&mut self, found: BTreeMap<String, Vec<u8>>) -> Result<()> {
        let fits = |folder: &Folder| {
            folder.len() == found.len()
                && folder
                    .iter()
                    .all(|(name, content)| found.get(name).is_some_and(|found| content.allows(found)))
        };
        let partly = |next: &Folder| {
            next.len() == found.len()
                && self.sure.iter().all(|(name, content)| match (next.get(name), found.get(name)) {
                    (Some(next), Some(found)) => content.allows_with(next, found),
                    _ => false,
                })
        };
        let fitting = fits(&self.sure) || self.maybe.as_ref().is_some_and(|next| fits(next) || partly(next));
        ensure!(fitting, "{}", self.difference(&found));
        self.sure =
            found.into_iter().map(|(name, bytes)| (name, Content { bytes, older: Vec::new() })).collect();
        self.maybe = None;
        self.told.clear();
        Ok(())
    }

    fn difference(&self, found: &BTreeMap<String, Vec<u8>>) -> String {
        let mut text = String::new();
        for (name, content) in &self.sure {
            match found.get(name) {
                None => text += &format!("{name} is missing; "),
                Some(bytes) if !content.allows(bytes) => {
                    let at = bytes.iter().zip(&content.bytes).position(|(a, b)| a != b).unwrap_or(0);
                    let differing = bytes.iter().zip(&content.bytes).filter(|(a, b)| a != b).count();
                    text += &format!(
                        "{name} has {} bytes, promised {} ({} writes unsynced), {differing} differ from {at} on: {:?}, promised {:?}; ",
                        bytes.len(),
                        content.bytes.len(),
                        content.older.len(),
                        bytes.get(at..bytes.len().min(at + 8)),
                        content.bytes.get(at..content.bytes.len().min(at + 8))
                    );
                }
                Some(_) => {}
            }
        }
        for name in found.keys().filter(|name| !self.sure.contains_key(*name)) {
            text += &format!("{name} should not be there; ");
        }
        text += &format!("an operation was under way: {}", self.maybe.is_some());
        for line in &self.told {
            text += "\n      ";
            text += line;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_kept_or_broken() {
        let mut content = Content::default();
        content.write(0, b"abc");
        assert!(content.allows(b"abc") && content.allows(b"a\0c") && !content.allows(b"abx"));
        content.sync();
        assert!(content.allows(b"abc") && !content.allows(b"a\0c"));
        content.write(1, b"X");
        assert!(content.allows(b"abc") && content.allows(b"aXc") && !content.allows(b"aYc"));
        content.cut(2);
        assert!(content.allows(b"ab") && !content.allows(b"abc"));
    }

    #[test]
    fn a_write_under_way_may_be_there_in_part() {
        let (mut sure, name) = (Content::default(), "f".to_owned());
        sure.write(0, b"abcd");
        sure.sync();
        let mut next = sure.clone();
        next.write(2, b"XYZ");
        let check = |found: &[u8]| {
            let folder = |content: &Content| Folder::from([(name.clone(), content.clone())]);
            let mut promise = Promise { sure: folder(&sure), maybe: Some(folder(&next)), told: Vec::new() };
            promise.check(BTreeMap::from([(name.clone(), found.to_vec())])).is_ok()
        };
        assert!(check(b"abcd") && check(b"abXd") && check(b"abXY") && check(b"abXYZ"));
        assert!(!check(b"abcX") && !check(b"abX") && !check(b"aXcd"));
    }
}
