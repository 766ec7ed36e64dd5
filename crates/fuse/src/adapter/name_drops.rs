//! Names that were taken back and that the kernel is to drop: which are left, and the threads that drop them.
//!
//! A drop waits for the lock of its directory, which an operation there holds until it is answered, and that may wait for another
//! host. So each directory waits for itself: as many threads as directories that are at it, up to a few.
//!
//! A RENAME that is answered while the drop of a name of it waits takes the kernel's entry along, with the inode that the kernel
//! believes to have there: what it moves at the rank is whatever has the name by now. So its new name is dropped, too, and the inode
//! is not believed by any name before that is done.
//! Absent: bounds. There is no more left than what was granted and is being recalled.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use proto::Name;
use proto::caps::Returned;

/// Directories that are waited for at the same time.
const THREADS_MAX: usize = 16;

/// A name to be dropped; when none is left of its node and recall the node is not stale any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameDrop {
    pub(super) parent: u64,
    pub(super) name: Name,
    pub(super) nodeid: u64,
    pub(super) stamp: u64,
}

/// What the rank is told when a name is dropped, or, if that takes too long, before: by whoever takes it.
pub(super) struct Owed {
    pub(super) stamp: u64,
    returned: Mutex<Option<Returned>>,
}

impl Owed {
    pub(super) fn new(stamp: u64, returned: Returned) -> Arc<Owed> {
        Arc::new(Owed { stamp, returned: Mutex::new(Some(returned)) })
    }

    pub(super) fn take(&self) -> Option<Returned> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a drop that is over leaves to do.
#[derive(Default)]
pub(super) struct Over {
    /// The node and the recall of which no drop is left.
    pub(super) of: Option<(u64, u64)>,
    pub(super) owed: Option<Arc<Owed>>,
}

/// Finds a drop that was announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropId {
    parent: u64,
    number: u64,
}

/// What the threads do, with no lock held: drop a name, and what that leaves to do.
struct Callbacks {
    drop: Box<dyn Fn(&NameDrop) + Send + Sync>,
    dropped: Box<dyn Fn(Over) + Send + Sync>,
}

#[derive(Default)]
pub(super) struct NameDrops {
    book: Mutex<Book>,
    work: Condvar,
    callbacks: OnceLock<Callbacks>,
}

#[derive(Default)]
struct Book {
    dirs: HashMap<u64, Dir>,
    /// Directories with something to do, which no thread is at.
    ready: VecDeque<u64>,
    /// How many are left of a node and the stamp of its recall.
    left: HashMap<(u64, u64), usize>,
    numbers: u64,
    threads: usize,
    idle: usize,
    over: bool,
}

#[derive(Default)]
struct Dir {
    /// By their numbers.
    drops: BTreeMap<u64, Entry>,
    /// A thread is at it, or it is among those that are ready.
    served: bool,
}

struct Entry {
    drop: NameDrop,
    step: Step,
    owed: Option<Arc<Owed>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Announced,
    Waiting,
    UnderWay,
}

impl Book {
    fn add(&mut self, drop: NameDrop) -> DropId {
        self.numbers += 1;
        let id = DropId { parent: drop.parent, number: self.numbers };
        *self.left.entry((drop.nodeid, drop.stamp)).or_default() += 1;
        let dir = self.dirs.entry(drop.parent).or_default();
        dir.drops.insert(id.number, Entry { drop, step: Step::Announced, owed: None });
        id
    }

    /// Whether a thread is needed that is not there.
    fn begin(&mut self, id: DropId, owed: Option<Arc<Owed>>) -> bool {
        let Some(dir) = self.dirs.get_mut(&id.parent) else { return false };
        let Some(entry) = dir.drops.get_mut(&id.number) else { return false };
        (entry.step, entry.owed) = (Step::Waiting, owed);
        if !dir.served {
            dir.served = true;
            self.ready.push_back(id.parent);
        }
        let needed = self.idle < self.ready.len() && self.threads < THREADS_MAX;
        self.threads += usize::from(needed);
        needed
    }

    /// The next to be dropped.
    fn take(&mut self) -> Option<(DropId, NameDrop)> {
        let parent = self.ready.pop_front()?;
        let dir = self.dirs.get_mut(&parent)?;
        let (number, entry) = dir.drops.iter_mut().find(|(_, entry)| entry.step == Step::Waiting)?;
        entry.step = Step::UnderWay;
        Some((DropId { parent, number: *number }, entry.drop.clone()))
    }

    /// It is dropped.
    fn finish(&mut self, id: DropId) -> Over {
        let Some(dir) = self.dirs.get_mut(&id.parent) else { return Over::default() };
        let Some(entry) = dir.drops.remove(&id.number) else { return Over::default() };
        dir.served = dir.drops.values().any(|entry| entry.step == Step::Waiting);
        if dir.served {
            self.ready.push_back(id.parent);
        } else if dir.drops.is_empty() {
            self.dirs.remove(&id.parent);
        }
        let of = (entry.drop.nodeid, entry.drop.stamp);
        let left = self.left.entry(of).or_default();
        *left = left.saturating_sub(1);
        let last = *left == 0;
        if last {
            self.left.remove(&of);
        }
        Over { of: last.then_some(of), owed: entry.owed }
    }

