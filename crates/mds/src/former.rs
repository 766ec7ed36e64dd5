//! Answers of a former life of the rank that their clients may not have got: what they opened is kept until the client
//! asks again, or shows by its floor that it has the answer (and has then reclaimed the open itself).
//!
//! Absent: storing answers (`answer.rs`), reclaiming opens (`session/life.rs`).

use crate::cache::node;
use crate::meter::Asked;
use crate::output::Output;
use crate::rank::Rank;
use crate::session::StoredResult;
use proto::caps::Grants;
use proto::codec::Reader;
use proto::every_request;
use proto::message::Told;
use proto::reply::{Reply, decode_outcome};
use proto::request::Request;
use proto::{Errno, Ino, SessionId, Tid};
use stdx::Outbox;

impl Rank {
    /// Before orphans are looked at: a file that was made, opened and unlinked, whose opener has not heard of it yet, must
    /// not go.
    pub(crate) fn keep_former(&mut self) {
        let mut kept = Vec::new();
        for (id, session) in &self.sessions.map {
            for (tid, result) in session.results.iter().filter(|(_, result)| result.former) {
                let outcome = decode_outcome(&mut Reader::new(&result.bytes));
                if let Ok(Ok(Reply::Created { attr, .. } | Reply::Attr(attr))) = outcome {
                    kept.push(((*id, tid), attr.ino));
                }
            }
        }
        for (key, ino) in kept {
            if self.former_opens.insert(key, ino).is_none() {
                self.view.files.get_mut(ino).kept += 1;
                self.view.cache.flag(ino, node::BUSY, 0);
            }
        }
    }

    /// The session has all answers below `floor`.
    pub(crate) fn forget_former(&mut self, id: SessionId, floor: Tid) {
        while let Some(tid) =
            self.former_opens.range((id, Tid(0))..(id, floor)).next().map(|((_, tid), _)| *tid)
        {
            self.forget_one(id, tid);
        }
    }

    /// The session has this answer, or will never have it.
    pub(crate) fn forget_one(&mut self, id: SessionId, tid: Tid) {
        if let Some(ino) = self.former_opens.remove(&(id, tid)) {
            if let Some(file) = self.view.files.existing(ino) {
                file.kept = file.kept.saturating_sub(1);
            }
            self.wake(ino);
            self.forget_or_purge(ino);
        }
    }

    /// A request that was executed already gets its stored result. One from a former life of the rank
    /// opened a file that nobody has counted since.
    pub(crate) fn answer_again(
        &mut self,
        id: SessionId,
        tid: Tid,
        (told, request): (Option<Told>, &Request),
        StoredResult { bytes, former, .. }: StoredResult,
        out: &mut Outbox<Output>,
    ) {
        let outcome = decode_outcome(&mut Reader::new(&bytes)).unwrap_or(Err(Errno::EIO));
        let opens = match request {
            Request::Create { flags, .. } | Request::TmpFile { flags, .. } | Request::Open { flags, .. } => {
                Some(*flags)
            }
            every_request!() => None,
        };
        if let Some(flags) = opens.filter(|_| former) {
            let mut about = Ino::NONE;
            if let Ok(Reply::Created { attr, .. } | Reply::Attr(attr)) = &outcome {
                self.count_open(attr.ino, id, crate::ops::open::rights(flags));
                about = attr.ino;
            }
            if let Some(session) = self.sessions.map.get_mut(&id) {
                session.results.done_again(tid, about);
            }
            self.forget_one(id, tid);
        }
        let asked = Asked::new(id, tid, request, self.view.now.mono);
        if told.is_some() {
            return self.told_again(id, asked, outcome, out);
        }
        self.send_reply(asked, outcome, Grants::None, out);
    }
}
