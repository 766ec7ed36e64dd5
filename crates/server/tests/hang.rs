//! A rank that hangs. What is left behind keeps its stores open as long as the process lives: so these are tests of a process of their own.

mod common;

use common::Client;
use common::bench::{Bench, create, holds, synced};
use proto::Errno;
use serde_json::json;

/// Threads never come back from the rank: it is found out by its silence, nobody else waits for them, and the next life begins in the
/// other slot, then in that one again.
#[test]
fn a_rank_that_hangs_is_left_behind() {
    let bench = Bench::new(Some(2));
    let connector = bench.connector();
    let mut client = Client::connect(&connector);
    assert!(synced(&mut client, "before"));
    let mut carriers = Vec::new();
    for round in 0..3 {
        carriers.push(bench.rank()["name"].as_str().expect("a name").to_owned());
        let (session, tid) = client.identity();
        let before = bench.incarnation();
        bench.ok(&json!({"cmd": "tell", "who": "mds.0", "what": "hang"}));
        // Whoever asks over the socket is answered, and told.
        let mut operator = Client::connect_only(&connector);
        bench.until("does not hang", |bench| {
            bench.rank()["state"] == "active(laggy)" || bench.incarnation() > before
        });
        let status = operator.admin(&json!({"cmd": "fs status"}));
        assert_eq!(status["ok"], true, "{status}");
        // A client's answer never comes, but the end of its connection does.
        let hung = client.try_call(create("while"));
        assert!(hung.is_none() || hung == Some(Err(Errno::EEXIST)), "{hung:?}");
        // The next life waits for it.
        client = Client::resume(&connector, session, tid + 1);
        bench.until_after(before);
        let name = format!("after{round}");
        assert!(holds(&mut client, "before") && synced(&mut client, &name) && holds(&mut client, &name));
    }
    assert!(carriers[0] != carriers[1] && carriers[1] != carriers[2], "{carriers:?}");
    assert_eq!(bench.checks(), Vec::<String>::new());
    // Of each life only the threads that hang are there: a life has some ninety.
    let threads = std::fs::read_dir("/proc/self/task").expect("our threads").count();
    assert!(threads < 200, "{threads} threads");
}
