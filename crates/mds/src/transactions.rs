//! Transactions of several ranks: what this rank has reserved for others, and what it has decided and others have not all carried
//! out. docs/PROTOCOL.md, "Transactions of several ranks". Presumed abort: who leads one and remembers nothing of it has given it up.
//!
//! A rank that is asked reserves names and tells what they lead to; the leader alone plans what becomes of all, and says it with the
//! commit. So what is reserved has no state but that it waits.
//!
//! Absent: the leader's way (`lead.rs`); what a rank that is asked does (`part.rs`); what transactions change (`across.rs`); directories
//! that get another parent (`dirs.rs`); whom to ask (`hints.rs`); what is open of an inode that leaves (`carried.rs`).

pub(crate) mod across;
mod carried;
pub(crate) mod dirs;
pub(crate) mod hints;
pub(crate) mod lead;
pub(crate) mod part;

use crate::op::{OpId, Park, Stop};
use crate::view::{Found, View};
use proto::dentry::DentryValue;
use proto::mutation::Mutation;
use proto::storeio::Backptr;
use proto::transact::{Change, Decided, Part, Reserved, Seen, TxnId, put_decided, put_left, put_reserved};
use proto::{Ino, NameHash, RankId, SessionId, Writer};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;

/// An entry of what is journaled again ends when it has so many bytes.
const AGAIN_BYTES: usize = 1 << 20;

/// What a step was looked at by, for the next one: that asks no other rank.
#[derive(Debug, Default)]
struct Kept {
    /// Pins of nodes. A leader may ask for more when this much is reserved, and has to be told of this again: with next to no cache, a
    /// replica that had to be asked for anew then would be waited for while others wait for what is reserved.
    pins: Vec<u32>,
    /// Directories that are placed by nothing of their own, as another rank said.
    inherits: Vec<Ino>,
}

/// Reserved here for a transaction that another rank leads.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub leader: RankId,
    pub parts: Vec<Reserved>,
    kept: Kept,
}

/// Whose turn it is at these names, of all that have not reserved them yet.
#[derive(Debug)]
struct Intent {
    since: Wall,
    leader: RankId,
    names: Vec<Reserved>,
    kept: Kept,
}

/// What other ranks told for one planning of one operation.
#[derive(Debug)]
pub(crate) struct Told {
    /// The try that they told it for.
    pub id: TxnId,
    /// They have reserved it: what they told stays so until this rank says what becomes of it.
    pub voted: bool,
    pub parts: Vec<(RankId, Part, Seen)>,
    /// Sessions that have something of what they told of, and that this rank does not have.
    pub strangers: BTreeSet<SessionId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    prepared: BTreeMap<TxnId, Prepared>,
    names: BTreeMap<(Ino, NameHash), TxnId>,
    inos: BTreeMap<Ino, TxnId>,
    /// Directories of which all names are, as they are to go.
    contents: BTreeMap<Ino, TxnId>,
    /// Directories in which something is reserved.
    dirs: BTreeMap<Ino, u32>,
    intents: BTreeMap<TxnId, Intent>,
    /// Pins of what is over.
    pub loose: Vec<u32>,
    /// Led by this rank, and not carried out by all others.
    pub committed: BTreeMap<TxnId, Decided>,
    /// Led by this rank, and undecided.
    pub leading: BTreeSet<TxnId>,
    /// Directories of this rank's that those are to give another parent, while the way up from there is looked at.
    moving: BTreeMap<TxnId, Vec<Ino>>,
    /// Whose step is being planned: what it has reserved is not in its way.
    pub own: Option<TxnId>,
    /// Of the sessions that the step being planned asks about: those that this rank does not have.
    pub strangers: BTreeSet<SessionId>,
    /// Sessions that are to join a rank, because an inode that they have open or locked is to come there.
    pub joins: Vec<(SessionId, RankId)>,
    /// Operations that wait for something reserved, or for places that are being stored.
    pub waiting: Vec<OpId>,
}

/// An empty list of inodes that left, encoded.
pub(crate) fn no_left() -> Writer {
    let mut w = Writer::new();
    put_left(&[], &mut w);
    w
}

