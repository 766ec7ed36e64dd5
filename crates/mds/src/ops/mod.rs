//! One file per operation: `plan(view, op, ...) -> Found<Plan>`. What is missing parks it, and it plans again from
//! its beginning: until it can neither park nor fail it changes nothing but the view's transaction buffer, which is emptied then.
//! What it does besides is its last act: a lock request changes the lock table, a data operation takes payload or buffer along.
//!
//! Absent: sessions, durability, answers (`rank.rs`, `session.rs`, `hold.rs`).

pub(crate) mod create;
pub(crate) mod data;
pub(crate) mod destroy;
pub(crate) mod finish;
pub(crate) mod getattr;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod mkdir;
pub(crate) mod open;
pub(crate) mod pin;
pub(crate) mod policies;
pub(crate) mod ranks;
pub(crate) mod readdir;
pub(crate) mod rename;
pub(crate) mod rewrite;
pub(crate) mod rmdir;
pub(crate) mod setattr;
pub(crate) mod shown;
pub(crate) mod symlink;
pub(crate) mod sync;
pub(crate) mod tmpfile;
pub(crate) mod unlink;
pub(crate) mod write;
pub(crate) mod xattr;

use crate::op::{Op, Plan, Stop};
use crate::transactions::part;
use crate::txn::Delta;
use crate::view::{Found, View};
use proto::request::{LockKind, Request};
use proto::{Errno, NodeRef, RankId};
use proto::{
    locking_requests, looking_requests, naming_requests, rank_requests, syncing_requests, writing_requests,
};
use stdx::Wall;

/// Plans any request.
pub(crate) fn plan(view: &mut View, op: &mut Op, request: &mut Request) -> Found<Plan> {
    match request {
        Request::Lookup { parent, name } => lookup::plan(view, op, *parent, name),
        Request::GetAttr { node } => getattr::plan(view, op, *node),
        Request::SetAttr { node, set } => setattr::plan(view, op, *node, set),
        Request::ReadLink { node } => symlink::read(view, op, *node),
        Request::MkNod { parent, name, new } => create::mknod(view, op, *parent, name, new),
        Request::MkDir { parent, name, new } => mkdir::plan(view, op, *parent, name, new),
        Request::Symlink { parent, name, target } => symlink::plan(view, op, *parent, name, target),
        Request::Link { node, parent, name } => link::plan(view, op, *node, *parent, name),
        Request::Unlink { parent, name } => unlink::plan(view, op, *parent, name),
        Request::RmDir { parent, name } => rmdir::plan(view, op, *parent, name),
        Request::Rename { parent, name, new_parent, new_name, flags } => {
            rename::plan(view, op, (*parent, name), (*new_parent, new_name), *flags)
        }
        Request::Open { node, flags } => open::plan(view, op, *node, *flags),
        Request::Create { parent, name, new, flags } => create::plan(view, op, *parent, name, new, *flags),
        Request::TmpFile { parent, new, flags } => tmpfile::plan(view, op, *parent, new, *flags),
        Request::Release { .. } => Plan::reply(proto::reply::Reply::Ok),
        Request::ReadDir { dir, after, attrs, bytes_max } => {
            readdir::plan(view, op, *dir, *after, *attrs, *bytes_max)
        }
        other @ (writing_requests!()
        | rank_requests!()
        | locking_requests!()
        | syncing_requests!()
        | Request::Read { .. }
        | Request::Rewrite { .. }
        | Request::Seek { .. }
        | Request::StatFs
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::TestLock { .. }
        | Request::Access { .. }
        | Request::Parent { .. }) => plan_data(view, op, other),
    }
}

