//! What every metadata store shares: the checksum in front of a stored value, the guard's version,
//! and the rules of directory scans.
//!
//! Absent: where records lie.

use proto::header::FragHeader;
use proto::ids::{Ino, NameHash, RankId, SessionId, SnapId};
use proto::storeio::{Loaded, StoreError, StoreKey, StoredDentry, Table};
use stdx::checksum::crc32c_parts;

/// Bytes in front of a stored value.
pub(crate) const CRC_BYTES: usize = 4;

/// The longest stored value: an inode with the most links and xattrs has about 1.2 MB.
const STORED_BYTES_MAX: usize = 4 << 20;

/// A record as the store found it.
pub(crate) type Found<'a> = Result<(&'a [u8], &'a [u8]), StoreError>;

/// Appends the stored form of a value: its checksum over key and value, then the value.
pub(crate) fn seal(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&crc32c_parts(&[key, value]).to_le_bytes());
    out.extend_from_slice(value);
}

/// The value in a stored form, if its checksum matches. A length beyond any value comes from a damaged
/// page and is not followed.
pub(crate) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    if stored.len() > STORED_BYTES_MAX {
        return None;
    }
    let (crc, value) = stored.split_first_chunk::<CRC_BYTES>()?;
    (u32::from_le_bytes(*crc) == crc32c_parts(&[key, value])).then_some(value)
}

/// The error for a record of environment `place` that is not what was stored.
pub(crate) fn damaged(place: &str, table: Table, key: &[u8], what: &str) -> StoreError {
    StoreError::Damaged { at: format!("{place} {}", describe(table, key)), what: what.into() }
}

/// A key for people: its fields when it is one, else its bytes.
pub(crate) fn describe(table: Table, key: &[u8]) -> String {
    match StoreKey::decode(table, key) {
        Ok(StoreKey::Dentry { dir, hash, name, snap }) => {
            format!("dentry {:x}/{:016x} \"{}\" snap {:x}", dir.0, hash.0, name.escape_ascii(), snap.0)
        }
        Ok(StoreKey::Header { dir, frag }) => {
            format!("header {:x} frag {:x}/{}", dir.0, frag.prefix, frag.depth)
        }
        Ok(StoreKey::Backptr { ino }) => format!("backptr {:x}", ino.0),
        Ok(StoreKey::Session { rank: RankId(0), id }) => format!("session {:x}", id.0),
        Ok(StoreKey::Session { rank, id }) => format!("session {:x} of rank {}", id.0, rank.0),
        Ok(StoreKey::Counter { rank }) => format!("counter of rank {}", rank.0),
        Ok(StoreKey::Checkpoint { rank }) => format!("checkpoint of rank {}", rank.0),
        Err(_) => key.iter().fold(String::from("key 0x"), |text, byte| text + &format!("{byte:02x}")),
    }
}

/// The smallest key a dentry of this hash can have.
pub(crate) fn dentry_bound(dir: Ino, hash: NameHash) -> Vec<u8> {
    let mut bound = Vec::with_capacity(16);
    bound.extend_from_slice(&dir.0.to_be_bytes());
    bound.extend_from_slice(&hash.0.to_be_bytes());
    bound
}

/// The version a stored header names.
pub(crate) fn header_version(value: &[u8]) -> Option<u64> {
    FragHeader::decode(value).ok().map(|header| header.version.0)
}

/// Which dentries of a directory a page holds.
#[derive(Clone, Copy)]
pub(crate) enum Page {
    /// All of one hash.
    Hash(NameHash),
    /// About this many, equal cookies together.
    Scan(u32),
}

/// Builds a page from the records of `dir` in key order, starting at the first wanted hash. Records
/// that are not HEAD dentries are passed over; the first damaged one fails the page.
pub(crate) fn dentry_page<'a>(
    dir: Ino,
    page: Page,
    records: impl Iterator<Item = Found<'a>>,
) -> Result<Loaded, StoreError> {
    let mut entries: Vec<StoredDentry> = Vec::new();
    let mut next = None;
    for record in records {
        let (key, value) = record?;
        // Headers of directories behind this one must not be passed over: there may be a million, all without names.
        if !key.starts_with(&dir.0.to_be_bytes()) {
            break;
        }
        let Ok(StoreKey::Dentry { dir: of, hash, name, snap }) = StoreKey::decode(Table::Dentry, key) else {
            continue;
        };
        if of != dir {
            break;
        }
        if snap != SnapId::HEAD {
            continue;
        }
        let full = match page {
            Page::Hash(wanted) => hash != wanted,
            Page::Scan(max) => {
                entries.len() >= max.max(1) as usize
                    && entries.last().is_some_and(|last| last.hash.cookie() != hash.cookie())
            }
        };
        if full {
            next = matches!(page, Page::Scan(_)).then_some(hash);
            break;
        }
        entries.push(StoredDentry { hash, name: name.into(), value: value.into() });
    }
    Ok(Loaded::Dentries { entries, next })
}

/// The session records of a rank among system records in key order, starting at its first session.
pub(crate) fn sessions<'a>(
    of: RankId,
    records: impl Iterator<Item = Found<'a>>,
) -> Result<Loaded, StoreError> {
    let mut found = Vec::new();
    for record in records {
        let (key, value) = record?;
        let Ok(StoreKey::Session { rank, id }) = StoreKey::decode(Table::System, key) else { break };
        if rank != of {
            break;
        }
        found.push((id, value.into()));
    }
    Ok(Loaded::Sessions(found))
}

/// The key of a rank's lowest possible session.
pub(crate) fn first_session(rank: RankId) -> Vec<u8> {
    let mut key = Vec::new();
    StoreKey::Session { rank, id: SessionId(0) }.encode(&mut key);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::ids::Frag;

    #[test]
    fn a_directory_without_names_ends_at_the_next_directory() {
        let key = |dir| {
            let mut key = Vec::new();
            StoreKey::Header { dir: Ino(dir), frag: Frag::WHOLE }.encode(&mut key);
            key
        };
        let keys: Vec<Vec<u8>> = (1..1_000).map(key).collect();
        for page in [Page::Scan(8), Page::Hash(NameHash(9))] {
            let mut read = 0;
            let records = keys.iter().skip(1).map(|key| {
                read += 1;
                Ok((&key[..], &b""[..]))
            });
            let loaded = dentry_page(Ino(1), page, records).expect("a page");
            assert_eq!(loaded, Loaded::Dentries { entries: Vec::new(), next: None });
            assert_eq!(read, 1, "headers of other directories are not passed over");
        }
    }
}
