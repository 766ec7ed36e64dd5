//! The memory a queue shares with the kernel: one header and one payload area per entry.
//! Absent: who may touch which entry when; `queue` and `worker` say so.

use std::io;
use std::ptr::NonNull;

use super::Shape;
use crate::abi::{Plain, UringEntInOut, UringHeader};

/// Room before each payload: the header, then the address list of the registration.
const HEAD_BYTES: usize = 4096;
const VECTORS_AT: usize = 512;

const _: () = assert!(size_of::<UringHeader>() <= VECTORS_AT);
const _: () = assert!(VECTORS_AT + size_of::<[libc::iovec; 2]>() <= HEAD_BYTES);

/// One anonymous mapping; pages become real when an entry first uses them.
pub(super) struct Memory {
    base: NonNull<u8>,
    entries: usize,
    payload_bytes: usize,
}

// SAFETY: the mapping is plain memory that any thread may reach; its methods hand out raw pointers only,
// whose users state why nobody else touches the same entry at the time.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(shape: Shape) -> io::Result<Memory> {
        let payload_bytes = shape.payload_bytes.next_multiple_of(4096);
        let entries = usize::from(shape.depth.max(1));
        let length = (HEAD_BYTES + payload_bytes) * entries;
        // SAFETY: a new anonymous mapping wherever the kernel likes overlaps nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address 0"))?;
        Ok(Memory { base, entries, payload_bytes })
    }

    fn stride(&self) -> usize {
        HEAD_BYTES + self.payload_bytes
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn head(&self, entry: u16) -> *mut u8 {
        let entry = usize::from(entry);
        assert!(entry < self.entries, "ring entries are numbered by the ring that made them");
        // SAFETY: the entry is within the mapping (asserted), so the offset is too.
        unsafe { self.base.as_ptr().add(entry * self.stride()) }
    }

    /// Start of the payload area, `payload_bytes` long, page aligned.
    pub(super) fn payload(&self, entry: u16) -> *mut u8 {
        // SAFETY: the payload follows HEAD_BYTES after the head, inside the entry's stride.
        unsafe { self.head(entry).add(HEAD_BYTES) }
    }

    /// Writes the address list that REGISTER takes and says where it is.
    pub(super) fn vectors(&self, entry: u16) -> *const libc::iovec {
        let vectors = [
            libc::iovec { iov_base: self.head(entry).cast(), iov_len: size_of::<UringHeader>() },
            libc::iovec { iov_base: self.payload(entry).cast(), iov_len: self.payload_bytes },
        ];
        // SAFETY: VECTORS_AT is inside the head and leaves room for the list (checked above); the place is
        // aligned because the mapping is page aligned and VECTORS_AT a multiple of 16. Nothing else lies there.
        unsafe {
            let place = self.head(entry).add(VECTORS_AT).cast::<[libc::iovec; 2]>();
            place.write(vectors);
            place.cast()
        }
    }

    /// The header of an entry. The caller owns the entry: its completion came, its commit is not submitted.
    pub(super) fn header(&self, entry: u16) -> UringHeader {
        // SAFETY: the head is aligned, inside the mapping, and any bytes are a header; the kernel writes it
        // only between commit and completion.
        unsafe { self.head(entry).cast::<UringHeader>().read() }
    }

    /// Sets what the kernel reads at commit. The caller owns the entry, as above.
    pub(super) fn set_answer(&self, entry: u16, out_header: &[u8], payload_bytes: u32) {
        let in_out_bytes = size_of::<[u8; 128]>();
        let length = out_header.len().min(in_out_bytes);
        let at = UringEntInOut { payload_sz: payload_bytes, ..UringEntInOut::default() };
        let ent_at = std::mem::offset_of!(UringHeader, ent);
        // SAFETY: both places are inside the header of an entry the caller owns; lengths are bounded by the
        // areas they are copied to.
        unsafe {
            let head = self.head(entry);
            std::ptr::copy_nonoverlapping(out_header.as_ptr(), head, length);
            std::ptr::copy_nonoverlapping(at.bytes().as_ptr(), head.add(ent_at), at.bytes().len());
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nobody holds a pointer into it: users hold the Arc around
        // the queue that holds it. The kernel copies to it only from inside the ring thread's calls.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.stride() * self.entries) };
    }
}
