//! `pando.stats`: what the mount has counted, as an extended attribute of its root that is in no list.
//! Absent on purpose: rates (`pando stats`), and what the server knows (`pando client info`).

use std::sync::atomic::Ordering;

use super::{About, Shared};
use crate::abi::ROOT_ID;
use crate::reply::Reply;
use crate::transport::Transport;

pub(super) const NAME: &[u8] = b"pando.stats";

impl Shared {
    /// Whether a request for an extended attribute is about these.
    pub(super) fn is_about_stats(&self, about: &About, name: &[u8]) -> bool {
        about.nodeid == ROOT_ID && name == NAME
    }

    /// Tells root and whoever mounted.
    pub(super) fn answer_stats(&self, about: &About, reply: Reply) {
        if about.cred.uid != 0 && about.cred.uid != crate::caller::own_uid() {
            return reply.error(libc::EPERM);
        }
        reply.xattr(self.stats().as_bytes());
    }

    /// One JSON object of whole numbers, sums since the mount began unless said otherwise in docs/CLI.md.
    fn stats(&self) -> String {
        let totals = self.meter.totals();
        let counts = self.mount.counts();
        let nodes = self.nodes.census(self.mount.now(), self.mount.lost_stamp());
        let transport = match self.over_rings.load(Ordering::Relaxed) {
            true => "io_uring",
            false => "classic",
        };
        let numbers = [
            ("ms", self.began.elapsed().as_millis().try_into().unwrap_or(u64::MAX)),
            ("requests", totals.requests),
            ("request_ns", totals.nanos),
            ("failed", totals.failed),
            ("errors", totals.errors),
            ("read_bytes", totals.read_bytes),
            ("written_bytes", totals.written_bytes),
            ("asked", counts.asked),
            ("performed", counts.performed),
            ("kept", counts.kept),
            ("waiting", counts.waiting),
            ("entrusted", counts.entrusted),
            ("recalls", counts.recalls),
            ("losses", counts.losses),
            ("late", counts.late),
            ("nodes", nodes.known),
            ("caps", nodes.granted),
            ("open_files", nodes.open),
            ("cached_files", nodes.cached),
        ];
        let mut text = format!(r#"{{"schema":1,"transport":"{transport}""#);
        for (key, value) in numbers {
            text.push_str(&format!(r#","{key}":{value}"#));
        }
        text.push('}');
        text
    }
}

impl super::Adapter {
    /// How its requests come, once that is known.
    pub fn comes_over(&self, transport: Transport) {
        self.shared.over_rings.store(transport == Transport::Uring, Ordering::Relaxed);
    }
}
