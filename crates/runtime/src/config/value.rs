//! Values of `pando.toml` that are more than a number or a string.
//!
//! Absent: ranges (checked once, for the whole configuration).

use super::DirPrefetch;
use crate::addr::Addr;
use crate::log::{LogFormat, LogLevel};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// A size: a number of bytes, or a text with a binary unit ("64K", "4GiB").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

/// Reads "64K", "4 GiB", "1048576".
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "K" | "KB" | "KiB" => 10,
        "M" | "MB" | "MiB" => 20,
        "G" | "GB" | "GiB" => 30,
        "T" | "TB" | "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes or a text such as \"64M\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
        u64::try_from(value).map(Bytes).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Bytes, E> {
        Ok(Bytes(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        parse_bytes(text).map(Bytes).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

/// `auto`, `keyed`, `full`, or CephFS's boolean (true = full).
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefetch(pub(super) DirPrefetch);

struct PrefetchVisitor;

impl Visitor<'_> for PrefetchVisitor {
    type Value = Prefetch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", \"keyed\", \"full\", true or false")
    }

    fn visit_bool<E: Error>(self, full: bool) -> Result<Prefetch, E> {
        Ok(Prefetch(if full { DirPrefetch::Full } else { DirPrefetch::Keyed }))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prefetch, E> {
        Ok(Prefetch(match text {
            "auto" => DirPrefetch::Auto,
            "keyed" => DirPrefetch::Keyed,
            "full" => DirPrefetch::Full,
            _ => return Err(E::invalid_value(Unexpected::Str(text), &self)),
        }))
    }
}

impl<'de> Deserialize<'de> for Prefetch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PrefetchVisitor)
    }
}

/// A word out of a few.
macro_rules! word {
    ($name:ident, $type:ty, $expected:literal, $parse:expr) => {
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let parse: fn(&str) -> Option<$type> = $parse;
                parse(&text)
                    .map(Self)
                    .ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &$expected))
            }
        }
    };
}

word!(Place, Addr, "unix:PATH or HOST[:PORT]", |text| Addr::parse(text).ok());
word!(Format, LogFormat, "\"logfmt\" or \"json\"", |text| Some(match text {
    "logfmt" => LogFormat::Logfmt,
    "json" => LogFormat::Json,
    _ => return None,
}));
word!(Level, LogLevel, "\"debug\", \"info\", \"warn\" or \"error\"", |text| Some(match text {
    "debug" => LogLevel::Debug,
    "info" => LogLevel::Info,
    "warn" => LogLevel::Warn,
    "error" => LogLevel::Error,
    _ => return None,
}));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_no_overflow() {
        assert_eq!(parse_bytes("64K"), Some(65_536));
        assert_eq!(parse_bytes("4 GiB"), Some(4 << 30));
        assert_eq!(parse_bytes("12"), Some(12));
        for bad in ["", "K", "1X", "-1", "1.5G", "99999999999T"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
