//! Instants as values. Machines receive `Now`; only drivers read clocks.
//!
//! Absent: `Instant` and `SystemTime`; durations are nanoseconds in `u64`.

/// Monotonic nanoseconds since the process (or the simulation) started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Wall-clock nanoseconds since the Unix epoch: range 1677-09-21 to 2262-04-11. Only ever lands
/// in file attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// One instant on both clocks, read once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}

/// Nanoseconds in one millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in one second.
pub const SECOND: u64 = 1_000_000_000;

impl Mono {
    /// This instant plus `nanos`, saturating.
    #[must_use]
    pub const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Nanoseconds since `earlier`; 0 when it lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Wall {
    /// From seconds and nanoseconds, clamped to the representable range (as local file systems
    /// clamp to theirs).
    #[must_use]
    pub fn from_parts(seconds: i64, nanos: u32) -> Self {
        let total = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos);
        Self(total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Whole seconds, rounded towards the past, so that `nanos` is never negative.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND as i64)
    }

    /// The nanoseconds within the second, 0 to 999,999,999.
    #[must_use]
    pub const fn nanos(self) -> u32 {
        self.0.rem_euclid(SECOND as i64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_positive_nanoseconds() {
        let t = Wall::from_parts(-2, 250_000_000);
        assert_eq!((t.seconds(), t.nanos()), (-2, 250_000_000));
        assert_eq!(Wall::from_parts(i64::MAX, 0), Wall(i64::MAX));
    }
}
