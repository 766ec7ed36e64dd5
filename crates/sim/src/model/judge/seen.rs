//! What clients tell their callers by themselves, against what the rank will come to: the present tree with everything that was
//! told and is still to come.
//!
//! Absent: whether it comes (`promise.rs`).

use super::kept::differing;
use super::promise::{Promise, attr_of};
use super::replies::{Teller, same_attr};
use super::{Asked, Changed, Judge, Verdict};
use crate::model::rules::{Op, given};
use crate::model::tree::Tree;
use proto::ids::{SessionId, Tid};
use proto::message::Told;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Cred, Errno, Ino, Name, NodeRef, every_request};
use std::borrow::Cow;

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";

impl Judge {
    /// A client has performed a request by itself and told its caller so.
    ///
    /// # Errors
    /// The rank could not come to that.
    pub fn performed(&mut self, asked: Asked, told: Told, outcome: &Outcome) -> Verdict<Changed> {
        let (session, tid, clock) = (asked.session, asked.tid, self.tick());
        let request = asked.request.clone();
        let Ok(reply) = outcome else { return Err(format!("performs by itself and fails: {request:?}")) };
        if !self.eager.contains(&session) {
            return Err(format!("session {} performs what it may not: {request:?}", session.0));
        }
        self.may_perform(&asked, &told, reply)?;
        let before = self.seen_by(Some(session)).into_owned();
        self.may_move(&asked, &before)?;
        let mut after = before.clone();
        let known = self.spoiled.contains(&session);
        if let Err(error) = run_told(&mut after, (&asked.request, &asked.cred), &told, reply)
            && !known
        {
            return Err(format!("performs {request:?}\n  as {outcome:?}\n  but the rank {error}"));
        }
        if let (Some(attr), false) = (attr_of(reply), known) {
            self.own_attr(&after, &request, attr)?;
        }
        let promise = Promise {
            asked,
            told,
            outcome: outcome.clone(),
            clock,
            executed: None,
            first: None,
            lost: false,
            excused: self.is_given_up(session),
            failed: false,
        };
        self.promises.insert((session, tid), promise);
        let inos = differing(&before, &after);
        Ok(Changed { number: clock, author: Some((session, tid)), inos, told: false })
    }

