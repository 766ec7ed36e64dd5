//! Values of `pando.toml` that are more than a number or a string.
//!
//! Absent: ranges (checked once, for the whole configuration).

use super::DirPrefetch;
use crate::addr::{self, Addr};
use crate::log::{LogFormat, LogLevel};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// A size: a number of bytes, or a text as `stdx::size` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

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
        stdx::size::parse(text).map(Bytes).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

/// A number from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction(pub(super) u32);

struct FractionVisitor;

impl Visitor<'_> for FractionVisitor {
    type Value = Fraction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 1")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Fraction, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Fraction, E> {
        let is_one = (0.0..=1.0).contains(&value);
        let millionths = || Fraction((value * 1e6).round() as u32);
        is_one.then(millionths).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FractionVisitor)
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
word!(Page, String, "HOST or HOST:PORT", addr::metrics_place);
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
