//! Turns the bytes of a request into a [`KernelRequest`] without copying names or data.
//! Absent: any panic or allocation, whatever the bytes are.

use std::fmt;

use super::*;
use crate::abi::{self, Dialect, InHeader, Opcode, fattr};

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The message ends inside a field.
    Truncated,
    /// A name is empty or not ended, or an extension contradicts its own length.
    Malformed,
    /// A request this crate does not speak; answer ENOSYS.
    UnknownOpcode(u32),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Truncated => f.write_str("request is truncated"),
            ParseError::Malformed => f.write_str("request is malformed"),
            ParseError::UnknownOpcode(opcode) => write!(f, "unknown opcode {opcode}"),
        }
    }
}

impl std::error::Error for ParseError {}

type Result<T> = std::result::Result<T, ParseError>;

/// The three parts of a request, whichever transport brought them.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) header: InHeader,
    pub(crate) opcode: Opcode,
    /// The opcode's fixed struct, perhaps with more bytes after it.
    pub(crate) body: &'a [u8],
    /// Names, data and extensions.
    pub(crate) payload: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Splits a message read from /dev/fuse.
    pub(crate) fn of_message(message: &'a [u8], dialect: Dialect) -> Result<Parts<'a>> {
        let header = InHeader::read(message).ok_or(ParseError::Truncated)?;
        let rest = message.get(size_of::<InHeader>()..).ok_or(ParseError::Truncated)?;
        let opcode = Opcode::from_wire(header.opcode).ok_or(ParseError::UnknownOpcode(header.opcode))?;
        // GETATTR and others lost fields in old protocols; 7.45 sends each struct whole.
        let (body, payload) =
            rest.split_at_checked(opcode.body_size(dialect)).ok_or(ParseError::Truncated)?;
        Ok(Parts { header, opcode, body, payload })
    }
}

impl<'a> KernelRequest<'a> {
    /// Parses a whole message as read from /dev/fuse.
    pub fn parse(message: &'a [u8], dialect: Dialect) -> Result<KernelRequest<'a>> {
        KernelRequest::of_parts(Parts::of_message(message, dialect)?, dialect)
    }

    pub(crate) fn of_parts(parts: Parts<'a>, dialect: Dialect) -> Result<KernelRequest<'a>> {
        let header = parts.header;
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let payload_bytes = parts.payload.len().checked_sub(extension_bytes).ok_or(ParseError::Truncated)?;
        let (payload, extensions) = parts.payload.split_at(payload_bytes);
        Ok(KernelRequest {
            unique: header.unique,
            nodeid: header.nodeid,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            extensions: parse_extensions(extensions)?,
            operation: parse_operation(parts.opcode, parts.body, Payload(payload), dialect)?,
        })
    }
}

/// Consumes names and data from the front.
struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(ParseError::Truncated)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        if name.is_empty() { Err(ParseError::Malformed) } else { Ok(name) }
    }

    fn data(&mut self, size: u32) -> Result<&'a [u8]> {
        let size = usize::try_from(size).map_err(|_| ParseError::Truncated)?;
        let (data, rest) = self.0.split_at_checked(size).ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(data)
    }
}

fn body<T: Plain>(bytes: &[u8]) -> Result<T> {
    T::read(bytes).ok_or(ParseError::Truncated)
}

fn flag(bits: u32, bit: u32) -> bool {
    bits & bit != 0
}