impl Transactions {
    pub(crate) fn prepared(&self) -> &BTreeMap<TxnId, Prepared> {
        &self.prepared
    }

    /// Whether nothing is reserved here.
    pub(crate) fn is_free(&self) -> bool {
        self.prepared.is_empty()
    }

    fn is_others(&self, id: Option<&TxnId>) -> bool {
        id.is_some_and(|id| Some(*id) != self.own) && !stdx::mutant!("mds_reservation_ignored")
    }

    fn has_name(&self, dir: Ino, hash: NameHash) -> bool {
        self.is_others(self.names.get(&(dir, hash))) || self.is_others(self.contents.get(&dir))
    }

    /// Whether somebody else has a name of that directory.
    fn has_any_name(&self, dir: Ino) -> bool {
        let mut names = self.names.range((dir, NameHash(0))..=(dir, NameHash(u64::MAX)));
        names.any(|(_, id)| self.is_others(Some(id)))
    }

    fn has_inode(&self, ino: Ino) -> bool {
        self.is_others(self.inos.get(&ino))
    }

    /// Whether names of a directory are reserved.
    pub(crate) fn has_in(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Whether names of directories that are such are reserved.
    pub(crate) fn has_below(&self, is_below: impl Fn(Ino) -> bool) -> bool {
        self.dirs.keys().any(|dir| is_below(*dir))
    }

    /// Whether an older transaction, or one that has it already, comes before this one at a name.
    fn comes_later(&self, (since, id): (Wall, TxnId), part: &Reserved) -> bool {
        let older = |(other, intent): (&TxnId, &Intent)| {
            (intent.since, *other) < (since, id) && intent.names.iter().any(|name| name.meets(part))
        };
        self.has_name(part.dir, part.hash)
            || (part.is_content() && self.has_any_name(part.dir))
            || self.has_inode(part.ino)
            || self.intents.iter().any(older)
    }

    /// Notes that the transaction means to reserve `parts`. `kept` (pins, and what other ranks told) is held until it is decided or given up:
    /// Prepare may not ask another rank again, and would be refused for ever if it had to.
    fn intend(&mut self, id: TxnId, (since, leader): (Wall, RankId), parts: &[Reserved], kept: Kept) {
        let before = self.intents.insert(id, Intent { since, leader, names: parts.to_vec(), kept });
        self.loose.extend(before.into_iter().flat_map(|intent| intent.kept.pins));
    }

    /// Directories of which a step before was told that nothing of their own places them.
    fn inherits(&self, id: TxnId) -> &[Ino] {
        let meant = self.intents.get(&id).map(|intent| &intent.kept);
        let kept = meant.or_else(|| self.prepared.get(&id).map(|prepared| &prepared.kept));
        kept.map_or(&[], |kept| &kept.inherits)
    }

    /// What another rank meant to do it will say again, if it still does.
    pub(crate) fn forget_intents(&mut self, leader: RankId) {
        let of_leader = self.intents.extract_if(.., |_, intent| intent.leader == leader);
        self.loose.extend(of_leader.flat_map(|(_, intent)| intent.kept.pins));
    }

    pub(crate) fn forget_intent(&mut self, id: TxnId) {
        self.loose.extend(self.intents.remove(&id).into_iter().flat_map(|intent| intent.kept.pins));
    }

    /// Applies that something is reserved: from here on it waits.
    pub(crate) fn prepare(&mut self, id: TxnId, leader: RankId, parts: Vec<Reserved>) {
        let kept = self.intents.remove(&id).map(|intent| intent.kept).unwrap_or_default();
        self.resolve(id);
        for part in &parts {
            self.names.insert((part.dir, part.hash), id);
            if part.is_content() {
                self.contents.insert(part.dir, id);
            } else if part.ino != Ino::NONE {
                self.inos.insert(part.ino, id);
            }
            *self.dirs.entry(part.dir).or_default() += 1;
        }
        self.prepared.insert(id, Prepared { leader, parts, kept });
    }

    /// Applies that a transaction is over: here, if something was reserved for it, or for all, if this rank led it.
    pub(crate) fn resolve(&mut self, id: TxnId) {
        self.committed.remove(&id);
        self.forget_intent(id);
        let Some(prepared) = self.prepared.remove(&id) else { return };
        self.loose.extend(prepared.kept.pins);
        for part in &prepared.parts {
            self.names.remove(&(part.dir, part.hash));
            if part.is_content() {
                self.contents.remove(&part.dir);
            } else {
                self.inos.remove(&part.ino);
            }
            if let Some(count) = self.dirs.get_mut(&part.dir) {
                *count -= 1;
                if *count == 0 {
                    self.dirs.remove(&part.dir);
                }
            }
        }
    }

    /// Directories of this rank's are about to get another parent: whoever comes by them on a way up waits.
    pub(crate) fn moves(&mut self, id: TxnId, dirs: Vec<Ino>) {
        if !dirs.is_empty() {
            self.moving.insert(id, dirs);
        }
    }

    /// A try that this rank led is over. Who waits for what it was to move may look again.
    pub(crate) fn end_try(&mut self, id: TxnId) -> Vec<OpId> {
        self.leading.remove(&id);
        if self.moving.remove(&id).is_some() { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }

    /// Whether somebody else is about to give a directory another parent.
    pub(crate) fn is_on_the_move(&self, dir: Ino) -> bool {
        let others = self.moving.iter().filter(|(id, _)| Some(**id) != self.own);
        self.has_inode(dir) || others.into_iter().any(|(_, dirs)| dirs.contains(&dir))
    }

    /// Whether an inode is reserved, for whomever.
    pub(crate) fn is_reserved(&self, ino: Ino) -> bool {
        self.inos.contains_key(&ino)
    }

    /// Inodes that are reserved.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.inos.keys().copied()
    }

    /// The rank that gets an inode by what this one has decided, and which has not acknowledged that.
    pub(crate) fn comes_to(&self, ino: Ino) -> Option<RankId> {
        let is_it = |change: &Change| match change {
            Change::Put { value, .. } => match DentryValue::decode(value) {
                Ok(DentryValue::Primary(record)) => record.core.ino == ino,
                Ok(DentryValue::Remote { .. }) | Err(_) => false,
            },
            Change::Delete { .. }
            | Change::Header { .. }
            | Change::Backptr { .. }
            | Change::Left(_)
            | Change::Holders { .. }
            | Change::Vacate { .. }
            | Change::Lose { .. } => false,
        };
        let mut decided = self.committed.values().flatten();
        let (rank, _) = decided.find(|(_, changes)| changes.iter().any(is_it))?;
        (!stdx::mutant!("mds_decided_is_nowhere")).then_some(*rank)
    }

    /// All that is not over, once more, for a journal whose beginning goes: each in a mutation.
    fn journal_again(&self, mut each: impl FnMut(&Mutation<'_>)) {
        if stdx::mutant!("mds_transactions_trimmed") {
            return;
        }
        let mut w = Writer::new();
        for (id, prepared) in &self.prepared {
            w.0.clear();
            put_reserved(&prepared.parts, &mut w);
            each(&Mutation::Prepared { id: *id, leader: prepared.leader, parts: &w.0 });
        }
        for (id, decided) in &self.committed {
            w.0.clear();
            put_decided(decided, &mut w);
            let left = no_left();
            each(&Mutation::Committed { id: *id, decided: &w.0, left: &left.0 });
        }
    }
}

/// Mutations in entries of the journal, none of them much longer than it should be: there is a bound on each.
#[derive(Default)]
struct Entries {
    full: Vec<Vec<u8>>,
    last: Writer,
}

impl Entries {
    fn add(&mut self, mutation: &Mutation<'_>) {
        mutation.encode(&mut self.last);
        if self.last.0.len() >= AGAIN_BYTES {
            self.full.push(std::mem::take(&mut self.last.0));
        }
    }

    fn end(mut self) -> Vec<Vec<u8>> {
        if !self.last.0.is_empty() {
            self.full.push(self.last.0);
        }
        self.full
    }
}

impl View {
    /// A checkpoint begins. What is not over is journaled again, what came with moves is, and so are places of inodes that may leave: in the store they could
    /// come behind those that the new owner stores. Returned: the mutations of one entry after the other.
    pub(crate) fn transactions_again(&mut self) -> Vec<Vec<u8>> {
        let mut entries = Entries::default();
        self.holders.journal_again(|mutation| entries.add(mutation));
        self.unheard.journal_again(|mutation| entries.add(mutation));
        if self.transactions.is_free() && self.transactions.committed.is_empty() {
            return entries.end();
        }
        self.transactions.journal_again(|mutation| entries.add(mutation));
        for ino in self.transactions.inodes() {
            if let Some((version, Some(place))) = self.backptrs_old.remove(&ino) {
                let Backptr { parent, hash, name, .. } = &place;
                let (parent, hash) = (*parent, *hash);
                entries.add(&Mutation::PutBackptr { ino, version, parent, hash, name });
            }
        }
        entries.end()
    }

    /// Whoever wants that name waits while it is reserved.
    #[cold]
    pub(crate) fn free_of_reservations(&self, dir: u32, hash: NameHash) -> Found<()> {
        self.name_is_free(self.cache.dir(dir).of(), hash)
    }

    /// The same of a directory that is perhaps not cached. What is reserved in a unit is so under its directory's number.
    pub(crate) fn name_is_free(&self, dir: Ino, hash: NameHash) -> Found<()> {
        if self.transactions.has_name(dir, hash) { Err(Stop::Park(Park::Reserved)) } else { Ok(()) }
    }

    /// The same of all names of a directory.
    pub(crate) fn names_are_free(&self, dir: Ino) -> Found<()> {
        let taken = self.transactions.has_any_name(dir) || self.transactions.has_name(dir, NameHash(0));
        if taken { Err(Stop::Park(Park::Reserved)) } else { Ok(()) }
    }

    /// The same of an inode.
    pub(crate) fn inode_is_free(&self, ino: Ino) -> Found<()> {
        if self.transactions.has_inode(ino) { Err(Stop::Park(Park::Reserved)) } else { Ok(()) }
    }

    /// The same of a directory's listing, counts and times: what was told of them could be over.
    pub(crate) fn listing_is_free(&self, dir: Ino) -> Found<()> {
        let waits = self.transactions.has_in(dir) && !stdx::mutant!("mds_listing_despite_reservation");
        if waits { Err(Stop::Park(Park::Reserved)) } else { Ok(()) }
    }

    /// What another rank has told of a part; if it was not asked yet, that comes first. `hint`: the rank that has it.
    pub(crate) fn told(&self, hint: Option<RankId>, part: &Part) -> Found<(RankId, Seen)> {
        let told = self.told.iter().flat_map(|told| &told.parts);
        match told.into_iter().find(|(_, of, _)| of == part) {
            Some((rank, _, seen)) => Ok((*rank, seen.clone())),
            None => Err(Stop::Park(Park::Part { hint, part: Box::new(part.clone()) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::dentry::encode_primary;
    use proto::inode::InodeCore;
    use proto::name::Name;

    /// What broke: a directory was at its new rank not yet, and at its old one no more, and nobody named anybody.
    #[test]
    fn what_is_decided_says_where_an_inode_comes_to() {
        let mut value = Writer::new();
        encode_primary(&InodeCore { ino: Ino(5000), ..InodeCore::default() }, None, &mut value);
        let name = Name::new(b"a").expect("a name");
        let put = Change::Put { dir: Ino(4096), name, value: value.0.into() };
        let mut of = Transactions::default();
        of.committed.insert(TxnId(1), vec![(RankId(1), Vec::new()), (RankId(2), vec![put])]);
        assert_eq!((of.comes_to(Ino(5000)), of.comes_to(Ino(5001))), (Some(RankId(2)), None));
        of.resolve(TxnId(1));
        assert_eq!(of.comes_to(Ino(5000)), None, "it is there");
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn what_is_decided_and_nowhere_is_caught() {
        stdx::mutant::activate(Some("mds_decided_is_nowhere"));
        let verdict = std::panic::catch_unwind(what_is_decided_says_where_an_inode_comes_to);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }
}
