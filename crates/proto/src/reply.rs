//! Answers of a rank to file-system requests.
//!
//! Absent: routing outcomes; they are messages of their own (`message.rs`).

mod groups;

use crate::attr::{Attr, FileKind};
use crate::codec::{DecodeError, Reader, Writer};
use crate::errno::Errno;
use crate::ids::{Ino, NameHash, NodeRef};
use crate::request::{IO_BYTES_MAX, LockSpec};
use crate::storeio::{Payload, Space};
use crate::transact::{Seen, put_seen, take_seen};

/// The most bytes of an inode's record, and of a header, in an answer.
const RECORD_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES_MAX: usize = 1 << 16;

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub hash: NameHash,
    pub name: Box<[u8]>,
    pub ino: Ino,
    pub kind: FileKind,
    /// Present when attributes were asked for and the inode was at hand.
    pub attr: Option<Attr>,
}

/// `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    pub space: Space,
    /// Inode numbers that are used up: given out or skipped by a restart. A removed file does not lower it.
    pub files: u64,
}

/// A successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    /// Lookup, getattr, setattr, make, link, open of a file.
    Attr(Attr),
    /// Create, and a file without a name: the attributes and whether the file was made by this request.
    Created {
        attr: Attr,
        new: bool,
    },
    Target(Box<[u8]>),
    /// A page; `end`: nothing follows.
    Entries {
        entries: Vec<DirEntry>,
        end: bool,
    },
    Data(Payload),
    /// Write and copy: bytes done and the attributes after it.
    Written {
        count: u64,
        attr: Attr,
    },
    Offset(u64),
    StatFs(StatFs),
    Xattr(Box<[u8]>),
    /// NUL-terminated names one after another.
    XattrNames(Box<[u8]>),
    /// TestLock: the lock in the way, if any.
    Lock(Option<LockSpec>),
    Node(NodeRef),
    /// Of a directory: where its name is, the name, and the record (a dentry's value).
    Record {
        place: NodeRef,
        name: Box<[u8]>,
        value: Box<[u8]>,
    },
    /// A directory's header.
    Totals(Box<[u8]>),
    /// Of each part of a transaction.
    Seen(Vec<Seen>),
    /// Of a listing: nothing more before that cookie's names; it goes on behind it, perhaps at another rank.
    Further(u64),
}

/// What a request comes to.
pub type Outcome = Result<Reply, Errno>;

/// Appends an outcome's wire form.
pub fn encode_outcome(outcome: &Outcome, w: &mut Writer) {
    match outcome {
        Err(errno) => {
            w.u8(0).u32(errno.0 as u32);
        }
        Ok(reply) => encode_reply(reply, w),
    }
}

fn encode_reply(reply: &Reply, w: &mut Writer) {
    match reply {
        Reply::Ok => {
            w.u8(1);
        }
        Reply::Attr(attr) => attr.encode(w.u8(2)),
        Reply::Created { attr, new } => {
            attr.encode(w.u8(3));
            w.bool(*new);
        }
        Reply::Target(target) => {
            w.u8(4).bytes(target);
        }
        Reply::Entries { entries, end } => {
            w.u8(5).bool(*end).u32(entries.len() as u32);
            for entry in entries {
                w.u64(entry.hash.0).name(&entry.name).u64(entry.ino.0).u8(entry.kind as u8);
                w.option(entry.attr.as_ref(), |w, attr| attr.encode(w));
            }
        }
        Reply::Data(data) => {
            w.u8(6).bytes(data.bytes());
        }
        Reply::Written { count, attr } => {
            w.u8(7).u64(*count);
            attr.encode(w);
        }
        Reply::Offset(offset) => {
            w.u8(8).u64(*offset);
        }
        Reply::StatFs(s) => {
            w.u8(9).u64(s.space.total).u64(s.space.free).u64(s.space.available).u64(s.files);
        }
        Reply::Xattr(value) => {
            w.u8(10).bytes(value);
        }
        Reply::XattrNames(names) => {
            w.u8(11).bytes(names);
        }
        Reply::Lock(lock) => {
            w.u8(12).option(lock.as_ref(), |w, lock| lock.encode(w));
        }
        Reply::Node(node) => node.encode(w.u8(13)),
        Reply::Record { place, name, value } => {
            place.encode(w.u8(14));
            w.name(name).bytes(value);
        }
        Reply::Totals(header) => {
            w.u8(15).bytes(header);
        }
        Reply::Seen(seen) => put_seen(seen, w.u8(16)),
        Reply::Further(after) => {
            w.u8(17).u64(*after);
        }
    }
}

/// Reads an outcome.
///
/// # Errors
/// `DecodeError` for an unknown ordinal or a cut body.
pub fn decode_outcome(r: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    Ok(Ok(match r.u8()? {
        0 => return Ok(Err(Errno(r.u32()? as i32))),
        1 => Reply::Ok,
        2 => Reply::Attr(Attr::decode(r)?),
        3 => Reply::Created { attr: Attr::decode(r)?, new: r.bool()? },
        4 => Reply::Target(r.bytes(4096)?.into()),
        5 => {
            let end = r.bool()?;
            let count = r.u32()?;
            let entries = (0..count).map(|_| decode_entry(r)).collect::<Result<_, _>>()?;
            Reply::Entries { entries, end }
        }
        6 => Reply::Data(Payload::Owned(r.bytes(IO_BYTES_MAX)?.to_vec())),
        7 => Reply::Written { count: r.u64()?, attr: Attr::decode(r)? },
        8 => Reply::Offset(r.u64()?),
        9 => {
            let space = Space { total: r.u64()?, free: r.u64()?, available: r.u64()? };
            Reply::StatFs(StatFs { space, files: r.u64()? })
        }
        10 => Reply::Xattr(r.bytes(crate::inode::XATTR_VALUE_BYTES_MAX)?.into()),
        11 => Reply::XattrNames(r.bytes(crate::inode::XATTR_TOTAL_BYTES_MAX)?.into()),
        12 => Reply::Lock(r.option(LockSpec::decode)?),
        13 => Reply::Node(NodeRef::decode(r)?),
        14 => {
            let (place, name) = (NodeRef::decode(r)?, r.name()?.into());
            Reply::Record { place, name, value: r.bytes(RECORD_BYTES_MAX)?.into() }
        }
        15 => Reply::Totals(r.bytes(HEADER_BYTES_MAX)?.into()),
        16 => Reply::Seen(take_seen(r)?),
        17 => Reply::Further(r.u64()?),
        tag => return Err(DecodeError::UnknownTag { what: "reply", tag: u64::from(tag) }),
    }))
}

fn decode_entry(r: &mut Reader<'_>) -> Result<DirEntry, DecodeError> {
    Ok(DirEntry {
        hash: NameHash(r.u64()?),
        name: r.name()?.into(),
        ino: Ino(r.u64()?),
        kind: FileKind::of_byte(r.u8()?).ok_or(DecodeError::Invalid { what: "file type" })?,
        attr: r.option(Attr::decode)?,
    })
}
