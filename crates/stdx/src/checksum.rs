//! CRC-32C (Castagnoli) over one or several byte ranges.
//!
//! Absent: any other checksum; the formats name exactly one.

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of the concatenation of `parts`, without building it.
#[must_use]
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c_parts(&[b"1234", b"", b"56789"]), 0xE306_9283);
    }
}
