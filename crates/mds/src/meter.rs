//! What requests have cost: counts and times by kind, rates of late, the slow ones of late.
//!
//! Absent: time outside the rank (queues of sockets, the kernel); percentiles.

use proto::every_reply;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Ino, Kind, SessionId, Tid};
use std::collections::VecDeque;
use stdx::Mono;
use stdx::time::SECOND;

/// Slow requests that are remembered after their answer (Ceph's `mds_op_history_slow_op_size`).
const SLOW_KEPT: usize = 20;
/// A rate is over this long.
const RATE_NS: u64 = 5 * SECOND;

/// A request as its answer is accounted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub session: SessionId,
    pub tid: Tid,
    pub kind: Kind,
    /// What it is about; of a request with a name the directory.
    pub ino: Ino,
    /// When the rank got it.
    pub since: Mono,
}

impl Asked {
    pub(crate) fn new(session: SessionId, tid: Tid, request: &Request, since: Mono) -> Self {
        let ino = request.subject().map_or(Ino::NONE, |(node, _)| node.ino);
        Self { session, tid, kind: request.kind(), ino, since }
    }
}

/// The requests of one kind since the rank began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Answered.
    pub count: u64,
    /// Of these with an error.
    pub errors: u64,
    /// From the rank's getting them to their answers leaving: waits of any sort, not the step itself. Nothing of file locks.
    pub nanos: u64,
}

/// A request that took long and is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    pub asked: Asked,
    pub nanos: u64,
}

/// How many per second, over the last five seconds: what is left of the window before the present one counts by its share
/// (the sliding window counter that rate limiters use).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    begin: Mono,
    count: u64,
    before: u64,
}

impl Rate {
    pub(crate) fn add(&mut self, now: Mono, n: u64) {
        if now.since(self.begin) >= RATE_NS {
            *self = self.at(now);
        }
        self.count += n;
    }

    /// With its windows moved to `now`.
    fn at(mut self, now: Mono) -> Self {
        let passed = now.since(self.begin) / RATE_NS;
        if passed > 0 {
            self.before = if passed == 1 { self.count } else { 0 };
            self.count = 0;
            self.begin = self.begin.after(passed * RATE_NS);
        }
        self
    }

    pub(crate) fn per_second(&self, now: Mono) -> u64 {
        let moved = self.at(now);
        let left = RATE_NS - now.since(moved.begin).min(RATE_NS);
        let before = u128::from(moved.before) * u128::from(left) / u128::from(RATE_NS);
        (u128::from(moved.count) + before).div_ceil(u128::from(RATE_NS / SECOND)) as u64
    }
}

/// What a session, or all of them, asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    request_rate: Rate,
    read_rate: Rate,
    write_rate: Rate,
}

/// `Traffic` as others see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficStatus {
    /// Since the session, or the rank, began.
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Per second of late.
    pub request_rate: u64,
    pub read_rate: u64,
    pub write_rate: u64,
}

impl Traffic {
    pub(crate) fn request(&mut self, now: Mono) {
        self.requests += 1;
        self.request_rate.add(now, 1);
    }

    pub(crate) fn answer(&mut self, now: Mono, outcome: &Outcome) {
        match outcome {
            Ok(Reply::Data(payload)) => {
                let bytes = payload.bytes().len() as u64;
                self.read_bytes += bytes;
                self.read_rate.add(now, bytes);
            }
            Ok(Reply::Written { count, .. }) => {
                self.written_bytes += count;
                self.write_rate.add(now, *count);
            }
            Ok(every_reply!()) | Err(_) => {}
        }
    }

    pub(crate) fn status(&self, now: Mono) -> TrafficStatus {
        TrafficStatus {
            requests: self.requests,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            request_rate: self.request_rate.per_second(now),
            read_rate: self.read_rate.per_second(now),
            write_rate: self.write_rate.per_second(now),
        }
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Meter {
    pub kinds: [OpCount; Kind::COUNT],
    pub traffic: Traffic,
    pub slow: VecDeque<Slow>,
    complaint_ns: u64,
}

impl Meter {
    pub(crate) fn new(complaint_ns: u64) -> Self {
        Self {
            kinds: [OpCount::default(); Kind::COUNT],
            traffic: Traffic::default(),
            slow: VecDeque::new(),
            complaint_ns,
        }
    }

    /// An answer leaves.
    pub(crate) fn answered(&mut self, now: Mono, asked: &Asked, outcome: &Outcome) {
        let nanos = now.since(asked.since);
        let kind = &mut self.kinds[asked.kind.index()];
        kind.count += 1;
        kind.errors += u64::from(outcome.is_err());
        self.traffic.answer(now, outcome);
        // Who waits for a file lock waits for its holder, perhaps for hours.
        if asked.kind == Kind::SET_LOCK {
            return;
        }
        kind.nanos = kind.nanos.saturating_add(nanos);
        if nanos >= self.complaint_ns {
            self.slow.truncate(SLOW_KEPT - 1);
            self.slow.push_front(Slow { asked: *asked, nanos });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Errno;

    #[test]
    fn a_rate_is_of_the_last_five_seconds() {
        let mut rate = Rate::default();
        let at = |seconds: u64| Mono(seconds * SECOND);
        for second in 0..20 {
            rate.add(at(second), 100);
        }
        assert_eq!(rate.per_second(at(20)), 100);
        assert_eq!(rate.per_second(at(22)), 60, "two seconds of five without any");
        assert_eq!(rate.per_second(at(25)), 0);
        assert_eq!(rate.per_second(at(1_000)), 0);
        rate.add(at(1_000), 1);
        assert_eq!(rate.per_second(at(1_000)), 1, "one is not none");
    }

    #[test]
    fn slow_requests_are_kept_and_not_too_many() {
        let mut meter = Meter::new(SECOND);
        let kind = Kind::all().next().expect("a kind");
        let asked = |since| Asked {
            session: SessionId(1),
            tid: Tid(since),
            kind,
            ino: Ino::ROOT,
            since: Mono(since),
        };
        for since in 0..50 {
            meter.answered(Mono(2 * SECOND), &asked(since), &Err(Errno::EIO));
        }
        meter.answered(Mono(2 * SECOND), &asked(2 * SECOND - 1), &Ok(Reply::Ok));
        assert_eq!(
            (meter.slow.len(), meter.slow.front().map(|slow| slow.asked.tid)),
            (SLOW_KEPT, Some(Tid(49)))
        );
        let count = meter.kinds[kind.index()];
        assert_eq!((count.count, count.errors), (51, 50));
        assert!(count.nanos > 99 * SECOND && count.nanos < 101 * SECOND);
    }
}
