//! One life of a rank at a time: who is named, who acts, whose appends reach the store.
//!
//! Absent: what is written about lives (`maps.rs`).

use super::super::Cluster;
use super::super::event::Act;
use super::Judge;
use crate::model::judge::Verdict;
use proto::cluster::{ClusterMap, DaemonId};
use proto::ids::{Incarnation, RankId};
use std::sync::Arc;

impl Cluster {
    /// A coordinator tells a daemon to begin a life.
    pub(in super::super) fn named(
        &mut self,
        seat: usize,
        daemon: DaemonId,
        rank: RankId,
        incarnation: Incarnation,
    ) -> Verdict {
        let who = format!(
            "coordinator {seat} tells daemon {} to begin life {} of rank {}",
            daemon.0, incarnation.0, rank.0
        );
        match self.judge.given.get(&incarnation) {
            Some((of, by, _)) if (*of, *by) == (rank, daemon) => {}
            Some(other) => return Err(format!("{who}, which is {other:?}")),
            None => return Err(format!("{who} before that is durable")),
        }
        let newest = self.judge.begun.entry(rank).or_default();
        if *newest >= incarnation {
            // Said again, or said late by one that knows no better.
            return Ok(());
        }
        *newest = incarnation;
        let before = self.judge.given.range(..incarnation).rev().find(|(_, (of, ..))| *of == rank);
        if let Some((before, _)) = before.filter(|(before, _)| !self.store.is_fenced(rank, **before)) {
            return Err(format!("{who}, and life {} is not fenced", before.0));
        }
        self.alone(rank, incarnation).map_err(|other| format!("{who}, and {other}"))
    }

    /// No other life of the rank may act at this instant, wherever it is.
    fn alone(&self, rank: RankId, incarnation: Incarnation) -> Verdict {
        for (number, place) in self.places.iter().enumerate() {
            if let Some((of, other)) = place.may_act(self.now)
                && of == rank
                && other != incarnation
            {
                return Err(format!("life {} may act still, on daemon {number}", other.0));
            }
        }
        Ok(())
    }

    /// A life acts at this instant.
    pub(in super::super) fn judge_act(&mut self, act: Act) -> Verdict {
        let (rank, life) = (act.rank, act.incarnation);
        self.trace.event(self.now, "acts", life.0, || format!("rank {} life {}", rank.0, life.0));
        let acted = self.judge.acted.entry(rank).or_default();
        if *acted > life {
            return Err(format!("life {} of rank {} acts after life {} has", life.0, rank.0, acted.0));
        }
        *acted = life;
        self.acts += 1;
        self.alone(rank, life)
            .map_err(|other| format!("life {} of rank {} acts, and {other}", life.0, rank.0))
    }
}

impl Judge {
    /// A fence reaches the store: the life that is in the durable map, and not being failed, is nobody's to fence.
    pub(in super::super) fn fence(
        &self,
        map: Option<&Arc<ClusterMap>>,
        rank: RankId,
        incarnation: Incarnation,
    ) -> Verdict {
        let in_map = map.and_then(|map| map.ranks.get(&rank));
        match in_map {
            Some(info) if info.daemon != DaemonId::NONE && info.incarnation <= incarnation => Err(format!(
                "life {} of rank {} is fenced, and the map says that it serves",
                incarnation.0, rank.0
            )),
            _ => Ok(()),
        }
    }

    /// An append was taken by the store: nobody has taken over.
    pub(in super::super) fn reached(&self, rank: RankId, incarnation: Incarnation) -> Verdict {
        match self.begun.get(&rank) {
            Some(newer) if *newer > incarnation => Err(format!(
                "the store takes an append of life {} of rank {}, and life {} has begun",
                incarnation.0, rank.0, newer.0
            )),
            _ => Ok(()),
        }
    }
}
