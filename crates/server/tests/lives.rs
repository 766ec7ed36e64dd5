//! Lives of a rank that end and begin in one process, as clients and operators see it.

mod common;

use common::bench::{Bench, holds, synced};
use common::{Client, ROOT};
use proto::{NodeRef, SessionId};
use runtime::{Addr, SocketConnector};
use serde_json::{Value, json};
use server::ServerError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Works until told; answers the names of the files whose sync was answered.
fn works(addr: Addr, prefix: String, stop: Arc<AtomicBool>) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let connector = SocketConnector::new(addr);
        let mut client = Client::resume(&connector, SessionId(0), 0);
        let mut acknowledged = Vec::new();
        for n in 0.. {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let name = format!("{prefix}{n}");
            if synced(&mut client, &name) {
                acknowledged.push(name);
            } else {
                let (session, tid) = client.identity();
                client = Client::resume(&connector, session, tid);
            }
        }
        acknowledged
    })
}

/// A hundred lives, ended by an operator or as by a crash while three clients work: what was answered as durable is there in the end.
#[test]
fn a_hundred_lives_lose_nothing_that_was_acknowledged() {
    let mut bench = Bench::new(Some(2));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3).map(|n| works(bench.addr(), format!("w{n}."), stop.clone())).collect();
    for round in 0..100 {
        let before = bench.incarnation();
        let command = match round % 3 {
            2 => json!({"cmd": "tell", "who": "mds.0", "what": "crash"}),
            _ => json!({"cmd": "mds fail", "who": "0"}),
        };
        bench.ok(&command);
        bench.until_after(before);
    }
    stop.store(true, Ordering::Release);
    let names: Vec<String> =
        workers.into_iter().flat_map(|worker| worker.join().expect("a client")).collect();
    let mut client = Client::connect(&bench.connector());
    let lost: Vec<&String> = names.iter().filter(|name| !holds(&mut client, name)).collect();
    assert!(lost.is_empty(), "of {} files: {lost:?}", names.len());
    assert!(names.len() >= 100, "only {} files were synced", names.len());
    let page = bench.ok(&json!({"cmd": "fs dump"}));
    assert!(page["epoch"].as_u64() > Some(300), "each life takes some versions: {page}");
    bench.stop();
}

#[test]
fn two_slots_take_over_from_each_other() {
    let mut bench = Bench::new(Some(2));
    let names = |bench: &Bench| {
        let status = bench.ok(&json!({"cmd": "fs status"}));
        let name = |n: usize| status["mdsmap"][n]["name"].as_str().expect("a name").to_owned();
        (name(0), status["mdsmap"][1]["state"].clone(), name(1))
    };
    bench.until("no standby", |bench| bench.ok(&json!({"cmd": "fs status"}))["mdsmap"][1].is_object());
    bench.until_after(0);
    let (first, _, second) = names(&bench);
    for _ in 0..2 {
        let before = bench.incarnation();
        let text = bench.ok(&json!({"cmd": "mds fail", "who": "pandofs:0"}))["text"].take();
        assert!(text.as_str().expect("a text").starts_with("rank 0 failed: it was active on "), "{text}");
        bench.until_after(before);
    }
    bench.until("no standby", |bench| bench.ok(&json!({"cmd": "fs status"}))["mdsmap"][1].is_object());
    assert_eq!(
        names(&bench),
        (first, json!("standby"), second),
        "after two of them it is the first one's turn"
    );
    assert_eq!(bench.checks(), Vec::<String>::new());
    bench.stop();
}

/// Every file of the journal, with what is in it.
fn journal(fs: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(fs.join("journal")).expect("a journal");
    let files = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(path).expect("read"))).collect()
}

