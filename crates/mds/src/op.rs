//! One request on its way through the rank, and what planning it can come to.
//!
//! Absent: the plans (`ops/`).

use crate::caps::book::Need;
use crate::heat::Load;
use crate::meter::Asked;
use crate::moves::Goal;
use crate::search::Climb;
use crate::view::Found;
use proto::cluster::Unit;
use proto::header::FragHeader;
use proto::message::Told;
use proto::mutation::REDO_BYTES_MAX;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::storeio::{Cut, DataOp, StoredDentry};
use proto::transact::Part;
use proto::{Attr, Cred, Errno, Ino, NameHash, NodeRef, RankId, SessionId, Tid};
use std::collections::BTreeMap;
use stdx::{Mono, Wall};

const _: () = assert!(REDO_BYTES_MAX < proto::journal::ENTRY_BYTES_MAX);

/// Names a request inside the rank.
pub(crate) type OpId = u64;

/// A page of the store's listing, brought for one readdir.
#[derive(Clone, Debug)]
pub(crate) struct ScanPage {
    pub from: NameHash,
    pub entries: Vec<StoredDentry>,
    pub next: Option<NameHash>,
}

/// Answers of other ranks that they have not what they were asked for, for one operation.
const SENT_BACK_MAX: u8 = 24;

/// So often what an operation fails by is reserved, to be told again: what is reserved may itself be in the way of what the plan needs.
const VOTES_MAX: u8 = 8;

/// What an operation heard from other ranks; few hear anything.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// What is told for its next planning.
    pub learned: Option<Box<Learned>>,
    /// Headers of a spread directory and its units, which come one after the other: their owners may not say when they change.
    pub units: BTreeMap<Ino, FragHeader>,
    /// What is asked of the content of a directory, or of its units, elsewhere.
    pub loads: BTreeMap<Ino, Load>,
    /// It was planned by something of these that this rank goes by no more, or never did.
    pub told_once: bool,
    /// Directories whose content is not placed by slots, or of which nobody knows.
    pub inherits: Vec<Ino>,
    /// Of those, which no rank has: they are gone.
    pub gone: Vec<Ino>,
    /// The directory that its home says its session has open for reading.
    pub opened: Ino,
    /// What was looked for, and the ranks that have it without a name, as the store says. An operation looks for two, by turns.
    pub orphans_at: BTreeMap<Ino, RankId>,
    /// How often another rank had not what it was asked for.
    sent_back: u8,
    /// All have said so, and nobody named another.
    nowhere: bool,
    /// A directory whose content the rank that is to end it has not found.
    missing: Ino,
    /// How often what it fails by was to be reserved, and told again.
    voted: u8,
}

impl Heard {
    /// That directory's content is not placed by slots; `gone`: no rank has such a one.
    pub(crate) fn has_no_slot(&mut self, dir: Ino, gone: bool) {
        self.inherits.push(dir);
        if gone && !stdx::mutant!("mds_gone_is_damage") {
            self.gone.push(dir);
        }
    }
}

/// A request and what it needs to be planned again.
#[derive(Debug)]
pub(crate) struct Op {
    pub id: OpId,
    pub session: SessionId,
    pub tid: Tid,
    pub embedded: bool,
    /// Whose session it is, if a rank's.
    pub of_rank: Option<RankId>,
    /// Its session's place in the book of capabilities.
    pub place: Option<u16>,
    /// The rank checks permissions.
    pub check: bool,
    /// The directory that its session is limited to; `Ino::NONE`: it is not.
    pub limit: Ino,
    /// What it names is outside, and open: nothing is granted of that.
    pub by_open: bool,
    pub cred: Cred,
    pub request: Request,
    /// What its caller was told already.
    pub told: Option<Told>,
    /// Which inode is being looked for, and where next.
    pub probe: Option<(Ino, Probe)>,
    /// Where a backptr said the inode is.
    pub hint: Option<(Ino, NameHash)>,
    /// Moves of inodes when the search began.
    pub moves: u64,
    /// The search where not everything is this rank's.
    pub climb: Option<Box<Climb>>,
    /// What it heard from other ranks.
    pub heard: Option<Box<Heard>>,
    pub scan: Option<Box<ScanPage>>,
    /// Nodes that were loaded for it.
    pub pins: Vec<u32>,
    /// A load failed: the answer.
    pub failed: Option<Errno>,
    /// Taken from the front of a file's queue: newcomers wait behind it.
    pub woken: bool,
    /// The file whose data was synced for it: what is written since then is not its concern.
    pub synced: Ino,
    /// A rewrite of bytes that are lost, should the file be here.
    pub lost: bool,
    /// A former life may have carried it out, and what was told of its inode counts that. Its client has given it up meanwhile.
    pub unheard: bool,
    pub cancelled: bool,
    /// When the rank got it.
    pub since: Mono,
    pub waits: Waits,
}

