//! `pando.stats`: what the mount has counted, as an extended attribute of its root that is in no list.
//! Absent: rates (`pando stats`), and what the server knows (`pando client info`).

use std::sync::atomic::Ordering;

use super::{RequestContext, Shared};
use crate::abi::ROOT_ID;
use crate::reply::KernelReply;
use crate::transport::Transport;

/// For the second the kernel asks nothing else about the root before, as attributes that have run out: it is answered also while the
/// server is away, and when the session has ended.
const NAMES: [&[u8]; 2] = [b"pando.stats", b"system.pando.stats"];

impl Shared {
    /// Whether a request for an extended attribute is about these.
    pub(super) fn is_about_stats(&self, about: &RequestContext, name: &[u8]) -> bool {
        about.nodeid == ROOT_ID && NAMES.contains(&name)
    }

    /// Tells root and whoever mounted.
    pub(super) fn answer_stats(&self, about: &RequestContext, reply: KernelReply) {
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
        let state = self.mount.state();
        let numbers = [
            ("session_ms", self.mount.now().since(state.since) / stdx::time::MS),
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
            ("delegated", counts.delegated),
            ("recalls", counts.recalls),
            ("losses", counts.losses),
            ("late", counts.late),
            ("nodes", nodes.known),
            ("caps", nodes.granted),
            ("open_files", nodes.open),
            ("cached_files", nodes.cached),
        ];
        let mut text = format!(
            r#"{{"schema":1,"transport":"{transport}","client":"client{}","session":"{}""#,
            state.session.0,
            state.status.name()
        );
        if let Some(why) = &state.why {
            text.push_str(&format!(r#","why":"{}""#, plain(why)));
        }
        for (key, value) in numbers {
            text.push_str(&format!(r#","{key}":{value}"#));
        }
        text.push('}');
        text
    }
}

/// What the server said, as it may stand in JSON without escapes.
fn plain(text: &str) -> String {
    let safe = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().map(|c| if safe(c) { c } else { '?' }).collect()
}

impl super::Adapter {
    /// How its requests come, once that is known.
    pub fn comes_over(&self, transport: Transport) {
        self.shared.over_rings.store(transport == Transport::Uring, Ordering::Relaxed);
    }
}
