//! The small ranks: each has its part of the tree, and goes by a cluster map that may be old.
//!
//! Absent: what goes on between ranks. A change that concerns two is refused (EXDEV), as they refuse it.

use super::*;
use crate::machine::tests::model::rank::Rank;
use crate::router::route::{self, Place};
use proto::Effect;
use std::collections::BTreeSet;
use stdx::Mono;

/// All ranks.
#[derive(Clone, Default)]
pub(super) struct Cluster {
    ranks: Vec<Rank>,
    tree: Tree,
    /// Maps by version, the first one is version 1.
    maps: Vec<ClusterMap>,
    /// Of each rank: the map that it goes by, and what its session was told of.
    goes_by: Vec<u64>,
    told: Vec<u64>,
    leaving: Option<Leaving>,
    /// Which call is asked of a rank under a tid.
    calls: BTreeMap<(u16, Tid), u64>,
    /// Where calls were carried out.
    done: BTreeMap<u64, (u16, Tid)>,
    /// Turns with each message, so that not everything is said in one way.
    turn: u64,
}

/// A directory that is on its way, with what is below it.
#[derive(Clone)]
struct Leaving {
    dir: Ino,
    from: u16,
    to: u16,
    /// What was asked back.
    recalled: BTreeSet<Ino>,
}

impl Cluster {
    pub(super) fn new(ranks: u16) -> Self {
        let all = (0..ranks).map(Rank::of).collect();
        let count = usize::from(ranks);
        Self {
            ranks: all,
            // The ranks count their lives by themselves here.
            maps: vec![ClusterMap { last_incarnation: Incarnation(1 << 20), ..map(1, ranks, &[]) }],
            goes_by: vec![1; count],
            told: vec![0; count],
            ..Self::default()
        }
    }

    fn newest(&self) -> &ClusterMap {
        self.maps.last().expect("a first map")
    }

    fn map_of(&self, rank: usize) -> &ClusterMap {
        &self.maps[self.goes_by[rank] as usize - 1]
    }

    fn entry(map: &ClusterMap, dir: Ino) -> Option<u16> {
        map.entries.get(&Unit { dir, frag: Frag::WHOLE }).map(|entry| entry.rank.0)
    }

    /// The directory whose entry says whose the content of this one is.
    fn governing(tree: &Tree, map: &ClusterMap, dir: Ino) -> Option<Ino> {
        let mut at = dir;
        loop {
            if Self::entry(map, at).is_some() {
                return Some(at);
            }
            at = tree.inodes.get(&at)?.parent;
        }
    }

    fn content(tree: &Tree, map: &ClusterMap, dir: Ino) -> Option<u16> {
        if dir == Ino::LINKS || dir == Ino::SYSTEM {
            return Some(0);
        }
        Self::entry(map, Self::governing(tree, map, dir)?)
    }

    /// Whose an inode is: of a directory, whose its content is, too.
    fn keeper(tree: &Tree, map: &ClusterMap, attr: &Attr) -> Option<u16> {
        let dir = if attr.kind() == FileKind::Directory { attr.ino } else { attr.parent };
        Self::content(tree, map, dir)
    }

    fn owner(&self, map: &ClusterMap, request: &Request, own: u16) -> Option<u16> {
        match route::of(request, None) {
            Place::Inside(dir, _) => Self::content(&self.tree, map, dir.ino),
            // Whoever has a part of it syncs that.
            Place::Home(node)
                if matches!(request, Request::Fsync { .. })
                    && Self::entry(map, node.ino) == Some(own)
                    && self.tree.inodes.contains_key(&node.ino) =>
            {
                Some(own)
            }
            Place::Home(node) if node.ino == Ino::ROOT => Some(0),
            Place::Home(node) => {
                let parent = self.tree.inodes.get(&node.ino).map_or(node.parent, |attr| attr.parent);
                Self::content(&self.tree, map, parent)
            }
            Place::Any | Place::All => Some(own),
        }
    }

