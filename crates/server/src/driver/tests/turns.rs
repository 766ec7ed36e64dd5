//! A turn is bounded by time, and what waited for it is counted.

use super::*;
use std::time::{Duration, Instant};

const REQUESTS: u64 = 20;

/// A connection that asked for much at once kept the rank until all was done.
#[test]
fn a_long_batch_takes_many_turns_and_its_wait_is_counted() {
    let server = server(Toy::default(), Arc::default()).expect("boot");
    let driver = server.driver().expect("a life");
    let counters = &driver.counters;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let port = server.embedded().connect(Arc::new(Mailbox::default())).expect("connect");
    let before = driver.turns().turns;
    let slow = |tid| message(tid, Request::ReadLink { node: NodeRef::bare(Ino::ROOT) });
    let mut answers = Vec::new();
    let arrived = Instant::now();
    while arrived.elapsed() <= Duration::from_millis(6) {
        std::hint::spin_loop();
    }
    port.send_since((0..REQUESTS).map(slow).collect(), arrived, &mut answers).expect("send");
    let tids = answers.iter().map(|answer| match answer {
        ServerMsg::Reply { tid, .. } => tid.0,
        other => panic!("{other:?}"),
    });
    assert!(tids.eq(0..REQUESTS), "each once and in order");
    // Two of them are longer than a turn aims to be.
    assert!(driver.turns().turns - before >= REQUESTS / 2);
    assert_eq!((count(&counters.queued), count(&counters.queue_over_5ms)), (REQUESTS, REQUESTS));
    assert!(count(&counters.queue_nanos_max) >= 6_000_000 + (REQUESTS - 1) * SLOW_NS);
    assert!(count(&counters.queue_nanos) >= REQUESTS * 6_000_000);
    port.send(vec![slow(REQUESTS)], &mut answers).expect("send");
    assert_eq!(count(&counters.queued), REQUESTS, "that one came over no socket");
}
