//! One ring thread: takes requests from its queue, lets the handler answer, commits the answers in batches.
//! Absent: decisions; and any other thread touching the ring.

use std::io;
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue, opcode};

use super::super::Presence;
use super::super::device::{Device, header};
use super::queue::{Answer, EntryHandle, Queue};
use crate::abi::{self, InHeader, Opcode, Plain, UringCmd, UringHeader};
use crate::reply::channel::Channel;
use crate::request::{ParseError, Parts};

/// Marks the completion of the bell's poll; entries are numbered from 0.
const BELL: u64 = u64::MAX;
/// Answers that may wait while the thread handles the rest of what came at once: each of the rest may take as long as a turn of the
/// rank, and what an answer says may be kept is not to be old when it comes.
const HANDLED_MAX: usize = 16;
/// Submissions queued before one call; more only means another call.
const SUBMISSIONS: u32 = 128;
/// Where an SQE has the field that the kernel wants to be the length of the address list.
const SQE_LEN_AT: usize = 24;

pub(super) struct Worker {
    /// Closed before the memory it was given goes.
    ring: IoUring<Entry128, cqueue::Entry>,
    queue: Arc<Queue>,
    presence: Presence,
    qid: u16,
    /// Per registered entry the id its answer is committed under; 0 while the kernel has it.
    commit_ids: Vec<u64>,
    /// Entries the kernel has. At none, requests of this CPU wait for an answer.
    idle: usize,
    completions: Vec<(u64, i32)>,
    answers: Vec<Answer>,
    /// Answers queued for the kernel so far.
    collected: u64,
    /// Names and small data of the request being handled, so that an answer may overwrite the payload area.
    scratch: Vec<u8>,
}

impl Worker {
    /// Sets the ring up and registers its entries with the kernel.
    pub(super) fn register(
        presence: Presence,
        queue: Arc<Queue>,
        device: &Device,
        qid: u16,
    ) -> io::Result<Worker> {
        let entries = u32::try_from(queue.memory.entries()).map_err(io::Error::other)?;
        let ring = IoUring::builder()
            .setup_cqsize(entries.max(SUBMISSIONS).next_power_of_two() * 2)
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(SUBMISSIONS)?;
        ring.submitter().register_files(&[device.raw_fd()])?;
        let mut worker = Worker {
            ring,
            queue,
            presence,
            qid,
            commit_ids: Vec::new(),
            idle: 0,
            completions: Vec::new(),
            answers: Vec::new(),
            collected: 0,
            scratch: Vec::new(),
        };
        worker.queue.adopt();
        worker.watch_bell();
        worker.offer_entries();
        worker.submit(0);
        worker.refused()?;
        Ok(worker)
    }

    /// Runs until the queue is stopped.
    pub(super) fn run(mut self) {
        loop {
            self.take_completions();
            if self.queue.is_stopping() {
                return;
            }
            self.handle_completions();
            self.commit();
            let wait = self.queue.prepare_to_wait();
            self.submit(usize::from(wait));
            self.queue.awake();
        }
    }

    /// The error of a refused registration, if any completed; accepted ones complete with a request.
    fn refused(&mut self) -> io::Result<()> {
        self.take_completions();
        let failed = self.completions.iter().find(|(id, result)| *id != BELL && *result < 0);
        failed.map_or(Ok(()), |(_, result)| Err(io::Error::from_raw_os_error(-result)))
    }

    fn take_completions(&mut self) {
        let completed = self.ring.completion();
        self.completions.extend(completed.map(|entry| (entry.user_data(), entry.result())));
    }

