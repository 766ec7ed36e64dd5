//! A chunked slab: stable 32-bit slots, growth without moving anything.
//!
//! Absent: shrinking; a freed slot is reused.

/// "No slot".
pub(crate) const NONE: u32 = u32::MAX;
/// An allocator gives a chunk whole pages and puts its own words in front: of a small chunk that is a page in forty.
const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;

/// A value that has a link for the free list while it is unused.
pub(crate) trait Slot {
    fn free_link(&mut self) -> &mut u32;
}

/// Values by slot number.
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: u32,
    len: u32,
}

impl<T: Slot> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }

    /// Values in use.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Slots, free ones too.
    pub(crate) fn slots(&self) -> u32 {
        let whole = self.chunks.len().saturating_sub(1) << CHUNK_BITS;
        (whole + self.chunks.last().map_or(0, Vec::len)) as u32
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        &self.chunks[(slot >> CHUNK_BITS) as usize][slot as usize & (CHUNK - 1)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.chunks[(slot >> CHUNK_BITS) as usize][slot as usize & (CHUNK - 1)]
    }

    /// Stores a value in a free slot.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free != NONE {
            let slot = self.free;
            let place = self.get_mut(slot);
            let next = *place.free_link();
            *place = value;
            self.free = next;
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        let at = self.chunks[chunk].len();
        self.chunks[chunk].push(value);
        ((chunk << CHUNK_BITS) | at) as u32
    }

    /// Frees a slot; `empty` takes the value's place, so that its memory is released now.
    pub(crate) fn remove(&mut self, slot: u32, mut empty: T) -> T {
        *empty.free_link() = self.free;
        self.free = slot;
        self.len -= 1;
        std::mem::replace(self.get_mut(slot), empty)
    }
}
