//! Sets of ranks as people write them.
//!
//! Absent: how maps keep them (`codec.rs`).

use super::{Mask, RANKS_MAX};
use crate::ids::RankId;

/// Why a text is no set of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// It is none.
    Text,
    /// It names a rank that there cannot be.
    Rank,
}

impl Mask {
    /// From `0x38`.
    ///
    /// # Errors
    /// Other texts, and bits of ranks above 255.
    pub fn from_hex(text: &str) -> Result<Self, MaskError> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).ok_or(MaskError::Text)?;
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(MaskError::Text);
        }
        let digits = digits.trim_start_matches('0');
        if digits.len() > usize::from(RANKS_MAX) / 4 {
            return Err(MaskError::Rank);
        }
        let mut mask = Self::NONE;
        for (at, digit) in digits.chars().rev().enumerate() {
            let value = digit.to_digit(16).map_or(0, u64::from);
            mask.0[at / 16] |= value << (at % 16 * 4);
        }
        Ok(mask)
    }

    /// From `0,1,5`.
    ///
    /// # Errors
    /// Other texts, and ranks above 255.
    pub fn from_list(text: &str) -> Result<Self, MaskError> {
        let mut mask = Self::NONE;
        for rank in text.split(',') {
            match rank.trim().parse::<u64>() {
                Ok(rank) if rank < u64::from(RANKS_MAX) => mask = mask.with(RankId(rank as u16)),
                Ok(_) => return Err(MaskError::Rank),
                Err(_) => return Err(MaskError::Text),
            }
        }
        Ok(mask)
    }

    /// `0x38`; every rank is `all`.
    #[must_use]
    pub fn hex(self) -> String {
        if self == Self::ALL {
            return "all".to_owned();
        }
        let digits: String = self.0.iter().rev().map(|word| format!("{word:016x}")).collect();
        match digits.trim_start_matches('0') {
            "" => "0x0".to_owned(),
            digits => format!("0x{digits}"),
        }
    }

    /// `3,4,5`; every rank is `all`.
    #[must_use]
    pub fn list(self) -> String {
        if self == Self::ALL {
            return "all".to_owned();
        }
        let ranks = (0..RANKS_MAX).filter(|rank| self.has(RankId(*rank)));
        ranks.map(|rank| rank.to_string()).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_sets_and_sets_are_texts() {
        let full = format!("0x{}", "f".repeat(64));
        for (text, hex, list) in [
            ("0x38", "0x38", "3,4,5"),
            ("0X0007", "0x7", "0,1,2"),
            ("0x80000000000000000", "0x80000000000000000", "67"),
            ("0x0", "0x0", ""),
            (&full, "all", "all"),
        ] {
            let mask = Mask::from_hex(text).expect("a mask");
            assert_eq!((mask.hex(), mask.list()), (hex.to_owned(), list.to_owned()), "{text}");
        }
        assert_eq!(
            Mask::from_list("5, 0,255"),
            Ok(Mask::NONE.with(RankId(0)).with(RankId(5)).with(RankId(255)))
        );
        for text in ["", "38", "0x", "0xg", "x38"] {
            assert_eq!(Mask::from_hex(text), Err(MaskError::Text), "{text}");
        }
        for text in ["", "a", "-1", "0,,1"] {
            assert_eq!(Mask::from_list(text), Err(MaskError::Text), "{text}");
        }
        assert_eq!(Mask::from_hex(&format!("0x1{}", "0".repeat(64))), Err(MaskError::Rank));
        assert_eq!(Mask::from_list("1,256"), Err(MaskError::Rank));
    }
}
