//! File content on its way: owned, lent, or put where the asker wants it.
//!
//! Absent: whose content it is.

use std::fmt;
use std::sync::Arc;

/// File content on its way.
#[derive(Clone, Debug)]
pub enum Payload {
    Owned(Vec<u8>),
    /// Bytes that stay where they are, such as in a buffer of the kernel's transport; whoever lent them
    /// gets them back when the last clone is dropped, and the caller its answer: no clone may outlive the
    /// request. On the wire they are bytes like others.
    Lent(Lent),
}

/// See `Payload::Lent`.
#[derive(Clone)]
pub struct Lent(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Lent {
    /// Lends what `owner` refers to, the same bytes at each call.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(owner)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", (*self.0).as_ref().len())
    }
}

/// A buffer of the asker's, such as one of the kernel's transport, that the answer to a read may be put
/// straight into. It never travels: on the wire a read has none.
#[derive(Clone)]
pub struct Buffer(Arc<dyn FillOnce>);

/// What `Buffer` refers to. As bytes it is what was filled, nothing before.
pub trait FillOnce: AsRef<[u8]> + Send + Sync {
    /// Lets `fill` write the first `len` bytes, of undefined content, and say whether it did. False, without
    /// `fill` being called, where the buffer is shorter or `fill` of an earlier call ran.
    fn fill(&self, len: usize, fill: &mut dyn FnMut(&mut [u8]) -> bool) -> bool;
}

impl Buffer {
    pub fn new(owner: Arc<dyn FillOnce>) -> Self {
        Self(owner)
    }

    /// Has `fill` write `len` bytes and lends them; `None`, without `fill` having run, where the buffer cannot
    /// take them.
    ///
    /// # Errors
    /// That of `fill`.
    pub fn fill<E>(
        &self,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Payload>, E> {
        let mut result = Ok(());
        let filled = self.0.fill(len, &mut |bytes| {
            result = fill(bytes);
            result.is_ok()
        });
        result.map(|()| filled.then(|| Payload::Lent(Lent(self.0.clone()))))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buffer")
    }
}

/// Where an answer goes is no part of the question.
impl PartialEq for Buffer {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Buffer {}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl Payload {
    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Lent(lent) => (*lent.0).as_ref(),
        }
    }

    /// Bytes of content.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equal content, wherever it is.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Payload {}