    /// Whether it concerns more than one rank, or the way above what is one rank's.
    fn is_wide(&self, map: &ClusterMap, rank: u16, request: &Request) -> bool {
        let tree = &self.tree;
        let behind = |dir: &NodeRef, name: &Name| tree.names.get(&(dir.ino, name.clone())).copied();
        let is_dir = |ino: Ino| tree.inodes.get(&ino).is_some_and(|a| a.kind() == FileKind::Directory);
        let is_entry = |ino: Ino| Self::entry(map, ino).is_some();
        let own = |dir: Ino| Self::content(tree, map, dir) == Some(rank);
        match request {
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                let (old, new) = (behind(parent, name), behind(new_parent, new_name));
                let bounds = |dir: Ino| Self::governing(tree, map, dir);
                let apart = bounds(parent.ino) != bounds(new_parent.ino);
                !own(parent.ino)
                    || old.into_iter().chain(new).any(is_entry)
                    || (apart && old.is_some_and(is_dir))
            }
            Request::Link { node, parent, .. } => {
                let home = tree.inodes.get(&node.ino).map_or(Ino::NONE, |attr| attr.parent);
                rank != 0 || !own(parent.ino) || !own(home)
            }
            Request::RmDir { parent, name } => behind(parent, name).is_some_and(is_entry),
            _ => false,
        }
    }

    /// The rank has the tree while it does something.
    fn with<T>(&mut self, rank: usize, now: Mono, act: impl FnOnce(&mut Rank) -> T) -> T {
        let (barred, bounds) = (self.barred(rank), self.bounds().collect());
        let own = &mut self.ranks[rank];
        (own.barred, own.bounds) = (barred, bounds);
        own.at(now);
        std::mem::swap(&mut own.disk.tree, &mut self.tree);
        let done = act(own);
        std::mem::swap(&mut own.disk.tree, &mut self.tree);
        done
    }

    /// Directories whose inode is another rank's than their content.
    fn bounds(&self) -> impl Iterator<Item = Ino> {
        let map = self.newest();
        let home = |dir: Ino| {
            self.tree.inodes.get(&dir).and_then(|attr| Self::content(&self.tree, map, attr.parent))
        };
        let bounds = map.entries.iter().filter(move |(unit, entry)| home(unit.dir) != Some(entry.rank.0));
        bounds.map(|(unit, _)| unit.dir)
    }

    /// What the rank delegates to nobody: what has replicas, and what is on its way.
    fn barred(&self, rank: usize) -> BTreeSet<Ino> {
        let leaving = self.leaving.as_ref().filter(|leaving| usize::from(leaving.from) == rank);
        let goes = leaving.map(|leaving| self.with_inodes(&self.below(leaving.dir))).unwrap_or_default();
        self.bounds().chain(goes).collect()
    }

    /// These, and directories whose inodes alone are in them: their content has an entry of its own, and stays. So the inode of one leaves its
    /// content, and such a directory is delegated to nobody: ranks take back what is granted of any inode below (`granted_below` and
    /// `is_leaving` in `mds`). Without that a client would make something in it by a mode that the rank which got the inode has changed since.
    fn with_inodes(&self, below: &[Ino]) -> Vec<Ino> {
        let inside = |attr: &&Attr| attr.kind() == FileKind::Directory && below.contains(&attr.parent);
        let inside = self.tree.inodes.values().filter(inside).map(|attr| attr.ino);
        let all: BTreeSet<Ino> = below.iter().copied().chain(inside).collect();
        all.into_iter().collect()
    }

    /// Directories that go with that one.
    fn below(&self, dir: Ino) -> Vec<Ino> {
        let map = self.newest();
        let goes = |at: Ino| {
            let mut at = at;
            loop {
                if at == dir {
                    return true;
                }
                let above = self.tree.inodes.get(&at).map(|attr| attr.parent);
                let (Some(above), None) = (above, Self::entry(map, at)) else { return false };
                at = above;
            }
        };
        let dirs = self.tree.inodes.values().filter(|attr| attr.kind() == FileKind::Directory);
        dirs.map(|attr| attr.ino).filter(|ino| goes(*ino)).collect()
    }

    pub(super) fn is_asked(&mut self, rank: u16, tid: Tid, call: u64) {
        self.calls.insert((rank, tid), call);
    }

    pub(super) fn receive(
        &mut self,
        now: Mono,
        rank: usize,
        message: ClientMsg,
        told: &mut BTreeMap<Tid, Outcome>,
    ) -> Vec<ServerMsg> {
        self.turn += 1;
        let id = rank as u16;
        let there = self.newest().ranks.contains_key(&RankId(id));
        if let (ClientMsg::Hello { at, .. }, true) = (&message, !there || self.dismisses(id)) {
            self.told[rank] = at.map_version;
            self.learns(rank);
            let (errno, reason) = (Errno::ESHUTDOWN.0 as u32, "it is not here".to_owned());
            let refusal = if there { dismissed() } else { ServerMsg::Refused { errno, reason } };
            return self.news(rank).into_iter().chain([refusal]).collect();
        }
        if matches!(message, ClientMsg::Renew { .. }) && self.told[rank] > 0 {
            let renewed = self.with(rank, now, |own| own.receive(message, told));
            return self.news(rank).into_iter().chain(renewed).collect();
        }
        if let ClientMsg::Hello { session, at, .. } = &message {
            assert_eq!(at.rank, RankId(id));
            let (first, again) = (*session == SessionId(0), session.0 == 5);
            assert!(if id == 0 { !at.join && (first || again) } else { again }, "{session:?} {at:?}");
            self.told[rank] = at.map_version;
        }
        if let ClientMsg::WantMap { have } = message {
            self.told[rank] = have;
            return self.news(rank).into_iter().collect();
        }
        if let Some((tid, request)) = message.asked() {
            let known = self.ranks[rank].disk.results.contains_key(&tid);
            let map = self.map_of(rank);
            let owner = self.owner(map, request, id);
            let wide = self.is_wide(map, id, request);
            if matches!(request, Request::Rewrite { .. }) && owner != Some(id) {
                // Before it became another's its bytes were synced.
                return vec![ServerMsg::Done { tid, position: Position(0) }];
            }
            if message.is_performed() {
                assert!(
                    known || (owner == Some(id) && !wide),
                    "{message:?} at rank {id}, and it is {owner:?}'s"
                );
            } else if !known && owner != Some(id) {
                // Sometimes it does not know either.
                let owner = owner.filter(|_| !self.turn.is_multiple_of(5)).map(RankId);
                let version = map.version;
                return self
                    .news(rank)
                    .into_iter()
                    .chain([ServerMsg::NotMine { tid, owner, version }])
                    .collect();
            } else if !known && wide {
                return vec![ServerMsg::Reply { tid, outcome: Err(Errno::EXDEV) }];
            }
            // A sync may have two parts.
            let sync = matches!(request, Request::Fsync { .. });
            let changes = request.effect() == Effect::Journal && !sync;
            let answers = self.with(rank, now, |own| own.receive(message, told));
            let stored = self.ranks[rank].disk.results.contains_key(&tid);
            if changes && !known && stored {
                self.is_done(id, tid);
            }
            return answers;
        }
        let greets = matches!(message, ClientMsg::Hello { .. });
        let mut answers = self.with(rank, now, |own| own.receive(message, told));
        if greets && self.turn.is_multiple_of(2) {
            answers.extend(self.news(rank));
        }
        answers
    }

    /// Something was carried out: nowhere else, and under no other tid.
    fn is_done(&mut self, rank: u16, tid: Tid) {
        let Some(call) = self.calls.get(&(rank, tid)) else { return };
        let first = *self.done.entry(*call).or_insert((rank, tid));
        assert_eq!(first, (rank, tid), "call {call} was carried out twice");
    }

    /// The map, for a session that has an older one: whole, or what has changed.
    fn news(&mut self, rank: usize) -> Option<ServerMsg> {
        let (have, map) = (self.told[rank], self.map_of(rank).clone());
        if have >= map.version {
            return None;
        }
        self.told[rank] = map.version;
        let whole = have == 0 || self.turn.is_multiple_of(3);
        let delta = |have: u64| map.diff(&self.maps[have as usize - 1]).encode();
        Some(said(map.version, if whole { map.encode() } else { delta(have) }))
    }

    /// The rank hears of the newest map.
    pub(super) fn learns(&mut self, rank: usize) {
        self.goes_by[rank] = self.newest().version;
    }

    pub(super) fn disconnected(&mut self, rank: usize) {
        self.ranks[rank].disconnected();
        if let Some(leaving) = self.leaving.as_mut().filter(|leaving| usize::from(leaving.from) == rank) {
            leaving.recalled.clear();
        }
    }

    pub(super) fn sync(&mut self, rank: usize) -> Option<ServerMsg> {
        self.with(rank, Mono(0), Rank::sync)
    }

    /// What the rank has that is not durable is gone; of the others nothing.
    pub(super) fn crash(&mut self, rank: usize) {
        let (id, map) = (rank as u16, self.newest().clone());
        let durable = self.ranks[rank].durable.tree.clone();
        let mut tree = self.tree.clone();
        let now = &self.tree;
        tree.inodes.retain(|_, attr| Self::keeper(now, &map, attr) != Some(id));
        tree.names.retain(|(dir, _), _| Self::content(now, &map, *dir) != Some(id));
        let own = |attr: &&Attr| Self::keeper(&durable, &map, attr) == Some(id);
        tree.inodes.extend(durable.inodes.values().filter(own).map(|attr| (attr.ino, *attr)));
        let own = |dir: Ino| Self::content(&durable, &map, dir) == Some(id);
        let names = durable.names.iter().filter(|((dir, _), _)| own(*dir));
        tree.names.extend(names.map(|(key, ino)| (key.clone(), *ino)));
        self.ranks[rank].durable.tree = tree;
        self.with(rank, Mono(0), Rank::crash);
        if self.leaving.as_ref().is_some_and(|leaving| leaving.from == id) {
            self.leaving = None;
        }
    }

    pub(super) fn begin_foreign(&mut self, rank: usize, now: Mono, prng: &mut Prng) -> Option<ServerMsg> {
        let (tree, map) = (self.tree.clone(), self.newest().clone());
        let barred = self.barred(rank);
        let whose = |dir| Self::content(&tree, &map, dir) == Some(rank as u16) && !barred.contains(&dir);
        self.with(rank, now, |own| own.begin_foreign(prng, whose))
    }

    /// The map becomes another.
    fn change(&mut self, change: impl FnOnce(&mut ClusterMap)) {
        let mut next = self.newest().clone();
        next.version += 1;
        change(&mut next);
        self.maps.push(next);
    }

    fn state(&self, rank: u16) -> Option<RankState> {
        self.newest().ranks.get(&RankId(rank)).map(|info| info.state)
    }

    fn owns(&self, rank: u16) -> bool {
        let leaving = self.leaving.as_ref();
        self.newest().entries.values().any(|entry| entry.rank == RankId(rank))
            || leaving.is_some_and(|leaving| leaving.from == rank || leaving.to == rank)
    }

    /// Whether the rank goes and has no session.
    fn dismisses(&self, rank: u16) -> bool {
        let stops = self.state(rank) == Some(RankState::Stopping);
        stops && !self.owns(rank) && !self.ranks[usize::from(rank)].is_known()
    }

    /// Whether the rank goes and has a session of which it has nothing.
    pub(super) fn has_idle_session(&self, rank: u16) -> bool {
        let own = &self.ranks[usize::from(rank)];
        let stops = self.state(rank) == Some(RankState::Stopping);
        stops && !self.owns(rank) && own.is_known() && own.opens.values().all(|count| *count == 0)
    }

    /// It ends that session.
    pub(super) fn ends_session(&mut self, rank: usize) -> [ServerMsg; 1] {
        self.with(rank, Mono(0), |own| own.receive(ClientMsg::Goodbye, &mut BTreeMap::new()));
        [dismissed()]
    }

    /// A rank stops, goes when no session is there any more, or comes again. Whether it has gone.
    pub(super) fn stop_or_begin(&mut self, rank: u16) -> bool {
        let id = RankId(rank);
        let owns = self.owns(rank);
        match self.state(rank) {
            Some(RankState::Active) if rank != 0 && !owns => self.change(|map| {
                map.ranks.get_mut(&id).expect("a rank").state = RankState::Stopping;
            }),
            Some(RankState::Stopping) if !self.ranks[usize::from(rank)].is_known() => {
                self.change(|map| {
                    map.ranks.remove(&id);
                });
                return true;
            }
            None => self.change(|map| {
                map.last_incarnation.0 += 1;
                let (incarnation, daemon) = (map.last_incarnation, DaemonId(u64::from(rank) + 1));
                map.ranks.insert(id, RankInfo { state: RankState::Active, incarnation, daemon });
            }),
            Some(_) => {}
        }
        false
    }

    /// A directory is to be another rank's.
    pub(super) fn begin_move(&mut self, dir: Ino, to: u16) {
        if self.state(to) != Some(RankState::Active) {
            return;
        }
        let from = Self::content(&self.tree, self.newest(), dir);
        let Some(from) = from.filter(|from| *from != to && dir != Ino::ROOT) else { return };
        if self.leaving.is_none() && self.tree.inodes.contains_key(&dir) {
            self.leaving = Some(Leaving { dir, from, to, recalled: BTreeSet::new() });
        }
    }

    /// What is said for the sake of the move, and whether it is made.
    pub(super) fn go_on(&mut self, now: Mono) -> (Vec<(usize, ServerMsg)>, bool) {
        let Some(Leaving { dir, from, to, .. }) = self.leaving.clone() else { return (Vec::new(), false) };
        let below = self.below(dir);
        let rank = usize::from(from);
        let own = &self.ranks[rank];
        let inside = |ino: &Ino| self.tree.inodes.get(ino).is_none_or(|attr| below.contains(&attr.parent));
        let open = own.opens.iter().any(|(ino, count)| *count > 0 && inside(ino));
        let linked = self.tree.names.iter().any(|((dir, _), ino)| {
            below.contains(dir) && self.tree.inodes.get(ino).is_some_and(|attr| attr.parent == Ino::LINKS)
        });
        if open || linked || below.is_empty() {
            self.leaving = None;
            return (Vec::new(), false);
        }
        // Of whoever has not come back, or has not said all, nobody knows what it has performed.
        if !own.has_said_all() {
            return (Vec::new(), false);
        }
        let delegated = self.with_inodes(&below).into_iter().filter(|dir| own.delegated.contains(dir));
        let delegated: Vec<Ino> = delegated.collect();
        if !delegated.is_empty() {
            let leaving = self.leaving.as_mut().expect("it is on its way");
            let asked: Vec<Ino> = delegated.into_iter().filter(|dir| leaving.recalled.insert(*dir)).collect();
            let recalls = asked.into_iter().map(|dir| (rank, self.ranks[rank].recall(dir)));
            return (recalls.collect(), false);
        }
        self.leaving = None;
        let mut says = Vec::new();
        for rank in [from, to].map(usize::from) {
            let durable = self.with(rank, now, Rank::sync);
            says.extend(durable.map(|durable| (rank, durable)));
        }
        let mut next = self.newest().clone();
        next.version += 1;
        let entry = Entry { rank: RankId(to), version: next.version, policy: Policy::Pin, moving: None };
        Arc::make_mut(&mut next.entries).insert(Unit { dir, frag: Frag::WHOLE }, entry);
        self.maps.push(next);
        self.learns(rank);
        self.learns(usize::from(to));
        (says, true)
    }

    /// What would come of it now, whosever it is.
    pub(super) fn execute(&mut self, request: &Request) -> Outcome {
        let wall = self.ranks[0].wall;
        self.tree.execute(request, Ino::NONE, wall)
    }

    pub(super) fn behind(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.tree.names.get(&(dir, name.clone())).copied()
    }

    pub(super) fn inodes(&self) -> Vec<Ino> {
        self.tree.inodes.keys().copied().collect()
    }

    pub(super) fn opens(&self, ino: Ino) -> u32 {
        self.ranks.iter().map(|rank| rank.opens(ino)).sum()
    }
}