fn parse_operation<'a>(
    opcode: Opcode,
    bytes: &[u8],
    mut payload: Payload<'a>,
    dialect: Dialect,
) -> Result<Operation<'a>> {
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup { name: payload.name()? },
        Opcode::Forget => Operation::Forget { nlookup: body::<abi::ForgetIn>(bytes)?.nlookup },
        Opcode::BatchForget => {
            let count = body::<abi::BatchForgetIn>(bytes)?.count;
            let size = count.checked_mul(size_of::<abi::ForgetOne>() as u32).ok_or(ParseError::Malformed)?;
            Operation::BatchForget { items: Forgets { bytes: payload.data(size)? } }
        }
        Opcode::GetAttr => {
            let abi::GetAttrIn { flags, fh, .. } = body(bytes)?;
            Operation::GetAttr { fh: flag(flags, abi::GETATTR_FH).then_some(fh) }
        }
        Opcode::Statx => {
            let input: abi::StatxIn = body(bytes)?;
            let fh = flag(input.getattr_flags, abi::GETATTR_FH).then_some(input.fh);
            Operation::Statx { fh, flags: input.sx_flags, mask: input.sx_mask }
        }
        Opcode::SetAttr => Operation::SetAttr(set_attr(&body(bytes)?)),
        Opcode::ReadLink => Operation::ReadLink,
        Opcode::Symlink | Opcode::MkNod | Opcode::MkDir | Opcode::Create | Opcode::TmpFile => {
            parse_creation(opcode, bytes, payload)?
        }
        Opcode::Unlink => Operation::Unlink { name: payload.name()? },
        Opcode::RmDir => Operation::RmDir { name: payload.name()? },
        Opcode::Rename => {
            let new_parent = body::<abi::RenameIn>(bytes)?.newdir;
            Operation::Rename { name: payload.name()?, new_parent, new_name: payload.name()?, flags: 0 }
        }
        Opcode::Rename2 => {
            let input: abi::Rename2In = body(bytes)?;
            let (name, new_name) = (payload.name()?, payload.name()?);
            Operation::Rename { name, new_parent: input.newdir, new_name, flags: input.flags }
        }
        Opcode::Link => {
            Operation::Link { target: body::<abi::LinkIn>(bytes)?.oldnodeid, name: payload.name()? }
        }
        Opcode::StatFs => Operation::StatFs,
        Opcode::SyncFs => Operation::SyncFs,
        Opcode::Access => Operation::Access { mask: body::<abi::AccessIn>(bytes)?.mask },
        Opcode::SetXattr | Opcode::GetXattr | Opcode::ListXattr | Opcode::RemoveXattr => {
            parse_xattr(opcode, bytes, payload, dialect)?
        }
        Opcode::GetLk => Operation::GetLk(lock(bytes)?),
        Opcode::SetLk => Operation::SetLk { lock: lock(bytes)?, sleep: false },
        Opcode::SetLkW => Operation::SetLk { lock: lock(bytes)?, sleep: true },
        Opcode::Interrupt => Operation::Interrupt { unique: body::<abi::InterruptIn>(bytes)?.unique },
        Opcode::Destroy => Operation::Destroy,
        // INIT is spoken before any transport runs; a second one is not a request.
        Opcode::Init => return Err(ParseError::UnknownOpcode(Opcode::Init as u32)),
        Opcode::Open
        | Opcode::OpenDir
        | Opcode::Read
        | Opcode::ReadDir
        | Opcode::ReadDirPlus
        | Opcode::Write
        | Opcode::Release
        | Opcode::ReleaseDir
        | Opcode::FSync
        | Opcode::FSyncDir
        | Opcode::Flush
        | Opcode::Fallocate
        | Opcode::Lseek
        | Opcode::CopyFileRange
        | Opcode::CopyFileRange64
        | Opcode::BMap
        | Opcode::Ioctl
        | Opcode::Poll
        | Opcode::NotifyReply => parse_on_handle(opcode, bytes, payload)?,
    })
}

