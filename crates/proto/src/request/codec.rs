//! The wire form of requests.
//!
//! Absent: what they mean (`request.rs`).

use super::{IO_BYTES_MAX, LockKind, LockSpec, NewNode, Request, XattrMode};
use crate::attr::SetAttr;
use crate::cluster::{MoveId, put_unit, take_unit};
use crate::codec::{DecodeError, Reader, Writer};
use crate::holder::{Moved, put_holders, take_holders};
use crate::ids::{Incarnation, Ino, NameHash, NodeRef, RankId, SessionId, Tid};
use crate::name::Name;
use crate::storeio::Payload;
use crate::transact::{Step, TxnId};
use stdx::Wall;

/// Sessions that are asked for at once.
const SESSIONS_MAX: usize = 65_536;

impl Request {
    /// Appends the wire form.
    #[expect(clippy::too_many_lines, reason = "a table: one row for each request, and none can be missing")]
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Lookup { parent, name } => named(w, 1, parent, name),
            Self::GetAttr { node } => noded(w, 2, node),
            Self::SetAttr { node, set } => {
                noded(w, 3, node);
                set.encode(w);
            }
            Self::ReadLink { node } => noded(w, 4, node),
            Self::MkNod { parent, name, new } => {
                named(w, 5, parent, name);
                new.encode(w);
            }
            Self::MkDir { parent, name, new } => {
                named(w, 6, parent, name);
                new.encode(w);
            }
            Self::Symlink { parent, name, target } => {
                named(w, 7, parent, name);
                w.bytes(target);
            }
            Self::Link { node, parent, name } => {
                named(w, 8, parent, name);
                node.encode(w);
            }
            Self::Unlink { parent, name } => named(w, 9, parent, name),
            Self::RmDir { parent, name } => named(w, 10, parent, name),
            Self::Rename { parent, name, new_parent, new_name, flags } => {
                named(w, 11, parent, name);
                new_parent.encode(w);
                w.name(new_name.as_bytes()).u32(*flags);
            }
            Self::Open { node, flags } => {
                noded(w, 12, node);
                w.u32(*flags);
            }
            Self::Create { parent, name, new, flags } => {
                named(w, 13, parent, name);
                new.encode(w);
                w.u32(*flags);
            }
            Self::TmpFile { parent, new, flags } => {
                noded(w, 14, parent);
                new.encode(w);
                w.u32(*flags);
            }
            Self::Release { node, count } => {
                noded(w, 15, node);
                w.u32(*count);
            }
            Self::ReadDir { dir, after, attrs, bytes_max } => {
                noded(w, 16, dir);
                w.u64(*after).bool(*attrs).u32(*bytes_max);
            }
            Self::Read { node, offset, len, into: _ } => {
                noded(w, 17, node);
                w.u64(*offset).u32(*len);
            }
            Self::Write { node, offset, append, kill_suidgid, data } => {
                noded(w, 18, node);
                w.u64(*offset).bool(*append).bool(*kill_suidgid).bytes(data.bytes());
            }
            Self::Fallocate { node, mode, offset, len } => {
                noded(w, 19, node);
                w.u32(*mode).u64(*offset).u64(*len);
            }
            Self::Seek { node, offset, hole } => {
                noded(w, 20, node);
                w.u64(*offset).bool(*hole);
            }
            Self::CopyRange { source, source_offset, target, target_offset, len } => {
                noded(w, 21, source);
                target.encode(w);
                w.u64(*source_offset).u64(*target_offset).u64(*len);
            }
            Self::Fsync { node, data_only } => {
                noded(w, 22, node);
                w.bool(*data_only);
            }
            Self::SyncFs => {
                w.u8(23);
            }
            Self::StatFs => {
                w.u8(24);
            }
            Self::GetXattr { node, name } => named(w, 25, node, name),
            Self::ListXattr { node } => noded(w, 26, node),
            Self::SetXattr { node, name, value, mode } => {
                named(w, 27, node, name);
                w.bytes(value).u8(*mode as u8);
            }
            Self::RemoveXattr { node, name } => named(w, 28, node, name),
            Self::TestLock { node, lock } => {
                noded(w, 29, node);
                lock.encode(w);
            }
            Self::SetLock { node, lock, wait } => {
                noded(w, 30, node);
                lock.encode(w);
                w.bool(*wait);
            }
            Self::ReleaseLocks { node, flock, owner } => {
                noded(w, 31, node);
                w.bool(*flock).u64(*owner);
            }
            Self::Access { node, mask } => {
                noded(w, 32, node);
                w.u32(*mask);
            }
            Self::Parent { node } => noded(w, 33, node),
            Self::Rewrite { node, wrote, life, append, offset, data } => {
                noded(w, 34, node);
                w.u64(wrote.0).u64(life.0).bool(*append).u64(*offset).bytes(data.bytes());
            }
            Self::Replicate { node } => noded(w, 35, node),
            Self::Facts { node } => noded(w, 50, node),
            Self::Totals { unit } => put_unit(w.u8(36), *unit),
            Self::Heat { unit } => put_unit(w.u8(52), *unit),
            Self::Hand { unit, to } => {
                put_unit(w.u8(37), *unit);
                w.u16(to.0);
            }
            Self::Unpin { dir } => {
                w.u8(51).u64(dir.0);
            }
            Self::SetTimes { dir, mtime, first, stamp } => {
                w.u8(38).u64(dir.0).i64(mtime.0).u64(first.0).u64(*stamp);
            }
            Self::Opened { node, session } => {
                noded(w, 39, node);
                w.u64(session.0);
            }
            Self::Sessions { sessions } => {
                w.u8(41).u32(sessions.len() as u32);
                for session in sessions {
                    w.u64(session.0);
                }
            }
            Self::Holders { id, moved, version, first, list } => {
                moved.encode(w.u8(42).u64(id.0));
                put_holders(list.iter(), w.u64(*version).bool(*first));
            }
            Self::Transact { id, step } => {
                w.u8(40).u64(id.0);
                step.encode(w);
            }
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` for an unknown ordinal, a cut body, an impossible name or too long a payload.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = r.u8()?;
        Ok(match tag {
            1 => Self::Lookup { parent: node(r)?, name: name(r)? },
            2 => Self::GetAttr { node: node(r)? },
            3 => Self::SetAttr { node: node(r)?, set: SetAttr::decode(r)? },
            4 => Self::ReadLink { node: node(r)? },
            5 => Self::MkNod { parent: node(r)?, name: name(r)?, new: NewNode::decode(r)? },
            6 => Self::MkDir { parent: node(r)?, name: name(r)?, new: NewNode::decode(r)? },
            7 => Self::Symlink { parent: node(r)?, name: name(r)?, target: r.bytes(4096)?.into() },
            8 => {
                let (parent, name) = (node(r)?, name(r)?);
                Self::Link { node: node(r)?, parent, name }
            }
            9 => Self::Unlink { parent: node(r)?, name: name(r)? },
            10 => Self::RmDir { parent: node(r)?, name: name(r)? },
            11 => Self::Rename {
                parent: node(r)?,
                name: name(r)?,
                new_parent: node(r)?,
                new_name: name(r)?,
                flags: r.u32()?,
            },
            12 => Self::Open { node: node(r)?, flags: r.u32()? },
            13 => {
                let (parent, name) = (node(r)?, name(r)?);
                Self::Create { parent, name, new: NewNode::decode(r)?, flags: r.u32()? }
            }
            14 => Self::TmpFile { parent: node(r)?, new: NewNode::decode(r)?, flags: r.u32()? },
            15 => Self::Release { node: node(r)?, count: r.u32()? },
            16 => Self::ReadDir { dir: node(r)?, after: r.u64()?, attrs: r.bool()?, bytes_max: r.u32()? },
            17..=24 => Self::decode_file_op(tag, r)?,
            _ => Self::decode_attribute_op(tag, r)?,
        })
    }

    fn decode_file_op(tag: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match tag {
            17 => Self::Read { node: node(r)?, offset: r.u64()?, len: r.u32()?, into: None },
            18 => Self::Write {
                node: node(r)?,
                offset: r.u64()?,
                append: r.bool()?,
                kill_suidgid: r.bool()?,
                data: Payload::Owned(r.bytes(IO_BYTES_MAX)?.to_vec()),
            },
            19 => Self::Fallocate { node: node(r)?, mode: r.u32()?, offset: r.u64()?, len: r.u64()? },
            20 => Self::Seek { node: node(r)?, offset: r.u64()?, hole: r.bool()? },
            21 => Self::CopyRange {
                source: node(r)?,
                target: node(r)?,
                source_offset: r.u64()?,
                target_offset: r.u64()?,
                len: r.u64()?,
            },
            22 => Self::Fsync { node: node(r)?, data_only: r.bool()? },
            23 => Self::SyncFs,
            24 => Self::StatFs,
            _ => return Err(unknown(tag)),
        })
    }

    fn decode_attribute_op(tag: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match tag {
            25 => Self::GetXattr { node: node(r)?, name: name(r)? },
            26 => Self::ListXattr { node: node(r)? },
            27 => Self::SetXattr {
                node: node(r)?,
                name: name(r)?,
                value: r.bytes(crate::inode::XATTR_VALUE_BYTES_MAX)?.into(),
                mode: match r.u8()? {
                    0 => XattrMode::Either,
                    1 => XattrMode::Create,
                    2 => XattrMode::Replace,
                    tag => return Err(DecodeError::UnknownTag { what: "xattr mode", tag: u64::from(tag) }),
                },
            },
            28 => Self::RemoveXattr { node: node(r)?, name: name(r)? },
            29 => Self::TestLock { node: node(r)?, lock: LockSpec::decode(r)? },
            30 => Self::SetLock { node: node(r)?, lock: LockSpec::decode(r)?, wait: r.bool()? },
            31 => Self::ReleaseLocks { node: node(r)?, flock: r.bool()?, owner: r.u64()? },
            32 => Self::Access { node: node(r)?, mask: r.u32()? },
            33 => Self::Parent { node: node(r)? },
            34 => Self::Rewrite {
                node: node(r)?,
                wrote: Tid(r.u64()?),
                life: Incarnation(r.u64()?),
                append: r.bool()?,
                offset: r.u64()?,
                data: Payload::Owned(r.bytes(IO_BYTES_MAX)?.to_vec()),
            },
            35 => Self::Replicate { node: node(r)? },
            50 => Self::Facts { node: node(r)? },
            36 => Self::Totals { unit: take_unit(r)? },
            37 => Self::Hand { unit: take_unit(r)?, to: RankId(r.u16()?) },
            52 => Self::Heat { unit: take_unit(r)? },
            51 => Self::Unpin { dir: Ino(r.u64()?) },
            38 => {
                let (dir, mtime, first) = (Ino(r.u64()?), Wall(r.i64()?), Ino(r.u64()?));
                Self::SetTimes { dir, mtime, first, stamp: r.u64()? }
            }
            39 => Self::Opened { node: node(r)?, session: SessionId(r.u64()?) },
            41 => {
                let count = r.u32()? as usize;
                if count > SESSIONS_MAX {
                    return Err(DecodeError::Invalid { what: "count of sessions" });
                }
                let sessions = (0..count).map(|_| Ok(SessionId(r.u64()?)));
                Self::Sessions { sessions: sessions.collect::<Result<_, DecodeError>>()? }
            }
            42 => Self::Holders {
                id: MoveId(r.u64()?),
                moved: Moved::decode(r)?,
                version: r.u64()?,
                first: r.bool()?,
                list: take_holders(r)?,
            },
            40 => Self::Transact { id: TxnId(r.u64()?), step: Step::decode(r)? },
            _ => return Err(unknown(tag)),
        })
    }
}

fn unknown(tag: u8) -> DecodeError {
    DecodeError::UnknownTag { what: "request", tag: u64::from(tag) }
}

fn noded(w: &mut Writer, tag: u8, node: &NodeRef) {
    w.u8(tag);
    node.encode(w);
}

fn named(w: &mut Writer, tag: u8, node: &NodeRef, name: &Name) {
    noded(w, tag, node);
    w.name(name.as_bytes());
}

fn node(r: &mut Reader<'_>) -> Result<NodeRef, DecodeError> {
    NodeRef::decode(r)
}

fn name(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    Name::new(r.name()?).map_err(|_| DecodeError::Invalid { what: "name" })
}

impl NodeRef {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.ino.0).u64(self.parent.0).u64(self.hash.0);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Ino(r.u64()?), parent: Ino(r.u64()?), hash: NameHash(r.u64()?) })
    }
}

impl NewNode {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.mode).u32(self.umask).u32(self.rdev);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { mode: r.u32()?, umask: r.u32()?, rdev: r.u32()? })
    }
}

impl LockSpec {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        w.bool(self.flock).u64(self.owner).u8(self.kind as u8).u64(self.start).u64(self.end).u32(self.pid);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` on truncation or an unknown kind.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            flock: r.bool()?,
            owner: r.u64()?,
            kind: match r.u8()? {
                0 => LockKind::Read,
                1 => LockKind::Write,
                2 => LockKind::Unlock,
                tag => return Err(DecodeError::UnknownTag { what: "lock kind", tag: u64::from(tag) }),
            },
            start: r.u64()?,
            end: r.u64()?,
            pid: r.u32()?,
        })
    }
}
