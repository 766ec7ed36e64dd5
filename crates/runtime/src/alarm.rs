//! A thread's wait for an instant, on the clock that goes on while the host is suspended: who wakes up late is woken up at once,
//! and finds out that its lease is over before it goes on believing in it.
//!
//! Absent: more than one thread that waits; condition variables, whose timeouts stand still with the host, do for everything else.

use crate::clock::Clock;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use stdx::Mono;
use stdx::time::SECOND;

/// One alarm.
#[derive(Debug)]
pub struct Alarm {
    timer: File,
    clock: Clock,
}

impl Alarm {
    /// An alarm on this clock, which does not go off.
    ///
    /// # Errors
    /// The process has as many files open as it may.
    pub fn new(clock: Clock) -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked before it is used.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(Self { timer: File::from(unsafe { OwnedFd::from_raw_fd(fd) }), clock })
    }

    /// Goes off at `at`, and not when it was told before; without one not at all. At once if that has passed.
    pub fn set(&self, at: Option<Mono>) {
        // Zero would stop it.
        self.arm(at.map_or(0, |at| self.clock.boot_time_of(at).max(1)));
    }

    /// Goes off now.
    pub fn ring(&self) {
        self.arm(1);
    }

    /// Waits until it goes off. It does so once: until it is set again.
    pub fn wait(&self) {
        let mut count = [0; 8];
        // The only error there is here is a signal: as good as having gone off.
        let _signal = (&self.timer).read(&mut count);
    }

    fn arm(&self, nanos: u64) {
        let value = libc::timespec {
            tv_sec: (nanos / SECOND) as libc::time_t,
            tv_nsec: (nanos % SECOND) as libc::c_long,
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: the descriptor lives as long as `self`, `spec` as long as the call, and the old value is not asked for.
        let done = unsafe {
            let flags = libc::TFD_TIMER_ABSTIME;
            libc::timerfd_settime(self.timer.as_raw_fd(), flags, &raw const spec, std::ptr::null_mut())
        };
        debug_assert_eq!(done, 0, "seconds and nanoseconds within their ranges");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::time::MS;

    #[test]
    fn it_goes_off_when_due_at_once_when_late_and_when_rung() {
        let clock = Clock::new();
        let alarm = Alarm::new(clock).expect("a timer");
        let due = clock.mono().after(20 * MS);
        alarm.set(Some(due));
        alarm.wait();
        assert!(clock.mono() >= due);
        // Passed already, as after a sleep of the host; Mono(0) is when the clock began.
        alarm.set(Some(Mono(0)));
        alarm.wait();
        // Set to what nobody waits for, and for ever: the ring counts.
        for far in [Some(Mono(u64::MAX)), Some(clock.mono().after(3600 * SECOND)), None] {
            alarm.set(far);
            alarm.ring();
            alarm.wait();
        }
        // Rung from elsewhere while it waits.
        alarm.set(None);
        std::thread::scope(|scope| {
            scope.spawn(|| alarm.ring());
            alarm.wait();
        });
    }
}
