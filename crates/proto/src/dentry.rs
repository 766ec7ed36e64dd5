//! The value of a dentry in store and journal: primary (the inode is embedded) or remote.
//!
//! Absent: keys (`storeio.rs`), old versions under snapshots.

use crate::attr::FileKind;
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::Ino;
use crate::inode::{InodeCore, InodeExt, InodeRecord, encode_inode};

const PRIMARY: u8 = 1;
const REMOTE: u8 = 2;

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DentryValue {
    Primary(InodeRecord),
    /// The inode lives in `//links`.
    Remote {
        ino: Ino,
        kind: FileKind,
    },
}

impl DentryValue {
    /// The inode number.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        match self {
            Self::Primary(record) => record.core.ino,
            Self::Remote { ino, .. } => *ino,
        }
    }

    /// Appends the value.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Primary(record) => encode_primary(&record.core, record.ext.as_deref(), w),
            Self::Remote { ino, kind } => encode_remote(*ino, *kind, w),
        }
    }

    /// Reads a value that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` for an unknown tag, a cut record or an impossible file type.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            PRIMARY => Ok(Self::Primary(InodeRecord::decode(r.rest())?)),
            REMOTE => {
                let ino = Ino(r.u64()?);
                let kind = FileKind::of_byte(r.u8()?).ok_or(DecodeError::Invalid { what: "file type" })?;
                r.finish()?;
                Ok(Self::Remote { ino, kind })
            }
            tag => Err(DecodeError::UnknownTag { what: "dentry", tag: u64::from(tag) }),
        }
    }
}

/// Appends a primary dentry from its parts.
pub fn encode_primary(core: &InodeCore, ext: Option<&InodeExt>, w: &mut Writer) {
    w.u8(PRIMARY);
    encode_inode(core, ext, w);
}

/// Appends a remote dentry.
pub fn encode_remote(ino: Ino, kind: FileKind, w: &mut Writer) {
    w.u8(REMOTE).u64(ino.0).u8(kind as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_survive() {
        let remote = DentryValue::Remote { ino: Ino(5000), kind: FileKind::Fifo };
        let primary = DentryValue::Primary(InodeRecord {
            core: InodeCore { ino: Ino(4096), mode: 0o100_644, ..Default::default() },
            ext: None,
        });
        for value in [remote, primary] {
            let mut w = Writer::new();
            value.encode(&mut w);
            assert_eq!(DentryValue::decode(&w.0), Ok(value));
        }
    }
}
