//! The tables of scale runs, for people and for programs.
//!
//! Absent: pictures (`plot.rs`).

use super::settings::{Settings, Tasks};
use super::tally::{Phase, per_second};
use std::fmt::Write;

/// A phase's rate for each rank against that of the first with the same name.
pub(super) fn efficiency(phase: &Phase, all: &[Phase]) -> f64 {
    let each = |phase: &Phase| phase.ops_per_second() / f64::from(phase.ranks.max(1));
    match all.iter().find(|first| first.name == phase.name).map(each) {
        Some(first) if first > 0.0 => each(phase) / first,
        Some(_) | None => 0.0,
    }
}

/// What was run, whatever the number of ranks.
#[must_use]
pub fn title(settings: &Settings) -> String {
    let (workload, placement) = (settings.workload.name(), settings.placement.name());
    let tasks = match settings.tasks {
        Tasks::EachRank(count) => format!("{count} tasks for each rank (weak scaling)"),
        Tasks::Total(count) => format!("{count} tasks in all (strong scaling)"),
    };
    format!("{workload}, {placement}, {tasks}")
}

/// The table that is printed.
#[must_use]
pub fn table(phases: &[Phase]) -> String {
    let mut text = format!(
        "{:<8} {:>5} {:>12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>7} {:>7}\n",
        "phase",
        "ranks",
        "ops/s",
        "requests/s",
        "efficiency",
        "ops/CPU s",
        "p50 us",
        "p99 us",
        "busiest",
        "least"
    );
    for phase in phases {
        let (most, least) = phase.busy();
        let requests = per_second(phase.sum(|did| did.answered), phase.nanos);
        let _ = writeln!(
            text,
            "{:<8} {:>5} {:>12.0} {:>12.0} {:>10.3} {:>9.0} {:>9.0} {:>9.0} {:>6.1}% {:>6.1}%",
            phase.name,
            phase.ranks,
            phase.ops_per_second(),
            requests,
            efficiency(phase, phases),
            per_second(phase.times.count(), phase.sum(|did| did.busy_ns)),
            phase.times.of_thousand(500) as f64 / 1e3,
            phase.times.of_thousand(990) as f64 / 1e3,
            most * 100.0,
            least * 100.0,
        );
    }
    text
}

/// A line for each rank of each phase.
#[must_use]
pub fn csv(phases: &[Phase]) -> String {
    let mut text = String::from(
        "phase,ranks,rank,seconds,ops_per_second,p50_ns,p99_ns,busy,answered,sent_away,reads,writes,loads,commits,\
         journal_bytes,records,batches,to_ranks,kept\n",
    );
    for phase in phases {
        let seconds = phase.nanos as f64 / 1e9;
        for (rank, did) in phase.did.iter().enumerate() {
            let _ = writeln!(
                text,
                "{},{},{rank},{seconds},{:.0},{},{},{:.4},{},{},{},{},{},{},{},{},{},{},{}",
                phase.name,
                phase.ranks,
                phase.ops_per_second(),
                phase.times.of_thousand(500),
                phase.times.of_thousand(990),
                did.busy_ns as f64 / phase.nanos.max(1) as f64,
                did.answered,
                did.sent_away,
                did.reads,
                did.writes,
                did.loads,
                did.commits,
                did.journal_bytes,
                did.records,
                did.batches,
                did.to_ranks,
                phase.kept,
            );
        }
    }
    text
}
