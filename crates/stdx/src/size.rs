//! Sizes as people write them, wherever they do: `64K`, `1.5G`, `4 MiB`, `4096`; always powers of 1024.
//!
//! Absent: ranges (they belong to what is sized) and printing.

use core::fmt;

/// Why a text is not taken for a size. The sentences do not repeat the text: who asks shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    NotASize,
    /// More bytes than 64 bits hold.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::NotASize => "not a size (use 4096, 64K, 1M, 2G, 1T)",
            SizeError::TooLarge => "too large",
        })
    }
}

impl core::error::Error for SizeError {}

/// Digits of a fraction that are looked at; more say less than a byte.
const FRACTION: usize = 18;

/// Bytes meant by the text; a fraction of a byte is dropped. Exact: no floating point.
///
/// # Errors
/// `SizeError`.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(end);
    let shift = shift(unit.trim()).ok_or(SizeError::NotASize)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return Err(SizeError::NotASize);
    }
    let part = &part[..part.len().min(FRACTION)];
    // Only digits are left: what does not fit is a large number.
    let value = |digits: &str| match digits {
        "" => Ok(0),
        digits => digits.parse::<u64>().map(u128::from).map_err(|_| SizeError::TooLarge),
    };
    let scale = (0..part.len()).fold(1_u128, |scale, _| scale * 10);
    let bytes = (value(whole)? << shift) + (value(part)? << shift) / scale;
    u64::try_from(bytes).map_err(|_| SizeError::TooLarge)
}

fn shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    Some(match unit.as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{SizeError, parse};

    #[test]
    fn units_are_powers_of_1024() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("12B", 12),
            ("64K", 65_536),
            ("64k", 65_536),
            ("1MiB", 1 << 20),
            ("4 GiB", 4 << 30),
            ("2GB", 2 << 30),
            ("3T", 3 << 40),
            ("5P", 5 << 50),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn fractions_are_exact_to_the_byte() {
        let cases = [
            ("1.5G", 1_610_612_736),
            (".5K", 512),
            ("2.K", 2048),
            ("0.001K", 1),
            ("16383.9999999999999999999999P", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", ".", ".K", "-1", "+1", "1X", "1iB", "5KK", "1.2.3", "1e3", "nan", "64K x", "١K"]
        {
            assert_eq!(parse(text), Err(SizeError::NotASize), "{text}");
        }
    }

    #[test]
    fn overflow_is_said_to_be_one() {
        for text in ["99999999P", "16384P", "18446744073709551616", "99999999999999999999999T"] {
            assert_eq!(parse(text), Err(SizeError::TooLarge), "{text}");
        }
    }
}