impl Op {
    /// One that has come now: nobody has looked at it.
    pub(crate) const fn new(
        id: OpId,
        (session, tid): (SessionId, Tid),
        cred: Cred,
        request: Request,
        since: Mono,
    ) -> Self {
        Self {
            id,
            session,
            tid,
            embedded: false,
            of_rank: None,
            place: None,
            check: false,
            limit: Ino::NONE,
            by_open: false,
            cred,
            request,
            told: None,
            probe: None,
            hint: None,
            moves: 0,
            climb: None,
            heard: None,
            scan: None,
            pins: Vec::new(),
            failed: None,
            woken: false,
            synced: Ino::NONE,
            lost: false,
            unheard: false,
            cancelled: false,
            since,
            waits: Waits::Turn,
        }
    }

    /// Whether another rank once had not what this one asked it for.
    pub(crate) fn was_sent_back(&self) -> bool {
        self.heard.as_ref().is_some_and(|heard| heard.sent_back > 0)
    }

    /// Another rank has not what this one asked it for. Whether to look again: what is gone hints may lead to without end.
    pub(crate) fn is_sent_back(&mut self) -> bool {
        let heard = self.hears();
        heard.sent_back = heard.sent_back.saturating_add(1);
        // It may have got a name since.
        heard.orphans_at.clear();
        heard.sent_back < SENT_BACK_MAX || stdx::mutant!("mds_sent_back_for_ever")
    }

    /// All ranks have said that what was asked for is another's, and nobody named one. Whether all are asked once more: what somebody has
    /// decided, who is dead, may be told to the rank that gets it between the question to that and the one to his next life.
    pub(crate) fn looks_once_more(&mut self) -> bool {
        !std::mem::replace(&mut self.hears().nowhere, true)
    }

    /// The rank that is to end a directory's content does not find it. Whether its name is looked at once more: it may be gone since that
    /// rank was asked. If it is there yet, what is missing is damage.
    pub(crate) fn looks_whether_it_is_gone(&mut self, dir: Ino) -> bool {
        std::mem::replace(&mut self.hears().missing, dir) != dir && !stdx::mutant!("mds_missing_is_damage")
    }

    /// The store says where that inode is that it looks for.
    pub(crate) fn noted(&mut self, ino: Ino, place: Option<(Ino, NameHash)>) {
        if let Some(climb) = &mut self.climb {
            climb.note(ino, place);
        }
        // An operation looks for a directory above as well while only a part of the namespace is this rank's, and goes on with its other
        // search when all is: what is noted then is not where that one's inode is. What broke: the inode was gone for it.
        if self.probe.is_some_and(|(sought, _)| sought == ino) {
            self.hint = place;
        }
    }

    /// Whether what it fails by is to be reserved and told again.
    pub(crate) fn may_vote(&mut self) -> bool {
        let heard = self.hears();
        heard.voted = heard.voted.saturating_add(1);
        heard.voted <= VOTES_MAX
    }

    /// Room for what other ranks tell.
    pub(crate) fn hears(&mut self) -> &mut Heard {
        self.heard.get_or_insert_default()
    }

    /// Whether that directory is known to be placed by nothing of its own.
    pub(crate) fn inherits(&self, dir: Ino) -> bool {
        self.heard.as_ref().is_some_and(|heard| heard.inherits.contains(&dir))
    }

    /// Whether no rank has such a directory.
    pub(crate) fn is_gone(&self, dir: Ino) -> bool {
        self.heard.as_ref().is_some_and(|heard| heard.gone.contains(&dir))
    }

    /// What is to wait, out of the hands of who runs it: that one is done with it.
    pub(crate) fn take(&mut self) -> Box<Self> {
        let Self { id, session, tid, since, embedded, place, check, .. } = *self;
        let nothing = Self::new(id, (session, tid), Cred::ROOT, Request::StatFs, since);
        let spent = Self { embedded, place, check, ..nothing };
        Box::new(std::mem::replace(self, spent))
    }

    /// For its answer.
    pub(crate) fn asked(&self) -> Asked {
        Asked::new(self.session, self.tid, &self.request, self.since)
    }
}

/// What a request waits for, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing any more: it is about to be looked at again.
    Turn,
    /// Records from the store.
    Store,
    /// Operations on the same file, or a cut of it.
    File,
    /// Numbers for new inodes.
    Inos,
    /// Clients of the life before, that may bring back what they have open.
    Reconnect,
    /// What other clients keep.
    Caps,
    /// Room in the journal.
    JournalRoom,
    /// A file lock that somebody else holds.
    Lock,
    /// The data store.
    Data,
    /// Its answer: the journal's disk.
    JournalSync,
    /// What its session performed before it.
    Line,
    /// What another rank was asked for.
    Rank,
    /// The end of a move.
    Move,
}

