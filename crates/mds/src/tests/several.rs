//! Two ranks, or three, over one store, with a coordinator that does what is asked: who answers what, what boundaries show, and moves.
//!
//! Absent: the driver's connections; here whatever is said arrives, in order.

mod aborts;
mod again;
mod bounces;
mod boundaries;
mod bounds;
mod forgotten;
mod holders;
mod itself;
mod joins;
mod leaving;
mod lent;
mod limits;
mod merges;
mod moves;
mod pins;
mod policies;
mod random;
mod shares;
mod slots;
mod spreads;
mod totals;
mod transactions;

use super::*;
use crate::coordinator::{Dropped, Governing, Governor};
use proto::cluster::{DaemonId, DaemonInfo, Entry, MoveId, Moving, Policy, RankInfo, RankState, Unit};
use proto::frame::FRAME_BYTES_MAX;
use proto::message::JoinToken;
use std::collections::BTreeSet;

/// A client over a socket, at either rank.
const REMOTE: ConnId = ConnId(50);
/// Connections between ranks have numbers from here on.
const LINKS: u64 = 1_000;

/// What a request comes to at a rank.
#[derive(Clone, Debug, PartialEq)]
enum Answered {
    Outcome(Outcome),
    NotMine(Option<RankId>),
}

/// The ranks, and what is between them.
struct Cluster {
    worlds: Vec<World>,
    /// Who has the store and the data in its hands.
    holder: usize,
    map: ClusterMap,
    links: BTreeMap<(usize, usize), ConnId>,
    last_link: u64,
    last_life: u64,
    /// The coordinator does nothing for now.
    deaf: bool,
    refuses: bool,
    /// It refuses the next policy, because the one before it has begun a move of that.
    has_begun: bool,
    /// Links that carry nothing for now, and who is yet to hear of that.
    cut: BTreeSet<(usize, usize)>,
    gone: Vec<(usize, RankId)>,
    /// Ranks that do not hear of new maps for now.
    behind: BTreeSet<usize>,
    /// A rank outside of the mask: carved parts that come there go back.
    masked: Option<RankId>,
}

/// What a rank needs in the store before its first life.
fn ensure_rank(store: &mut Records, rank: u16) {
    let dir = Ino::orphans(RankId(rank));
    let header = FragHeader { version: Version(1), ..Default::default() };
    let mut w = Writer::new();
    header.encode(&mut w);
    store.insert(key_bytes(StoreKey::Header { dir, frag: Frag::WHOLE }), w.0);
    let core = InodeCore { ino: dir, mode: 0o040_755, nlink: 1, change: 1, ..Default::default() };
    let mut w = Writer::new();
    encode_primary(&core, None, &mut w);
    let name = format!("orphans-{rank}");
    let hash = name_hash(&SEED, name.as_bytes());
    store.insert(key_bytes(StoreKey::head(Ino::SYSTEM, hash, name.as_bytes())), w.0);
}

/// What a rank says to another, as that one reads it.
fn through_codec(message: &ClientMsg) -> ClientMsg {
    let mut frame = Writer::new();
    message.encode(&mut frame);
    assert!(frame.0.len() <= FRAME_BYTES_MAX, "{} bytes are said at once", frame.0.len());
    ClientMsg::decode(&frame.0).expect("a rank understands what another says")
}

impl Cluster {
    fn new() -> Self {
        Self::of(2)
    }

