//! What a server's CPU is busy for, by what it is asked: the cost file of scale runs (docs/SIMULATION.md, "Scale runs"), and rates to
//! compare their predictions with.
//!
//! `scale_costs costs DIR CPUS [ROUNDS [RANKS]]`: prints the cost file; of two ranks with the load on their CPUs, what they cost there. `scale_costs rates DIR CPUS RANKS HOSTS TASKS FILES`: prints what HOSTS
//! sessions get through, each with TASKS requests under way, on FILES files each. The server is a process of its own on that CPU
//! (`taskset`), with a new folder in DIR; what loads it belongs on another one: `taskset -c OTHER scale_costs ...`.
//!
//! Absent: the predictions (`sim scale`).

mod host;
mod job;
mod measure;
mod rates;
mod serve;

use std::error::Error;
use std::path::Path;

const USAGE: &str =
    "usage: scale_costs costs DIR CPUS [ROUNDS [RANKS]] | rates DIR CPUS RANKS HOSTS TASKS FILES";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        // What `costs` and `rates` start.
        ["serve", dir, cache_mib, journal_mib, prefetch, ranks] => {
            serve::serve(Path::new(dir), cache_mib.parse()?, journal_mib.parse()?, prefetch, ranks.parse()?)
        }
        ["costs", dir, cpus] => measure::costs(Path::new(dir), cpus, 3, 1),
        ["costs", dir, cpus, rounds] => measure::costs(Path::new(dir), cpus, rounds.parse()?, 1),
        ["costs", dir, cpus, rounds, ranks] => {
            measure::costs(Path::new(dir), cpus, rounds.parse()?, ranks.parse()?)
        }
        ["rates", dir, cpu, ranks, hosts, tasks, files] => {
            rates::rates(Path::new(dir), cpu, ranks.parse()?, hosts.parse()?, tasks.parse()?, files.parse()?)
        }
        _ => Err(USAGE.into()),
    }
}
