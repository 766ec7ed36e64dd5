//! The rank's mutex, made for turns of some microseconds and more threads than CPUs: few threads pass it by turns, the others sleep.
//!
//! A plain mutex wakes a sleeper at each unlock, who comes some 30 us later, finds that another has it and sleeps again. So nobody is
//! woken while somebody *looks*: waits awake for the end of a turn, or was woken and is on the way. (Dice, "Malthusian Locks", EuroSys
//! 2017: threads that would only add contention are put aside.) But Linux often lets whoever was woken wait for the rest of the waker's
//! time slice, some 4 ms, with another CPU idle; so after `PASSES` turns one more is woken. With 64 threads two CPUs stood idle for a
//! fifth of the time before that. Sleepers are woken in the order in which they came; one that came too late is the next again.
//!
//! Who looks takes it from under those who sleep. So whoever has had a long turn and wants another goes behind them (`lock_last`): else it
//! would have it again before the one that it woke has come, each time.
//!
//! It can be closed for good: then nobody waits for it any more, whatever keeps who has it.
//!
//! Absent: an order among those who look; whoever comes first has it.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};

/// How often a thread looks whether it is free before it sleeps, and the pauses between two looks: some 10 us.
const LOOKS: u32 = 40;
const PAUSES: u32 = 8;
/// Ends of turns after which another one is woken although somebody looks.
const PASSES: u32 = 8;

/// One who sleeps.
struct Sleeper {
    thread: Thread,
    /// It counts as one who looks from then on.
    woken: Arc<AtomicBool>,
}

/// Those who sleep; the first is woken first.
type Line = VecDeque<Sleeper>;

/// How sleeping ended.
enum Slept<'a, T> {
    Woken,
    /// It was free at last.
    Has(Held<'a, T>),
    Closed,
}

/// Which end of the line.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

/// A mutex around what only one thread at a time may step.
pub(super) struct Turnstile<T> {
    inner: Mutex<T>,
    looking: AtomicU32,
    /// Ends of turns since somebody was woken.
    passed: AtomicU32,
    /// The length of the line, for those who only look whether there is one.
    asleep: AtomicUsize,
    sleepers: Mutex<Line>,
    closed: AtomicBool,
}

/// Whoever has it. The fields are dropped in this order: first it is free, then somebody is woken.
pub(super) struct Held<'a, T> {
    inner: MutexGuard<'a, T>,
    _next: Next<'a, T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Wakes the next sleeper when dropped, unless somebody looks already.
struct Next<'a, T>(&'a Turnstile<T>);

impl<T> Drop for Next<'_, T> {
    fn drop(&mut self) {
        self.0.wake_next();
    }
}

