//! Lays out directory entries in the buffer of a READDIR or READDIRPLUS reply.
//! Absent: choosing entries, offsets and lookup counts, which are the caller's.

use super::Entry;
use crate::abi::{DirentHeader, EntryOut, Plain};

/// Takes entries in order until one does not fit.
#[derive(Debug)]
pub struct DirSink<'b> {
    buffer: &'b mut [u8],
    used: usize,
    plus: bool,
}

impl<'b> DirSink<'b> {
    pub(super) fn new(buffer: &'b mut [u8], plus: bool) -> DirSink<'b> {
        DirSink { buffer, used: 0, plus }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether the kernel wants nodes with the names; each node taken by [`DirSink::node`] is then a lookup
    /// to be forgotten later.
    pub fn wants_nodes(&self) -> bool {
        self.plus
    }

    /// Adds a name alone: in a plain listing any, in READDIRPLUS "." and ".." and whatever is not looked up.
    /// `kind` is a DT_ constant, `next` the offset at which a later call continues after this entry.
    /// False when it did not fit: stop, and do not count it.
    pub fn name(&mut self, name: &[u8], ino: u64, kind: u8, next: u64) -> bool {
        self.push(&EntryOut::default(), name, ino, kind, next)
    }

    /// Adds a name with its node. False when it did not fit: stop, and do not count a lookup.
    pub fn node(&mut self, name: &[u8], entry: &Entry, next: u64) -> bool {
        // The file type bits of a mode are the DT_ constant, shifted.
        let kind = ((entry.attr.mode >> 12) & 0xf) as u8;
        self.push(&entry.wire(), name, entry.attr.ino, kind, next)
    }

    /// Whether an entry of that name has room.
    pub fn fits(&self, name: &[u8]) -> bool {
        self.used + self.size(name) <= self.buffer.len()
    }

    fn size(&self, name: &[u8]) -> usize {
        let node = if self.plus { size_of::<EntryOut>() } else { 0 };
        (node + size_of::<DirentHeader>() + name.len()).next_multiple_of(8)
    }

    fn push(&mut self, entry: &EntryOut, name: &[u8], ino: u64, kind: u8, next: u64) -> bool {
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let header = DirentHeader { ino, off: next, namelen, kind: u32::from(kind) };
        let node: &[u8] = if self.plus { entry.bytes() } else { &[] };
        let size = self.size(name);
        let Some(slot) = self.buffer.get_mut(self.used..).and_then(|free| free.get_mut(..size)) else {
            return false;
        };
        let (node_slot, rest) = slot.split_at_mut(node.len());
        let (header_slot, rest) = rest.split_at_mut(size_of::<DirentHeader>());
        let (name_slot, padding) = rest.split_at_mut(name.len());
        node_slot.copy_from_slice(node);
        header_slot.copy_from_slice(header.bytes());
        name_slot.copy_from_slice(name);
        padding.fill(0);
        self.used += size;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_bounded() {
        let mut buffer = [0xff_u8; 80];
        let mut sink = DirSink::new(&mut buffer, false);
        assert!(sink.name(b"abc", 7, libc::DT_REG, 1));
        assert_eq!(sink.used(), 32);
        assert!(sink.name(b"0123456789abcdef", 8, libc::DT_DIR, 2));
        assert_eq!(sink.used(), 72);
        assert!(!sink.fits(b"x") && !sink.name(b"x", 9, libc::DT_REG, 3));
        assert_eq!(sink.used(), 72);
        let first = DirentHeader::read(&buffer).expect("a whole header");
        assert_eq!(first, DirentHeader { ino: 7, off: 1, namelen: 3, kind: 8 });
        assert_eq!(&buffer[24..32], b"abc\0\0\0\0\0");
    }

    #[test]
    fn plus_carries_nodes_and_the_type() {
        let mut buffer = [0_u8; 160];
        let mut sink = DirSink::new(&mut buffer, true);
        let mut entry = Entry { nodeid: 5, ..Entry::default() };
        entry.attr.mode = libc::S_IFDIR | 0o755;
        assert!(sink.fits(b"d") && sink.node(b"d", &entry, 1));
        assert_eq!(sink.used(), 160);
        assert_eq!(EntryOut::read(&buffer).map(|out| out.nodeid), Some(5));
        assert_eq!(
            DirentHeader::read(&buffer[128..]).map(|header| header.kind),
            Some(u32::from(libc::DT_DIR))
        );
    }
}