fn plan_data(view: &mut View, op: &mut Op, request: &mut Request) -> Found<Plan> {
    match request {
        Request::Read { node, offset, len, into } => data::read(view, op, *node, (*offset, *len), into),
        Request::Write { node, offset, append, data, .. } => {
            let how = write::How { offset: *offset, append: *append };
            write::plan(view, op, *node, how, data)
        }
        Request::Rewrite { node, offset, data, .. } => rewrite::plan(view, op, *node, *offset, data),
        Request::Fallocate { node, mode, offset, len } => {
            data::fallocate(view, op, *node, *mode, *offset, *len)
        }
        Request::Seek { node, offset, hole } => data::seek(view, op, *node, *offset, *hole),
        Request::CopyRange { source, source_offset, target, target_offset, len } => {
            data::copy(view, op, (*source, *source_offset), (*target, *target_offset), *len)
        }
        Request::Fsync { node, .. } => sync::fsync(view, op, *node),
        Request::SyncFs => Ok(sync::syncfs()),
        Request::StatFs => Ok(sync::statfs()),
        Request::GetXattr { node, name } => xattr::get(view, op, *node, name.as_bytes()),
        Request::ListXattr { node } => xattr::list(view, op, *node),
        Request::SetXattr { node, name, value, mode } => {
            xattr::set(view, op, *node, name.as_bytes(), value, *mode)
        }
        Request::RemoveXattr { node, name } => xattr::remove(view, op, *node, name.as_bytes()),
        Request::TestLock { node, lock } => lock::test(view, op, *node, lock),
        Request::SetLock { node, lock, wait } => match lock::set(view, op, *node, lock, *wait) {
            // As with ReleaseLocks.
            Err(stop @ Stop::NotMine(_)) if lock.kind == LockKind::Unlock && lock.start <= lock.end => {
                let limits = view.config.limits.locks();
                if !stdx::mutant!("mds_unlocks_where_it_is") {
                    let _full = view.locks.unlock(node.ino, op.session, lock, limits);
                }
                Err(stop)
            }
            planned => planned,
        },
        Request::ReleaseLocks { node, flock, owner } => {
            match has_holders_of(view, op, *node) {
                Ok(()) => Ok(lock::release(view, op.session, node.ino, *flock, *owner)),
                Err(stop) => {
                    // Claimed by its client, which did not know yet that it had gone, or of an inode that is gone altogether.
                    if matches!(stop, Stop::NotMine(_)) {
                        lock::release(view, op.session, node.ino, *flock, *owner);
                    }
                    Err(stop)
                }
            }
        }
        Request::Access { node, mask } => getattr::access(view, op, *node, *mask),
        Request::Parent { node } => getattr::parent(view, op, *node),
        Request::Replicate { node } => ranks::replicate(view, op, *node),
        Request::Facts { node } => ranks::facts(view, op, *node),
        Request::Totals { unit } => ranks::totals(view, op, *unit),
        Request::Heat { unit } => ranks::heat(view, op, *unit),
        Request::Hand { unit, to } => ranks::hand(view, op, *unit, *to),
        Request::Unpin { dir } => ranks::unpin(view, op, *dir),
        Request::SetTimes { dir, mtime, first, stamp } => {
            ranks::set_times(view, op, *dir, *mtime, (*first, *stamp))
        }
        Request::Opened { node, session } => ranks::opened(view, op, *node, *session),
        // Answered before anything is planned.
        Request::Sessions { .. } | Request::Holders { .. } => Err(Errno::EINVAL.into()),
        Request::Transact { id, step } => part::plan(view, op, *id, step),
        // Planned above.
        naming_requests!()
        | looking_requests!()
        | Request::SetAttr { .. }
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. } => Err(proto::Errno::ENOSYS.into()),
    }
}

/// Whether opens and locks of that inode are counted here: with its home, which may have gone to another rank. What is not there any
/// more nobody has.
pub(crate) fn has_holders_of(view: &mut View, op: &mut Op, node: NodeRef) -> Found<()> {
    if view.territory.is_only() || stdx::mutant!("mds_releases_anywhere") {
        return Ok(());
    }
    match view.resolve(node, op) {
        Ok(_) | Err(Stop::Fail(_)) => Ok(()),
        Err(stop) => Err(stop),
    }
}

/// Something found here, or whose it may be.
pub(crate) type Here<T> = Result<T, Option<RankId>>;

/// Sets apart that it is another rank's.
pub(crate) fn here<T>(found: Found<T>) -> Found<Here<T>> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(Stop::NotMine(rank)) => Ok(Err(rank)),
        Err(stop @ (Stop::Park(_) | Stop::Fail(_))) => Err(stop),
    }
}

/// What needs two things of one rank.
pub(crate) fn both<A, B>(first: Here<A>, second: Here<B>) -> Found<(A, B)> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(rank), Err(_)) => Err(Stop::NotMine(rank)),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => Err(Errno::EXDEV.into()),
    }
}

/// The headers one transaction changes, each once.
pub(crate) struct Headers {
    list: [(u32, Delta); HEADERS],
    len: usize,
    /// More than that: only of what another rank says can there be so many.
    more: Vec<(u32, Delta)>,
}

/// What a rank changes by itself, at most.
const HEADERS: usize = 6;

impl Headers {
    pub(crate) const fn new() -> Self {
        Self { list: [(0, Delta { entries: 0, subdirs: 0, mtime: None }); HEADERS], len: 0, more: Vec::new() }
    }

    /// Adds to the change of a directory's header.
    pub(crate) fn add(&mut self, dir: u32, entries: i64, subdirs: i64, mtime: Option<Wall>) {
        let known = self.list[..self.len].iter_mut().chain(&mut self.more).find(|(known, _)| *known == dir);
        let delta = match known {
            Some((_, delta)) => delta,
            None if self.len < HEADERS => {
                self.list[self.len] = (dir, Delta::default());
                self.len += 1;
                &mut self.list[self.len - 1].1
            }
            None => {
                self.more.push((dir, Delta::default()));
                let at = self.more.len() - 1;
                &mut self.more[at].1
            }
        };
        delta.entries = delta.entries.saturating_add(entries);
        delta.subdirs = delta.subdirs.saturating_add(subdirs);
        delta.mtime = delta.mtime.max(mtime);
    }

    /// Writes them.
    pub(crate) fn emit(&self, view: &mut View) {
        for (dir, delta) in self.list[..self.len].iter().chain(&self.more) {
            view.put_delta(*dir, *delta);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What broke: the seventh ended the process.
    #[test]
    fn another_rank_may_say_many_headers_and_large_numbers() {
        let mut headers = Headers::new();
        for dir in (0..16).chain(0..16) {
            headers.add(dir, i64::MAX, i64::MIN, None);
        }
        assert_eq!((headers.len, headers.more.len()), (HEADERS, 16 - HEADERS));
        assert!(headers.more.iter().all(|(_, delta)| (delta.entries, delta.subdirs) == (i64::MAX, i64::MIN)));
    }
}
