//! What was asked for about the placement of a directory: section 6 of its inode record.
//!
//! Absent: where its content is (the cluster map says it); what follows for directories that are made in it (`mds::placing`).

use crate::cluster::Mask;
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::RankId;

const PIN: u8 = 1;
const DISTRIBUTED: u8 = 2;
const RANDOM: u8 = 3;
const MASK: u8 = 4;
const PLACEMENT: u8 = 5;
/// The same as it counted above when the directory was made.
const TAKEN: u8 = 16;
/// All of it together.
const BYTES_MAX: usize = 4096;

/// How directories are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Placement {
    /// With their parents.
    Subtree = 1,
    /// By slots.
    Hash = 2,
}

/// A probability from 0 to 1, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// `None`: it is none.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value.to_bits()))
    }

    #[must_use]
    pub const fn value(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// Whether it takes one that was drawn from all numbers evenly.
    #[must_use]
    pub fn takes(self, drawn: u64) -> bool {
        self.value() >= 1.0 || ((drawn >> 11) as f64) < self.value() * (1_u64 << 53) as f64
    }
}

/// What counts for directories that are made in one, and for those that are made in these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// So many of them are placed by slots.
    pub random: Option<Chance>,
    pub placement: Option<Placement>,
    /// Ranks that the balancer may use for them.
    pub mask: Option<Mask>,
}

/// Policies of one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The rank that is to have its content, whether there is such a rank or not.
    pub pin: Option<RankId>,
    /// Directories that are made in it, but not in these, are placed by slots.
    pub distributed: bool,
    /// What was asked for here.
    pub own: Rules,
    /// What counted above when it was made.
    pub taken: Rules,
    /// Of later versions, kept as they are.
    pub unknown: Vec<(u8, Box<[u8]>)>,
}

impl Rules {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        let Self { random, placement, mask } = self;
        random.is_none() && placement.is_none() && mask.is_none()
    }

    /// Whether slots place some of them.
    #[must_use]
    pub fn places(&self) -> bool {
        self.placement == Some(Placement::Hash) || self.random.is_some()
    }

    fn encode(&self, base: u8, w: &mut Writer) {
        if let Some(Chance(bits)) = self.random {
            w.u8(base + RANDOM).u32(8).u64(bits);
        }
        if let Some(Mask(words)) = self.mask {
            w.u8(base + MASK).u32(32);
            for word in words {
                w.u64(word);
            }
        }
        if let Some(placement) = self.placement {
            w.u8(base + PLACEMENT).u32(1).u8(placement as u8);
        }
    }

    /// Takes one of its sections in; whether it is one.
    fn take(&mut self, tag: u8, body: &[u8]) -> Result<bool, DecodeError> {
        let mut r = Reader::new(body);
        match tag {
            RANDOM => {
                let chance = Chance::new(f64::from_bits(r.u64()?));
                self.random = Some(chance.ok_or(DecodeError::Invalid { what: "probability" })?);
            }
            MASK => self.mask = Some(Mask([r.u64()?, r.u64()?, r.u64()?, r.u64()?])),
            PLACEMENT => {
                self.placement = Some(match r.u8()? {
                    1 => Placement::Subtree,
                    2 => Placement::Hash,
                    tag => return Err(DecodeError::UnknownTag { what: "placement", tag: u64::from(tag) }),
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Policies {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { pin, distributed, own, taken, unknown } = self;
        pin.is_none() && !distributed && own.is_empty() && taken.is_empty() && unknown.is_empty()
    }

    /// Whether slots place some of the directories that are made in it, whatever holds for the file system.
    #[must_use]
    pub fn places(&self) -> bool {
        self.distributed || self.rules().places()
    }

    /// What counts for directories that are made in it: the nearest that was asked for.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let Self { pin, own, taken, .. } = self;
        let mask = own.mask.or(taken.mask);
        // A pin is one as well: what is below it stays with it.
        let pinned = Rules { placement: pin.map(|_| Placement::Subtree), ..Rules::default() };
        let asked = own.placement.is_some() || own.random.is_some();
        let nearest = if asked {
            own
        } else if pin.is_some() {
            &pinned
        } else {
            taken
        };
        Rules { mask, ..*nearest }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        if let Some(RankId(rank)) = self.pin {
            w.u8(PIN).u32(2).u16(rank);
        }
        if self.distributed {
            w.u8(DISTRIBUTED).u32(1).u8(1);
        }
        self.own.encode(0, w);
        self.taken.encode(TAKEN, w);
        for (tag, body) in &self.unknown {
            w.u8(*tag).bytes(body);
        }
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let (mut r, mut policies) = (Reader::new(body), Self::default());
        while !r.is_empty() {
            let tag = r.u8()?;
            let body = r.bytes(BYTES_MAX)?;
            match tag {
                PIN => policies.pin = Some(RankId(Reader::new(body).u16()?)),
                DISTRIBUTED => policies.distributed = Reader::new(body).bool()?,
                _ if policies.own.take(tag, body)? => {}
                TAKEN.. if policies.taken.take(tag - TAKEN, body)? => {}
                _ => policies.unknown.push((tag, body.into())),
            }
        }
        Ok(policies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_counts() {
        let hash = Rules { placement: Some(Placement::Hash), ..Rules::default() };
        let subtree = Rules { placement: Some(Placement::Subtree), ..Rules::default() };
        let half = Rules { random: Chance::new(0.5), ..Rules::default() };
        let masked = Rules { mask: Some(Mask::NONE.with(RankId(3))), ..Rules::default() };
        let of = |own, taken, pin| Policies { pin, own, taken, ..Policies::default() }.rules();
        assert_eq!(of(Rules::default(), hash, None), hash);
        assert_eq!(of(subtree, half, None), subtree);
        assert_eq!(of(half, hash, Some(RankId(1))), half);
        assert_eq!(of(Rules::default(), hash, Some(RankId(1))), subtree);
        assert_eq!(of(masked, hash, None), Rules { mask: masked.mask, ..hash });
        assert_eq!(of(hash, masked, None), Rules { mask: masked.mask, ..hash });
    }

    #[test]
    fn a_chance_takes_its_part() {
        for (value, least, most) in [(0.0, 0, 0), (0.01, 60, 140), (0.5, 4_800, 5_200), (1.0, 10_000, 10_000)]
        {
            let chance = Chance::new(value).expect("a chance");
            let taken = (0..10_000_u64).filter(|at| chance.takes(stdx::hash::mix64(*at))).count();
            assert!((least..=most).contains(&taken), "{value}: {taken}");
        }
        assert!([-0.1, 1.1, f64::NAN, f64::INFINITY].into_iter().all(|value| Chance::new(value).is_none()));
    }
}