#[test]
fn a_damaged_rank_is_given_to_nobody_before_somebody_says_so() {
    let mut bench = Bench::new(Some(2));
    let mut client = Client::connect(&bench.connector());
    assert!(synced(&mut client, "kept"));
    let fs = bench.dir.path().join("fs");
    // Failed and held, so that nobody uses the journal meanwhile.
    bench.ok(&json!({"cmd": "fs fail", "fs": "pandofs"}));
    bench.until("still there", |bench| bench.rank()["state"] == "failed");
    bench.until("no life ends", |bench| bench.admin(&json!({"cmd": "client ls"}))["ok"] == false);
    assert_eq!(bench.checks(), ["FS_DEGRADED", "FS_WITH_FAILED_MDS", "MDS_ALL_DOWN"]);
    let files = journal(&fs);
    for (path, bytes) in &files {
        let mut bad = bytes.clone();
        bad[..64].iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(path, bad).expect("damaged");
    }
    let before = bench.incarnation();
    bench.ok(&json!({"cmd": "fs joinable", "fs": "pandofs"}));
    bench.until("not damaged", |bench| bench.map()["damaged"] == json!([0]));
    assert_eq!(bench.incarnation(), before + 1);
    // Longer than a grace: both slots look at their beacons many times.
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs() < 4 {
        assert_eq!(bench.map()["damaged"], json!([0]));
        thread::yield_now();
    }
    assert_eq!(bench.incarnation(), before + 1, "nobody took over");
    assert!(bench.checks().contains(&"MDS_DAMAGE".to_owned()), "{:?}", bench.checks());
    for (path, bytes) in &files {
        std::fs::write(path, bytes).expect("mended");
    }
    bench.ok(&json!({"cmd": "mds fail", "who": "0"}));
    bench.until_after(before + 1);
    assert!(holds(&mut Client::connect(&bench.connector()), "kept"));
    bench.stop();
}

/// A folder where the next map would be.
fn put_in_the_way(dir: &Path) -> PathBuf {
    let new = dir.join("fs/cluster/map.new");
    // What was the map before, again and again while maps are written.
    while std::fs::create_dir(&new).is_err() {
        let _gone_already = std::fs::remove_file(&new);
    }
    new
}

#[test]
fn a_map_that_cannot_be_written_for_a_while_is_told_and_written_again() {
    let mut bench = Bench::new(Some(2));
    let in_the_way = put_in_the_way(bench.dir.path());
    let before = bench.incarnation();
    assert_eq!(bench.admin(&json!({"cmd": "mds fail", "who": "0"}))["ok"], false);
    bench.until("health says nothing", |bench| bench.checks().contains(&"CLUSTER_MAP_UNWRITABLE".to_owned()));
    assert_eq!(bench.incarnation(), before, "it serves on");
    std::fs::remove_dir(&in_the_way).expect("away");
    bench.until("the map is not read again", |bench| bench.checks().is_empty());
    bench.ok(&json!({"cmd": "mds fail", "who": "0"}));
    bench.until_after(before);
    bench.stop();
}

/// What broke: a life that found no room (or no descriptor) to begin made its rank damaged, which nobody tried again.
#[test]
fn a_life_that_finds_no_room_begins_later() {
    let mut bench = Bench::new(Some(2));
    bench.until_after(0);
    let next = bench.dir.path().join("fs/pando.incarnation.new");
    std::os::unix::fs::symlink("/dev/full", &next).expect("a full disk");
    let before = bench.incarnation();
    bench.ok(&json!({"cmd": "mds fail", "who": "0"}));
    bench.until("nobody tries again", |bench| {
        assert_eq!(bench.map()["damaged"], json!([]));
        bench.incarnation() > before + 3
    });
    std::fs::remove_file(&next).expect("room");
    let tried = bench.incarnation();
    bench.until_after(tried - 1);
    assert_eq!(bench.checks(), Vec::<String>::new());
    assert!(synced(&mut Client::connect(&bench.connector()), "made"));
    bench.stop();
}

