//! From which state of a rank which may follow: the order of a life, as docs/PROTOCOL.md, "The coordinator", has it.
//!
//! Absent: who may bring it about, and with what (`maps.rs`).

use proto::cluster::RankState;

/// Where a state stands on a life's way.
const fn step(state: RankState) -> u8 {
    match state {
        RankState::Creating => 1,
        RankState::Replay => 2,
        RankState::Resolve => 3,
        RankState::Reconnect => 4,
        RankState::Active => 5,
        RankState::Stopping => 6,
        RankState::Failed | RankState::Damaged => 0,
    }
}

/// Whether a life that said the one has been in the other, or passed it.
pub(super) const fn is_at(said: RankState, state: RankState) -> bool {
    match state {
        RankState::Damaged => matches!(said, RankState::Damaged),
        RankState::Failed => false,
        _ => step(said) >= step(state),
    }
}

/// How a rank comes from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The same life goes on.
    On,
    /// The life found damage.
    Damaged,
    /// The life is over.
    Failed,
    /// Another life begins.
    Begins,
    /// A damaged rank's daemon is gone, or somebody lets a damaged rank try again.
    Stays,
    Released,
}

/// The way from one state to another; `None`: there is none.
pub(super) const fn way(from: RankState, to: RankState) -> Option<Way> {
    match (from, to) {
        (RankState::Damaged, RankState::Damaged) | (RankState::Failed, RankState::Failed) => Some(Way::Stays),
        (RankState::Damaged, RankState::Failed) => Some(Way::Released),
        (RankState::Failed, RankState::Creating | RankState::Replay) => Some(Way::Begins),
        (RankState::Failed | RankState::Damaged, _) => None,
        (_, RankState::Failed) => Some(Way::Failed),
        (_, RankState::Damaged) => Some(Way::Damaged),
        (from, to) if step(to) >= step(from) => Some(Way::On),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_goes_forwards_or_ends() {
        use RankState as S;
        assert_eq!(way(S::Replay, S::Reconnect), Some(Way::On));
        assert_eq!(way(S::Creating, S::Replay), Some(Way::On));
        assert_eq!(way(S::Active, S::Reconnect), None);
        assert_eq!(way(S::Active, S::Creating), None);
        assert_eq!(way(S::Stopping, S::Failed), Some(Way::Failed));
        assert_eq!(way(S::Replay, S::Damaged), Some(Way::Damaged));
        assert_eq!(way(S::Failed, S::Replay), Some(Way::Begins));
        for to in [S::Creating, S::Replay, S::Resolve, S::Reconnect, S::Active, S::Stopping] {
            assert_eq!(way(S::Damaged, to), None);
        }
        for to in [S::Resolve, S::Reconnect, S::Active, S::Stopping, S::Damaged] {
            assert_eq!(way(S::Failed, to), None);
        }
    }
}
