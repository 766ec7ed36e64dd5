//! File data as the rank's questions to the data store show it.
//!
//! Absent: sizes (the tree has them), the data store.

use super::{Judge, Landing, Verdict};
use crate::model::bytes::Source;
use crate::model::tree::Tree;
use proto::ids::{Position, SessionId, Tid};
use proto::reply::Reply;
use proto::request::Request;
use proto::request::fallocate::changes_bytes;
use proto::storeio::DataOp;
use proto::{FileId, FileKind, Ino, Name, every_request};

const END: u64 = u64::MAX;

/// The regular file a name leads to.
fn child(tree: &Tree, dir: Ino, name: &Name) -> Option<Ino> {
    let ino = tree.node(dir)?.entries.get(name.as_bytes()).copied()?;
    tree.node(ino).filter(|node| node.kind() == FileKind::Regular).map(|node| node.ino)
}

impl Judge {
    /// The rank hands an operation to the data store.
    ///
    /// # Errors
    /// Data of a live file would be destroyed, or before the transaction that says so is durable.
    pub fn data_op(&mut self, op: &DataOp) -> Verdict {
        let from = self.tick();
        match op {
            DataOp::Write { file, offset, data, .. } => self.write(*file, *offset, data.bytes(), from)?,
            DataOp::Zero { file, offset, len, .. } => {
                let pieces = vec![(*offset, offset.saturating_add(*len), Source::Zero)];
                let matches = |request: &Request| matches!(request, Request::Fallocate { node, mode, .. } if node.ino == file.ino && changes_bytes(*mode));
                self.land(Landing { ino: file.ino, start: *offset, pieces, from, copied: None }, matches);
            }
            DataOp::Copy { source, source_offset, target, target_offset, len, .. } => {
                let by = target_offset.wrapping_sub(*source_offset);
                let bytes = self.bytes.entry(source.ino).or_default();
                let pieces = bytes.pieces(*source_offset, source_offset + len, from, by);
                let (from_ino, to_ino) = (source.ino, target.ino);
                let matches = |request: &Request| matches!(request, Request::CopyRange { source, target, .. } if source.ino == from_ino && target.ino == to_ino);
                let copied = Some((source.ino, *source_offset, source_offset + len, by));
                self.land(Landing { ino: target.ino, start: *target_offset, pieces, from, copied }, matches);
            }
            DataOp::Truncate { file, cut } => {
                let durable = self.durable_tree().node(file.ino);
                if durable.is_some_and(|node| cut.seq > node.cuts && cut.size < node.size) {
                    return Err(format!(
                        "data of {} is cut to {} before that is durable",
                        file.ino.0, cut.size
                    ));
                }
            }
            DataOp::Remove { file } => self.remove(*file)?,
            _ => {}
        }
        Ok(())
    }