/// Requests on an open file or directory, and what PandoFS has none of.
#[expect(clippy::wildcard_enum_match_arm, reason = "what its caller sends here by mistake is refused")]
fn parse_on_handle<'a>(opcode: Opcode, bytes: &[u8], mut payload: Payload<'a>) -> Result<Operation<'a>> {
    Ok(match opcode {
        Opcode::Open => {
            let input: abi::OpenIn = body(bytes)?;
            let kill_suidgid = flag(input.open_flags, abi::OPEN_KILL_SUIDGID);
            Operation::Open { flags: input.flags, kill_suidgid }
        }
        Opcode::OpenDir => Operation::OpenDir { flags: body::<abi::OpenIn>(bytes)?.flags },
        Opcode::Read | Opcode::ReadDir | Opcode::ReadDirPlus | Opcode::Write => {
            parse_transfer(opcode, bytes, payload)?
        }
        Opcode::Release => Operation::Release(release(bytes)?),
        Opcode::ReleaseDir => Operation::ReleaseDir(release(bytes)?),
        Opcode::FSync => {
            let (fh, data_only) = synced(bytes)?;
            Operation::FSync { fh, data_only }
        }
        Opcode::FSyncDir => {
            let (fh, data_only) = synced(bytes)?;
            Operation::FSyncDir { fh, data_only }
        }
        Opcode::Flush => {
            let input: abi::FlushIn = body(bytes)?;
            Operation::Flush { fh: input.fh, lock_owner: input.lock_owner }
        }
        Opcode::Fallocate => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = body(bytes)?;
            Operation::Fallocate { fh, offset, length, mode }
        }
        Opcode::Lseek => {
            let abi::LseekIn { fh, offset, whence, .. } = body(bytes)?;
            Operation::Lseek { fh, offset, whence }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let input: abi::CopyFileRangeIn = body(bytes)?;
            Operation::CopyFileRange(CopyFileRange {
                fh_in: input.fh_in,
                offset_in: input.off_in,
                nodeid_out: input.nodeid_out,
                fh_out: input.fh_out,
                offset_out: input.off_out,
                length: input.len,
                flags: input.flags,
            })
        }
        Opcode::BMap => {
            let abi::BMapIn { block, blocksize, .. } = body(bytes)?;
            Operation::BMap { block, blocksize }
        }
        Opcode::Ioctl => {
            let abi::IoctlIn { fh, flags, cmd, arg, in_size, out_size } = body(bytes)?;
            Operation::Ioctl { fh, flags, cmd, arg, data: payload.data(in_size)?, out_size }
        }
        Opcode::Poll => {
            let abi::PollIn { fh, kh, flags, events } = body(bytes)?;
            Operation::Poll { fh, kh, flags, events }
        }
        Opcode::NotifyReply => {
            let input: abi::NotifyRetrieveIn = body(bytes)?;
            Operation::NotifyReply { offset: input.offset, data: payload.data(input.size)? }
        }
        other => return Err(ParseError::UnknownOpcode(other as u32)),
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what its caller sends here by mistake is refused")]
fn parse_transfer<'a>(opcode: Opcode, bytes: &[u8], mut payload: Payload<'a>) -> Result<Operation<'a>> {
    Ok(match opcode {
        Opcode::Read => {
            let input: abi::ReadIn = body(bytes)?;
            let lock_owner = flag(input.read_flags, abi::READ_LOCKOWNER).then_some(input.lock_owner);
            let abi::ReadIn { fh, offset, size, flags, .. } = input;
            Operation::Read(Read { fh, offset, size, flags, lock_owner })
        }
        Opcode::ReadDir => {
            let abi::ReadIn { fh, offset, size, .. } = body(bytes)?;
            Operation::ReadDir { fh, offset, size }
        }
        Opcode::ReadDirPlus => {
            let abi::ReadIn { fh, offset, size, .. } = body(bytes)?;
            Operation::ReadDirPlus { fh, offset, size }
        }
        Opcode::Write => {
            let abi::WriteIn { fh, offset, size, write_flags, lock_owner, flags, .. } = body(bytes)?;
            Operation::Write(Write {
                fh,
                offset,
                data: payload.data(size)?,
                flags,
                lock_owner: flag(write_flags, abi::WRITE_LOCKOWNER).then_some(lock_owner),
                cached: flag(write_flags, abi::WRITE_CACHE),
                kill_suidgid: flag(write_flags, abi::WRITE_KILL_SUIDGID),
            })
        }
        other => return Err(ParseError::UnknownOpcode(other as u32)),
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what its caller sends here by mistake is refused")]
fn parse_creation<'a>(opcode: Opcode, bytes: &[u8], mut payload: Payload<'a>) -> Result<Operation<'a>> {
    Ok(match opcode {
        Opcode::Symlink => Operation::Symlink { name: payload.name()?, target: payload.name()? },
        Opcode::MkNod => {
            let abi::MkNodIn { mode, rdev, umask, .. } = body(bytes)?;
            Operation::MkNod { name: payload.name()?, mode, rdev, umask }
        }
        Opcode::MkDir => {
            let abi::MkDirIn { mode, umask } = body(bytes)?;
            Operation::MkDir { name: payload.name()?, mode, umask }
        }
        Opcode::TmpFile => {
            // The kernel sends a name here too, without meaning.
            let abi::CreateIn { flags, mode, umask, .. } = body(bytes)?;
            Operation::TmpFile { flags, mode, umask }
        }
        Opcode::Create => {
            let abi::CreateIn { flags, mode, umask, open_flags } = body(bytes)?;
            let kill_suidgid = flag(open_flags, abi::OPEN_KILL_SUIDGID);
            Operation::Create { name: payload.name()?, flags, mode, umask, kill_suidgid }
        }
        other => return Err(ParseError::UnknownOpcode(other as u32)),
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what its caller sends here by mistake is refused")]
fn parse_xattr<'a>(
    opcode: Opcode,
    bytes: &[u8],
    mut payload: Payload<'a>,
    dialect: Dialect,
) -> Result<Operation<'a>> {
    Ok(match opcode {
        Opcode::SetXattr => {
            let (input, extra) = match dialect.setxattr_ext {
                true => {
                    let input: abi::SetXattrIn = body(bytes)?;
                    (abi::SetXattrShortIn { size: input.size, flags: input.flags }, input.setxattr_flags)
                }
                false => (body(bytes)?, 0),
            };
            let name = payload.name()?;
            let value = payload.data(input.size)?;
            let acl_kill_sgid = flag(extra, abi::SETXATTR_ACL_KILL_SGID);
            Operation::SetXattr { name, value, flags: input.flags, acl_kill_sgid }
        }
        Opcode::GetXattr => {
            Operation::GetXattr { name: payload.name()?, size: body::<abi::GetXattrIn>(bytes)?.size }
        }
        Opcode::ListXattr => Operation::ListXattr { size: body::<abi::GetXattrIn>(bytes)?.size },
        Opcode::RemoveXattr => Operation::RemoveXattr { name: payload.name()? },
        other => return Err(ParseError::UnknownOpcode(other as u32)),
    })
}

fn set_attr(input: &abi::SetAttrIn) -> SetAttr {
    let has = |bit: u32| flag(input.valid, bit);
    let time = |bit: u32, now: u32, secs: u64, nanos: u32| {
        has(bit).then(|| match has(now) {
            true => SetTime::Now,
            false => SetTime::At(Time { secs: secs.cast_signed(), nanos }),
        })
    };
    SetAttr {
        fh: has(fattr::FH).then_some(input.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(input.lock_owner),
        mode: has(fattr::MODE).then_some(input.mode),
        uid: has(fattr::UID).then_some(input.uid),
        gid: has(fattr::GID).then_some(input.gid),
        size: has(fattr::SIZE).then_some(input.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, input.atime, input.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, input.mtime, input.mtimensec),
        ctime: has(fattr::CTIME).then_some(Time { secs: input.ctime.cast_signed(), nanos: input.ctimensec }),
        kill_suidgid: has(fattr::KILL_SUIDGID),
        valid: input.valid,
    }
}

/// The handle and whether its attributes may wait.
fn synced(bytes: &[u8]) -> Result<(u64, bool)> {
    let input: abi::FSyncIn = body(bytes)?;
    Ok((input.fh, flag(input.fsync_flags, abi::FSYNC_FDATASYNC)))
}

fn release(bytes: &[u8]) -> Result<Release> {
    let input: abi::ReleaseIn = body(bytes)?;
    Ok(Release {
        fh: input.fh,
        flags: input.flags,
        lock_owner: input.lock_owner,
        flush: flag(input.release_flags, abi::RELEASE_FLUSH),
        flock_unlock: flag(input.release_flags, abi::RELEASE_FLOCK_UNLOCK),
    })
}

fn lock(bytes: &[u8]) -> Result<Lock> {
    let input: abi::LkIn = body(bytes)?;
    let flock = flag(input.lk_flags, abi::LK_FLOCK);
    Ok(Lock { fh: input.fh, owner: input.owner, range: input.lk, flock })
}

/// Walks the extensions; each says its own length, which includes its header.
fn parse_extensions(mut bytes: &[u8]) -> Result<Extensions<'_>> {
    let mut extensions = Extensions::default();
    while !bytes.is_empty() {
        let header: abi::ExtHeader = body(bytes)?;
        let size = usize::try_from(header.size).map_err(|_| ParseError::Malformed)?;
        let content = bytes.get(size_of::<abi::ExtHeader>()..size).ok_or(ParseError::Malformed)?;
        match header.kind {
            abi::EXT_GROUPS => {
                let count: u32 = body(content)?;
                let first = content.get(4..).and_then(u32::read);
                extensions.supplementary_group = if count == 0 { None } else { first };
            }
            1..=abi::EXT_SECURITY_MAX => extensions.security = Some(security_context(content)?),
            // Of a later kernel, or empty: skipped by its length.
            _ => {}
        }
        let next = size.checked_next_multiple_of(8).ok_or(ParseError::Malformed)?;
        bytes = bytes.get(next..).unwrap_or_default();
    }
    Ok(extensions)
}

fn security_context(content: &[u8]) -> Result<SecurityContext<'_>> {
    let size = body::<abi::SecCtx>(content)?.size;
    let mut rest = Payload(content.get(size_of::<abi::SecCtx>()..).unwrap_or_default());
    Ok(SecurityContext { name: rest.name()?, value: rest.data(size)? })
}
