//! Scale runs: so many production ranks in virtual time, each on a CPU that is busy for the measured cost of what it does, under clients
//! that ask for more as soon as they are answered. docs/SIMULATION.md, "Scale runs".
//!
//! Absent: crashes, moves, coordinators (`world`, `cluster`); files and the command line (the binary).

mod costs;
mod hosts;
mod journal;
mod layout;
mod placement;
mod plot;
mod report;
mod script;
mod seat;
mod settings;
mod store;
mod tally;
#[cfg(test)]
mod tests;
mod world;

pub use costs::Costs;
pub use plot::plots;
pub use report::{csv, table, title};
pub use seat::Did;
pub use settings::{ClientCosts, ClientCpus, Hosts, Placement, Settings, Tasks, Workload};
pub use tally::{Phase, Times};

use layout::Layout;
use placement::{Owners, parts_of};
use script::{Mdtest, OneDirectory, Reads, RenameStorm, Script};
use store::Store;
use world::{SEED, World};

/// Directories between which a storm of renames goes on.
const STORM_DIRS: u64 = 64;

/// Runs one workload on one number of ranks.
///
/// # Errors
/// When a rank or a client says what has no place in the workload.
pub fn run(settings: &Settings) -> Result<Vec<Phase>, String> {
    let (callers, seed) = (settings.callers(), settings.seed);
    let (fans, files, script): (Vec<u64>, u64, Box<dyn Script>) = match settings.workload {
        Workload::Mdtest => {
            let fans = [vec![settings.task_count()], script::MDTEST_FANS.to_vec()].concat();
            (fans, 0, Box::new(Mdtest::new(callers, settings.in_flight)))
        }
        Workload::RandomRead => {
            (settings.fans().to_vec(), settings.files_each(), Box::new(Reads::new(callers, 0, seed)))
        }
        Workload::Mixed => {
            (settings.fans().to_vec(), settings.files_each(), Box::new(Reads::new(callers, 30, seed)))
        }
        Workload::RenameStorm => (vec![1, STORM_DIRS], 0, Box::new(RenameStorm::new(callers, seed))),
        Workload::OneDirectory => (vec![1, 1], 0, Box::new(OneDirectory::new(callers))),
    };
    let layout = Layout::new(&SEED, &fans, files);
    let parts = parts_of(settings, &layout);
    let owners = Owners::new(settings, &layout, parts);
    let mut store =
        Store::new(&SEED, layout, settings.placement, settings.ranks).map_err(|error| error.to_string())?;
    parts.iter().for_each(|(dir, spread)| store.spread(*dir, *spread));
    let phases = script.phases().len();
    let mut world = World::new(settings, store, owners, script)?;
    world.prepare()?;
    (0..phases).map(|number| world.phase(number)).collect()
}