    fn remove(&self, file: FileId) -> Verdict {
        // An orphan's data goes first, its record after it.
        let lives = |tree: &Tree| tree.node(file.ino).is_some_and(|node| node.nlink > 0);
        if lives(self.tree()) || lives(self.durable_tree()) {
            return Err(format!(
                "data of {} is removed while its inode lives or its end is not durable",
                file.ino.0
            ));
        }
        match self.is_open(file.ino) {
            Some(session) => {
                Err(format!("data of {} is removed while session {} has it open", file.ino.0, session.0))
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8], from: u64) -> Verdict {
        let found = self.pending.iter_mut().find(|(_, pending)| match &pending.asked.request {
            Request::Write { node, data: asked, .. } => {
                node.ino == file.ino
                    && pending.landing.is_none()
                    && pending.executed.is_none()
                    && asked.bytes() == data
            }
            every_request!() => false,
        });
        let Some((key, pending)) = found else {
            return self.rewrites(file.ino, offset, data);
        };
        let key = *key;
        let (id, at) = pending.asked.pattern;
        let source = Source::Pattern { id, shift: at.wrapping_sub(offset) };
        let end = offset + data.len() as u64;
        pending.landing = Some(Landing {
            ino: file.ino,
            start: offset,
            pieces: vec![(offset, end, source.clone())],
            from,
            copied: None,
        });
        let by = (!self.was_told_lost(key, file.ino)).then_some(key.0);
        self.bytes.entry(file.ino).or_default().begin_by(offset, end, &source, (from, by));
        Ok(())
    }

    fn land(&mut self, landing: Landing, matches: impl Fn(&Request) -> bool) {
        let bytes = self.bytes.entry(landing.ino).or_default();
        for (start, end, source) in &landing.pieces {
            bytes.begin(*start, *end, source, landing.from);
        }
        let found = self.pending.values_mut().find(|pending| {
            matches(&pending.asked.request) && pending.landing.is_none() && pending.executed.is_none()
        });
        if let Some(pending) = found {
            pending.landing = Some(landing);
        }
    }

    /// A request was executed: its bytes are in place, or its cut is.
    pub(super) fn executed_bytes(
        &mut self,
        session: SessionId,
        tid: Tid,
        reply: &Reply,
        before: &Tree,
        now: u64,
    ) {
        let Some(pending) = self.pending.get(&(session, tid)) else { return };
        let (since, landing, request) =
            (pending.since, pending.landing.clone(), pending.asked.request.clone());
        if let Some(mut landing) = landing {
            self.copied_meanwhile(&mut landing);
            // A full disk may cut a write short: of the rest anything may be there.
            let done = match reply {
                Reply::Written { count, .. } => landing.start + count,
                _ => END,
            };
            let position = self.states.back().map_or(0, |state| state.end.0);
            let bytes = self.bytes.entry(landing.ino).or_default();
            for (start, end, source) in &landing.pieces {
                bytes.end(*start, (*end).min(done), source, landing.from, now);
            }
            bytes.committed(landing.from, position);
            bytes.fail(landing.from, now);
        }
        if let Request::Rename { parent, name, new_parent, new_name, flags: 0 | 1 } = &request {
            // A file that replaces another is synced first: a crash leaves one of the two contents.
            let (from, to) = (child(before, parent.ino, name), child(before, new_parent.ino, new_name));
            if let (Some(from), Some(_)) = (from, to.filter(|to| Some(*to) != from)) {
                let end = self.states.back().map_or(Position(0), |state| state.end);
                self.synced_at.push_back((end, from, since));
            }
        }
        let cut = match &request {
            Request::SetAttr { node, set } => set.size.map(|_| node.ino),
            Request::Open { node, .. } => Some(node.ino),
            Request::Create { parent, name, .. } => child(before, parent.ino, name),
            every_request!() => None,
        };
        let Some(ino) = cut else { return };
        let size = |tree: &Tree| tree.node(ino).map_or(0, |node| node.size);
        let (old, new) = (size(before), size(self.tree()));
        if new < old {
            let position = self.states.back().map_or(0, |state| state.end.0);
            self.bytes.entry(ino).or_default().cut(new, since, now, position);
        }
    }

    /// What was written to a copy's source while it ran may have been copied.
    pub(super) fn copied_meanwhile(&mut self, landing: &mut Landing) {
        let Some((source, start, end, by)) = landing.copied else { return };
        let now = self.bytes.entry(source).or_default().pieces(start, end, landing.from, by);
        let bytes = self.bytes.entry(landing.ino).or_default();
        for piece in now {
            if !landing.pieces.contains(&piece) {
                bytes.begin(piece.0, piece.1, &piece.2, landing.from);
                landing.pieces.push(piece);
            }
        }
    }

    /// A request that changes bytes has failed: what it wrote may or may not be there.
    pub(super) fn failed_bytes(&mut self, landing: &Landing) {
        let now = self.tick();
        self.bytes.entry(landing.ino).or_default().fail(landing.from, now);
    }

    /// An fsync was answered: what was over when it was asked for is on disk.
    pub(super) fn synced(&mut self, ino: Option<Ino>, since: u64) {
        let reads = |request: &Request| matches!(request, Request::Read { .. } | Request::Seek { .. });
        let reading = self.pending.values().filter(|pending| reads(&pending.asked.request));
        let oldest = reading.map(|pending| pending.since).min().unwrap_or(u64::MAX);
        match ino {
            Some(ino) => {
                if let Some(bytes) = self.bytes.get_mut(&ino) {
                    bytes.synced(since, oldest);
                }
            }
            None => self.bytes.values_mut().for_each(|bytes| bytes.synced(since, oldest)),
        }
    }

    /// The bytes of a read.
    pub(super) fn check_read(&mut self, ino: Ino, offset: u64, found: &[u8], since: u64) -> Verdict {
        let now = self.tick();
        let bytes = self.bytes.entry(ino).or_default();
        bytes.check(offset, found, since, now).map_err(|mismatch| {
            format!(
                "byte {} of inode {} reads {:#x}; allowed: {:x?}",
                mismatch.offset, ino.0, mismatch.found, mismatch.allowed
            )
        })
    }

    /// Whether a seek's answer fits what may be in the file.
    pub(super) fn check_seek(
        &mut self,
        ino: Ino,
        asked: (u64, bool),
        found: u64,
        size: u64,
        since: u64,
    ) -> Verdict {
        let bytes = self.bytes.entry(ino).or_default();
        let (offset, hole) = asked;
        let fits = if hole {
            found == size || (found < size && bytes.may_be_zero(found, found + 1, since))
        } else {
            found < size && bytes.may_be_zero(offset, found, since)
        };
        if fits && found >= offset {
            return Ok(());
        }
        Err(format!("seek from {offset} in inode {} of {size} bytes answers {found}", ino.0))
    }

    /// The reply of a write or copy that was cut short by a full disk is taken as it is.
    pub(super) const fn written(reply: &Reply) -> u64 {
        match reply {
            Reply::Written { count, .. } => *count,
            _ => 0,
        }
    }
}
