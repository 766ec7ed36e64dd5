//! A file name: 1 to 255 bytes of anything but `/` and NUL, never "." or "..".
//!
//! Absent: encoding. Names are bytes, not text.

use crate::errno::Errno;
use crate::ids::NameHash;
use std::fmt;
use stdx::hash::{HashSeed, keyed_hash};

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A valid file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes; `EINVAL` for an empty one, ".", "..", or a `/` or NUL in it.
    pub fn new(bytes: &[u8]) -> Result<Self, Errno> {
        check_name(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its hash in the file system with this seed.
    #[must_use]
    pub fn hash(&self, seed: &HashSeed) -> NameHash {
        name_hash(seed, &self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
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
    NameHash(if hash < NameHash::FIRST { hash + NameHash::FIRST } else { hash })
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
}