    fn of(ranks: u16) -> Self {
        let mut map = ClusterMap::first();
        map.max_mds = ranks;
        for rank in 0..ranks {
            let life = u64::from(rank) + 1;
            let daemon = DaemonId(life);
            let info = RankInfo { state: RankState::Active, incarnation: Incarnation(life), daemon };
            map.ranks.insert(RankId(rank), info);
            map.daemons.insert(daemon, DaemonInfo { name: format!("d{rank}") });
        }
        map.made.0[0] = (1 << ranks) - 1;
        let last = u64::from(ranks);
        (map.last_incarnation, map.last_daemon) = (Incarnation(last), DaemonId(last));
        map.version += 1;
        let shared = Arc::new(map.clone());
        let mut store = formatted(RankId(0));
        (1..ranks).for_each(|rank| ensure_rank(&mut store, rank));
        let config = |rank: u16| {
            let mut config = RankConfig::tiny([1; 16], SEED, Incarnation(u64::from(rank) + 1));
            config.rank = RankId(rank);
            // Room for all of these tests: what must be dropped is dropped for its own sake.
            config.cache_bytes = 16 << 20;
            config.journal_bytes = 16 << 20;
            config
        };
        let mut worlds: Vec<World> = Vec::new();
        for rank in 0..ranks {
            let store = worlds
                .last_mut()
                .map_or(std::mem::take(&mut store), |world| std::mem::take(&mut world.store));
            worlds.push(World::of(config(rank), store, Some(shared.clone())));
        }
        let mut cluster = Self {
            holder: worlds.len() - 1,
            worlds,
            map,
            links: BTreeMap::new(),
            last_link: LINKS,
            last_life: last,
            deaf: false,
            refuses: false,
            has_begun: false,
            cut: BTreeSet::new(),
            gone: Vec::new(),
            behind: BTreeSet::new(),
            masked: None,
        };
        cluster.settle();
        cluster
    }

    /// Gives a rank the store and the data.
    fn hold(&mut self, at: usize) -> &mut World {
        if self.holder != at {
            let store = std::mem::take(&mut self.worlds[self.holder].store);
            let data = std::mem::take(&mut self.worlds[self.holder].data);
            (self.worlds[at].store, self.worlds[at].data, self.holder) = (store, data, at);
        }
        &mut self.worlds[at]
    }

    fn inject(&mut self, at: usize, input: Input) {
        self.hold(at).inject(input);
    }