    fn handle_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        for (at, (id, result)) in completions.drain(..).enumerate() {
            if at % HANDLED_MAX == HANDLED_MAX - 1 {
                self.commit();
                self.submit(0);
            }
            if id == BELL {
                self.queue.hush();
                self.watch_bell();
                continue;
            }
            self.idle = self.idle.saturating_sub(1);
            // A failed entry is of no more use: the mount is going, or this request was aborted under us.
            if let (Ok(entry), 0..) = (u16::try_from(id), result) {
                self.handle(entry);
            }
        }
        self.completions = completions;
    }

    /// Hands the request in `entry` to the handler.
    fn handle(&mut self, entry: u16) {
        let area: UringHeader = self.queue.memory.header(entry);
        let Some(commit_id) = self.commit_ids.get_mut(usize::from(entry)) else { return };
        *commit_id = area.ent.commit_id;
        let Some(header) = InHeader::read(area.in_out.bytes()) else { return };
        let length = (area.ent.payload_sz as usize).min(self.queue.memory.payload_bytes());
        // SAFETY: inside the payload area of an entry whose completion came. Until the answer is committed,
        // by this thread after the handler returned, the kernel leaves it alone. For a WRITE the handle made
        // below never writes to it; for all else it is copied before the handle exists.
        let payload = unsafe { std::slice::from_raw_parts(self.queue.memory.payload(entry), length) };
        let opcode = Opcode::from_wire(header.opcode);
        let (payload, data_bytes) = match opcode {
            Some(Opcode::Write) => (payload, Some(area.ent.payload_sz)),
            _ => {
                self.scratch.clear();
                self.scratch.extend_from_slice(payload);
                (self.scratch.as_slice(), None)
            }
        };
        let channel = Channel::Ring(EntryHandle::new(Arc::clone(&self.queue), entry, data_bytes));
        match opcode {
            Some(Opcode::SetLkW) if self.idle < self.reserve() && takes_lock(area.op_in.bytes()) => {
                Channel::send(channel, header.unique, libc::ENOLCK, &[]);
            }
            Some(opcode) => {
                let parts = Parts { header, opcode, body: area.op_in.bytes(), payload };
                self.presence.0.dispatch(parts, channel);
            }
            None => self.presence.0.refuse(&header, ParseError::UnknownOpcode(header.opcode), channel),
        }
    }

    /// Entries that waits for locks must leave, or the unlock that ends them would find none.
    fn reserve(&self) -> usize {
        self.queue.memory.entries().div_ceil(8)
    }

    /// Queues the commits of all answers given so far.
    fn commit(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        self.queue.collect(&mut answers);
        let collected = answers.len() as u64;
        for answer in answers.drain(..) {
            let Some(commit_id) = self.commit_ids.get_mut(usize::from(answer.entry)) else { continue };
            let unique = std::mem::take(commit_id);
            if let Some(inline) = answer.inline {
                // SAFETY: the payload area is longer than the inline bytes, and its only owner, the handle,
                // gave it up with this answer.
                unsafe {
                    let payload = self.queue.memory.payload(answer.entry);
                    std::ptr::copy_nonoverlapping(inline.as_ptr(), payload, inline.len());
                }
            }
            let out = header(unique, -answer.errno, answer.body_bytes as usize);
            self.queue.memory.set_answer(answer.entry, out.bytes(), answer.body_bytes);
            let command = command(abi::URING_CMD_COMMIT_AND_FETCH, self.qid, unique);
            self.push(command.user_data(u64::from(answer.entry)));
            self.idle += 1;
        }
        // Not before: a full queue is submitted meanwhile. Nor one by one: they are not in the order in which they were given, and
        // whoever waits for so many waits for those that were given first.
        self.collected += collected;
        self.answers = answers;
    }

    /// Gives the kernel all entries. Later would be too late: the kernel gives requests that already wait
    /// only to entries that are committed, not to new ones.
    fn offer_entries(&mut self) {
        for entry in (0..self.queue.memory.entries()).filter_map(|entry| u16::try_from(entry).ok()) {
            let vectors = self.queue.memory.vectors(entry);
            let command = command(abi::URING_CMD_REGISTER, self.qid, 0).user_data(u64::from(entry));
            self.push(with_vectors(command, vectors));
            self.commit_ids.push(0);
            self.idle += 1;
        }
    }

    fn watch_bell(&mut self) {
        let fd = io_uring::types::Fd(self.queue.bell_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN.unsigned_abs().into()).build();
        self.push(Entry128::from(poll).user_data(BELL));
    }

    fn push(&mut self, submission: Entry128) {
        // SAFETY: commands carry their arguments inside; the address list of a REGISTER lies in the queue's
        // memory, which lives as long as the ring; the bell's descriptor is the queue's.
        while unsafe { self.ring.submission().push(&submission) }.is_err() {
            self.submit(0);
        }
    }

    fn submit(&mut self, wait: usize) {
        match self.ring.submit_and_wait(wait) {
            Ok(_) => {}
            // A signal, or completions to be taken first: the loop does both.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(error) => panic!("io_uring_enter on a ring of our own failed: {error}"),
        }
        // It carries a commit out when it takes it.
        if self.ring.submission().is_empty() {
            self.queue.progress.taken(self.collected);
        } else {
            self.queue.progress.wake();
        }
    }
}

