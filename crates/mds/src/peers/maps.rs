//! The cluster maps that other ranks tell, and a map asked for when one is missing between. docs/PROTOCOL.md, "Ranks among themselves".
//!
//! Absent: what a new map changes (`moves/map.rs`); maps from the driver, and what is said to others (`news.rs`).

use crate::output::{Level, Output};
use crate::rank::Rank;
use proto::RankId;
use proto::cluster::{ClusterMap, Delta};
use proto::message::ClientMsg;
use stdx::{Now, Outbox};

impl Rank {
    /// Another rank has a newer map than this one had when it greeted.
    pub(super) fn told_map(&mut self, now: Now, rank: RankId, bytes: &[u8], out: &mut Outbox<Output>) {
        let have = self.view.territory.map();
        let map = match (ClusterMap::decode(bytes), Delta::decode(bytes)) {
            (Ok(map), _) => map,
            (Err(_), Ok(delta)) => {
                let Some(mut map) = have.filter(|map| map.version == delta.from).map(|map| (**map).clone())
                else {
                    return self.want_map_of(rank, delta.to, out);
                };
                match map.apply(&delta) {
                    Ok(()) => map,
                    Err(error) => return Self::odd_map(rank, &error, out),
                }
            }
            (Err(error), Err(_)) => return Self::odd_map(rank, &error, out),
        };
        self.new_map(now, map.into(), out);
    }

    /// What was told does not begin at this rank's map. What is between it was told by somebody else, or was never told: it is not said
    /// again by itself, and as long as both go by different maps neither believes the other.
    fn want_map_of(&mut self, rank: RankId, version: u64, out: &mut Outbox<Output>) {
        let have = self.view.territory.version();
        if version <= have.max(self.peers.map_wanted) || stdx::mutant!("mds_gap_of_maps") {
            return;
        }
        self.peers.map_wanted = version;
        out.push(Output::SendRank { rank, message: ClientMsg::WantMap { have } });
    }

    fn odd_map(rank: RankId, error: &dyn std::fmt::Display, out: &mut Outbox<Output>) {
        let text = format!("a cluster map from rank {}: {error}", rank.0);
        out.push(Output::Note { level: Level::Error, text });
    }
}