    /// The drops that follow a name to its new place.
    fn following(&self, (parent, name): (u64, &Name), to: (u64, &Name)) -> Vec<NameDrop> {
        let Some(dir) = self.dirs.get(&parent) else { return Vec::new() };
        let moved = dir.drops.values().filter(|entry| entry.drop.name == *name);
        let follow = |entry: &Entry| NameDrop { parent: to.0, name: to.1.clone(), ..entry.drop };
        moved.map(follow).filter(|drop| !self.is_to_come(drop)).collect()
    }

    /// Whether the same is dropped later anyway. One that is under way may be over, but for saying so.
    fn is_to_come(&self, drop: &NameDrop) -> bool {
        let same = |entry: &Entry| entry.step != Step::UnderWay && entry.drop == *drop;
        self.dirs.get(&drop.parent).is_some_and(|dir| dir.drops.values().any(same))
    }
}

impl NameDrops {
    /// Starts the first thread.
    pub(super) fn serve(
        self: &Arc<Self>,
        drop: impl Fn(&NameDrop) + Send + Sync + 'static,
        dropped: impl Fn(Over) + Send + Sync + 'static,
    ) -> io::Result<()> {
        // Once.
        let _first = self.callbacks.set(Callbacks { drop: Box::new(drop), dropped: Box::new(dropped) });
        self.book().threads += 1;
        self.spawn()
    }

    /// Nothing is dropped any more.
    pub(super) fn end(&self) {
        self.book().over = true;
        self.work.notify_all();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let own = Arc::clone(self);
        let spawned = thread::Builder::new().name("pando-names".to_owned()).spawn(move || own.run());
        spawned.map(std::mem::drop).inspect_err(|_| self.book().threads -= 1)
    }

    /// It is known that this name goes, before the rank is told that it has: from here on it is followed where it is moved to. It is
    /// dropped when it is begun.
    pub(super) fn announce(&self, drop: NameDrop) -> DropId {
        self.book().add(drop)
    }

    /// `owed`: what the rank is told then.
    pub(super) fn begin(self: &Arc<Self>, id: DropId, owed: Option<Arc<Owed>>) {
        let needed = self.book().begin(id, owed);
        self.wake(needed);
    }

    fn wake(self: &Arc<Self>, needed: bool) {
        // Without a new thread it waits for the others.
        if !needed || self.spawn().is_err() {
            self.work.notify_one();
        }
    }

    /// Before the answer of a RENAME goes to the kernel, which has both directories locked until it has moved its entries.
    pub(super) fn moved(self: &Arc<Self>, from: (u64, &Name), to: (u64, &Name), exchange: bool) {
        let mut book = self.book();
        if book.dirs.is_empty() {
            return;
        }
        let mut drops = book.following(from, to);
        if exchange {
            drops.extend(book.following(to, from));
        }
        let mut needed = Vec::new();
        for drop in drops {
            let id = book.add(drop);
            needed.push(book.begin(id, None));
        }
        std::mem::drop(book);
        needed.into_iter().for_each(|needed| self.wake(needed));
    }

