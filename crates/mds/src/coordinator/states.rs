//! Which way a rank's state may go. `Failed`, `Creating`, `Replay` and `Stopping` are given by the coordinator; the rest a life reports.
//!
//! Absent: why it goes (`plan`).

use proto::cluster::RankState;

/// The state of a rank whose life reports `said` while the map says `now`. A life may pass states between two beacons, and a beacon may
/// be overtaken by a later one: what is no step forward changes nothing.
pub(super) const fn reported(now: RankState, said: RankState) -> RankState {
    use RankState::{Active, Creating, Damaged, Failed, Reconnect, Replay, Resolve, Stopping};
    match now {
        // No life, or one that serves nothing any more.
        Failed | Damaged => now,
        Creating => match said {
            Replay | Resolve | Reconnect | Active | Damaged => said,
            Failed | Creating | Stopping => now,
        },
        Replay => match said {
            Resolve | Reconnect | Active | Damaged => said,
            Failed | Creating | Replay | Stopping => now,
        },
        Resolve => match said {
            Reconnect | Active | Damaged => said,
            Failed | Creating | Replay | Resolve | Stopping => now,
        },
        Reconnect => match said {
            Active | Damaged => said,
            Failed | Creating | Replay | Resolve | Reconnect | Stopping => now,
        },
        // It stops when the map says so, not by itself.
        Active | Stopping => match said {
            Damaged => said,
            Failed | Creating | Replay | Resolve | Reconnect | Active | Stopping => now,
        },
    }
}

/// The state of a rank that loses its daemon. What is damaged stays so: the next life would find the same.
pub(super) fn without_daemon(now: RankState) -> RankState {
    match now {
        RankState::Damaged if !stdx::mutant!("coord_damaged_taken_over") => now,
        RankState::Failed
        | RankState::Creating
        | RankState::Replay
        | RankState::Resolve
        | RankState::Reconnect
        | RankState::Active
        | RankState::Stopping
        | RankState::Damaged => RankState::Failed,
    }
}

/// Whether a life that is so far has everything it needs in the store.
pub(super) const fn is_made(state: RankState) -> bool {
    match state {
        RankState::Failed | RankState::Creating | RankState::Damaged => false,
        RankState::Replay
        | RankState::Resolve
        | RankState::Reconnect
        | RankState::Active
        | RankState::Stopping => true,
    }
}
