//! Files that are delegated to this session (Fx, Fb): they were there before, and nobody else looks at them. What it knows of one
//! are the attributes of the answer that delegated it, with what it changed by itself since.
//!
//! Absent: what it changes (`machine/perform.rs`).

use super::Delegations;
use crate::changes::ends_file;
use crate::newborns::Newborn;
use crate::validity::Validity;
use proto::request::Request;
use proto::{Attr, FileKind, Tid};
use stdx::hash::HashSeed;

impl Delegations {
    /// The rank delegates a file, with the answer to that request. `under_way`: the requests that are there. If one of them changes
    /// it, or one that is answered may have done so since, the attributes are old: the next answer will do.
    pub(crate) fn begin_file<'a>(
        &mut self,
        attr: &Attr,
        validity: &Validity,
        tid: Tid,
        seed: Option<&HashSeed>,
        mut under_way: impl Iterator<Item = (Tid, &'a Request)>,
    ) {
        // What is known of it already may be newer.
        if attr.kind() != FileKind::Regular || attr.nlink != 1 || self.newborns.get(attr.ino).is_some() {
            return;
        }
        let crossed = |ino| self.crossed.get(&ino).is_some_and(|at| tid < *at);
        if tid < self.all_crossed || crossed(attr.ino) || crossed(attr.parent) {
            return;
        }
        let is_name = |request: &Request| {
            let here = |hash| hash == attr.hash;
            let hash = |name: &proto::Name| seed.map(|seed| name.hash(seed));
            request.changed_names().any(|(dir, name)| dir == attr.parent && hash(name).is_none_or(here))
        };
        let changes = |request: &Request| ends_file(request) == Some(attr.ino) || is_name(request);
        if under_way.any(|(_, request)| changes(request)) && !stdx::mutant!("client_file_under_change") {
            return;
        }
        self.newborns.insert(Newborn::delegated(*attr, validity));
    }
}