impl Waits {
    /// The words shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Store => "metadata store",
            Self::File => "file",
            Self::Inos => "inode numbers",
            Self::Reconnect => "reconnect",
            Self::Caps => "capabilities",
            Self::JournalRoom => "journal room",
            Self::Lock => "file lock",
            Self::Data => "data store",
            Self::JournalSync => "journal sync",
            Self::Line => "session's line",
            Self::Rank => "another rank",
            Self::Move => "move",
        }
    }
}

impl From<&Park> for Waits {
    fn from(park: &Park) -> Self {
        match park {
            Park::Load(_) => Self::Store,
            Park::File(_) => Self::File,
            Park::Inos => Self::Inos,
            Park::Reconnect | Park::Presented => Self::Reconnect,
            Park::Caps(_) | Park::Settled => Self::Caps,
            Park::Journal => Self::JournalRoom,
            asking_parks!()
            | Park::Part { .. }
            | Park::Reserved
            | Park::Votes
            | Park::Joins
            | Park::Ranks => Self::Rank,
            Park::Move | Park::Slots | Park::Pin(..) | Park::Carve(_) => Self::Move,
        }
    }
}

/// What another rank tells for one planning of one operation.
#[derive(Clone, Debug)]
pub(crate) enum Learned {
    /// The header of a directory whose content is there.
    Totals(Ino, FragHeader),
    /// The store has no header of the directory. Whether that may be nobody here knows.
    NoHeader(Ino),
    /// As `Totals`, after its time was set.
    Times(Ino, FragHeader),
    /// The attributes of an inode with several names.
    Attr(Attr),
}

/// Where an inode that is not cached is looked for, in this order. Each place is asked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The directory in which the client saw it.
    Seen,
    /// The store's note of where it is, unless the rank knows better.
    Backptr,
    /// The directory that the note names.
    Noted,
    /// Where it went from here, if it is not back: the store may not know that yet.
    Went,
    Links,
    Orphans,
    /// Everywhere was asked.
    Nowhere,
}

/// What a load brings, and who shares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadKey {
    Dentry {
        dir: Ino,
        hash: NameHash,
        name: Box<[u8]>,
    },
    ByHash {
        dir: Ino,
        hash: NameHash,
    },
    Header {
        dir: Ino,
    },
    /// The same of a unit, of which that is perhaps not known; `dir`: its number.
    UnitHeader {
        dir: Ino,
        unit: Unit,
    },
    /// How a directory is spread, whoever has its content: that stays as it is while the map has the same entry of a part of it.
    Spread {
        dir: Ino,
    },
    Backptr {
        ino: Ino,
    },
    Scan {
        dir: Ino,
        from: NameHash,
        purpose: ScanFor,
    },
}

/// What names of a directory are loaded for, page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScanFor {
    /// A listing.
    Request(OpId),
    /// The cache: all names in the background.
    WholeDirectory,
    /// Directories among them that are to be warmed.
    Warmup,
    /// The search for orphans.
    Orphans,
    /// The counts of the units that the directory is about to have.
    Count,
}

/// What another rank is asked for.
macro_rules! asking_parks {
    () => {
        $crate::op::Park::Replica { .. }
            | $crate::op::Park::Facts { .. }
            | $crate::op::Park::Totals(_)
            | $crate::op::Park::Heats(_)
            | $crate::op::Park::Linked(_)
            | $crate::op::Park::Hand(..)
            | $crate::op::Park::SetTimes { .. }
            | $crate::op::Park::Opened(_)
    };
}
pub(crate) use asking_parks;

