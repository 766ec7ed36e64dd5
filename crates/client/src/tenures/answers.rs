//! What answers of the rank show of directories that are entrusted.
//!
//! Absent: what callers are told (`machine.rs`).

use super::{LIST_AFTER, LIST_MAX, Tenure, Tenures};
use crate::changes::{after_change, changed_dir, may_move_dirs, names_of, of_attr};
use crate::leave::Leave;
use crate::names::Known;
use proto::caps::Bits;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Ino, Name, NodeRef, Tid};

impl Tenures {
    /// The answer to a request that went to the rank. `leave`: what it left to the edge.
    pub(crate) fn answered(
        &mut self,
        tid: Tid,
        request: &Request,
        outcome: &Outcome,
        leave: &Leave,
        (next, unanswered): (Tid, Tid),
    ) {
        for (dir, name) in names_of(request) {
            let known = after_change(request, dir, outcome);
            self.with_names(dir, next, unanswered, |names| names.change_ends(name, tid, known, next));
            if let Some(tenure) = self.dirs.get_mut(&dir) {
                (tenure.asking, tenure.counted) = (tenure.asking.saturating_sub(1), next);
            }
        }
        self.dir_answered(tid, request, outcome, next);
        let learned = (next, unanswered);
        match (request, outcome) {
            (Request::Lookup { parent, name }, Ok(Reply::Attr(attr))) => {
                self.learn_name((parent.ino, name), tid, of_attr(parent.ino, attr), learned);
                self.learn_attr(tid, attr, leave.grants.of(0), leave);
            }
            (Request::Lookup { parent, name }, Err(proto::Errno::ENOENT)) => {
                self.learn_name((parent.ino, name), tid, Known::Absent, learned);
            }
            (Request::GetAttr { .. }, Ok(Reply::Attr(attr))) => {
                self.learn_attr(tid, attr, leave.grants.of(0), leave);
            }
            (Request::ReadDir { dir, .. }, Ok(Reply::Entries { entries, .. })) => {
                for (at, entry) in entries.iter().enumerate() {
                    let Ok(name) = Name::new(&entry.name) else { continue };
                    let known = entry.attr.as_ref().map_or(Known::Unknown, |attr| of_attr(dir.ino, attr));
                    self.learn_name((dir.ino, &name), tid, known, learned);
                    if let Some(attr) = &entry.attr {
                        self.learn_attr(tid, attr, leave.grants.of(at), leave);
                    }
                }
            }
            _ => {}
        }
    }

    /// The same for a change of a directory itself.
    fn dir_answered(&mut self, tid: Tid, request: &Request, outcome: &Outcome, next: Tid) {
        if may_move_dirs(request) {
            let concerned = |(_, tenure): &(&Ino, &Tenure)| tenure.changing.contains(&tid);
            let concerned: Vec<Ino> = self.dirs.iter().filter(concerned).map(|(ino, _)| *ino).collect();
            for ino in concerned {
                match (request, outcome) {
                    (Request::RmDir { .. }, Ok(_))
                        if self.get(ino).is_some_and(Tenure::is_only_changed_once) =>
                    {
                        self.end(ino)
                    }
                    _ => self.dirs.get_mut(&ino).into_iter().for_each(|t| t.change_ended(tid, outcome, next)),
                }
            }
        } else if let Some(tenure) = changed_dir(request).and_then(|dir| self.dirs.get_mut(&dir)) {
            tenure.change_ended(tid, outcome, next);
        }
    }

    /// A change of a name in that directory goes to the rank. Whether it is worth while to ask for all names there.
    pub(crate) fn wants_listing(&mut self, dir: Ino) -> bool {
        let Some(tenure) = self.dirs.get_mut(&dir) else { return false };
        tenure.asked += 1;
        tenure.asked == LIST_AFTER && !tenure.names.is_complete() && tenure.attr.size <= LIST_MAX
    }

    /// A page of its names is asked for under that tid. `first`: from the beginning.
    pub(crate) fn listing(&mut self, dir: Ino, tid: Tid, first: bool) {
        let Some(tenure) = self.dirs.get_mut(&dir) else { return };
        if first {
            tenure.names.listing_begins();
        }
        tenure.listing = Some(tid);
    }

    /// A page is learned. Where the next one begins, if it was one of these and not the last.
    pub(crate) fn listed(
        &mut self,
        tid: Tid,
        request: &Request,
        outcome: &Outcome,
    ) -> Option<(NodeRef, u64)> {
        let Request::ReadDir { dir, .. } = request else { return None };
        let tenure = self.dirs.get_mut(&dir.ino).filter(|tenure| tenure.listing == Some(tid))?;
        tenure.listing = None;
        let Ok(Reply::Entries { entries, end }) = outcome else { return None };
        if *end {
            tenure.names.listing_ends();
            return None;
        }
        entries.last().map(|entry| (*dir, entry.hash.cookie()))
    }

    fn learn_name(
        &mut self,
        (dir, name): (Ino, &Name),
        tid: Tid,
        known: Known,
        (next, unanswered): (Tid, Tid),
    ) {
        self.with_names(dir, next, unanswered, |names| names.learn(name, tid, known));
    }

    fn learn_attr(&mut self, tid: Tid, attr: &Attr, granted: Bits, leave: &Leave) {
        if granted.has(Bits::ATTRS)
            && let Some(newborn) = self.newborns.get_mut(attr.ino)
        {
            newborn.granted(granted, leave);
        }
        let Some(tenure) = self.dirs.get_mut(&attr.ino) else { return };
        if tid >= tenure.since && tenure.changing.is_empty() {
            let counts = tenure.asking == 0 && tid >= tenure.counted && tid > tenure.used;
            match counts {
                true => (tenure.attr, tenure.stale, tenure.exact) = (*attr, false, true),
                false => tenure.learn(attr),
            }
        }
    }
}
