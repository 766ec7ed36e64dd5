//! Linux error numbers as a type. A pure crate may *name* one as the answer of an operation; the
//! conversion to a system call's result happens at the edges only.
//!
//! Absent: outcomes that are not answers (park, redirect); those have enums of their own.

use std::fmt;

/// A Linux errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal,)*) => {
        impl Errno {
            $(pub const $name: Self = Self($value);)*

            /// Its symbolic name, where it is one this project uses.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, EBADF = 9, EAGAIN = 11, ENOMEM = 12,
    EACCES = 13, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21,
    EINVAL = 22, ENFILE = 23, EMFILE = 24, EFBIG = 27, ENOSPC = 28, ESPIPE = 29, EROFS = 30,
    EMLINK = 31, EDOM = 33, ERANGE = 34, EDEADLK = 35, ENAMETOOLONG = 36, ENOLCK = 37, ENOSYS = 38,
    ENOTEMPTY = 39, ELOOP = 40, ENODATA = 61, EPROTO = 71, EBADMSG = 74, EOVERFLOW = 75,
    EOPNOTSUPP = 95, ETIMEDOUT = 110, EALREADY = 114, ESTALE = 116, EDQUOT = 122, ECANCELED = 125,
    ENOTCONN = 107, ESHUTDOWN = 108,
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Errno {}
