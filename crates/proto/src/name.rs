//! A file name: 1 to 255 bytes of anything but `/` and NUL, never "." or "..".
//!
//! Absent: encoding. Names are bytes, not text.

use crate::errno::Errno;
use crate::ids::NameHash;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use stdx::hash::{HashSeed, keyed_hash};

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// So many bytes need no memory of their own: most names have fewer.
const SHORT_BYTES: usize = 22;

/// Bytes of a name, checked or not: few in place, more on the heap.
#[derive(Clone, Debug)]
pub enum NameBytes {
    Inline(u8, [u8; SHORT_BYTES]),
    Heap(Box<[u8]>),
}

impl NameBytes {
    /// A copy.
    #[inline]
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        if name.len() <= SHORT_BYTES {
            let mut bytes = [0; SHORT_BYTES];
            bytes[..name.len()].copy_from_slice(name);
            Self::Inline(name.len() as u8, bytes)
        } else {
            Self::Heap(name.into())
        }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Bytes on the heap, with what an allocator needs.
    #[must_use]
    pub fn heap(&self) -> u64 {
        match self {
            Self::Inline(..) => 0,
            Self::Heap(bytes) => bytes.len() as u64 + 16,
        }
    }
}

impl PartialEq for NameBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for NameBytes {}

impl PartialOrd for NameBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for NameBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// A valid file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(NameBytes);

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes; `EINVAL` for an empty one, ".", "..", or a `/` or NUL in it.
    pub fn new(bytes: &[u8]) -> Result<Self, Errno> {
        check_name(bytes)?;
        Ok(Self(NameBytes::new(bytes)))
    }

    /// The bytes of the name.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Its hash in the file system with this seed.
    #[must_use]
    pub fn hash(&self, seed: &HashSeed) -> NameHash {
        name_hash(seed, self.as_bytes())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// The rules of `Name::new` for borrowed bytes.
///
/// # Errors
/// As `Name::new`.
pub fn check_name(bytes: &[u8]) -> Result<(), Errno> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The keyed hash of a name, lifted out of the reserved range below 8.
#[must_use]
pub fn name_hash(seed: &HashSeed, bytes: &[u8]) -> NameHash {
    let hash = keyed_hash(seed, bytes);
    NameHash(if hash < NameHash::FIRST.0 { hash + NameHash::FIRST.0 } else { hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_name() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(Errno::EINVAL));
        }
        assert_eq!(Name::new(&[b'a'; 256]), Err(Errno::ENAMETOOLONG));
        assert!(Name::new(&[0xFF; 255]).is_ok());
    }

    #[test]
    fn where_its_bytes_are_makes_no_difference() {
        let names: Vec<Vec<u8>> = [1, 2, SHORT_BYTES, SHORT_BYTES + 1, NAME_BYTES_MAX]
            .iter()
            .flat_map(|len| [vec![b'a'; *len], vec![b'b'; *len]])
            .collect();
        for a in &names {
            for b in &names {
                let (x, y) = (Name::new(a).expect("a name"), Name::new(b).expect("a name"));
                assert_eq!((x.as_bytes(), x.cmp(&y), x == y), (&a[..], a.cmp(b), a == b));
            }
        }
        assert_eq!(size_of::<Name>(), 24);
    }
}
