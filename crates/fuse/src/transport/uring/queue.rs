//! What a ring thread shares with those who answer its requests: memory, late answers, and a bell.
//! Absent on purpose: the ring itself, which only its thread touches.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Shape;
use super::memory::Memory;
use crate::reply::Loan;

/// The longest body of a WRITE's answer.
const INLINE_BYTES: usize = 8;

thread_local! {
    /// The queue whose ring this thread runs, and the answers given on it since the last commit.
    static OWN_QUEUE: Cell<*const Queue> = const { Cell::new(std::ptr::null()) };
    static OWN_ANSWERS: RefCell<Vec<Answer>> = const { RefCell::new(Vec::new()) };
}

/// An answered entry on its way to the kernel.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) entry: u16,
    pub(super) errno: i32,
    /// Length of the body in the payload area.
    pub(super) body_bytes: u32,
    /// A body to be put there first: the answer to a WRITE, whose data may still be being read.
    pub(super) inline: Option<[u8; INLINE_BYTES]>,
}

pub(crate) struct Queue {
    pub(super) memory: Memory,
    late: Mutex<Vec<Answer>>,
    /// The ring thread is about to wait, or waits, and needs the bell.
    sleeping: AtomicBool,
    stopping: AtomicBool,
    bell: OwnedFd,
}

