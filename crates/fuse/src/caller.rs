//! Who waits for an answer: a thread of some process.
//! Absent: anything but whether it will ever look at the answer, and whether it may see what its owner sees.

/// The bit of SIGKILL in the sets that /proc shows.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// `PF_EXITING` of include/linux/sched.h, in the ninth field of /proc/PID/stat.
const EXITING_BIT: u64 = 4;

/// Whether the thread is being killed and only waits for our answer. A fatal signal is a pending SIGKILL to every thread of its
/// process (kernel/signal.c, `complete_signal`), unless it dumps core (SIGQUIT, SIGABRT). False where /proc does not show it.
pub(crate) fn is_being_killed(pid: u32) -> bool {
    pid != 0
        && std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| kill_pending(&status))
}

/// The user of this process.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: takes nothing and touches no memory.
    unsafe { libc::geteuid() }
}

/// Whether the thread is on its way out: it closes its files, and no signal reaches it any more.
pub(crate) fn is_ending(pid: u32) -> bool {
    pid != 0 && std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| exiting(&stat))
}

/// The program's name, in brackets, may have blanks and brackets.
fn exiting(stat: &str) -> bool {
    let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & EXITING_BIT != 0)
}

fn kill_pending(status: &str) -> bool {
    let sets =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    sets.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & SIGKILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_sigkill_is_seen_and_nothing_else() {
        let status = |own: &str, shared: &str| {
            format!("Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n")
        };
        let none = "0000000000000000";
        assert!(!kill_pending(&status(none, "0000000000004002")), "SIGTERM and SIGINT with handlers");
        assert!(kill_pending(&status("0000000000000100", none)));
        assert!(kill_pending(&status(none, "0000000000000100")));
        assert!(!is_being_killed(0) && !is_being_killed(std::process::id()));
    }

    #[test]
    fn who_is_ending_is_seen_past_a_strange_name() {
        assert!(exiting("7 (a) b) D 1 7 7 0 -1 4195332 100 0"));
        assert!(!exiting("7 (a) b) D 1 7 7 0 -1 4194304 100 0") && !exiting("7"));
        assert!(!is_ending(0) && !is_ending(std::process::id()));
    }
}
