//! What a target is, and the checks several of them share.
//!
//! Absent: the targets themselves (`targets`), the loop (`engine`).

use crate::class::class;
use proto::DecodeError;
use std::fmt::Debug;

/// `Ok`: the promises were kept; the text names what was reached (a variant, an error kind). `Err`: which one was not.
pub type Verdict = Result<String, String>;

/// One consumer of hostile bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub execute: fn(&[u8]) -> Verdict,
    /// Makes checksums and lengths right again, so that a mutation gets past them.
    pub repair: Option<fn(&mut [u8])>,
    /// Valid inputs, with a name each.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// The most a decoded value may take, as a multiple of the bytes it was read from.
const SIZE_FACTOR: usize = 16;
/// And what any value may take.
const SIZE_FREE: usize = 1024;

/// A value must not be larger than its bytes can justify.
///
/// # Errors
/// The broken promise.
pub fn check_size(decoded: usize, input: &[u8]) -> Result<(), String> {
    let limit = input.len() * SIZE_FACTOR + SIZE_FREE;
    if decoded <= limit {
        return Ok(());
    }
    Err(format!("{} input bytes became {decoded}, more than {limit}", input.len()))
}

/// How exact a round trip has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exact {
    /// There is one encoding of each value: the bytes come back.
    Bytes,
    /// Sections may come in any order: the value comes back, and its encoding from then on.
    Value,
}

/// Decodes, encodes, decodes again and compares; `weigh` gives the bytes the value takes in memory.
///
/// # Errors
/// The broken promise.
pub fn round_trip<T: Debug + PartialEq>(
    input: &[u8],
    exact: Exact,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    encode: impl Fn(&T) -> Vec<u8>,
    weigh: impl Fn(&T) -> usize,
) -> Verdict {
    let value = match decode(input) {
        Ok(value) => value,
        Err(error) => return Ok(class("refused", &error)),
    };
    check_size(weigh(&value), input)?;
    let bytes = encode(&value);
    if exact == Exact::Bytes && bytes != input {
        return Err(format!("{value:?} is encoded as other bytes: {}", crate::corpus::hex(&bytes)));
    }
    match decode(&bytes) {
        Ok(again) if again == value => {}
        other => return Err(format!("{value:?} became {other:?}")),
    }
    Ok(class("read", &value))
}
