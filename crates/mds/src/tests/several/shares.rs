//! Parts of spread directories: to which ranks they go, and what is asked of them.
//!
//! Absent: how a directory is spread (`spreads.rs`); which are by themselves (`itself.rs`).

use super::*;

/// The ranks of its parts are those of the file system's mask that its own has: set on it, or on what it was made in.
#[test]
fn parts_go_to_ranks_of_the_directorys_mask() {
    let both = proto::cluster::Mask::NONE.with(RankId(0)).with(RankId(1));
    let rows: [(&str, &str, bool, &[u16]); 7] = [
        ("", "", true, &[1, 2]),
        ("0,2", "", true, &[2]),
        ("1,2", "", true, &[1, 2]),
        ("", "0,1", true, &[1]),
        ("0,2", "0,1", true, &[2]),
        ("1,2", "", false, &[1]),
        ("2", "", false, &[]),
    ];
    for (own, above, all, ranks) in rows {
        let mut c = Cluster::of(3);
        if !all {
            c.map.bal_rank_mask = both;
            c.publish();
        }
        let top = c.mkdir(root(), "top");
        let set = |c: &mut Cluster, dir, mask: &str| {
            let is_set = mask.is_empty() || c.set(dir, "ceph.dir.bal.mask", mask).is_ok();
            assert!(is_set, "{mask}");
        };
        set(&mut c, top, above);
        let dir = c.mkdir(top, "d");
        set(&mut c, dir, own);
        (0..9).for_each(|at| _ = c.create(dir, &format!("f{at}")));
        c.spread(dir, 2);
        let mut found: Vec<u16> = c.units(dir).into_iter().map(|(_, rank)| rank).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, ranks, "{own:?} {above:?} {all}: {:?}", c.worlds[0].notes);
        assert_eq!(c.names(dir).len(), 9);
    }
}

/// What would break: its rank lives again, has the header for whoever asks for totals, and gives parts to ranks that the inode's mask leaves
/// out.
#[test]
fn parts_wait_for_the_directorys_inode() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    (0..9).for_each(|at| _ = c.create(dir, &format!("f{at}")));
    assert_eq!(c.set(dir, "ceph.dir.bal.mask", "1,2"), Ok(Reply::Ok));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.map.bal_rank_mask = proto::cluster::Mask::NONE.with(RankId(1));
    c.publish();
    assert!(c.lookup(dir, "f1").is_ok());
    c.spread(dir, 2);
    assert!(c.worlds[1].rank.view.cache.spread(dir.ino).is_some(), "{:?}", c.worlds[1].notes);
    c.map.bal_rank_mask = proto::cluster::Mask::ALL;
    c.drop_cache(1);
    c.crash(1);
    assert_eq!(c.stat(dir).size, 9);
    c.pass(2_000);
    assert_eq!(c.units(dir), [(0, 1)], "nobody has used it");
    assert!(c.lookup(dir, "f1").is_ok());
    c.pass(70_000);
    let units = c.units(dir);
    assert!(units.len() > 1 && units[1..].iter().all(|(_, rank)| *rank == 2), "{units:?}");
}

/// Each rank counts what is asked of its parts; whoever asks is told the sum. What broke: what was asked by name counted for no part.
#[test]
fn what_is_asked_of_it_is_the_sum_of_its_parts() {
    let (mut c, dir) = Cluster::with_spread(20);
    (0..20).for_each(|at| assert!(c.lookup(dir, &format!("f{at}")).is_ok()));
    let text = c.get(dir, "pando.dir.load").expect("there");
    let reads = text.split(' ').find_map(|word| word.strip_prefix("reads=")).expect("a count");
    let reads: f64 = reads.parse().expect("a number");
    let spread = c.worlds[0].rank.view.cache.spread(dir.ino).expect("it is spread");
    let of =
        |world: &World| spread.all().map(|(number, _)| world.rank.view.load_of(number).reads).sum::<f64>();
    let (here, there) = (of(&c.worlds[0]), of(&c.worlds[1]));
    assert!(here > 0.5 && there > 0.5, "{here} {there}");
    assert!((reads - here - there).abs() < 0.1, "{text}: {here} and {there}");
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_shares_are_caught() {
    let defects: [(&str, fn()); 3] = [
        ("mds_load_of_one_rank", what_is_asked_of_it_is_the_sum_of_its_parts),
        ("mds_names_heat_no_part", what_is_asked_of_it_is_the_sum_of_its_parts),
        ("mds_units_despite_mask", parts_go_to_ranks_of_the_directorys_mask),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