/// What broke: a mount's coordinator tried again after ten years, and whoever asked it waited.
#[test]
fn the_map_of_a_mount_is_written_again() {
    let mut bench = Bench::new(None);
    let in_the_way = put_in_the_way(bench.dir.path());
    let set = json!({"cmd": "fs set", "fs": "pandofs", "key": "placement", "value": "hash"});
    assert_eq!(bench.admin(&set)["ok"], false);
    std::fs::remove_dir(&in_the_way).expect("away");
    bench.until("it is not written again", |bench| bench.admin(&set)["ok"] == true);
    bench.stop();
}

#[test]
fn the_next_process_goes_on_where_the_map_is() {
    let mut bench = Bench::new(Some(1));
    let gid = |map: &Value| map["up"]["mds_0"].as_u64().expect("a daemon");
    let first = bench.map();
    bench.stop();
    bench.start().expect("reopen");
    let second = bench.map();
    for key in ["epoch", "last_incarnation"] {
        assert!(second[key].as_u64() > first[key].as_u64(), "{key}: {first}, then {second}");
    }
    // None is left out: clients would take it for a life whose end they have missed.
    let life = |map: &Value| map["last_incarnation"].as_u64().expect("a number");
    assert_eq!(life(&second), life(&first) + 1);
    assert!(gid(&second) > gid(&first));
    bench.stop();
    // As a mount's, which has the same map.
    bench.ranks = None;
    bench.start().expect("reopen");
    assert_eq!(bench.incarnation(), life(&second) + 1);
    bench.stop();
}

#[test]
fn the_rank_of_a_mount_is_nobodys_to_end() {
    let mut bench = Bench::new(None);
    let what = "a mount runs in this process: its rank ends with it";
    for command in [
        json!({"cmd": "mds fail", "who": "0"}),
        json!({"cmd": "fs fail", "fs": "pandofs"}),
        json!({"cmd": "fs set", "fs": "pandofs", "key": "joinable", "value": "false"}),
        json!({"cmd": "fs set", "fs": "pandofs", "key": "max_mds", "value": "2"}),
        json!({"cmd": "subtree move", "ino": 0x1000, "to": 1}),
        json!({"cmd": "tell", "who": "mds.0", "what": "crash"}),
        json!({"cmd": "tell", "who": "mds.0", "what": "hang"}),
    ] {
        let no = bench.admin(&command);
        assert_eq!(
            (&no["code"], &no["error"], &no["do"]),
            (&json!(5), &json!(what), &json!("`pando serve`"))
        );
    }
    bench.until("it does not serve", |bench| bench.rank()["state"] == "active");
    bench.stop();
}

