//! The fake rank's early answers: it delegates directories, carries out what clients performed, and is durable when a test says so.
//!
//! Absent: recalls of what it delegated, which tests make (`Fake::recall`), and crashes: it forgets nothing.

use super::{Fake, Posts, State};
use crate::shared::lock;
use proto::caps::{Bits, Grants};
use proto::message::{Delegated, ServerMsg, Told};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Effect, Errno, Ino, Position, SessionId, Tid};
use stdx::Wall;

/// Numbers that a session gets at once.
const NUMBERS: u32 = 1000;
/// Above those that the tree gives.
const FIRST_NUMBER: u64 = 1 << 32;

/// What the fake rank does early.
#[derive(Default)]
pub(super) struct Early {
    /// It answers changes early.
    on: bool,
    position: u64,
    /// What becomes of requests that clients performed.
    fails: Option<fn(&Request) -> Option<Errno>>,
    /// Requests that clients performed, and whether the rank had said so.
    performed: Vec<(Request, bool)>,
    presented: u32,
    sessions: u64,
}

impl Fake {
    /// Changes are answered early, to sessions that want it, and their directories delegated; nothing is durable until `durable`.
    #[must_use]
    pub fn early(self) -> Self {
        lock(&self.state).early.on = true;
        self
    }

    /// Everything so far is durable.
    pub fn durable(&self) {
        let position = Position(lock(&self.state).early.position);
        self.say(&ServerMsg::Durable { position });
    }

    /// What clients perform fails with what `fails` says.
    pub fn fail_performed(&self, fails: fn(&Request) -> Option<Errno>) {
        lock(&self.state).early.fails = Some(fails);
    }

    /// What clients performed, in order, and whether the rank had said so.
    #[must_use]
    pub fn performed(&self) -> Vec<(Request, bool)> {
        lock(&self.state).early.performed.clone()
    }

    /// How often a session said that it has presented everything.
    #[must_use]
    pub fn presented(&self) -> u32 {
        lock(&self.state).early.presented
    }
}

impl State {
    /// A session begins that wants early answers.
    pub(super) fn greet_early(&mut self, conn: u64, wants: Bits, posts: &mut Posts) {
        if !(self.early.on && wants.has(Bits::DX)) {
            return;
        }
        let first = Ino(FIRST_NUMBER + self.early.sessions * u64::from(NUMBERS));
        self.early.sessions += 1;
        let seed = super::tree::SEED;
        posts.push((conn, ServerMsg::Numbers { first, count: NUMBERS, generation: 0, seed }));
    }

    /// The answer to a change, if it is one that is given early.
    pub(super) fn early_answer(
        &mut self,
        session: SessionId,
        tid: Tid,
        request: &Request,
        outcome: &Outcome,
        grants: &Grants,
    ) -> Option<ServerMsg> {
        let wants = self.sessions.get(&session).map_or(Bits::NONE, |session| session.wants);
        let sync = matches!(request, Request::Fsync { .. });
        if !(self.early.on && wants.has(Bits::DX)) || request.effect() != Effect::Journal || sync {
            return None;
        }
        self.early.position += 1;
        let dirs = [request.subject().map(|(node, _)| node.ino), made_dir(outcome)];
        let dirs = dirs.into_iter().flatten().filter_map(|dir| self.tree.directory(dir));
        let delegated = dirs.map(|dir| Delegated { empty: dir.size == 0, dir }).collect();
        Some(ServerMsg::Early {
            tid,
            position: Position(self.early.position),
            wall: Wall(self.tree.clock()),
            outcome: outcome.clone(),
            grants: grants.clone(),
            delegated,
        })
    }

    pub(super) fn performed(
        &mut self,
        conn: u64,
        session: SessionId,
        (tid, floor): (Tid, Tid),
        told: Told,
        request: &Request,
    ) -> Posts {
        let Some(known) = self.sessions.get_mut(&session) else { return Vec::new() };
        known.results.retain(|tid, _| *tid >= floor);
        let outcome = match known.results.get(&tid).cloned() {
            Some(outcome) => outcome,
            None => {
                self.early.performed.push((super::rank::kept(request), told.heard));
                let fails = self.early.fails.and_then(|fails| fails(request));
                let outcome = fails.map_or_else(|| self.tree.perform(request, told.ino), Err);
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.results.insert(tid, outcome.clone());
                }
                self.count_opened(session, request, &outcome);
                outcome
            }
        };
        let answer = match outcome {
            Ok(_) => {
                self.early.position += 1;
                ServerMsg::Done { tid, position: Position(self.early.position) }
            }
            Err(errno) => ServerMsg::Reply { tid, outcome: Err(errno) },
        };
        vec![(conn, answer)]
    }

    pub(super) fn presented(&mut self) {
        self.early.presented += 1;
    }
}

fn made_dir(outcome: &Outcome) -> Option<Ino> {
    if let Ok(Reply::Attr(attr)) = outcome { Some(attr.ino) } else { None }
}
