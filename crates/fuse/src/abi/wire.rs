//! Message structs of the FUSE protocol and the one checked way to turn them into bytes and back.
//! Absent: messages with a flexible tail, which the parser and the directory sink lay out themselves.

use std::mem::MaybeUninit;

/// A type every byte pattern of which is a value, and which has no padding.
///
/// # Safety
/// Only for integers, arrays of such types, and `repr(C)` structs of such types whose size is the sum of
/// their fields' sizes.
pub unsafe trait Plain: Copy + 'static {
    /// Reads a value from the front of `bytes`, wherever they lie; None when they are too few.
    fn read(bytes: &[u8]) -> Option<Self> {
        let source = bytes.get(..size_of::<Self>())?;
        let mut value = MaybeUninit::<Self>::uninit();
        // SAFETY: `source` holds size_of::<Self>() readable bytes, `value` as many writable ones, and they
        // do not overlap; any byte pattern is a value of a Plain type, so it is initialised afterwards.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), value.as_mut_ptr().cast::<u8>(), source.len());
            Some(value.assume_init())
        }
    }

    /// The value's bytes as the kernel wants them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a Plain value has no padding, so all of its size_of_val bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }
}

macro_rules! plain {
    ($($integer:ty),*) => {
        // SAFETY: integers have no padding and no invalid pattern.
        $(unsafe impl Plain for $integer {})*
    };
}
plain!(u8, u16, u32, u64, i32, i64);
// SAFETY: arrays have no padding between elements that have none themselves.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = {
            const fn plain<T: Plain>() {}
            $(plain::<$type>();)*
            assert!(size_of::<$name>() == $size);
            assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);
        };
        // SAFETY: repr(C), every field is Plain, and the size is the sum of the fields' (checked above).
        unsafe impl Plain for $name {}
    )* };
}

wire! {
    InHeader [40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        // Length of the extensions at the end of the message, in units of 8 bytes.
        total_extlen: u16, padding: u16,
    }
    OutHeader [16] { len: u32, error: i32, unique: u64 }
    InitIn [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// Attributes of a node; times before 1970 are negative seconds reinterpreted as u64.
    Attr [88] {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    SxTime [16] { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// Attributes in the layout of statx(2).
    StatxAttr [256] {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatFs [80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// A byte range lock; `end` is inclusive, `kind` is F_RDLCK, F_WRLCK or F_UNLCK.
    FileLock [24] { start: u64, end: u64, kind: u32, pid: u32 }
    EntryOut [128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut [104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    OpenOut [16] { fh: u64, open_flags: u32, backing_id: i32 }
    CreateOut [144] { entry: EntryOut, open: OpenOut }
    StatxOut [288] { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: StatxAttr }
    WriteOut [8] { size: u32, padding: u32 }
    GetXattrOut [8] { size: u32, padding: u32 }
    DirentHeader [24] { ino: u64, off: u64, namelen: u32, kind: u32 }

    ForgetIn [8] { nlookup: u64 }
    ForgetOne [16] { nodeid: u64, nlookup: u64 }
    BatchForgetIn [8] { count: u32, dummy: u32 }
    GetAttrIn [16] { flags: u32, dummy: u32, fh: u64 }
    StatxIn [24] { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetAttrIn [88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    MkNodIn [16] { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkDirIn [8] { mode: u32, umask: u32 }
    RenameIn [8] { newdir: u64 }
    Rename2In [16] { newdir: u64, flags: u32, padding: u32 }
    LinkIn [8] { oldnodeid: u64 }
    OpenIn [8] { flags: u32, open_flags: u32 }
    CreateIn [16] { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn [24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn [24] { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn [40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn [40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    FSyncIn [16] { fh: u64, fsync_flags: u32, padding: u32 }
    SetXattrIn [16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    SetXattrShortIn [8] { size: u32, flags: u32 }
    GetXattrIn [8] { size: u32, padding: u32 }
    LkIn [48] { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn [8] { mask: u32, padding: u32 }
    InterruptIn [8] { unique: u64 }
    BMapIn [16] { block: u64, blocksize: u32, padding: u32 }
    IoctlIn [32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    PollIn [24] { fh: u64, kh: u64, flags: u32, events: u32 }
    FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn [24] { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn [56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    SyncFsIn [8] { padding: u64 }
    NotifyRetrieveIn [40] {
        dummy1: u64, offset: u64, size: u32, dummy2: u32, dummy3: u64, dummy4: u64,
    }

    NotifyInvalInodeOut [24] { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut [16] { parent: u64, namelen: u32, flags: u32 }
    /// That many node ids follow.
    NotifyPruneOut [16] { count: u32, padding: u32, spare: u64 }

    /// Opens an extension; a security context block uses the same two words for size and count.
    ExtHeader [8] { size: u32, kind: u32 }
    SecCtx [8] { size: u32, padding: u32 }

    /// The part of an io_uring entry's header that the transport and the kernel exchange.
    UringEntInOut [32] { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// Header area of one io_uring entry.
    UringHeader [288] { in_out: [u64; 16], op_in: [u64; 16], ent: UringEntInOut }
    /// What sits in the command area of an io_uring entry.
    UringCmd [24] { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}