impl Queue {
    pub(super) fn new(shape: Shape) -> io::Result<Queue> {
        // SAFETY: eventfd takes no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Queue {
            memory: Memory::new(shape)?,
            late: Mutex::default(),
            sleeping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            // SAFETY: just opened, owned by nobody else.
            bell: unsafe { OwnedFd::from_raw_fd(bell) },
        })
    }

    pub(super) fn bell_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Ends the ring thread; answers given later go nowhere.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.ring_bell();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Makes this thread the one that commits for the queue.
    pub(super) fn adopt(&self) {
        OWN_QUEUE.set(std::ptr::from_ref(self));
    }

    /// Announces that the ring thread is about to wait; false when it must not.
    pub(super) fn may_sleep(&self) -> bool {
        // The order matters: an answer pushed after the look sees the flag and rings.
        self.sleeping.store(true, Ordering::SeqCst);
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.is_empty() && !self.is_stopping()
    }

    pub(super) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Empties the bell after it rang.
    pub(super) fn hush(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: an eventfd read takes 8 writable bytes. Nothing to read means it was emptied before.
        let _empty = unsafe { libc::read(self.bell_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    /// Moves all answers given so far, here and on other threads, into `batch`. On the ring thread only.
    pub(super) fn collect(&self, batch: &mut Vec<Answer>) {
        OWN_ANSWERS.with_borrow_mut(|own| batch.append(own));
        batch.append(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn push(&self, answer: Answer) {
        if std::ptr::eq(OWN_QUEUE.get(), self) {
            return OWN_ANSWERS.with_borrow_mut(|own| own.push(answer));
        }
        self.late.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.ring_bell();
        }
    }

    fn ring_bell(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: an eventfd write reads 8 bytes. It can only fail when the count is full: it rings already.
        let _full = unsafe { libc::write(self.bell_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// The right to answer the request in one entry; the payload area is its owner's until then.
pub(crate) struct EntryHandle {
    queue: Arc<Queue>,
    entry: u16,
    /// Data of a WRITE, in the payload area. They may be borrowed, so the answer leaves that area alone.
    data_bytes: Option<u32>,
    open: bool,
    /// The data are lent: the answer is left with them.
    lent: Option<Arc<Lent>>,
}

/// Data of a WRITE, lent beyond the handle's life. The last owner to go, loan or handle, answers.
struct Lent {
    queue: Arc<Queue>,
    entry: u16,
    data_bytes: usize,
    answer: Mutex<Option<Answer>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: inside the payload area (bounded when made). The entry is answered in `drop`, so the kernel
        // does not touch it while `self` lives; the handle with data_bytes set does not write here, and
        // neither does the ring thread before it has the answer.
        unsafe { std::slice::from_raw_parts(self.queue.memory.payload(self.entry), self.data_bytes) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let answer = self.answer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let refusal = Answer { entry: self.entry, errno: libc::EIO, body_bytes: 0, inline: None };
        self.queue.push(answer.unwrap_or(refusal));
    }
}

impl EntryHandle {
    /// For the request that just arrived in `entry`, once; its payload, but for a WRITE, was copied away.
    pub(super) fn new(queue: Arc<Queue>, entry: u16, data_bytes: Option<u32>) -> EntryHandle {
        EntryHandle { queue, entry, data_bytes, open: true, lent: None }
    }

    pub(crate) fn answer(mut self, errno: i32, body: &[u8]) {
        match (self.data_bytes, u32::try_from(body.len())) {
            (Some(_), Ok(length)) if body.len() <= INLINE_BYTES => {
                let mut inline = [0; INLINE_BYTES];
                inline[..body.len()].copy_from_slice(body);
                self.push(errno, length, Some(inline));
            }
            (None, Ok(length)) if body.len() <= self.queue.memory.payload_bytes() => {
                self.payload(body.len()).copy_from_slice(body);
                self.push(errno, length, None);
            }
            _ => self.push(libc::EIO, 0, None),
        }
    }

    pub(crate) fn answer_with(mut self, room: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>) {
        if self.data_bytes.is_some() {
            return self.push(libc::EIO, 0, None);
        }
        let room = room.min(self.queue.memory.payload_bytes());
        match fill(self.payload(room)) {
            Ok(filled) if filled <= room => self.push(0, u32::try_from(filled).unwrap_or(0), None),
            Ok(_) => self.push(libc::EIO, 0, None),
            Err(errno) => self.push(errno, 0, None),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        let length = self.data_bytes.map_or(0, |bytes| bytes as usize).min(self.queue.memory.payload_bytes());
        // SAFETY: inside the payload area. Until this handle answers, the kernel does not touch the entry, and
        // with data_bytes set nothing else writes here: an answer's body is put in by the ring thread later.
        unsafe { std::slice::from_raw_parts(self.queue.memory.payload(self.entry), length) }
    }

    /// The data of a WRITE for longer than this handle lives. What is answered is committed when the last loan is dropped.
    pub(crate) fn lend(&mut self) -> Loan {
        let Some(bytes) = self.data_bytes else { return Arc::new([]) };
        let loan = self.lent.get_or_insert_with(|| {
            let data_bytes = (bytes as usize).min(self.queue.memory.payload_bytes());
            let queue = Arc::clone(&self.queue);
            Arc::new(Lent { queue, entry: self.entry, data_bytes, answer: Mutex::default() })
        });
        Arc::clone(loan) as Loan
    }

    fn payload(&mut self, length: usize) -> &mut [u8] {
        debug_assert!(self.data_bytes.is_none() && length <= self.queue.memory.payload_bytes());
        // SAFETY: inside the payload area, which this handle owns until it answers; without data_bytes the
        // request was copied away, so nobody borrows it. Anonymous memory is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.queue.memory.payload(self.entry), length) }
    }

    fn push(&mut self, errno: i32, body_bytes: u32, inline: Option<[u8; INLINE_BYTES]>) {
        self.open = false;
        let body_bytes = if errno == 0 { body_bytes } else { 0 };
        let answer = Answer { entry: self.entry, errno, body_bytes, inline };
        match self.lent.take() {
            None => self.queue.push(answer),
            Some(loan) => *loan.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer),
        }
    }
}

impl Drop for EntryHandle {
    fn drop(&mut self) {
        if self.open {
            self.push(libc::EIO, 0, None);
        }
    }
}

impl fmt::Debug for EntryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryHandle").field("entry", &self.entry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(queue: &Queue) -> Vec<(u16, i32)> {
        let mut batch = Vec::new();
        queue.collect(&mut batch);
        batch.iter().map(|answer| (answer.entry, answer.errno)).collect()
    }

    #[test]
    fn an_entry_is_answered_when_the_last_loan_of_its_data_is_dropped() {
        let queue = Arc::new(Queue::new(Shape { depth: 4, payload_bytes: 1 << 17 }).expect("a queue"));
        let mut handle = EntryHandle::new(Arc::clone(&queue), 2, Some(5));
        let (first, second) = (handle.lend(), handle.lend());
        assert_eq!((*first).as_ref().len(), 5);
        handle.answer(0, &[0; 8]);
        drop(first);
        assert_eq!(collected(&queue), [], "the kernel may not have the bytes back yet");
        drop(second);
        assert_eq!(collected(&queue), [(2, 0)]);
        let mut dropped = EntryHandle::new(Arc::clone(&queue), 3, Some(5));
        let loan = dropped.lend();
        drop(loan);
        assert_eq!(collected(&queue), [], "the handle still owes an answer");
        drop(dropped);
        assert_eq!(collected(&queue), [(3, libc::EIO)]);
        let mut read = EntryHandle::new(Arc::clone(&queue), 1, None);
        assert!((*read.lend()).as_ref().is_empty(), "only a WRITE has data");
        read.answer(libc::ENOENT, &[]);
        assert_eq!(collected(&queue), [(1, libc::ENOENT)]);
    }
}
