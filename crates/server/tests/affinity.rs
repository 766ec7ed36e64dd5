//! Where the threads of ranks run.

use mount::{Fs, Mount, Settings};
use proto::Cred;
use proto::message::ClientInfo;
use runtime::process::Cpus;
use runtime::{Addr, Config, SocketConnector};
use server::{Server, ServerOptions};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use stdx::Wall;
use store::folder::{FormatOptions, format};

/// `0-2,5`
fn numbers(list: &str) -> Vec<usize> {
    let number = |word: &str| word.parse::<usize>().expect("a number");
    let ranges = list.trim().split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

/// On which CPUs threads of this name may run, each of them.
fn cpus_of(name: &str) -> Vec<Vec<usize>> {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").map(|task| task.expect("a thread").path());
    let named = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|of| of.trim() == name));
    let status = named.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    let list = |status: String| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(numbers)).expect("a list")
    };
    status.map(list).collect()
}

#[test]
fn each_slot_has_a_part_of_the_cpus_for_all_its_threads() {
    let dir = tempfile::tempdir().expect("dir");
    let folder = dir.path().join("fs");
    format(&folder, &FormatOptions::new(Wall(1))).expect("format");
    let config = Config { mds_rank_affinity: true, ..Config::default() };
    let options = ServerOptions { config, ranks: Some(2), ..ServerOptions::default() };
    let server = Server::open(&folder, &options).expect("open");
    let addr = Addr::Unix(folder.join("pando.sock"));
    server.listen(std::slice::from_ref(&addr)).expect("listen");
    let all = Cpus::of_this_thread().expect("few CPUs");
    let parts: BTreeSet<Vec<usize>> = [0, 1].map(|part| all.part(part, 2).numbers()).into();
    // The rank that serves, and its slot's neighbour, which stands by.
    assert_eq!(BTreeSet::from_iter(cpus_of("slot-0").into_iter().chain(cpus_of("slot-1"))), parts);
    let info = ClientInfo { host: "test".into(), mount: "/t".into(), pid: 1, caps_max: 0 };
    let connector = Arc::new(SocketConnector::new(addr));
    let mount = Mount::open_with(connector, info, Settings::default()).expect("mounted");
    let fs = Fs::new(mount, Cred::ROOT);
    fs.write("file", b"1").expect("written");
    let own = cpus_of("journal-0");
    assert!(own.len() == 1 && parts.contains(&own[0]), "{own:?}");
    for name in ["pando-clients", "store-0", "timer"] {
        assert_eq!(cpus_of(name), own, "{name}");
    }
    assert_eq!(cpus_of("pando-listen"), vec![all.numbers()]);
    drop(fs);
    server.stop().expect("stop");
}
