//! What sessions have open and locked of an inode that leaves its rank with a transaction: told with the vote, and with the commit
//! journaled where the inode comes to, and forgotten where it was. docs/PROTOCOL.md, "What is open goes along".
//!
//! Between vote and commit nothing of it changes: the inode is reserved, so whoever opens, closes, locks or unlocks waits, and what an
//! ended session has of it stays until the transaction is over (`close_slice`).
//!
//! Absent: what goes with a directory that moves (`moves/holders.rs`); what a client tells by itself (`session/life.rs`).

use crate::holders::{JOIN_NS, encode_here};
use crate::op::{Op, OpId, Park, Stop, Waits};
use crate::output::Output;
use crate::rank::Rank;
use crate::territory::Side;
use crate::transactions::part::leader;
use crate::view::{Found, View};
use proto::holder::{HOLDERS_MAX, Holder};
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::transact::{CARRIED_BYTES_MAX, Change, Part, Step};
use proto::{Errno, Ino, NameHash, RankId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Outbox;

/// Leases that sessions have for joining the rank that an inode comes to.
const JOIN_LEASES: u64 = 2;

/// What sessions have of an inode that is to leave.
///
/// # Errors
/// EXDEV: somebody may have it open who is not known, or what they have cannot go along.
pub(super) fn holders_of(view: &View, slot: u32) -> Result<Vec<Holder>, Errno> {
    let node = view.cache.node(slot);
    let (ino, parent, hash) = (node.ino(), view.cache.parent_of(slot), node.hash);
    let file = view.files.get(ino);
    if stdx::mutant!("mds_open_file_leaves") {
        return Ok(Vec::new());
    }
    if file.is_some_and(|file| file.kept > 0) {
        return Err(Errno::EXDEV);
    }
    let mut all = BTreeMap::new();
    let new = |session| Holder { session, ino, parent, hash, ..Holder::default() };
    for open in file.into_iter().flat_map(|file| file.opens.iter()) {
        let (opens, rights, writes) = (open.count, open.rights(), open.writes);
        all.insert(open.session, Holder { opens, rights, writes, ..new(open.session) });
    }
    if view.locks.is_locked(ino) {
        for (session, lock) in view.locks.held_on(ino) {
            all.entry(session).or_insert_with(|| new(session)).locks.push(lock);
        }
    }
    let bytes: usize = all.values().map(Holder::bytes).sum();
    // A mount in the rank's process has no session elsewhere.
    let stays = all.keys().any(|session| view.mounts.contains(session));
    if stays || all.len() > HOLDERS_MAX || bytes > CARRIED_BYTES_MAX {
        return Err(Errno::EXDEV);
    }
    Ok(all.into_values().collect())
}

/// This rank tells of holders of an inode that is to leave: they join the rank that it comes to.
pub(super) fn say_join(view: &mut View, op: &Op, part: &Part, holders: &[Holder]) {
    let to = match part {
        Part::Name { .. } => Some(leader(op)),
        // What has no name comes to where it gets its first.
        Part::Inode { .. } if holders.iter().any(|holder| holder.parent == view.orphans()) => {
            Some(leader(op))
        }
        Part::Inode { .. } => match view.territory.of_number(Ino::LINKS) {
            Some(Side::Other(rank)) => rank,
            Some(Side::Mine | Side::Sealed) | None => None,
        },
        Part::Above { .. } | Part::Sessions { .. } | Part::Content { .. } => None,
    };
    if let Some(to) = to {
        view.transactions.joins.extend(holders.iter().map(|holder| (holder.session, to)));
    }
}

/// Whether all whose it is have a session where the inode comes to: else their opens would be nobody's there.
fn have_joined(view: &mut View, holders: &[Holder], to: Option<RankId>, is_own: bool) -> Found<()> {
    let strange =
        |session: &SessionId| view.told.as_ref().is_some_and(|told| told.strangers.contains(session));
    let sessions: Vec<SessionId> = holders.iter().map(|holder| holder.session).collect();
    let all = match to {
        None => !sessions.iter().any(strange),
        Some(rank) => {
            let part = Part::Sessions { rank, sessions: sessions.clone() };
            view.told(Some(rank), &part)?.1.value.is_empty()
        }
    };
    if all || stdx::mutant!("mds_strangers_carried") {
        return Ok(());
    }
    if let Some(rank) = to.filter(|_| is_own) {
        view.transactions.joins.extend(sessions.into_iter().map(|session| (session, rank)));
    }
    Err(Stop::Park(Park::Joins))
}

/// An inode comes to another rank, or to this one: with it, what sessions have of it. `is_own`: it is this rank's that leads.
pub(super) fn go_along(
    view: &mut View,
    (ino, is_own): (Ino, bool),
    mut list: Vec<Holder>,
    to: Option<RankId>,
    (parent, hash): (Ino, NameHash),
) -> Found<()> {
    if !list.is_empty() {
        have_joined(view, &list, to, is_own)?;
    }
    list.iter_mut().for_each(|holder| (holder.parent, holder.hash) = (parent, hash));
    match to {
        None => come(view, ino, list),
        Some(rank) => {
            let change = Change::Holders { ino, list };
            view.txn.others.entry(rank).or_default().push(change);
        }
    }
    Ok(())
}

/// An inode comes to this rank: what sessions have of it is journaled with it.
pub(super) fn come(view: &mut View, ino: Ino, list: Vec<Holder>) {
    // It may have been here before, and what was said of it then may not be over in the journal: that counts no more.
    for session in view.holders.sessions_of(ino) {
        if list.iter().all(|holder| holder.session != session)
            && !stdx::mutant!("mds_back_with_former_holders")
        {
            Mutation::HolderGone { session, ino }.encode(&mut view.txn.muts);
        }
    }
    if !list.is_empty() && !stdx::mutant!("mds_carried_not_journaled") {
        encode_here(&list, &mut view.txn.muts);
    }
    view.txn.came.push((ino, list));
}

impl Rank {
    /// Those of sessions that this rank does not have.
    pub(crate) fn strangers<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
    ) -> BTreeSet<SessionId> {
        sessions.into_iter().copied().filter(|session| !self.knows(*session)).collect()
    }

    /// The same of those that a step asks about.
    pub(crate) fn strangers_of(&self, step: &Step) -> BTreeSet<SessionId> {
        let (Step::Clear { parts, .. } | Step::Prepare { parts, .. }) = step else { return BTreeSet::new() };
        let asked = parts.iter().flat_map(|part| match part {
            Part::Sessions { sessions, .. } => sessions.as_slice(),
            Part::Name { .. } | Part::Inode { .. } | Part::Above { .. } | Part::Content { .. } => &[],
        });
        self.strangers(asked)
    }

    /// Sessions are told to join the ranks that inodes come to which they have open or locked.
    pub(crate) fn say_joins(&mut self, out: &mut Outbox<Output>) {
        let version = self.view.territory.version();
        for (session, rank) in std::mem::take(&mut self.view.transactions.joins) {
            self.send_now(session, ServerMsg::Join { rank, version }, out);
        }
    }

    /// A transaction that waits until sessions have joined a rank: nothing is reserved meanwhile, and all is looked at anew.
    pub(crate) fn wait_for_joins(&mut self, op: &mut Op, out: &mut Outbox<Output>) {
        let most = JOIN_LEASES * self.view.config.lease_ns / JOIN_NS;
        if self.leads.has_waited_for_joins(op.id, most) {
            return self.answer(op, Err(Errno::EXDEV), false, out);
        }
        let id = op.id;
        op.waits = Waits::Rank;
        self.parked.insert(id, op.take());
        self.clear_again(id, JOIN_NS, out);
    }

    /// Whether an ended session has something of an inode that is reserved: its new rank would be told of it, and who gets its locks
    /// here that one would not know.
    pub(crate) fn has_reserved(&self, session: SessionId) -> bool {
        if self.view.transactions.is_free() || stdx::mutant!("mds_reserved_locks_go_on") {
            return false;
        }
        let opens = |ino| {
            let file = self.view.files.get(ino);
            file.is_some_and(|file| file.opens.iter().any(|open| open.session == session))
        };
        self.view.transactions.inodes().any(|ino| self.view.locks.has(ino, session) || opens(ino))
    }

    /// Inodes left with the transaction that was just applied, or came with it: of these nobody has anything but what was told.
    pub(crate) fn carried(&mut self, left: &[Ino], came: Vec<(Ino, Vec<Holder>)>) {
        for ino in left {
            if !stdx::mutant!("mds_left_keeps_holders") {
                self.forget_holders(*ino);
            }
        }
        for (ino, list) in came {
            self.moves.is_here_again(ino);
            self.view.unheard.came(ino);
            // It may have been here before: a client that did not know that it had gone has claimed it since.
            if !stdx::mutant!("mds_claims_count_again") {
                self.forget_holders(ino);
            }
            for holder in &list {
                match self.knows(holder.session) {
                    true => self.holds(holder),
                    // It has ended since the vote, here and so everywhere.
                    false => self.view.holders.gone(holder.session, ino),
                }
            }
        }
    }

    pub(crate) fn forget_holders(&mut self, ino: Ino) {
        let file = self.view.files.get(ino);
        let opens = file.into_iter().flat_map(|file| file.opens.iter());
        for session in opens.map(|open| open.session).collect::<Vec<_>>() {
            self.view.files.close(ino, session, u32::MAX);
        }
        self.view.files.forget_idle(ino);
        let waiters: Vec<OpId> = self.view.locks.leave(ino);
        self.look_again(waiters);
    }
}
