//! Why a server refuses an operator's command: the numbers of `code` in the answer to `Admin`.
//!
//! Absent: commands and their answers, which are JSON (`server`); how a command line ends (`cli`).

/// The field `code` of an answer that is not `ok`. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The command is unknown, or something that it needs is missing.
    Usage = 2,
    /// Not for this peer.
    Denied = 4,
    /// Not now, or not for what is there.
    State = 5,
}

impl Refusal {
    /// The number in the answer.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What an answer's number means; none: a later server's.
    #[must_use]
    pub const fn of_code(code: u64) -> Option<Self> {
        match code {
            2 => Some(Self::Usage),
            4 => Some(Self::Denied),
            5 => Some(Self::State),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for refusal in [Refusal::Usage, Refusal::Denied, Refusal::State] {
            assert_eq!(Refusal::of_code(u64::from(refusal.code())), Some(refusal));
        }
        assert_eq!(Refusal::of_code(3), None);
    }
}
