//! Sizes as people write them: `64K`, `1.5G`, `4MiB`, `4096`; always powers of 1024.
//!
//! Absent: printing (`output::bytes`).

/// Bytes meant by the text.
///
/// # Errors
/// A sentence without the text itself.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err("not a size (use 4096, 64K, 1M, 2G, 1T)".into()),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| "too large".into());
    }
    match digits.parse::<f64>() {
        Ok(part) if (0.0..1e6).contains(&part) => Ok((part * f64::from(1_u32 << 10).powi(shift / 10)) as u64),
        _ => Err("not a size (use 4096, 64K, 1M, 2G, 1T)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units_are_powers_of_1024() {
        let cases =
            [("0", 0), ("4096", 4096), ("64K", 65_536), ("64k", 65_536), ("1MiB", 1 << 20), ("2GB", 2 << 30)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1.5G"), Ok(1_610_612_736));
    }

    #[test]
    fn nonsense_and_overflow_are_refused() {
        for text in ["", "K", "-1", "1X", "1.2.3", "99999999P", "nan"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