    /// Everything that is on its way arrives.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut idle = true;
            for at in 0..self.worlds.len() {
                idle &= !self.deliver_from(at);
                if !self.deaf
                    && let Some(wish) = self.worlds[at].wishes.pop_front()
                {
                    idle = false;
                    self.grant(at, wish);
                }
            }
            if idle {
                return;
            }
        }
        let waits = self.worlds.iter().map(|world| world.rank.operations(Mono(world.now), 9));
        panic!("the ranks do not come to rest: {:?}", waits.collect::<Vec<_>>());
    }

    fn deliver_from(&mut self, from: usize) -> bool {
        let some = self.deliver_one(from);
        while self.deliver_one(from) {}
        some
    }

    /// The next thing that a rank says to another one, or hears from one that it asks.
    fn deliver_one(&mut self, from: usize) -> bool {
        if let Some((to, message)) = self.worlds[from].to_ranks.pop_front() {
            let link = (from, usize::from(to.0));
            if self.cut.contains(&link) {
                // A driver lets some time pass before it says so.
                self.gone.push((from, to));
                return true;
            }
            let conn = match self.links.get(&link) {
                Some(conn) => *conn,
                None => {
                    self.last_link += 1;
                    let conn = ConnId(self.last_link);
                    self.links.insert(link, conn);
                    self.inject(link.1, Input::Connected { conn, peer: Peer::Trusted });
                    conn
                }
            };
            self.inject(link.1, Input::Message { conn, message: through_codec(&message) });
            return true;
        }
        let links: Vec<_> = self.links.iter().map(|(link, conn)| (*link, *conn)).collect();
        for ((asker, told), conn) in links {
            if let Some(at) = self.worlds[told].sent.iter().position(|(to, _)| *to == conn) {
                let (_, message) = self.worlds[told].sent.remove(at);
                let mut frame = Writer::new();
                message.encode(&mut frame);
                assert!(frame.0.len() <= FRAME_BYTES_MAX, "{} bytes are answered at once", frame.0.len());
                let rank = RankId(told as u16);
                let refused = matches!(message, ServerMsg::Refused { .. });
                self.inject(asker, Input::FromRank { rank, message: Box::new(message) });
                if refused {
                    self.links.remove(&(asker, told));
                    self.gone.push((asker, rank));
                }
                return true;
            }
        }
        false
    }

    /// The coordinator.
    /// Of each rank one message arrives, if one is on its way, one wish is carried out, and a millisecond passes.
    fn go_on(&mut self) {
        for at in 0..self.worlds.len() {
            self.deliver_one(at);
        }
        for at in 0..self.worlds.len() {
            if let Some(wish) = self.worlds[at].wishes.pop_front() {
                self.grant(at, wish);
            }
        }
        for at in 0..self.worlds.len() {
            self.hold(at).pass(1);
        }
    }

    fn grant(&mut self, from: usize, wish: MapWish) {
        if self.refuses && !matches!(wish, MapWish::Abort { .. }) {
            return self.inject(from, Input::WishRefused { wish, reason: "not now".into() });
        }
        let version = self.map.version + 1;
        match wish {
            MapWish::Make { unit, policy, governing } => {
                let Some(rank) = self.governed(from, governing, version) else {
                    return self.refuse(from, wish);
                };
                let entry = Entry { rank, version, policy, moving: None };
                assert_eq!(Arc::make_mut(&mut self.map.entries).insert(unit, entry), None);
            }
            MapWish::SetPolicy { unit, .. } if std::mem::take(&mut self.has_begun) => {
                self.announce(unit, RankId(1));
                return self.inject(from, Input::WishRefused { wish, reason: "it is on its way".into() });
            }
            MapWish::SetPolicy { unit, version: seen, policy } => {
                let entry = self.owned(from, unit, seen).expect("an entry");
                let entry = Entry { version, policy, ..entry };
                Arc::make_mut(&mut self.map.entries).insert(unit, entry);
            }
            MapWish::Drop { unit, version: seen, why } => {
                if self.owned(from, unit, seen).is_none() {
                    let reason = "it is not there, or another".into();
                    return self.inject(from, Input::WishRefused { wish, reason });
                }
                Arc::make_mut(&mut self.map.entries).remove(&unit);
                if let Dropped::Merged(governing) = why {
                    self.governed(from, governing, version);
                }
            }
            MapWish::Begin { unit, to, governing } => {
                let Some(rank) = self.governed(from, governing, version) else {
                    return self.refuse(from, wish);
                };
                self.map.last_move = MoveId(self.map.last_move.0 + 1);
                let moving = Some(Moving { id: self.map.last_move, to });
                let policy = self.map.entries.get(&unit).map_or(Policy::Carved, |entry| entry.policy);
                let entry = Entry { rank, version, policy, moving };
                Arc::make_mut(&mut self.map.entries).insert(unit, entry);
            }
            MapWish::UseSlots => self.map.slots_used = true,
            MapWish::Leave => {
                let rank = RankId(from as u16);
                assert!(!self.map.is_owner(rank), "it leaves something");
                self.map.ranks.remove(&rank);
            }
            MapWish::Switch { unit, id } | MapWish::Abort { unit, id } if unit.dir == Ino::NONE => {
                self.slots_end(id, matches!(wish, MapWish::Switch { .. }));
            }
            MapWish::Switch { unit, id } | MapWish::Abort { unit, id } => {
                let entry = Arc::make_mut(&mut self.map.entries).get_mut(&unit).expect("an entry");
                let Some(moving) = entry.moving.filter(|moving| moving.id == id) else { return };
                let (from, carved) = (entry.rank, entry.policy == Policy::Carved);
                (entry.moving, entry.version) = (None, version);
                if matches!(wish, MapWish::Switch { .. }) {
                    entry.rank = moving.to;
                    // The mask has it go back, with the same map.
                    if carved && self.masked == Some(moving.to) {
                        self.map.last_move = MoveId(self.map.last_move.0 + 1);
                        entry.moving = Some(Moving { id: self.map.last_move, to: from });
                    }
                }
            }
        }
        self.publish();
    }

    /// The owner that is named, and has a new version from now on; none: it is on its way.
    fn governed(&mut self, from: usize, named: Governing, version: u64) -> Option<RankId> {
        let by = match named.by {
            Governor::Entry(by) => by,
            Governor::Slot(number) => {
                let slot = self.map.slots.get(number);
                assert_eq!(slot.version, named.version, "a rank that goes by an old map");
                assert_eq!(usize::from(slot.rank.0), from);
                if slot.moving.is_some() {
                    return None;
                }
                let slots = Arc::make_mut(&mut self.map.slots);
                slots.set(number..number + 1, proto::cluster::Slot { version, ..slot });
                return Some(slot.rank);
            }
        };
        let entry = Arc::make_mut(&mut self.map.entries).get_mut(&by).expect("a governing entry");
        assert_eq!(entry.version, named.version, "a rank that goes by an old map");
        assert_eq!(usize::from(entry.rank.0), from);
        if entry.moving.is_some() {
            return None;
        }
        entry.version = version;
        Some(entry.rank)
    }

    fn refuse(&mut self, from: usize, wish: MapWish) {
        self.inject(from, Input::WishRefused { wish, reason: "what governs it moves".into() });
    }

    fn owned(&self, from: usize, unit: Unit, version: u64) -> Option<Entry> {
        let entry = self.map.entries.get(&unit).copied();
        entry
            .filter(|entry| (usize::from(entry.rank.0), entry.version, entry.moving) == (from, version, None))
    }

    /// A directory with an entry is to go to that rank.
    fn announce(&mut self, unit: Unit, to: RankId) {
        self.map.last_move = MoveId(self.map.last_move.0 + 1);
        let moving = Some(Moving { id: self.map.last_move, to });
        Arc::make_mut(&mut self.map.entries).get_mut(&unit).expect("an entry").moving = moving;
        self.publish();
    }

    /// All ranks get the map as it is now.
    fn publish(&mut self) {
        self.map.version += 1;
        let map = Arc::new(self.map.clone());
        for at in (0..self.worlds.len()).filter(|at| !self.behind.contains(at)).collect::<Vec<_>>() {
            self.worlds[at].map = Some(map.clone());
            self.inject(at, Input::Map(map.clone()));
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            for (at, rank) in std::mem::take(&mut self.gone) {
                self.links.remove(&(at, usize::from(rank.0)));
                self.inject(at, Input::RankGone { rank });
            }
            for at in 0..self.worlds.len() {
                self.hold(at).pass(1);
            }
            self.settle();
        }
    }

    fn take_answer(&mut self, at: usize, conn: ConnId, tid: Tid) -> Option<Answered> {
        let world = &mut self.worlds[at];
        if let Some(outcome) = world.answer(conn, tid) {
            return Some(Answered::Outcome(outcome));
        }
        let is = |message: &ServerMsg| matches!(message, ServerMsg::NotMine { tid: of, .. } if *of == tid);
        let place = world.sent.iter().position(|(to, message)| *to == conn && is(message))?;
        match world.sent.remove(place).1 {
            ServerMsg::NotMine { owner, .. } => Some(Answered::NotMine(owner)),
            _ => None,
        }
    }

    fn start(&mut self, at: usize, conn: ConnId, request: Request) -> Tid {
        self.start_as(at, conn, Cred::ROOT, request)
    }

    fn start_as(&mut self, at: usize, conn: ConnId, cred: Cred, request: Request) -> Tid {
        let tid = self.hold(at).start(conn, cred, request);
        self.settle();
        tid
    }

    fn wait(&mut self, at: usize, conn: ConnId, tid: Tid) -> Answered {
        for _ in 0..3_000 {
            if let Some(answered) = self.take_answer(at, conn, tid) {
                return answered;
            }
            self.pass(1);
        }
        let world = |world: &World| (world.notes.clone(), world.rank.operations(Mono(world.now), 9));
        panic!("no answer; {:?}", self.worlds.iter().map(world).collect::<Vec<_>>());
    }

    /// At that rank, by the mount in its process.
    fn ask(&mut self, at: usize, request: Request) -> Answered {
        let tid = self.start(at, EMBEDDED, request);
        self.wait(at, EMBEDDED, tid)
    }

    /// At whatever rank has it, beginning with that one; asked as a client asks: who is named, but of two that name each other by hints a
    /// third one comes before either is asked again. ESTALE: none has it.
    fn call(&mut self, mut at: usize, request: Request) -> Outcome {
        let mut by = BTreeSet::new();
        for _ in 0..8 {
            by.insert(at);
            let named = match self.ask(at, request.clone()) {
                Answered::Outcome(outcome) => return outcome,
                Answered::NotMine(owner) => owner.map(|owner| usize::from(owner.0)),
            };
            let new = |rank: &usize| !by.contains(rank);
            let next = named.filter(new).or_else(|| (0..self.worlds.len()).find(new)).or(named);
            let Some(next) = next else { return Err(Errno::ESTALE) };
            at = next;
        }
        panic!("sent to and fro: {request:?}");
    }

    fn attr(&mut self, at: usize, request: Request) -> Result<Attr, Errno> {
        match self.call(at, request)? {
            Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. } => Ok(attr),
            other => panic!("no attributes: {other:?}"),
        }
    }

    fn lookup(&mut self, parent: NodeRef, name: &str) -> Result<Attr, Errno> {
        self.attr(0, Request::Lookup { parent, name: n(name) })
    }

    fn stat(&mut self, node: NodeRef) -> Attr {
        self.attr(0, Request::GetAttr { node }).expect("attributes")
    }

    fn mkdir(&mut self, parent: NodeRef, name: &str) -> NodeRef {
        node(&self.attr(0, Request::MkDir { parent, name: n(name), new: mode(0o755) }).expect("mkdir"))
    }

    fn create(&mut self, parent: NodeRef, name: &str) -> NodeRef {
        node(&self.attr(0, Request::MkNod { parent, name: n(name), new: mode(0o100_644) }).expect("mknod"))
    }

    fn pin_request(dir: NodeRef, rank: u16) -> Request {
        let value = rank.to_string().into_bytes().into();
        let mode = proto::request::XattrMode::Either;
        Request::SetXattr { node: dir, name: n("pando.dir.pin"), value, mode }
    }

    fn pin(&mut self, dir: NodeRef, rank: u16) -> Outcome {
        self.call(0, Self::pin_request(dir, rank))
    }

    fn pin_as(&mut self, dir: NodeRef, value: &str) -> Outcome {
        let mode = proto::request::XattrMode::Either;
        let value = value.as_bytes().into();
        self.call(0, Request::SetXattr { node: dir, name: n("ceph.dir.pin"), value, mode })
    }

    fn pin_of(&mut self, dir: NodeRef) -> Result<String, Errno> {
        match self.call(0, Request::GetXattr { node: dir, name: n("ceph.dir.pin") })? {
            Reply::Xattr(value) => Ok(String::from_utf8_lossy(&value).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn owner(&self, dir: NodeRef) -> Option<u16> {
        let entry = self.map.entries.get(&Unit { dir: dir.ino, frag: Frag::WHOLE })?;
        assert_eq!(entry.moving, None);
        Some(entry.rank.0)
    }

    fn names(&mut self, dir: NodeRef) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            match self.call(0, Request::ReadDir { dir, after, attrs: true, bytes_max: 600 }) {
                Ok(Reply::Entries { entries, end }) => {
                    after = entries.last().map_or(after, |entry| entry.hash.cookie());
                    names.extend(
                        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()),
                    );
                    if end {
                        names.sort();
                        return names;
                    }
                }
                Ok(Reply::Further(further)) => after = further,
                other => panic!("readdir: {other:?}"),
            }
        }
    }

    fn rename(&mut self, from: (NodeRef, &str), to: (NodeRef, &str)) -> Outcome {
        let (parent, new_parent) = (from.0, to.0);
        let request = Request::Rename { parent, name: n(from.1), new_parent, new_name: n(to.1), flags: 0 };
        self.call(0, request)
    }

    fn checkpoint(&mut self, at: usize) {
        self.hold(at).checkpoint();
        self.settle();
    }

    fn drop_cache(&mut self, at: usize) {
        self.checkpoint(at);
        self.hold(at).drop_cache();
        self.settle();
    }

    /// A rank dies, and lives again.
    fn crash(&mut self, at: usize) {
        self.last_life += 1;
        let life = Incarnation(self.last_life);
        let gone: Vec<_> = self.links.keys().filter(|link| link.0 == at || link.1 == at).copied().collect();
        for link in &gone {
            self.links.remove(link);
        }
        // What it moved, and what was on its way to it, stays.
        for entry in Arc::make_mut(&mut self.map.entries).values_mut() {
            let ends =
                entry.moving.is_some_and(|moving| [entry.rank, moving.to].contains(&RankId(at as u16)));
            if ends {
                (entry.moving, entry.version) = (None, self.map.version + 1);
            }
        }
        // What was on its way to it, nobody hears.
        for world in &mut self.worlds {
            world.to_ranks.retain(|(to, _)| usize::from(to.0) != at);
        }
        self.map.last_incarnation = life;
        if let Some(info) = self.map.ranks.get_mut(&RankId(at as u16)) {
            info.incarnation = life;
        }
        self.map.version += 1;
        let map = Arc::new(self.map.clone());
        self.worlds[at].map = Some(map);
        self.hold(at).crash_as(life.0);
        for link in gone.into_iter().filter(|link| link.1 == at) {
            self.inject(link.0, Input::RankGone { rank: RankId(at as u16) });
        }
        self.publish();
        self.settle();
        self.pass(20);
    }

    /// A client over a socket.
    fn greet(&mut self, at: usize, peer: Peer, wants: Bits) {
        let world = self.hold(at);
        world.wants = wants;
        let welcome = world.hello(REMOTE, peer, SessionId(0));
        assert!(matches!(welcome, Some(ServerMsg::Welcome { .. })), "{welcome:?}");
        world.wants = Bits::NONE;
        self.settle();
    }

    /// The same client at another rank, under the number that it has at the first.
    fn join(&mut self, first: usize, at: usize, peer: Peer) {
        let session = self.worlds[first].sessions[&REMOTE];
        self.inject(at, Input::Connected { conn: REMOTE, peer });
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        let token = JoinToken::of(&self.worlds[at].config.join_key, session);
        let to = At { join: true, token, ..self.worlds[at].at() };
        let hello =
            ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: self.worlds[at].wants, at: to };
        self.inject(at, Input::Message { conn: REMOTE, message: hello });
        let welcome = self.worlds[at].welcomed(REMOTE);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { .. })), "{welcome:?}");
        self.settle();
    }

    /// A question of rank 0 reaches rank 1, and its answer stays on the way.
    fn answer_on_its_way(&mut self) -> ServerMsg {
        let (to, message) = self.worlds[0].to_ranks.pop_front().expect("a question");
        assert_eq!(to, RankId(1));
        let conn = self.links[&(0, 1)];
        self.inject(1, Input::Message { conn, message });
        let at = self.worlds[1].sent.iter().position(|(to, _)| *to == conn).expect("an answer");
        self.worlds[1].sent.remove(at).1
    }

    /// What a client over a socket was told besides answers.
    fn heard(&mut self, at: usize, is: impl Fn(&ServerMsg) -> bool) -> Option<ServerMsg> {
        let place = self.worlds[at].sent.iter().position(|(to, message)| *to == REMOTE && is(message))?;
        Some(self.worlds[at].sent.remove(place).1)
    }

    /// A directory that rank 1 has, with two names in it and one below.
    fn with_moved() -> (Self, NodeRef) {
        let mut c = Self::new();
        let dir = c.mkdir(root(), "d");
        let sub = c.mkdir(dir, "sub");
        c.create(sub, "deep");
        c.create(dir, "f");
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        assert_eq!(c.owner(dir), Some(1));
        (c, dir)
    }
}

const NOT_MINE: fn(u16) -> Answered = |rank| Answered::NotMine(Some(RankId(rank)));
