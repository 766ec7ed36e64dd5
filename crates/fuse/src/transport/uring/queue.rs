//! What a ring thread shares with those who answer its requests: memory, late answers, and a bell.
//! Absent: the ring itself, which only its thread touches.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Shape;
use super::memory::Memory;
use super::progress::Progress;
use crate::reply::Loan;
use proto::storeio::FillOnce;

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
    pub(super) progress: Progress,
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
            progress: Progress::default(),
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
        self.progress.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Makes this thread the one that commits for the queue.
    pub(super) fn adopt(&self) {
        OWN_QUEUE.set(std::ptr::from_ref(self));
    }

    /// Announces that the ring thread is about to wait; false when it must not.
    pub(super) fn prepare_to_wait(&self) -> bool {
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
            self.progress.own_given();
            return OWN_ANSWERS.with_borrow_mut(|own| own.push(answer));
        }
        {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            self.progress.late_given();
            late.push(answer);
        }
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.ring_bell();
        }
    }

    pub(super) fn ring_bell(&self) {
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
    /// The payload area is lent: the answer is left with it.
    lent: Option<Arc<Lent>>,
}

/// The payload area, lent beyond the handle's life: the data of a WRITE, or room for the body of an answer.
/// The last owner to go, loan or handle, answers.
struct Lent {
    queue: Arc<Queue>,
    entry: u16,
    room_bytes: usize,
    /// Whoever turns this true writes the area, once; with a WRITE's data in it nobody may.
    claimed: AtomicBool,
    /// How much of the area may be read; nobody writes it any more once this is not 0.
    readable_bytes: AtomicUsize,
    answer: Mutex<Option<Answer>>,
}

impl Lent {
    fn new(handle: &EntryHandle, room_bytes: usize, has_data: bool) -> Lent {
        let room_bytes = room_bytes.min(handle.queue.memory.payload_bytes());
        Lent {
            queue: Arc::clone(&handle.queue),
            entry: handle.entry,
            room_bytes,
            claimed: AtomicBool::new(has_data),
            readable_bytes: AtomicUsize::new(if has_data { room_bytes } else { 0 }),
            answer: Mutex::default(),
        }
    }

    /// Whether `body` is what was filled here.
    fn is_body(&self, body: &[u8]) -> bool {
        std::ptr::eq(self.as_ref(), body)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let length = self.readable_bytes.load(Ordering::Acquire);
        // SAFETY: inside the payload area (bounded when made). The entry is answered in `drop`, so the kernel
        // does not touch it while `self` lives. What is readable was written before the number was stored, by the
        // one who ever may; the handle writes here only as that one, the ring thread not before the answer.
        unsafe { std::slice::from_raw_parts(self.queue.memory.payload(self.entry), length) }
    }
}

