//! FUSE over io_uring: one ring thread pinned to each CPU, one kernel queue per possible CPU.
//! The kernel gives a request to the queue of the CPU its caller runs on, so the answer usually comes
//! without a move to another CPU. Absent: INTERRUPT, FORGET and notifications, which the kernel
//! keeps on /dev/fuse.

mod decline;
mod memory;
pub(crate) mod parameter;
mod progress;
mod queue;
#[cfg(test)]
pub(crate) mod test_ring;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::Core;
use super::device::Device;

pub(crate) use decline::Decline;
pub(crate) use queue::EntryHandle;
use queue::Queue;
use worker::Worker;

/// How large the rings are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Entries per queue.
    pub(crate) depth: u16,
    /// The most a request or reply carries.
    pub(crate) payload_bytes: usize,
}

/// All running ring threads.
pub(crate) struct Rings {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl Rings {
    /// Starts one thread per possible CPU and waits until each has registered its queue. An error leaves
    /// nothing running; the kernel may then still wait for the rings, see [`Decline`].
    pub(crate) fn start(core: &Arc<Core>, device: &Arc<Device>, shape: Shape) -> io::Result<Rings> {
        let count = possible_cpus()?;
        let mut rings = Rings { queues: Vec::new(), threads: Vec::new() };
        let (report, reports) = mpsc::channel();
        let outcome = (0..count)
            .try_for_each(|qid| rings.spawn(core, device, shape, qid, report.clone()))
            .and_then(|()| {
                drop(report);
                let registered = reports.iter().collect::<io::Result<Vec<()>>>()?;
                let all = registered.len() == usize::from(count);
                if all { Ok(()) } else { Err(io::Error::other("a ring thread ended while starting")) }
            });
        match outcome {
            Ok(()) => Ok(rings),
            Err(error) => {
                rings.stop();
                rings.join();
                Err(error)
            }
        }
    }

    fn spawn(
        &mut self,
        core: &Arc<Core>,
        device: &Arc<Device>,
        shape: Shape,
        qid: u16,
        report: mpsc::Sender<io::Result<()>>,
    ) -> io::Result<()> {
        let queue = Arc::new(Queue::new(shape)?);
        self.queues.push(Arc::clone(&queue));
        let (presence, device) = (core.enter(), Arc::clone(device));
        let run = move || {
            super::pin_to_cpu(usize::from(qid));
            match Worker::register(presence, queue, &device, qid) {
                Ok(worker) => {
                    // The starter may have given up on another queue; then `stop` is already set.
                    let _starter_left = report.send(Ok(()));
                    drop(report);
                    worker.run();
                }
                Err(error) => {
                    let _starter_left = report.send(Err(error));
                }
            }
        };
        self.threads.push(std::thread::Builder::new().name(format!("fuse-ring-{qid}")).spawn(run)?);
        Ok(())
    }

    /// What ends the ring threads, for the one who learns that the mount is gone.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let queues = self.queues.clone();
        move || queues.iter().for_each(|queue| queue.stop())
    }

    fn stop(&self) {
        self.queues.iter().for_each(|queue| queue.stop());
    }

    fn join(self) {
        for thread in self.threads {
            // A panicking ring thread aborts the process, so there is no error to see.
            let _ended = thread.join();
        }
    }

    pub(crate) fn outgoing(&self) -> Outgoing {
        Outgoing(self.queues.clone())
    }

    pub(crate) fn into_threads(self) -> Vec<JoinHandle<()>> {
        self.threads
    }
}

/// The answers of all rings that are on their way to the kernel.
pub(crate) struct Outgoing(Vec<Arc<Queue>>);

/// How many answers each ring had been given at some time.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<u64>);

impl Outgoing {
    /// What was given by now. A ring thread that waits for requests is made to look whether the kernel has it, so that who asks a
    /// moment later need not wait to be told.
    pub(crate) fn given(&self) -> Given {
        let given = |queue: &Arc<Queue>| {
            let given = queue.progress.given();
            if !queue.progress.has(given) {
                queue.ring_bell();
            }
            given
        };
        Given(self.0.iter().map(given).collect())
    }

    /// Waits until the kernel has what was given by then, or the mount ends; whether it had to. On no ring thread.
    pub(crate) fn wait(&self, given: &Given) -> bool {
        let waits = |(queue, given): (&Arc<Queue>, &u64)| {
            queue.progress.wait(*given, || queue.ring_bell(), || queue.is_stopping())
        };
        self.0.iter().zip(&given.0).map(waits).fold(false, |any, waited| any | waited)
    }
}

/// How many CPUs the kernel may ever have; it wants a queue for each.
fn possible_cpus() -> io::Result<u16> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_cpus(&list).ok_or_else(|| io::Error::other("the list of possible CPUs is unreadable"))
}

/// Counts the CPUs of a list like `0-3,8`.
fn count_cpus(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0_u16, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::count_cpus;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpus("0-1\n"), Some(2));
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-3,8-9"), Some(6));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("3-0"), None);
    }
}
