//! The kernel's FUSE protocol, version 7.45, as plain values: opcodes, flags and message structs.
//! Absent: CUSE, DAX mappings and passthrough, which PandoFS never speaks, and any parsing.

mod flags;
mod wire;

pub use flags::*;
pub use wire::*;

pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 45;
/// The node id of the root of every mount.
pub const ROOT_ID: u64 = 1;

macro_rules! opcodes {
    ($($name:ident = $value:literal,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($name = $value,)* }

        impl Opcode {
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The opcode with this number, if this crate speaks it.
            pub const fn from_wire(number: u32) -> Option<Opcode> {
                match number {
                    $($value => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    GetAttr = 3,
    SetAttr = 4,
    ReadLink = 5,
    Symlink = 6,
    MkNod = 8,
    MkDir = 9,
    Unlink = 10,
    RmDir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Release = 18,
    FSync = 20,
    SetXattr = 21,
    GetXattr = 22,
    ListXattr = 23,
    RemoveXattr = 24,
    Flush = 25,
    Init = 26,
    OpenDir = 27,
    ReadDir = 28,
    ReleaseDir = 29,
    FSyncDir = 30,
    GetLk = 31,
    SetLk = 32,
    SetLkW = 33,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    BMap = 37,
    Destroy = 38,
    Ioctl = 39,
    Poll = 40,
    NotifyReply = 41,
    BatchForget = 42,
    Fallocate = 43,
    ReadDirPlus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    SyncFs = 50,
    TmpFile = 51,
    Statx = 52,
    CopyFileRange64 = 53,
}

impl Opcode {
    /// Bytes of the fixed struct that opens this request's body.
    pub const fn body_size(self, dialect: Dialect) -> usize {
        match self {
            Opcode::Lookup
            | Opcode::ReadLink
            | Opcode::Symlink
            | Opcode::Unlink
            | Opcode::RmDir
            | Opcode::StatFs
            | Opcode::RemoveXattr
            | Opcode::Destroy => 0,
            Opcode::Forget => size_of::<ForgetIn>(),
            Opcode::BatchForget => size_of::<BatchForgetIn>(),
            Opcode::GetAttr => size_of::<GetAttrIn>(),
            Opcode::SetAttr => size_of::<SetAttrIn>(),
            Opcode::MkNod => size_of::<MkNodIn>(),
            Opcode::MkDir => size_of::<MkDirIn>(),
            Opcode::Rename => size_of::<RenameIn>(),
            Opcode::Rename2 => size_of::<Rename2In>(),
            Opcode::Link => size_of::<LinkIn>(),
            Opcode::Open | Opcode::OpenDir => size_of::<OpenIn>(),
            Opcode::Read | Opcode::ReadDir | Opcode::ReadDirPlus => size_of::<ReadIn>(),
            Opcode::Write => size_of::<WriteIn>(),
            Opcode::NotifyReply => size_of::<NotifyRetrieveIn>(),
            Opcode::Release | Opcode::ReleaseDir => size_of::<ReleaseIn>(),
            Opcode::FSync | Opcode::FSyncDir => size_of::<FSyncIn>(),
            Opcode::SetXattr => match dialect.setxattr_ext {
                true => size_of::<SetXattrIn>(),
                false => size_of::<SetXattrShortIn>(),
            },
            Opcode::GetXattr | Opcode::ListXattr => size_of::<GetXattrIn>(),
            Opcode::Flush => size_of::<FlushIn>(),
            Opcode::Init => size_of::<InitIn>(),
            Opcode::GetLk | Opcode::SetLk | Opcode::SetLkW => size_of::<LkIn>(),
            Opcode::Access => size_of::<AccessIn>(),
            Opcode::Create | Opcode::TmpFile => size_of::<CreateIn>(),
            Opcode::Interrupt => size_of::<InterruptIn>(),
            Opcode::BMap => size_of::<BMapIn>(),
            Opcode::Ioctl => size_of::<IoctlIn>(),
            Opcode::Poll => size_of::<PollIn>(),
            Opcode::Fallocate => size_of::<FallocateIn>(),
            Opcode::Lseek => size_of::<LseekIn>(),
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => size_of::<CopyFileRangeIn>(),
            Opcode::SyncFs => size_of::<SyncFsIn>(),
            Opcode::Statx => size_of::<StatxIn>(),
        }
    }
}

/// What was negotiated that changes how later bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// SETXATTR carries the long header.
    pub setxattr_ext: bool,
}

/// Codes of messages sent to the kernel unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NotifyCode {
    Poll = 1,
    InvalInode = 2,
    InvalEntry = 3,
    Store = 4,
    Retrieve = 5,
    Delete = 6,
    Resend = 7,
    IncEpoch = 8,
    Prune = 9,
}

/// Commands inside an io_uring entry addressed to /dev/fuse.
pub const URING_CMD_REGISTER: u32 = 1;
pub const URING_CMD_COMMIT_AND_FETCH: u32 = 2;
/// io_uring replies need at least this much payload room, whatever was negotiated.
pub const PAYLOAD_MIN: usize = 8192;

/// Extension type of the supplementary group list; lower numbers count security contexts.
pub const EXT_GROUPS: u32 = 32;
/// Largest count of security contexts, hence the largest value that is not an extension type.
pub const EXT_SECURITY_MAX: u32 = 31;