impl FillOnce for Lent {
    fn fill(&self, len: usize, fill: &mut dyn FnMut(&mut [u8]) -> bool) -> bool {
        if len > self.room_bytes || self.claimed.swap(true, Ordering::AcqRel) {
            return false;
        }
        // SAFETY: inside the payload area (checked against what was bounded when made), which is initialised
        // memory. Only who finds `claimed` false comes here, and readers see no byte before the store below.
        let filled =
            fill(unsafe { std::slice::from_raw_parts_mut(self.queue.memory.payload(self.entry), len) });
        if filled {
            self.readable_bytes.store(len, Ordering::Release);
        }
        filled
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
            (None, Ok(length)) if self.put(body) => self.push(errno, length, None),
            _ => self.push(libc::EIO, 0, None),
        }
    }

    pub(crate) fn answer_with(mut self, room: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>) {
        if self.data_bytes.is_some() || self.lent.is_some() {
            return self.push(libc::EIO, 0, None);
        }
        let room = room.min(self.queue.memory.payload_bytes());
        match fill(self.payload(room)) {
            Ok(filled) if filled <= room => self.push(0, u32::try_from(filled).unwrap_or(0), None),
            Ok(_) => self.push(libc::EIO, 0, None),
            Err(errno) => self.push(errno, 0, None),
        }
    }

    #[cfg(feature = "null")]
    pub(crate) fn data(&self) -> &[u8] {
        let length = self.data_bytes.map_or(0, |bytes| bytes as usize).min(self.queue.memory.payload_bytes());
        // SAFETY: inside the payload area. Until this handle answers, the kernel does not touch the entry, and
        // with data_bytes set nothing else writes here: an answer's body is put in by the ring thread later.
        unsafe { std::slice::from_raw_parts(self.queue.memory.payload(self.entry), length) }
    }

    /// The data of a WRITE for longer than this handle lives. What is answered is committed when the last loan is dropped.
    pub(crate) fn lend(&mut self) -> Loan {
        match self.data_bytes {
            Some(bytes) => self.loan(bytes as usize, true),
            None => Arc::new([]),
        }
    }

    /// Room for the body of the answer, for longer than this handle lives; none where a WRITE's data are.
    pub(crate) fn lend_room(&mut self, bytes: usize) -> Option<Arc<dyn FillOnce>> {
        match self.data_bytes {
            Some(_) => None,
            None => Some(self.loan(bytes, false)),
        }
    }

    fn loan(&mut self, bytes: usize, has_data: bool) -> Arc<Lent> {
        let loan = self.lent.take().unwrap_or_else(|| Arc::new(Lent::new(self, bytes, has_data)));
        self.lent = Some(Arc::clone(&loan));
        loan
    }

    /// Has `body` in the payload area, if it is not there already; false where it cannot be.
    fn put(&mut self, body: &[u8]) -> bool {
        let mut copy = |area: &mut [u8]| {
            area.copy_from_slice(body);
            true
        };
        match &self.lent {
            _ if body.is_empty() => true,
            _ if body.len() > self.queue.memory.payload_bytes() => false,
            Some(loan) => loan.is_body(body) || loan.fill(body.len(), &mut copy),
            None => copy(self.payload(body.len())),
        }
    }

    fn payload(&mut self, length: usize) -> &mut [u8] {
        debug_assert!(self.data_bytes.is_none() && self.lent.is_none());
        debug_assert!(length <= self.queue.memory.payload_bytes());
        // SAFETY: inside the payload area, which this handle owns until it answers; without data_bytes the
        // request was copied away, and nothing is lent, so nobody borrows it. Anonymous memory is initialised.
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

    /// The bodies in the payload area, by the answers that came.
    fn bodies(queue: &Queue) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        queue.collect(&mut batch);
        let body = |answer: &Answer| {
            assert_eq!(answer.errno, 0);
            // SAFETY: inside the payload area; in this test nobody writes after the answer.
            unsafe {
                std::slice::from_raw_parts(queue.memory.payload(answer.entry), answer.body_bytes as usize)
            }
            .to_vec()
        };
        batch.iter().map(body).collect()
    }

    #[test]
    fn room_lent_is_filled_once_and_answered_from_where_it_is() {
        let queue = Arc::new(Queue::new(Shape { depth: 4, payload_bytes: 1 << 17 }).expect("a queue"));
        let handle = |entry| EntryHandle::new(Arc::clone(&queue), entry, None);
        let mut read = handle(0);
        let room = read.lend_room(5).expect("room");
        assert!(!room.fill(6, &mut |_| true), "longer than was asked for");
        assert!(room.fill(4, &mut |area| {
            area.copy_from_slice(b"four");
            true
        }));
        assert!(!room.fill(4, &mut |_| panic!("twice")));
        read.answer(0, (*room).as_ref());
        assert_eq!(bodies(&queue), Vec::<Vec<u8>>::new(), "somebody may still look at it");
        drop(room);
        assert_eq!(bodies(&queue), [b"four"]);

        let mut elsewhere = handle(1);
        drop(elsewhere.lend_room(5));
        elsewhere.answer(0, b"other");
        assert_eq!(bodies(&queue), [b"other"]);

        let mut failed = handle(2);
        let room = failed.lend_room(5).expect("room");
        assert!(!room.fill(5, &mut |_| false));
        assert!((*room).as_ref().is_empty(), "what a failed read left is not shown");
        failed.answer(0, b"late");
        drop(room);
        assert_eq!(collected(&queue), [(2, libc::EIO)], "a body no longer has a place");
        assert!(
            EntryHandle::new(Arc::clone(&queue), 3, Some(5)).lend_room(5).is_none(),
            "a WRITE's data are there"
        );
    }
}
