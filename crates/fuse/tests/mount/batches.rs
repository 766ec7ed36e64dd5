//! Requests that reach a ring thread at the same time.
//! Absent: how fast that is.

use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const CALLERS: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps its thread busy with the first STATFS until so many more have come, and with a late one until somebody has an answer.
struct Busy {
    inner: Arc<Null>,
    handled: AtomicU32,
    all_sent: AtomicBool,
    answered: Arc<AtomicU32>,
    in_time: AtomicBool,
}

fn wait_until(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !what() {
        if Instant::now() > until {
            return false;
        }
        thread::yield_now();
    }
    true
}

impl Handler for Busy {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        self.inner.init(negotiated, notifier);
    }

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        if matches!(request.operation, Operation::StatFs) {
            match self.handled.fetch_add(1, Ordering::SeqCst) {
                0 => drop(wait_until(|| self.all_sent.load(Ordering::SeqCst))),
                // The first came alone.
                30 => {
                    let got = wait_until(|| self.answered.load(Ordering::SeqCst) > 1);
                    self.in_time.store(got, Ordering::SeqCst);
                }
                _ => {}
            }
        }
        self.inner.handle(request, reply);
    }
}

/// What broke: the answers to all requests of a batch waited for its last, and were old when they came.
#[test]
fn answers_leave_while_the_rest_of_a_batch_is_handled() {
    let place = Place::new();
    let answered = Arc::new(AtomicU32::new(0));
    let handler = Arc::new(Busy {
        inner: Arc::new(Null::new(NullOptions::default()).expect("a null responder")),
        handled: AtomicU32::new(0),
        all_sent: AtomicBool::new(false),
        answered: Arc::clone(&answered),
        in_time: AtomicBool::new(false),
    });
    let session = mount(&place.0, &config(Transport::Uring), Arc::clone(&handler)).expect("mount");
    let sent = AtomicU32::new(0);
    thread::scope(|scope| {
        let ask = || {
            pin_to_first_cpu();
            sent.fetch_add(1, Ordering::SeqCst);
            statfs(&place.0).expect("answered");
            answered.fetch_add(1, Ordering::SeqCst);
        };
        scope.spawn(ask);
        assert!(wait_until(|| handler.handled.load(Ordering::SeqCst) == 1));
        for _ in 0..CALLERS {
            scope.spawn(ask);
        }
        // Those who are not in the kernel yet when the thread goes on are some of the last ten.
        assert!(wait_until(|| sent.load(Ordering::SeqCst) > CALLERS));
        handler.all_sent.store(true, Ordering::SeqCst);
    });
    assert!(handler.in_time.load(Ordering::SeqCst));
    finish(&session);
}

fn pin_to_first_cpu() {
    // SAFETY: cpu_set_t is a plain bit array, for which all zeroes is the empty set; it outlives both calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}
