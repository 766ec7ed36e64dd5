//! What clients tell their callers by themselves, against what the ranks will come to: the present tree with everything that this client
//! was told, by whichever rank, and that is still to come.
//!
//! Absent: whether it comes (`promise.rs`).

use super::promise::about;
use super::{Asked, Judge, Key};
use crate::model::judge::{Teller, Verdict, attr_of, named, run_told, same_attr};
use crate::model::tree::Tree;
use proto::ids::SessionId;
use proto::message::Told;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Ino};

impl Judge {
    /// A client has performed a request by itself and told its caller so.
    pub(in crate::ranks) fn performed(
        &mut self,
        key: Key,
        asked: Asked,
        told: Told,
        outcome: &Outcome,
    ) -> Verdict {
        let request = asked.request.clone();
        let Ok(reply) = outcome else { return Err(format!("performs by itself and fails: {request:?}")) };
        if !self.promises.eager.contains(&key.1) {
            return Err(format!("{key:?} performs what it may not: {request:?}"));
        }
        self.may_perform(key, &asked, &told, reply).map_err(|error| format!("{error}: {request:?}"))?;
        let mut tree = self.tree().clone();
        self.keep_promises(key.1, self.last(), &mut tree);
        self.may_move(key, &asked, &tree)?;
        let known = self.promises.is_doubtful(key.1, about(&request, told.ino));
        if let Err(error) = run_told(&mut tree, (&request, &asked.cred), &told, reply)
            && !known
        {
            return Err(format!("performs {request:?}\n  as {outcome:?}\n  but the rank {error}"));
        }
        if let (Some(attr), false) = (attr_of(reply), known) {
            self.own_attr(&tree, &request, attr)?;
        }
        self.promises_performed(key, asked, told, outcome);
        Ok(())
    }

    /// Attributes that a client tells by itself.
    fn own_attr(&self, tree: &Tree, request: &Request, attr: &Attr) -> Verdict {
        let node =
            tree.node(attr.ino).ok_or_else(|| format!("tells of inode {}, which is gone", attr.ino.0))?;
        let is = tree.attr(node);
        same_attr(&is, &self.promises.cuts.as_cut(attr, &is))
            .map_err(|error| format!("tells by itself {error}: {request:?}"))?;
        let place = (attr.parent, attr.hash);
        let links = || (Ino::LINKS, name_hash(&self.seed, &attr.ino.link_name()));
        match named(request) {
            None if matches!(request, Request::Link { .. }) && place != links() => {
                Err(format!("tells by itself of a place that two names do not have: {attr:?}"))
            }
            Some((dir, name)) if place != (dir.ino, name_hash(&self.seed, name.as_bytes())) => {
                Err(format!("tells by itself that {name:?} is elsewhere: {attr:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A client that performs answers by itself: what the ranks, with what it has performed, would answer at some moment since the call.
    pub(super) fn answers_itself(
        &self,
        session: SessionId,
        since: u64,
        asked: &Asked,
        outcome: &Outcome,
    ) -> Verdict {
        let shown = match outcome {
            Ok(reply) => attr_of(reply).map_or(Ino::NONE, |attr| attr.ino),
            Err(_) => Ino::NONE,
        };
        if self.promises.is_doubtful(session, about(&asked.request, shown)) {
            return Ok(());
        }
        let mut why = String::from("no state to compare with");
        for (number, tree) in self.states(since).rev() {
            let mut tree = tree.clone();
            self.keep_promises(session, number, &mut tree);
            let mut outcome = outcome.clone();
            if let Ok(Reply::Attr(attr)) = &mut outcome
                && let Some(node) = tree.node(attr.ino)
            {
                *attr = self.promises.cuts.as_cut(attr, &tree.attr(node));
            }
            match self.fits(&tree, asked, &outcome, Teller::Client) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Carries out on a tree what a session was told and the state of that number does not have.
    pub(super) fn keep_promises(&self, session: SessionId, number: u64, tree: &mut Tree) {
        let of = self.promises.of_session(session).map(|(_, promise)| promise);
        let mut missing: Vec<_> =
            of.filter(|promise| promise.executed.is_none_or(|(_, at)| at > number)).collect();
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
