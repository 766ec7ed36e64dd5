//! The list of seeded defects and the code agree.

use sim::mutants::{ELSEWHERE, MUTANTS};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the room's sources are here");
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_seeded_defect_of_the_simulated_rooms_is_in_the_list_once() {
    // Cargo runs a test in its crate's folder.
    let crates = Path::new("..");
    let mut found = BTreeSet::new();
    for room in ["mds", "client", "store"] {
        let mut files = Vec::new();
        sources(&crates.join(room).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("readable source");
            for piece in text.split("mutant!(\"").skip(1) {
                let name = piece.split('"').next().expect("split gives one piece").to_owned();
                found.insert((name, room.to_owned()));
            }
        }
    }
    let simulated = MUTANTS.iter().map(|(name, room, _)| (name, room));
    let elsewhere = ELSEWHERE.iter().map(|(name, room, _)| (name, room));
    let listed: BTreeSet<_> =
        simulated.chain(elsewhere).map(|(name, room)| ((*name).to_owned(), (*room).to_owned())).collect();
    assert_eq!(listed.len(), MUTANTS.len() + ELSEWHERE.len());
    assert_eq!(found, listed);
}