impl<T> Turnstile<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            inner: Mutex::new(value),
            looking: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            asleep: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Nobody waits from now on, and who sleeps goes away.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Who comes to the line later looks at `closed` first.
        let mut line = self.sleepers();
        self.asleep.store(0, Ordering::SeqCst);
        for sleeper in line.drain(..) {
            self.wake(sleeper);
        }
    }

    /// `None`: another thread has it.
    pub(super) fn try_lock(&self) -> Option<Held<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(Held { inner, _next: Next(self) }),
            Err(TryLockError::WouldBlock) => None,
            // Only while this process is on its way to abort.
            Err(TryLockError::Poisoned(_)) => panic!("a panic under the rank's mutex aborts the process"),
        }
    }

    /// `None`: it was closed while this waited.
    pub(super) fn lock(&self) -> Option<Held<'_, T>> {
        self.looking.fetch_add(1, Ordering::SeqCst);
        self.look_and_sleep(End::Back)
    }

    /// Has it when those who sleep, and who was woken, have had it. `None`: as of `lock`.
    pub(super) fn lock_last(&self) -> Option<Held<'_, T>> {
        if self.asleep.load(Ordering::SeqCst) == 0 && self.looking.load(Ordering::SeqCst) == 0 {
            return self.lock();
        }
        let mut line = self.sleepers();
        if self.closed.load(Ordering::SeqCst) {
            return self.try_lock();
        }
        self.asleep.store(line.len() + 1, Ordering::SeqCst);
        // As in `sleep`. If nobody looks, nobody may come who would wake the first.
        fence(Ordering::SeqCst);
        if self.looking.load(Ordering::SeqCst) == 0 {
            match line.pop_front() {
                Some(first) => self.wake(first),
                None => {
                    if let Some(held) = self.try_lock() {
                        self.asleep.store(0, Ordering::SeqCst);
                        drop(line);
                        return Some(held);
                    }
                }
            }
        }
        self.wait_in(line, End::Back);
        self.look_and_sleep(End::Front)
    }

    /// Of one who counts as looking. If that is in vain it sleeps at that end of the line, once woken at the front.
    fn look_and_sleep(&self, mut end: End) -> Option<Held<'_, T>> {
        loop {
            let held = self.look();
            self.looking.fetch_sub(1, Ordering::SeqCst);
            if held.is_some() {
                return held;
            }
            match self.sleep(end) {
                Slept::Has(held) => return Some(held),
                Slept::Closed => return None,
                Slept::Woken => end = End::Front,
            }
        }
    }

    /// A turn is shorter than going to sleep and being woken on another CPU, so its end is awaited awake.
    fn look(&self) -> Option<Held<'_, T>> {
        for _ in 0..LOOKS {
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        }
        None
    }

    /// Sleeps until woken to look again.
    fn sleep(&self, end: End) -> Slept<'_, T> {
        let line = self.sleepers();
        if self.closed.load(Ordering::SeqCst) {
            return Slept::Closed;
        }
        self.asleep.store(line.len() + 1, Ordering::SeqCst);
        // Whoever has it now sees this sleeper when it lets go: it looks at `asleep` after that, and here it is the other way round.
        fence(Ordering::SeqCst);
        if let Some(held) = self.try_lock() {
            self.asleep.store(line.len(), Ordering::SeqCst);
            drop(line);
            return Slept::Has(held);
        }
        self.wait_in(line, end);
        Slept::Woken
    }

    /// Stands in the line until woken.
    fn wait_in(&self, mut line: MutexGuard<'_, Line>, end: End) {
        let woken = Arc::new(AtomicBool::new(false));
        let sleeper = Sleeper { thread: thread::current(), woken: woken.clone() };
        match end {
            End::Front => line.push_front(sleeper),
            End::Back => line.push_back(sleeper),
        }
        self.asleep.store(line.len(), Ordering::SeqCst);
        drop(line);
        while !woken.load(Ordering::SeqCst) {
            thread::park();
        }
    }

    #[inline]
    fn wake_next(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        if self.looking.load(Ordering::SeqCst) > 0 && self.passed.fetch_add(1, Ordering::Relaxed) < PASSES {
            return;
        }
        self.passed.store(0, Ordering::Relaxed);
        self.wake_first();
    }

    fn wake_first(&self) {
        let mut line = self.sleepers();
        if let Some(first) = line.pop_front() {
            self.asleep.store(line.len(), Ordering::SeqCst);
            self.wake(first);
        }
    }

    /// Of the line, which is locked: no other wakes meanwhile.
    fn wake(&self, sleeper: Sleeper) {
        self.looking.fetch_add(1, Ordering::SeqCst);
        sleeper.woken.store(true, Ordering::SeqCst);
        sleeper.thread.unpark();
    }

    fn sleepers(&self) -> MutexGuard<'_, Line> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for what other threads are about to do. (Who is in the line has not got it.)
    fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            thread::yield_now();
        }
    }

    /// A wake-up that got lost would leave a thread asleep with nobody to wake it, and this test would not end.
    #[test]
    fn each_gets_it_and_never_two_at_once() {
        const EACH: u64 = 5_000;
        for threads in [2, 3, 16, 64] {
            let turnstile = Turnstile::new((0_u64, false));
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for number in 0..EACH {
                            let last = number % 5 == 0;
                            let held = if last { turnstile.lock_last() } else { turnstile.lock() };
                            let mut held = held.expect("open");
                            assert!(!std::mem::replace(&mut held.1, true), "two have it");
                            held.0 += 1;
                            held.1 = false;
                        }
                    });
                }
            });
            assert_eq!(turnstile.lock().expect("open").0, threads * EACH);
            assert_eq!(turnstile.looking.load(Ordering::SeqCst), 0);
            assert_eq!(turnstile.asleep.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn whoever_sleeps_is_woken_when_nobody_looks() {
        let turnstile = Turnstile::new(());
        let held = turnstile.lock().expect("open");
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| drop(turnstile.lock()));
            }
            until(|| turnstile.sleepers().len() == 3);
            drop(held);
        });
        assert_eq!(turnstile.asleep.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn they_are_woken_in_the_order_in_which_they_came() {
        let turnstile = Turnstile::new(Vec::new());
        let held = turnstile.lock().expect("open");
        thread::scope(|scope| {
            for number in 0..4 {
                let turnstile = &turnstile;
                scope.spawn(move || turnstile.lock().expect("open").push(number));
                until(|| turnstile.sleepers().len() == number + 1);
            }
            // Each of them wakes the next one, and only when it has had its turn: nobody else looks.
            drop(held);
        });
        assert_eq!(*turnstile.lock().expect("open"), [0, 1, 2, 3]);
    }

    /// What broke: one thread with much to do had its next turn before the one that it woke had come, a thousand times over.
    #[test]
    fn whoever_wants_another_turn_has_it_after_those_who_sleep() {
        let turnstile = Turnstile::new(Vec::new());
        for round in 0..200 {
            let held = turnstile.lock().expect("open");
            thread::scope(|scope| {
                for number in 0..3 {
                    let turnstile = &turnstile;
                    scope.spawn(move || turnstile.lock().expect("open").push((round, number)));
                    until(|| turnstile.sleepers().len() == number + 1);
                }
                drop(held);
                // The first is on its way now, or has had it.
                for had in 1..=3 {
                    let held = turnstile.lock_last().expect("open");
                    assert!(
                        held.len() >= 3 * round + had,
                        "round {round}: {} had it, not {had}",
                        held.len() - 3 * round
                    );
                }
            });
        }
    }

    /// One who was woken may have to wait for a CPU: the others are not left asleep for so long.
    #[test]
    fn after_some_turns_another_is_woken_although_somebody_looks() {
        let turnstile = Turnstile::new(());
        let held = turnstile.lock().expect("open");
        thread::scope(|scope| {
            scope.spawn(|| drop(turnstile.lock()));
            until(|| turnstile.sleepers().len() == 1);
            // Somebody was woken and does not come.
            turnstile.looking.fetch_add(1, Ordering::SeqCst);
            drop(held);
            for _ in 1..PASSES {
                assert_eq!(turnstile.sleepers().len(), 1);
                drop(turnstile.lock());
            }
            drop(turnstile.lock());
            until(|| turnstile.sleepers().is_empty());
        });
        assert_eq!(turnstile.looking.load(Ordering::SeqCst), 1);
    }

    /// Who hangs with it keeps nobody else, neither who sleeps nor who comes later.
    #[test]
    fn nobody_waits_for_one_that_is_closed() {
        let turnstile = Turnstile::new(());
        let held = turnstile.lock().expect("open");
        thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| turnstile.lock().is_none())).collect();
            until(|| turnstile.sleepers().len() == 3);
            turnstile.close();
            assert!(waits.into_iter().all(|thread| thread.join().expect("it ends")));
            assert!(turnstile.lock().is_none() && turnstile.lock_last().is_none());
        });
        drop(held);
        assert!(turnstile.lock().is_some(), "it is free");
        assert_eq!(turnstile.looking.load(Ordering::SeqCst), 0);
    }
}