/// What a request waits for.
#[derive(Clone, Debug)]
pub(crate) enum Park {
    Load(LoadKey),
    /// Data operations or a cut on this file.
    File(Ino),
    /// Fresh inode numbers.
    Inos,
    /// The end of the reconnect phase.
    Reconnect,
    /// What other clients keep.
    Caps(Vec<Need>),
    /// Other clients of the life before: they may keep anything.
    Settled,
    /// What clients of the life before were answered early.
    Presented,
    /// Room in the journal.
    Journal,
    /// The inode of a directory whose content is here, from its home, as far as that is known.
    Replica {
        node: NodeRef,
        home: Option<RankId>,
    },
    /// Whether a directory that is not at home here is placed by slots: its content would be here.
    Facts {
        node: NodeRef,
        home: Option<RankId>,
    },
    /// Headers of a directory whose content, or parts of it, are elsewhere: of these.
    Totals(Vec<(Ino, Unit)>),
    /// What is asked of these, elsewhere.
    Heats(Vec<(Ino, Unit)>),
    /// The attributes of an inode that has several names.
    Linked(Ino),
    /// The content of an empty directory, or a part of it, to end it.
    Hand(Ino, Unit),
    /// The header's time of a directory whose content is elsewhere, set to that.
    SetTimes {
        dir: Ino,
        mtime: Wall,
        first: Ino,
        stamp: u64,
    },
    /// Whether the session has the directory open for reading at its home, which is elsewhere.
    Opened(NodeRef),
    /// Greetings of all other ranks: they may keep replicas from the life before.
    Ranks,
    /// The end of a move.
    Move,
    /// The map: slots are to be used.
    Slots,
    /// The directory's entry of the cluster map, which is to be so.
    Pin(Ino, Goal),
    /// An entry of its own, wherever its content is.
    Carve(Ino),
    /// What another rank has of a transaction.
    Part {
        hint: Option<RankId>,
        part: Box<Part>,
    },
    /// The end of a transaction that another rank leads.
    Reserved,
    /// What other ranks told does not go together: they reserve it, and tell once more.
    Votes,
    /// Sessions at the rank that an inode comes to which they have open or locked.
    Joins,
}

/// Why a plan ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    Park(Park),
    Fail(Errno),
    /// It is another rank's, perhaps that one's.
    NotMine(Option<RankId>),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

/// Volatile changes that go with a transaction or an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    /// Count an open of this inode for the session, with these rights.
    pub open: Option<(Ino, u32)>,
    /// The inode went to `//orphans` or lost its last open there.
    pub orphan: Option<Ino>,
    /// Remember the outcome although no transaction holds it.
    pub remember: bool,
    /// Cut to nothing while open: sync at the last close.
    pub truncated: Option<Ino>,
}

/// How a file's data operation stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    None,
    /// The data must stay; nothing else matters.
    User(Ino),
    /// The target alone, the source beside nothing that changes it.
    Copy {
        source: Ino,
        target: Ino,
    },
    /// Beside other shared ones: the size does not depend on order.
    Shared(Ino),
    /// Alone: it chooses an offset from the size or zeroes beyond it.
    Exclusive(Ino),
}

/// A file as it was when its sync began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Syncing {
    pub ino: Ino,
    /// Writes until then.
    pub writes: u32,
    /// The last cut.
    pub cut: u32,
    /// It was still to be carried out.
    pub cutting: bool,
}

/// What follows a data operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read,
    Write {
        ino: Ino,
        offset: u64,
        len: u64,
        cut: Cut,
    },
    Rewrite {
        ino: Ino,
        len: u64,
        cut: Cut,
    },
    /// The file is at least `size` long afterwards.
    Zero {
        ino: Ino,
        size: u64,
        cut: Cut,
    },
    Copy {
        ino: Ino,
        offset: u64,
        cut: Cut,
    },
    Seek,
    Fsync(Syncing),
    /// The request is planned again: what stood in its way is synced.
    Synced(Syncing),
    /// The request is planned again: an earlier cut has reached the data.
    CutDone {
        ino: Ino,
    },
    SyncFs,
    StatFs,
}

impl Next {
    /// The inode whose data was changed, and the cut it was changed under.
    pub(crate) const fn changed(self) -> Option<(Ino, Cut)> {
        match self {
            Self::Write { ino, cut, .. }
            | Self::Rewrite { ino, cut, .. }
            | Self::Zero { ino, cut, .. }
            | Self::Copy { ino, cut, .. } => Some((ino, cut)),
            Self::Read
            | Self::Seek
            | Self::Fsync(_)
            | Self::Synced(_)
            | Self::CutDone { .. }
            | Self::SyncFs
            | Self::StatFs => None,
        }
    }
}

/// What planning a request comes to.
pub(crate) enum Plan {
    /// An answer; nothing changes but `Effects`.
    Answer(Outcome, Effects),
    /// The transaction in the view's buffer, and its answer.
    Commit(Reply, Effects),
    Data(DataOp, Claim, Next),
    /// The same of a step of a transaction that another rank leads: it is no session's.
    Step(Reply, Effects),
    /// Answer when everything up to now is durable.
    Durable(Reply),
    /// A lock was queued: the answer comes with the grant.
    Queued,
}

impl Plan {
    pub(crate) const fn reply(reply: Reply) -> Found<Self> {
        Ok(Self::Answer(Ok(reply), NO_EFFECTS))
    }

    pub(crate) const fn commit(reply: Reply) -> Found<Self> {
        Ok(Self::Commit(reply, NO_EFFECTS))
    }
}

pub(crate) const NO_EFFECTS: Effects = Effects { open: None, orphan: None, remember: false, truncated: None };
