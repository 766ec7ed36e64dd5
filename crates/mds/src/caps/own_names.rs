//! Names that a session changes itself: no operation asks it for them, and its kernel moves or keeps what it has.
//!
//! Absent: names that others change (`needs.rs`); files and directories that are delegated (`delegated.rs`, `alone.rs`).

use crate::op::Op;
use crate::rank::Rank;
use proto::caps::Bits;
use proto::request::{Request, rename_flags};
use proto::{Ino, Name, NodeRef, every_request};

impl Rank {
    /// What the session of a planned change gives up by it.
    pub(crate) fn own_names_change(&mut self, op: &Op) {
        match &op.request {
            Request::Link { node, .. } => self.own_name_goes(op, *node),
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.own_name_moves(op, (*parent, name), (new_parent.ino, new_name));
                if flags & rename_flags::EXCHANGE != 0 {
                    self.own_name_moves(op, (*new_parent, new_name), (parent.ino, name));
                }
            }
            every_request!() => {}
        }
    }

    /// A file that gets a second name has no primary one any more, and others may take the first away without asking anybody: the
    /// session that links must not keep it either. Nobody waits for that: what it keeps is right until then.
    fn own_name_goes(&mut self, op: &Op, node: NodeRef) {
        let Some(place) = op.place else { return };
        let Some(home) = self.view.cache.by_ino(node.ino) else { return };
        let dir = self.view.cache.parent_of(home);
        if let Ok(name) = Name::new(self.view.cache.node(home).name.as_bytes())
            && !dir.is_reserved()
            && !stdx::mutant!("mds_own_name_kept")
        {
            let name = Some((dir, name));
            let now = self.view.now.mono;
            self.view.book.recall_unawaited(place, node.ino, (Bits::ATTRS, name), now);
        }
    }

    /// A session renames what is being recalled from it by its old name. Its kernel keeps the directory locked until the rename is
    /// answered, finds nothing of the old name then and goes on with the new one, of which the rank would know nothing once the
    /// recall is answered: so it is asked for that name, too. Of what it had performed by then it may have returned everything, by the old
    /// name, while that waited in its line: so it counts as having the new one, for whoever recalls that next. What broke: a file was
    /// found by the new name in one kernel after another rank had it and gave that name away.
    fn own_name_moves(&mut self, op: &Op, (parent, name): (NodeRef, &Name), (dir, new_name): (Ino, &Name)) {
        let Some(place) = op.place else { return };
        let performed = op.told.is_some() && !stdx::mutant!("mds_performed_name_unknown");
        if !performed && self.view.book.asked_since(place).is_none() {
            return;
        }
        let hash = self.view.name_hash(name);
        let content = self.view.cache.inner(parent.ino, hash);
        let Some(old_dir) = self.view.cache.find_dir(content) else { return };
        let Some(found) = self.view.cache.find(old_dir, hash, name.as_bytes()) else { return };
        let ino = self.view.cache.node(found).ino();
        let now = self.view.now.mono;
        if self.view.book.is_recalled(place, ino) && !stdx::mutant!("mds_own_rename_escapes") {
            let name = Some((dir, new_name.clone()));
            self.view.book.recall_unawaited(place, ino, (Bits::ATTRS, name), now);
        } else if performed {
            self.view.book.grant(place, ino, Bits::LS, now);
        }
    }
}