#[test]
fn settings_are_taken_or_refused_by_name() {
    let mut bench = Bench::new(Some(1));
    let set = |key: &str, value: &str| {
        bench.admin(&json!({"cmd": "fs set", "fs": "pandofs", "key": key, "value": value}))
    };
    assert_eq!(set("max_mds", "1")["result"]["text"], "max_mds is 1");
    // Remembered: a rank comes when there is a slot for it.
    assert_eq!(set("max_mds", "256")["result"]["text"], "max_mds is 256");
    assert_eq!(bench.checks(), ["MDS_UP_LESS_THAN_MAX"]);
    assert_eq!(set("max_ranks", "1")["result"]["text"], "max_mds is 1");
    let text = |key: &str, value: &str| set(key, value)["result"]["text"].clone();
    assert_eq!(text("bal_rank_mask", "0x0038"), "setting the metadata balancer rank mask to 0x38");
    let warned = set("bal_rank_mask", "38")["result"]["warning"]
        .as_str()
        .map(|warning| warning.contains("max_mds is 1"));
    assert_eq!(warned, Some(true), "there is rank 0 only");
    assert_eq!(text("bal_rank_mask", "38"), "setting the metadata balancer rank mask to 0x38");
    assert_eq!(text("bal_rank_mask", "all"), "setting the metadata balancer rank mask to all");
    assert_eq!(text("bal_rank_mask", "-1"), "setting the metadata balancer rank mask to all");
    assert_eq!(text("placement", "hash"), "setting the placement of new directories to hash");
    assert_eq!(text("rank_weight", "2=50"), "rank_weight of rank 2 is 50");
    let map = bench.admin(&json!({"cmd": "fs get", "fs": "pandofs"}))["result"]["mdsmap"].clone();
    assert_eq!((&map["bal_rank_mask"], &map["placement"]), (&json!("all"), &json!("hash")));
    assert_eq!(map["rank_weight"], json!(["2=50"]));
    assert_eq!(text("rank_weight", "2=100"), "rank_weight of rank 2 is 100");
    let map = bench.admin(&json!({"cmd": "fs get", "fs": "pandofs"}))["result"]["mdsmap"].clone();
    assert_eq!(map["rank_weight"], json!([]));
    assert_eq!(text("placement", "subtree"), "setting the placement of new directories to subtree");
    for (key, value, words) in [
        ("max_mds", "257", "not between 1 and 256"),
        ("max_mds", "0", "not between 1 and 256"),
        ("joinable", "perhaps", "neither true nor false"),
        ("max_ranks", "257", "not between 1 and 256"),
        ("bal_rank_mask", "3,4", "neither all nor a hexadecimal number"),
        (
            "bal_rank_mask",
            "0x1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "ranks are 0 to 255",
        ),
        ("placement", "slots", "neither subtree nor hash"),
        ("rank_weight", "2", "not RANK=WEIGHT with a rank from 0 to 255 and a weight from 1 to 1000"),
        ("rank_weight", "256=1", "not RANK=WEIGHT"),
        ("rank_weight", "1=0", "not RANK=WEIGHT"),
        ("rank_weight", "1=1001", "not RANK=WEIGHT"),
        ("allow_new_snaps", "true", "allow_new_snaps: not in this version"),
        (
            "max_mdss",
            "2",
            "unknown setting (known: max_mds, joinable, bal_rank_mask, placement, rank_weight)",
        ),
    ] {
        let no = set(key, value);
        assert_eq!(no["code"], 2, "{no}");
        assert!(no["error"].as_str().is_some_and(|error| error.contains(words)), "{no}");
    }
    let other = bench.admin(&json!({"cmd": "fs get", "fs": "other"}));
    assert_eq!(
        (&other["code"], &other["error"]),
        (&json!(5), &json!("no file system 'other': this server has 'pandofs'"))
    );
    bench.stop();
}

/// A file system that an operator has failed stays so, also for the next process, until somebody says that it is joinable.
#[test]
fn what_was_failed_stays_failed() {
    let mut bench = Bench::new(Some(1));
    let file = {
        let mut client = Client::connect(&bench.connector());
        let file: NodeRef = client.create(ROOT, "kept");
        client.fsync(file);
        file
    };
    bench.ok(&json!({"cmd": "fs fail", "fs": "pandofs"}));
    bench.stop();
    bench.ranks = None;
    assert!(matches!(bench.start(), Err(ServerError::Closed)));
    bench.ranks = Some(1);
    bench.start().expect("without a life");
    assert_eq!(bench.rank()["state"], "failed");
    // The slot stands by. A rank without a life has no daemon, and was in this list without a name.
    let daemons = bench.ok(&json!({"cmd": "fs status"}))["mds_version"][0]["daemon"].take();
    assert!(daemons.as_array().is_some_and(|names| names.iter().all(|name| *name != "")), "{daemons}");
    let before = bench.incarnation();
    bench.ok(&json!({"cmd": "fs joinable", "fs": "pandofs"}));
    bench.until_after(before);
    let mut client = Client::connect(&bench.connector());
    assert_eq!(client.lookup(ROOT, "kept").map(|attr| attr.ino), Some(file.ino));
    bench.stop();
}