    fn run(&self) {
        let Some(callbacks) = self.callbacks.get() else { return };
        let mut book = self.book();
        while !book.over {
            let Some((id, drop)) = book.take() else {
                book.idle += 1;
                book = self.work.wait(book).unwrap_or_else(PoisonError::into_inner);
                book.idle -= 1;
                continue;
            };
            std::mem::drop(book);
            (callbacks.drop)(&drop);
            let over = self.book().finish(id);
            (callbacks.dropped)(over);
            book = self.book();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Ino;
    use proto::caps::Bits;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);
    const LOCKED: u64 = 1;

    #[derive(Debug, PartialEq, Eq)]
    enum Said {
        Begun(u64, Vec<u8>),
        Over(u64, u64),
        Owed(u64),
    }

    /// Drops in `LOCKED` wait until they are let go, one by one.
    struct Bench {
        drops: Arc<NameDrops>,
        said: Receiver<Said>,
        go: Sender<()>,
    }

    impl Bench {
        fn new() -> Bench {
            let (say, said) = channel();
            let (go, gone) = channel();
            let gone = Mutex::new(gone);
            let drops = Arc::new(NameDrops::default());
            let says = say.clone();
            let drop = move |drop: &NameDrop| {
                // Fails when the test is over.
                let _heard = says.send(Said::Begun(drop.parent, drop.name.as_bytes().to_vec()));
                if drop.parent == LOCKED {
                    let _go = gone.lock().expect("no panic").recv();
                }
            };
            let dropped = move |over: Over| {
                if let Some((nodeid, stamp)) = over.of {
                    let _heard = say.send(Said::Over(nodeid, stamp));
                }
                if let Some(returned) = over.owed.and_then(|owed| owed.take()) {
                    let _heard = say.send(Said::Owed(returned.ino.0));
                }
            };
            drops.serve(drop, dropped).expect("a thread");
            Bench { drops, said, go }
        }

        fn drop(&self, parent: u64, text: &[u8], nodeid: u64) {
            let id = self.drops.announce(NameDrop { parent, name: name(text), nodeid, stamp: 7 });
            self.drops.begin(id, None);
        }

        fn said(&self) -> Said {
            self.said.recv_timeout(PATIENCE).expect("in time")
        }

        fn begun(&self, parent: u64, name: &[u8]) {
            assert_eq!(self.said(), Said::Begun(parent, name.to_vec()));
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            self.drops.end();
        }
    }

    fn name(text: &[u8]) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn a_directory_that_is_locked_holds_up_no_other() {
        let bench = Bench::new();
        bench.drop(LOCKED, b"first", 10);
        bench.begun(LOCKED, b"first");
        bench.drop(LOCKED, b"second", 11);
        for (parent, nodeid) in [(2, 12), (3, 13), (2, 14)] {
            bench.drop(parent, b"f", nodeid);
            bench.begun(parent, b"f");
            assert_eq!(bench.said(), Said::Over(nodeid, 7));
        }
        bench.go.send(()).expect("it waits");
        let mut said = [bench.said(), bench.said()];
        said.sort_by_key(|said| matches!(said, Said::Over(..)));
        assert_eq!(said, [Said::Begun(LOCKED, b"second".to_vec()), Said::Over(10, 7)]);
        bench.go.send(()).expect("it waits");
        assert_eq!(bench.said(), Said::Over(11, 7));
    }

    #[test]
    fn what_is_owed_for_a_name_is_told_once_when_it_is_dropped_or_before() {
        let bench = Bench::new();
        let owed = |ino| Owed::new(7, Returned { ino: Ino(ino), bits: Bits::LS, number: 0 });
        let in_time = owed(11);
        for (owed, nodeid) in [(owed(10), 10), (Arc::clone(&in_time), 11)] {
            let drop = NameDrop { parent: LOCKED, name: name(b"d"), nodeid, stamp: 7 };
            bench.drops.begin(bench.drops.announce(drop), Some(owed));
        }
        bench.begun(LOCKED, b"d");
        assert!(bench.said.try_recv().is_err(), "it is not dropped yet");
        assert!(in_time.take().is_some(), "whoever waits no longer");
        bench.go.send(()).expect("it waits");
        // Another thread may begin the next drop before this one has said all.
        let mut said = [bench.said(), bench.said(), bench.said()];
        said.sort_by_key(|said| matches!(said, Said::Begun(..)));
        assert_eq!(said, [Said::Over(10, 7), Said::Owed(10), Said::Begun(LOCKED, b"d".to_vec())]);
        bench.go.send(()).expect("it waits");
        assert_eq!(bench.said(), Said::Over(11, 7));
        assert!(bench.said.try_recv().is_err());
    }

    #[test]
    fn more_directories_than_threads_are_all_served() {
        let bench = Bench::new();
        for parent in 2..200 {
            bench.drop(parent, b"f", parent);
        }
        let over = |said: &Said| matches!(said, Said::Over(..));
        assert_eq!((0..2 * 198).map(|_| bench.said()).filter(over).count(), 198);
        assert!(bench.drops.book().threads <= THREADS_MAX);
    }

    #[test]
    fn a_name_that_is_moved_while_its_drop_waits_is_followed() {
        let bench = Bench::new();
        bench.drop(LOCKED, b"old", 10);
        bench.begun(LOCKED, b"old");
        let (old, new) = (name(b"old"), name(b"new"));
        bench.drops.moved((LOCKED, &name(b"another")), (2, &new), true);
        bench.drops.moved((LOCKED, &old), (2, &new), false);
        bench.begun(2, b"new");
        bench.go.send(()).expect("it waits");
        assert_eq!(bench.said(), Said::Over(10, 7), "of both, once");
        assert!(bench.drops.book().dirs.is_empty() && bench.drops.book().left.is_empty());
        bench.drops.moved((LOCKED, &old), (2, &new), true);
        assert!(bench.drops.book().dirs.is_empty(), "there is nothing to follow any more");
    }

    #[test]
    fn both_names_of_an_exchange_are_followed() {
        let bench = Bench::new();
        bench.drop(LOCKED, b"a", 10);
        bench.begun(LOCKED, b"a");
        let announced =
            bench.drops.announce(NameDrop { parent: LOCKED, name: name(b"b"), nodeid: 11, stamp: 7 });
        let (a, b) = (name(b"a"), name(b"b"));
        for _ in 0..9 {
            bench.drops.moved((LOCKED, &a), (LOCKED, &b), true);
        }
        bench.drops.begin(announced, None);
        let mut left: Vec<_> = {
            let book = bench.drops.book();
            let drops = book.dirs[&LOCKED].drops.values();
            drops.map(|entry| (entry.drop.name.as_bytes().to_vec(), entry.drop.nodeid)).collect()
        };
        left.sort();
        let (a, b) = (b"a".to_vec(), b"b".to_vec());
        // The one that is under way may be over in a moment, so it is there once more.
        assert_eq!(left, [(a.clone(), 10), (a.clone(), 10), (a, 11), (b.clone(), 10), (b, 11)]);
    }
}
