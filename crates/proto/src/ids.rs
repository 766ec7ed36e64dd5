//! Identities as types of their own, so that two numbers are never mixed up.
//!
//! Absent: allocation; numbers are given out by the rank.

/// An inode number: bit 63 zero, 15 bits of the allocating rank, 48 bits of counter. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// "No inode": never allocated.
    pub const NONE: Self = Self(0);
    /// The root directory.
    pub const ROOT: Self = Self(1);
    /// `//links`: home of inodes with more than one name.
    pub const LINKS: Self = Self(2);
    /// `//`: the system directory that holds the dentries of root, `//links` and `//orphans`.
    pub const SYSTEM: Self = Self(3);
    /// The first counter value given to files; lower numbers are reserved for the system.
    pub const FIRST_COUNTER: u64 = 4096;

    /// `//orphans/<rank>`: unlinked but open inodes and trees that wait for purge.
    #[must_use]
    pub const fn orphans(rank: RankId) -> Self {
        Self(0x100 + rank.0 as u64)
    }

    /// Bits of a number below the rank that gave it out.
    pub const COUNTER_BITS: u32 = 48;

    /// The number `counter` of `rank`'s allocator.
    #[must_use]
    pub const fn of_rank(rank: RankId, counter: u64) -> Self {
        Self(((rank.0 as u64) << Self::COUNTER_BITS) | (counter & 0xFFFF_FFFF_FFFF))
    }

    /// Its name in `//links` and `//orphans`: 16 hex digits.
    #[must_use]
    pub fn link_name(self) -> [u8; 16] {
        let mut name = [0; 16];
        for (at, byte) in name.iter_mut().enumerate() {
            let digit = (self.0 >> (60 - 4 * at)) & 0xF;
            *byte = b"0123456789abcdef"[digit as usize];
        }
        name
    }

    /// Below the first number that is given out: the system's own directories, numbers that are not in use yet, NONE. Root is not.
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 != 1 && self.0 < Self::FIRST_COUNTER
    }
}

/// The number of a metadata rank, 0 to 32,767.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankId(pub u16);

/// One life of a rank: grows by one with each start; older ones are fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// How far it is shifted in change counters: so many changes one life can count before it reaches the next one's numbers.
    pub const CHANGE_BITS: u32 = 32;

    /// No change counter of a life before is as high; those of this one are, but for what it made itself.
    #[must_use]
    pub const fn first_change(self) -> u64 {
        self.0 << Self::CHANGE_BITS
    }
}

/// A client session, unique in the life of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A client's transaction number: grows by one per request, global to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

/// A byte position in one rank's journal stream; never goes back, across segments and lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// The version of a dirfrag: +1 per transaction that touches it; with the first of a new incarnation max(last + 2^20,
/// incarnation × 2^32). Never names two contents, not even across a history that a crash took back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The jump a new incarnation makes with its first transaction on a frag.
    pub const INCARNATION_STEP: u64 = 1 << 20;
}

/// The keyed 64-bit hash of a name, never below 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash(pub u64);

impl NameHash {
    /// Hashes below this are free for cookies of start, "." and "..", and for headers in the store.
    pub const FIRST: Self = Self(8);

    /// The highest one.
    pub const LAST: Self = Self(u64::MAX);

    /// The readdir cookie of a name: positive as a signed 64-bit offset, above "." and "..".
    #[must_use]
    pub const fn cookie(self) -> u64 {
        self.0 >> 1
    }

    /// The lowest hash with that cookie; none has one of more than 63 bits.
    #[must_use]
    pub const fn from_cookie(cookie: u64) -> Self {
        Self(cookie << 1)
    }
}

/// A hash prefix of a directory: `depth` leading bits of `prefix` are significant. Depth 0 is the
/// whole directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frag {
    pub prefix: u64,
    pub depth: u8,
}

impl Frag {
    /// The whole directory.
    pub const WHOLE: Self = Self { prefix: 0, depth: 0 };

    /// The frag of this depth, at most 64, that the hash is in.
    #[must_use]
    pub const fn leading(hash: NameHash, depth: u8) -> Self {
        let kept = match depth {
            0 => 0,
            1..64 => u64::MAX << (64 - depth),
            64.. => u64::MAX,
        };
        Self { prefix: hash.0 & kept, depth }
    }

    /// Whether the hash is in it.
    #[must_use]
    pub const fn covers(self, hash: NameHash) -> bool {
        Self::leading(hash, self.depth).prefix == self.prefix
    }
}

/// The snapshot a record belongs to. HEAD sorts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    pub const HEAD: Self = Self(0);
}

/// How a request names an inode: by number, plus where its primary dentry was last seen. The
/// place is a hint: it lets a rank find an inode that is no longer cached with one keyed read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRef {
    pub ino: Ino,
    /// `Ino::NONE` when unknown.
    pub parent: Ino,
    pub hash: NameHash,
}

impl NodeRef {
    /// A reference without a place.
    #[must_use]
    pub const fn bare(ino: Ino) -> Self {
        Self { ino, parent: Ino::NONE, hash: NameHash(0) }
    }
}

/// The identity of a file's data: inode and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub ino: Ino,
    pub generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_their_rank_and_stay_positive() {
        assert_eq!(Ino::of_rank(RankId(0), 4096), Ino(4096));
        assert_eq!(&Ino(0x7f_1a2b).link_name(), b"00000000007f1a2b");
        assert_eq!(Ino::of_rank(RankId(0x7FFF), (1 << 48) - 1).0, i64::MAX as u64);
        assert!(
            !Ino::ROOT.is_reserved() && Ino::LINKS.is_reserved() && Ino::orphans(RankId(9)).is_reserved()
        );
    }

    #[test]
    fn cookies_leave_room_for_dots() {
        assert!(NameHash::FIRST.cookie() > 2);
    }
}