/// A command to /dev/fuse, which is file 0 of every ring here.
pub(super) fn command(operation: u32, qid: u16, commit_id: u64) -> Entry128 {
    let arguments = UringCmd { flags: 0, commit_id, qid, padding: [0; 6] };
    let mut area = [0; 80];
    area[..size_of::<UringCmd>()].copy_from_slice(arguments.bytes());
    opcode::UringCmd80::new(Fixed(0), operation).cmd(area).build()
}

/// Whether a SETLKW may have to wait; flock(2) sends its unlock as one too.
fn takes_lock(body: &[u8]) -> bool {
    abi::LkIn::read(body).is_some_and(|input| input.lk.kind != libc::F_UNLCK as u32)
}

/// Adds the two addresses a REGISTER needs. The io-uring crate has no setter for the length that goes with
/// them, and the kernel refuses any but 2.
fn with_vectors(mut command: Entry128, vectors: *const libc::iovec) -> Entry128 {
    const { assert!(size_of::<Entry128>() == 128) };
    let sqe = (&raw mut command).cast::<u8>();
    // SAFETY: an Entry128 is the kernel's 128-byte SQE, repr(C): address at byte 16, length at byte 24, both
    // inside and aligned.
    unsafe {
        sqe.add(SQE_LEN_AT - 8).cast::<u64>().write(vectors.expose_provenance() as u64);
        sqe.add(SQE_LEN_AT).cast::<u32>().write(2);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::abi::Dialect;
    use crate::init::Negotiated;
    use crate::kernel_mount::Handler;
    use crate::notify::Notifier;
    use crate::reply::KernelReply;
    use crate::request::KernelRequest;
    use crate::transport::Core;
    use crate::transport::uring::Shape;

    struct Nobody;

    impl Handler for Nobody {
        fn init(&self, _: &Negotiated, _: &Notifier) {}

        fn handle(&self, _: KernelRequest<'_>, reply: KernelReply) {
            reply.error(libc::EIO);
        }
    }

    /// What broke: it was said of answers that were not queued yet, when a queue that was full was submitted.
    #[test]
    fn the_kernel_has_an_answer_when_it_has_taken_it() {
        let entries = SUBMISSIONS as u16 + 72;
        let core = Arc::new(Core::new(Arc::new(Nobody), Dialect { setxattr_ext: false }));
        let queue = Arc::new(Queue::new(Shape { depth: entries, payload_bytes: 4096 }).expect("a queue"));
        // It takes every command and does nothing.
        let device = Device::new(File::open("/dev/null").expect("opened").into(), 4096);
        let mut worker = Worker::register(core.enter(), Arc::clone(&queue), &device, 0).expect("registered");
        for entry in 0..entries {
            EntryHandle::new(Arc::clone(&queue), entry, None).answer(0, &[]);
        }
        worker.commit();
        let all = u64::from(entries);
        let before = queue.progress.has(all);
        worker.submit(0);
        let after = queue.progress.has(all);
        // A worker that is alive in a panic takes the process with it.
        drop(worker);
        assert_eq!(queue.progress.given(), all);
        assert!(!before && after, "some had to be submitted");
    }
}
