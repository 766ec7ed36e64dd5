//! Bytes that clients write once more after a crash: only what was there, and nothing over what is newer; and what a session is
//! told about what it wrote before.
//!
//! Absent: who may do so, and when; what comes of it shows.

use super::{Judge, Verdict};
use proto::Ino;
use proto::ids::{SessionId, Tid};
use proto::request::Request;
use proto::storeio::Payload;

/// One of them, at the rank.
#[derive(Clone, Debug)]
pub(super) struct Rewriting {
    ino: Ino,
    /// None: where it was appended.
    offset: Option<u64>,
    data: Payload,
    /// Handed to the data store: where, and how much of it.
    landed: Option<(u64, usize)>,
}

impl Judge {
    /// A session asks for bytes to be written once more. Whether it is that.
    pub fn asks_rewrite(&mut self, session: SessionId, tid: Tid, request: &Request) -> bool {
        let Request::Rewrite { node, append, offset, data, .. } = request else { return false };
        let offset = (!append).then_some(*offset);
        let rewriting = Rewriting { ino: node.ino, offset, data: data.clone(), landed: None };
        self.rewriting.entry((session, tid)).or_insert(rewriting);
        true
    }

    /// The rank hands bytes to the data store that nobody else has asked for.
    pub(super) fn rewrites(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Verdict {
        let found = self.rewriting.values_mut().find(|rewriting| {
            rewriting.ino == ino
                && rewriting.landed.is_none()
                && rewriting.offset.is_none_or(|at| at == offset)
                && rewriting.data.bytes().starts_with(data)
        });
        let Some(rewriting) = found else { return Ok(()) };
        let bytes = self.bytes.entry(ino).or_default();
        bytes.rewrite(offset, data, None).map_err(|mismatch| {
            format!(
                "byte {} of inode {} is written once more as {:#x}; it was {:x?}",
                mismatch.offset, ino.0, mismatch.found, mismatch.allowed
            )
        })?;
        rewriting.landed = Some((offset, data.len()));
        Ok(())
    }

    /// The rank has answered one. Whether it was one.
    pub(super) fn rewritten(&mut self, key: (SessionId, Tid), ok: bool) -> bool {
        let now = self.tick();
        let Some(rewriting) = self.rewriting.remove(&key) else { return false };
        if !ok {
            self.late.push("bytes that could not be");
        }
        if let (Some((offset, len)), true) = (rewriting.landed, ok) {
            self.late.push("bytes written once more");
            let data = &rewriting.data.bytes()[..len];
            // It was looked at when it landed, and nothing else of the file changed since.
            let _same = self.bytes.entry(rewriting.ino).or_default().rewrite(offset, data, Some(now));
        }
        true
    }

    /// A caller heard that a file is synced: what its session wrote before a crash, and was not told to be lost, is there.
    ///
    /// # Errors
    /// It is not.
    pub fn vouches(&mut self, session: SessionId, ino: Ino) -> Verdict {
        let now = self.tick();
        let Some(bytes) = self.bytes.get_mut(&ino) else { return Ok(()) };
        bytes.vouched(session, now).map_err(|mismatch| {
            format!(
                "session {} is told that inode {} is synced; byte {} is {:#x}, it wrote {:x?}",
                session.0, ino.0, mismatch.offset, mismatch.found, mismatch.allowed
            )
        })
    }

    /// A session was told that bytes of these files are lost.
    pub fn bytes_lost(&mut self, session: SessionId, inos: &[Ino]) {
        for ino in inos {
            if let Some(bytes) = self.bytes.get_mut(ino) {
                bytes.disowned(session);
            }
        }
    }
}
