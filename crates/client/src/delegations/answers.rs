//! What answers of the rank show of directories that are delegated.
//!
//! Absent: what callers are told (`machine.rs`).

use super::{Delegation, Delegations, LIST_AFTER, LIST_MAX};
use crate::changes::{after_change, changed_dir, may_move_dirs, of_attr};
use crate::names::Known;
use crate::newborns::Granted;
use crate::validity::Validity;
use crate::window::Tids;
use proto::caps::Bits;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Ino, Name, NodeRef, Tid};
use proto::{every_reply, every_request};

impl Delegations {
    /// The answer to a request that went to the rank. `validity`: what the edge may keep of it.
    pub(crate) fn answered(
        &mut self,
        tid: Tid,
        request: &Request,
        outcome: &Outcome,
        validity: &Validity,
        tids: Tids,
    ) {
        let next = tids.next;
        for (dir, name) in request.changed_names() {
            let known = after_change(request, dir, outcome);
            self.with_names(dir, tids, |names| names.change_ends(name, tid, known, next));
            if let Some(delegation) = self.dirs.get_mut(&dir) {
                (delegation.asking, delegation.counted) = (delegation.asking.saturating_sub(1), next);
            }
        }
        self.dir_answered(tid, request, outcome, next);
        match (request, outcome) {
            (Request::Lookup { parent, name }, Ok(Reply::Attr(attr))) => {
                self.learn_name((parent.ino, name), tid, of_attr(parent.ino, attr), tids);
                self.learn_attr(tid, attr, validity.grants.of(0), validity);
            }
            (Request::Lookup { parent, name }, Err(proto::Errno::ENOENT)) => {
                self.learn_name((parent.ino, name), tid, Known::Absent, tids);
            }
            (Request::GetAttr { .. }, Ok(Reply::Attr(attr))) => {
                self.learn_attr(tid, attr, validity.grants.of(0), validity);
            }
            (Request::ReadDir { dir, .. }, Ok(Reply::Entries { entries, .. })) => {
                for (at, entry) in entries.iter().enumerate() {
                    let Ok(name) = Name::new(&entry.name) else { continue };
                    let known = entry.attr.as_ref().map_or(Known::Unknown, |attr| of_attr(dir.ino, attr));
                    self.learn_name((dir.ino, &name), tid, known, tids);
                    if let Some(attr) = &entry.attr {
                        self.learn_attr(tid, attr, validity.grants.of(at), validity);
                    }
                }
            }
            (every_request!(), Ok(every_reply!()) | Err(_)) => {}
        }
    }

    /// The same for a change of a directory itself.
    fn dir_answered(&mut self, tid: Tid, request: &Request, outcome: &Outcome, next: Tid) {
        if may_move_dirs(request) {
            let concerned = |(_, delegation): &(&Ino, &Delegation)| delegation.changing.contains(&tid);
            let concerned: Vec<Ino> = self.dirs.iter().filter(concerned).map(|(ino, _)| *ino).collect();
            for ino in concerned {
                match (request, outcome) {
                    (Request::RmDir { .. }, Ok(_))
                        if self.get(ino).is_some_and(Delegation::is_only_changed_once) =>
                    {
                        self.end(ino)
                    }
                    _ => self.dirs.get_mut(&ino).into_iter().for_each(|t| t.change_ended(tid, outcome, next)),
                }
            }
        } else if let Some(delegation) = changed_dir(request).and_then(|dir| self.dirs.get_mut(&dir)) {
            delegation.change_ended(tid, outcome, next);
        }
    }

    /// A change of a name in that directory goes to the rank. Whether it is worth while to ask for all names there.
    pub(crate) fn wants_listing(&mut self, dir: Ino) -> bool {
        let Some(delegation) = self.dirs.get_mut(&dir) else { return false };
        delegation.misses += 1;
        delegation.misses == LIST_AFTER && !delegation.names.is_complete() && delegation.attr.size <= LIST_MAX
    }

    /// A page of its names is asked for under that tid. `first`: from the beginning.
    pub(crate) fn listing(&mut self, dir: Ino, tid: Tid, first: bool) {
        let Some(delegation) = self.dirs.get_mut(&dir) else { return };
        if first {
            delegation.names.listing_begins();
        }
        delegation.listing = Some(tid);
    }

    /// A page is learned. Where the next one begins, if it was one of these and not the last.
    pub(crate) fn listed(
        &mut self,
        tid: Tid,
        request: &Request,
        outcome: &Outcome,
    ) -> Option<(NodeRef, u64)> {
        let Request::ReadDir { dir, .. } = request else { return None };
        let delegation = self.dirs.get_mut(&dir.ino).filter(|delegation| delegation.listing == Some(tid))?;
        delegation.listing = None;
        let Ok(Reply::Entries { entries, end }) = outcome else { return None };
        if *end {
            delegation.names.listing_ends();
            return None;
        }
        entries.last().map(|entry| (*dir, entry.hash.cookie()))
    }

    fn learn_name(&mut self, (dir, name): (Ino, &Name), tid: Tid, known: Known, tids: Tids) {
        self.with_names(dir, tids, |names| names.learn(name, tid, known));
    }

    fn learn_attr(&mut self, tid: Tid, attr: &Attr, granted: Bits, validity: &Validity) {
        if granted.has(Bits::ATTRS)
            && let Some(newborn) = self.newborns.get_mut(attr.ino)
        {
            newborn.granted = Granted::new(granted, validity);
        }
        let Some(delegation) = self.dirs.get_mut(&attr.ino) else { return };
        if tid >= delegation.since && delegation.changing.is_empty() {
            let counts = delegation.asking == 0 && tid >= delegation.counted && tid > delegation.used;
            match counts {
                true => (delegation.attr, delegation.stale, delegation.exact) = (*attr, false, true),
                false => delegation.learn(attr),
            }
        }
    }
}