    /// Attributes that a client tells by itself.
    fn own_attr(&self, tree: &Tree, request: &Request, attr: &Attr) -> Verdict {
        let node =
            tree.node(attr.ino).ok_or_else(|| format!("tells of inode {}, which is gone", attr.ino.0))?;
        let is = tree.attr(node);
        same_attr(&is, &self.as_cut(attr, &is))
            .map_err(|error| format!("tells by itself {error}: {request:?}"))?;
        let links = || (Ino::LINKS, name_hash(&self.seed, format!("{:016x}", attr.ino.0).as_bytes()));
        match named(request) {
            None if matches!(request, Request::Link { .. }) && (attr.parent, attr.hash) != links() => {
                Err(format!("tells by itself of a place that two names do not have: {attr:?}"))
            }
            Some((dir, name))
                if (attr.parent, attr.hash) != (dir.ino, name_hash(&self.seed, name.as_bytes())) =>
            {
                Err(format!("tells by itself that {name:?} is elsewhere: {attr:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A client answers by itself without changing anything.
    ///
    /// # Errors
    /// The rank, with what the client has performed, would answer otherwise.
    pub fn answers_itself(&mut self, asked: &Asked, outcome: &Outcome) -> Verdict {
        self.tick();
        if self.spoiled.contains(&asked.session) {
            return Ok(());
        }
        if let (Request::Lookup { parent, name }, Ok(Reply::Attr(attr))) = (&asked.request, outcome)
            && (attr.parent, attr.hash) != (parent.ino, name_hash(&self.seed, name.as_bytes()))
        {
            return Err(format!("answers by itself that {name:?} is elsewhere: {attr:?}"));
        }
        // What the rank has done for this session and nobody was told of may have happened later.
        let of = self.pending.range((asked.session, Tid(0))..=(asked.session, Tid(u64::MAX)));
        let running =
            of.filter(|(key, pending)| pending.executed.is_some() && !self.promises.contains_key(key));
        let first = running.map(|(_, pending)| pending.first).min().unwrap_or(u64::MAX).min(self.last());
        // Nothing is known of a name that the session itself has asked to change.
        let absent = matches!(asked.request, Request::Lookup { .. }) && *outcome == Err(Errno::ENOENT);
        let first = if absent { self.last() } else { first };
        let mut why = String::new();
        for number in (first.max(self.first)..=self.last()).rev() {
            let state = &self.states[(number - self.first) as usize];
            let mut seen = state.clone();
            self.keep_promises(asked.session, number, &mut seen.tree);
            let mut outcome = outcome.clone();
            if let Ok(Reply::Attr(attr)) = &mut outcome
                && let Some(node) = seen.tree.node(attr.ino)
            {
                *attr = self.as_cut(attr, &seen.tree.attr(node));
            }
            match self.fits(&seen, asked, &outcome, None, Teller::Client) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(format!("answers by itself: {why}\n  request {:?}\n  answer {outcome:?}", asked.request))
    }

    /// The present tree as the client of a session sees it: with what it was told and is still to come.
    #[must_use]
    pub fn seen_by(&self, session: Option<SessionId>) -> Cow<'_, Tree> {
        let of = |session: SessionId| self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        match session {
            Some(session) if of(session).any(|(_, promise)| promise.executed.is_none()) => {
                let mut tree = self.tree().clone();
                self.keep_promises(session, self.last(), &mut tree);
                Cow::Owned(tree)
            }
            _ => Cow::Borrowed(self.tree()),
        }
    }

    /// Carries out on a tree what a session was told and the state of that number does not have.
    fn keep_promises(&self, session: SessionId, number: u64, tree: &mut Tree) {
        let of = self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        let mut missing: Vec<_> = of
            .map(|(_, promise)| promise)
            .filter(|promise| promise.executed.is_none_or(|(_, at)| at > number))
            .collect();
        // What was answered early comes back in the order in which it was executed, what was performed after what was told before it.
        missing.sort_by_key(|promise| promise.first.unwrap_or(promise.clock));
        for promise in missing {
            if let Ok(reply) = &promise.outcome {
                // What does not work any more ends in a late error.
                let _ = run_told(tree, (&promise.asked.request, &promise.asked.cred), &promise.told, reply);
            }
        }
    }
}

/// The permissions that an access ACL in the kernel's form stands for: its owner's, its mask's or else its group's, all others'.
fn acl_mode(value: &[u8]) -> Option<u32> {
    let entries = || value.get(4..).unwrap_or_default().chunks_exact(8);
    let of = |tag: u8| entries().find(|entry| entry[0] == tag).map(|entry| u32::from(entry[2] & 7));
    let (owner, group, other) = (of(0x01)?, of(0x10).or(of(0x04))?, of(0x20)?);
    Some(owner << 6 | group << 3 | other)
}

/// Executes what was told on a tree: with its number, its time, and what else POSIX leaves open.
pub(crate) fn run_told(
    tree: &mut Tree,
    (request, cred): (&Request, &Cred),
    told: &Told,
    reply: &Reply,
) -> Verdict {
    let at = match (request, reply) {
        (Request::Write { append: true, .. }, Reply::Written { attr, count }) => {
            Some(attr.size.saturating_sub(*count))
        }
        _ => None,
    };
    let (made, offset, count) = given(request, reply, at);
    let op = Op { request, cred, wall: told.wall, made, offset, count };
    let before = tree.clone();
    if let Err(errors) = tree.run(&op) {
        *tree = before;
        return Err(format!("must fail with {errors:?}"));
    }
    if let (Request::Fallocate { node, .. }, Some(_)) = (request, tree.node(subject(request))) {
        // The rank notes a change whatever came of it; POSIX leaves that open.
        let node = tree.change(node.ino);
        (node.mtime, node.ctime) = (told.wall, told.wall);
    }
    if let Request::SetXattr { node, name, value, .. } = request
        && name.as_bytes() == ACL_ACCESS
        && let Some(bits) = acl_mode(value)
    {
        // The mode follows it; its answer does not say so.
        let node = tree.change(node.ino);
        node.mode = node.mode & !0o777 | bits;
    }
    if let Some(attr) = attr_of(reply)
        && tree.node(attr.ino).is_some()
    {
        let node = tree.change(attr.ino);
        node.generation = attr.generation;
        let resized = matches!(request, Request::SetAttr { set, .. } if set.size.is_some());
        if (told.heard || resized) && !node.is_dir() {
            // As the answer says: a change to the present state may keep them.
            (node.mtime, node.ctime) = (attr.mtime, attr.ctime);
        }
        if attr.has_xattrs && node.xattrs.is_empty() {
            // It took after its directory's default ACL, which the model does not compute.
            node.xattrs.insert(ACL_ACCESS.into(), b""[..].into());
            node.mode = attr.mode;
        }
        let differs = node.mode ^ attr.mode;
        if differs & !0o6000 == 0 && attr.mode & differs == 0 {
            node.mode = attr.mode;
        }
    }
    Ok(())
}

/// The name that a request is about, if its answer is about what it leads to.
pub(crate) const fn named(request: &Request) -> Option<(NodeRef, &Name)> {
    match request {
        Request::MkNod { parent, name, .. }
        | Request::MkDir { parent, name, .. }
        | Request::Symlink { parent, name, .. }
        | Request::Create { parent, name, .. } => Some((*parent, name)),
        every_request!() => None,
    }
}

fn subject(request: &Request) -> Ino {
    request.subject().map_or(Ino::NONE, |(node, _)| node.ino)
}
