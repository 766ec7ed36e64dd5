//! What sessions get through, to compare predictions with.
//!
//! Absent: what anything costs (`measure.rs`).

use crate::job::Job;
use crate::measure::{Bench, Failed, Phase, empty};
use crate::serve::Served;
use std::path::Path;

const HEAD: &str = "phase          ops     ops/s  ops/CPU s   CPU  clients    turns  commits us/commit    loads checkpoints  batches";

/// A line of figures, and one of where the time went: microseconds of an operation by the names of threads.
fn show(name: &str, phase: &Phase) {
    println!(
        "{name:<8} {:>9} {:>9.0} {:>10.0} {:>4.0}% {:>7.0}% {:>8} {:>8} {:>9.0} {:>8} {:>11} {:>8}",
        phase.operations,
        phase.operations / phase.seconds,
        phase.operations / phase.cpu_ns * 1e9,
        phase.cpu_ns / phase.seconds / 1e7,
        phase.load_ns / phase.seconds / 1e7,
        phase.turns,
        phase.commits,
        phase.seconds * 1e6 / phase.commits.max(1.0),
        phase.loads,
        phase.checkpoints,
        phase.batches,
    );
    let each: Vec<String> = phase
        .threads
        .iter()
        .map(|(name, nanos)| (name, nanos / phase.operations / 1e3))
        .filter(|(_, each)| *each >= 0.01)
        .map(|(name, each)| format!("{name} {each:.2}"))
        .collect();
    println!("# {name}: {} journal bytes/op {:.0}", each.join(", "), phase.journal_bytes / phase.operations);
}

/// Prints what sessions get through: files are made and looked up; of a server that has none of them cached any are read; removed.
pub(crate) fn rates(
    dir: &Path,
    cpus: &str,
    ranks: u16,
    hosts: usize,
    tasks: usize,
    files: u64,
) -> Result<(), Failed> {
    let dir = empty(dir.join("rates"))?;
    let folder = dir.join("fs");
    let dirs = files.div_ceil(200).max(tasks as u64);
    println!("{HEAD}");
    // Memory, how directories are loaded, and what is done with them.
    type Life<'a> = (u64, &'a str, &'a [(&'a str, Job)]);
    let lives: [Life<'_>; 3] = [
        (1024, "auto", &[("create", Job::Mdtest), ("stat", Job::Lookup)]),
        (4, "keyed", &[("read", Job::Read), ("mixed", Job::Mixed)]),
        (1024, "auto", &[("warm", Job::Lookup), ("remove", Job::Unlink)]),
    ];
    for (cache_mib, prefetch, jobs) in lives {
        let served = Served::start(&folder, cpus, cache_mib, 16, prefetch, ranks)?;
        let mut bench = Bench::start(served, hosts, "r", files, dirs)?;
        for (name, job) in jobs {
            let phase = bench.phase(*job, tasks)?;
            bench.settle()?;
            show(name, &phase);
        }
        drop(bench.links);
        bench.served.stop()?;
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
