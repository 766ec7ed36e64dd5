//! How many connections a server has at a time, in whatever loop they are.
//!
//! Absent: how many one user may have.

use crate::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONNECTIONS_MAX: usize = 65_536;

/// The seats of a server. Connections take half of the files that the process may open: the others are its stores'. Any user may
/// connect, and one that left no descriptor to the stores kept everybody from syncing.
#[derive(Debug)]
pub(crate) struct Seats {
    taken: AtomicUsize,
    pub(crate) most: usize,
}

/// One of them; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

impl Seats {
    pub(crate) fn of_process() -> Arc<Self> {
        Self::new((process::file_limit() / 2).min(CONNECTIONS_MAX))
    }

    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), most })
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        // Counted first: a seat that is too many is given back with it.
        let seat = Seat(self.clone());
        (self.taken.fetch_add(1, Ordering::AcqRel) < self.most).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_when_its_connection_has_ended() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take(), seats.take());
        assert!(first.is_some() && second.is_some());
        assert!(seats.take().is_none() && seats.take().is_none());
        drop(first);
        let third = seats.take();
        assert!(third.is_some() && seats.take().is_none());
        drop((second, third));
        assert_eq!(seats.taken.load(Ordering::Acquire), 0);
    }

    #[test]
    fn the_stores_are_left_half_of_the_files() {
        let most = Seats::of_process().most;
        assert!((1..=CONNECTIONS_MAX).contains(&most) && most <= process::file_limit() / 2);
    }
}
