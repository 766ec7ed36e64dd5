//! Every kept input once, then seeded mutations of them, target by target.

use fuzz::engine::{Watch, execute, run};
use fuzz::{ALL, Target, corpus, find};

const MUTATIONS: u64 = 2000;

fn go_through(name: &str) {
    let target: Target = find(name).expect("a listed target");
    let inputs = corpus::load(&target).expect("a readable corpus");
    assert!(!inputs.is_empty(), "{name} has no corpus: `fuzz seed-corpus`");
    for (file, bytes) in &inputs {
        assert!(bytes.len() <= corpus::KEPT_BYTES_MAX, "{name}/{file} is too long");
        let verdict = execute(&target, bytes);
        assert!(verdict.is_ok(), "{name}/{file}: {verdict:?} {}", corpus::hex(bytes));
    }
    let pool = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    let outcome = run(&target, pool, 7, &Watch::default(), &mut |done| done < MUTATIONS);
    for failure in &outcome.failures {
        eprintln!("{name}: {} {}", failure.what, corpus::hex(&failure.input));
    }
    assert!(outcome.failures.is_empty(), "{name}: {} failures", outcome.failures.len());
    assert_eq!(outcome.executions, MUTATIONS);
    assert!(outcome.classes.len() > 1, "{name}: everything ends the same way: {:?}", outcome.classes);
}

macro_rules! targets {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            go_through($name);
        })*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$($name),*];
            assert_eq!(ALL.iter().map(|target| target.name).collect::<Vec<_>>(), tested);
        }
    };
}

targets! {
    client_messages: "client-msg",
    server_messages: "server-msg",
    frames: "frame",
    mutations_alone: "mutation",
    mutations_in_a_row: "mutations",
    journal_entries: "journal-entry",
    marks_in_a_stream: "highest-mark",
    inodes: "inode",
    dentries: "dentry",
    frag_headers: "frag-header",
    file_system_records: "fs-record",
    store_keys: "store-key",
    backptrs: "backptr",
    system_records: "system-record",
    registry_records: "registry-record",
    cluster_maps: "cluster-map",
    cluster_deltas: "cluster-delta",
    kernel_requests: "fuse-request",
    mount_options: "mount-options",
    addresses: "addr",
    damaged_journals: "journal-recovery",
    damaged_data: "data-recovery",
    sessions_of_a_rank: "rank-session",
}

#[test]
fn the_corpus_stays_small() {
    let bytes = corpus::total(ALL).expect("a readable corpus");
    assert!(bytes <= corpus::CORPUS_BYTES_MAX, "{bytes}");
}

#[test]
fn seeds_are_valid_and_reach_what_they_are_of() {
    for target in ALL {
        for (name, bytes) in (target.seeds)() {
            let verdict = execute(target, &bytes);
            assert!(verdict.is_ok(), "{} {name}: {verdict:?}", target.name);
        }
    }
}
