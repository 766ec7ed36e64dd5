//! A few whole runs, so that `cargo test` alone shows a broken crate. The sweep is a command of its own.

use sim::world::{bit_rot, run};

#[test]
fn a_few_seeds_are_good_and_repeat() {
    for seed in 0..6 {
        let first = run(seed, 400, 2, None);
        assert_eq!(first.verdict, Ok(()), "seed {seed}");
        assert!(first.operations >= 400 && first.crashes >= 2, "seed {seed} did not do its work");
        let second = run(seed, 400, 2, None);
        assert_eq!(first.hash, second.hash, "seed {seed} gives two histories");
    }
}

#[test]
fn a_few_seeds_of_several_ranks_are_good_and_repeat() {
    let (mut moves, mut lives) = (0, 0);
    for seed in 0..6 {
        let first = sim::ranks::run(seed, false, None);
        assert_eq!(first.verdict, Ok(()), "seed {seed}");
        let second = sim::ranks::run(seed, false, None);
        assert_eq!(first.hash, second.hash, "seed {seed} gives two histories");
        (moves, lives) = (moves + first.moves, lives + first.lives);
    }
    assert!(moves > 5 && lives > 20, "{moves} moves, {lives} lives");
}

#[test]
fn a_flipped_bit_is_found_or_harmless() {
    let mut found = 0;
    for seed in 0..40 {
        match bit_rot(seed, None) {
            Ok(outcome) => found += u64::from(outcome != sim::world::Found::Harmless),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(found > 5, "hardly any flip was noticed: {found} of 40");
}
