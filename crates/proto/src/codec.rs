//! Little-endian bytes: a writer that appends, a reader that never panics and never allocates more
//! than the bytes it was given.
//!
//! Absent: reflection and derive; each type spells its own layout, because it is a contract.

use thiserror::Error;

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("bytes end after {have} of {need}")]
    Truncated { need: usize, have: usize },
    #[error("unknown {what} {tag}")]
    UnknownTag { what: &'static str, tag: u64 },
    #[error("{what} of {len} exceeds its limit")]
    TooLong { what: &'static str, len: u64 },
    #[error("{what} is not valid")]
    Invalid { what: &'static str },
    #[error("checksum mismatch")]
    Checksum,
    #[error("format {found} is newer than {supported}")]
    TooNew { found: u32, supported: u32 },
}

/// Appends little-endian values to a byte vector.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

macro_rules! put {
    ($($name:ident: $type:ty,)*) => {
        $(
            #[doc = concat!("Appends a little-endian `", stringify!($type), "`.")]
            #[inline]
            pub fn $name(&mut self, value: $type) -> &mut Self {
                self.0.extend_from_slice(&value.to_le_bytes());
                self
            }
        )*
    };
}

impl Writer {
    /// An empty writer.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    put! { u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, }

    /// Appends 0 or 1.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// Appends the bytes alone.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a `u32` length and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).raw(bytes)
    }

    /// Appends a `u32` length and the bytes that `body` appends.
    #[inline]
    pub fn sized(&mut self, body: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.u32(0).len();
        body(self);
        self.patch_u32(start - 4, (self.len() - start) as u32);
        self
    }

    /// Appends a one-byte length and at most 255 bytes: a name.
    ///
    /// # Panics
    /// If it is longer; a checked name is not.
    pub fn name(&mut self, name: &[u8]) -> &mut Self {
        assert!(name.len() <= 255, "a name has at most 255 bytes");
        self.u8(name.len() as u8).raw(name)
    }

    /// Appends 0, or 1 and the value.
    pub fn option<T>(&mut self, value: Option<&T>, put: impl FnOnce(&mut Self, &T)) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => {
                self.u8(1);
                put(self, value);
                self
            }
        }
    }

    /// Appends fields of a fixed layout.
    #[inline]
    pub fn fixed<const N: usize>(&mut self, fields: &Fixed<N>) -> &mut Self {
        debug_assert_eq!(fields.at, N);
        self.raw(&fields.bytes)
    }

    /// Overwrites four bytes written earlier, e.g. a length that is known only afterwards.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Fields that are together `N` bytes, put side by side before they are appended at once: the vector is asked for room once,
/// not field by field.
#[derive(Clone, Debug)]
pub struct Fixed<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

macro_rules! place {
    ($($name:ident: $type:ty,)*) => {
        $(
            #[doc = concat!("Puts a little-endian `", stringify!($type), "` behind the others.")]
            #[inline]
            pub fn $name(&mut self, value: $type) -> &mut Self {
                self.put(value.to_le_bytes())
            }
        )*
    };
}

impl<const N: usize> Fixed<N> {
    /// No fields yet.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    place! { u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, }

    /// Puts 0 or 1 behind the others.
    #[inline]
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    #[inline]
    fn put<const M: usize>(&mut self, bytes: [u8; M]) -> &mut Self {
        self.bytes[self.at..self.at + M].copy_from_slice(&bytes);
        self.at += M;
        self
    }
}

impl<const N: usize> Default for Fixed<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes little-endian values off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

macro_rules! take {
    ($($name:ident: $type:ty,)*) => {
        $(
            #[doc = concat!("Takes a little-endian `", stringify!($type), "`.")]
            ///
            /// # Errors
            /// `DecodeError::Truncated` when too few bytes are left.
            #[inline]
            pub fn $name(&mut self) -> Result<$type, DecodeError> {
                Ok(<$type>::from_le_bytes(*self.array()?))
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    take! { u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, }

    /// Takes the `N` bytes of a fixed layout.
    ///
    /// # Errors
    /// `DecodeError::Truncated` when fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(DecodeError::Truncated { need: N, have: self.bytes.len() });
        };
        self.bytes = rest;
        Ok(head)
    }

    /// Takes exactly `len` bytes.
    ///
    /// # Errors
    /// `DecodeError::Truncated` when fewer are left.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if len > self.bytes.len() {
            return Err(DecodeError::Truncated { need: len, have: self.bytes.len() });
        }
        let (head, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        Ok(head)
    }

    /// Takes a `u32` length and that many bytes, at most `max`.
    ///
    /// # Errors
    /// `TooLong` above `max`, `Truncated` when they are not there.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(DecodeError::TooLong { what: "bytes", len: len as u64 });
        }
        self.raw(len)
    }

    /// Takes a one-byte length and that many bytes.
    ///
    /// # Errors
    /// `Truncated` when they are not there.
    pub fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u8()? as usize;
        self.raw(len)
    }

    /// Takes a flag.
    ///
    /// # Errors
    /// `Invalid` for anything but 0 and 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid { what: "flag" }),
        }
    }

    /// Takes 0, or 1 and a value.
    ///
    /// # Errors
    /// Those of the flag and of `take`.
    pub fn option<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool()? { Ok(Some(take(self)?)) } else { Ok(None) }
    }

    /// What is left.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether everything was taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fails unless everything was taken.
    ///
    /// # Errors
    /// `Invalid` when bytes are left over.
    pub const fn finish(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::Invalid { what: "trailing bytes" }) }
    }
}
