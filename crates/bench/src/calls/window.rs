//! Calls of one thread with many under way: each answer sends the next call, on the thread that brought it.
//!
//! Absent: what is called.

use crate::link::Link;
use crate::report::histogram;
use anyhow::{Context, Error, Result};
use hdrhistogram::Histogram;
use mount::Mount;
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, NodeRef};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Make = Box<dyn Fn(u64) -> Result<Request> + Send + Sync>;

pub(super) struct Window {
    mount: Arc<Mount>,
    make: Make,
    depth: u64,
    count: u64,
    keeps: bool,
    state: Mutex<State>,
    over: Condvar,
}

struct State {
    next: u64,
    under_way: u64,
    /// Some thread sends. An answer that comes meanwhile, perhaps within its own send, leaves the next call to it.
    sending: bool,
    latencies: Histogram<u64>,
    nodes: Vec<NodeRef>,
    failed: Option<Error>,
}

impl Window {
    /// Makes `count` calls; their latencies, and if `keeps` what each answer describes.
    pub(super) fn run(
        mount: Arc<Mount>,
        make: Make,
        depth: u64,
        count: u64,
        keeps: bool,
    ) -> Result<(Histogram<u64>, Vec<NodeRef>)> {
        let nodes = if keeps { vec![NodeRef::default(); count as usize] } else { Vec::new() };
        let state =
            State { next: 0, under_way: 0, sending: true, latencies: histogram(), nodes, failed: None };
        let state = Mutex::new(state);
        let window = Arc::new(Self { mount, make, depth, count, keeps, state, over: Condvar::new() });
        window.send();
        let mut state = window.state();
        while state.sending || state.under_way > 0 || (state.next < count && state.failed.is_none()) {
            state = window.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok((state.latencies.clone(), std::mem::take(&mut state.nodes))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends until enough are under way. The caller has set `sending`.
    fn send(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let all = state.next == self.count || state.failed.is_some();
            if all || state.under_way == self.depth {
                state.sending = false;
                if all && state.under_way == 0 {
                    self.over.notify_one();
                }
                return;
            }
            let i = state.next;
            state.next += 1;
            match (self.make)(i) {
                Ok(request) => {
                    state.under_way += 1;
                    drop(state);
                    let (window, sent) = (Arc::clone(self), Instant::now());
                    let done = Box::new(move |outcome, _| window.answered(i, sent, outcome));
                    self.mount.submit(Cred::ROOT, request, done);
                }
                Err(error) => state.failed = Some(error),
            }
        }
    }

    fn answered(self: Arc<Self>, i: u64, sent: Instant, outcome: Outcome) {
        let took = nanos(sent.elapsed());
        let mut state = self.state();
        state.under_way -= 1;
        state.latencies.saturating_record(took);
        match outcome.with_context(|| format!("file {i}")) {
            Ok(reply) if self.keeps => state.nodes[i as usize] = Link::node(&reply),
            Ok(_) => {}
            Err(error) => state.failed = Some(error),
        }
        if !std::mem::replace(&mut state.sending, true) {
            drop(state);
            self.send();
        }
    }
}

pub(super) fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)
}
