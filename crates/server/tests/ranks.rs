//! Several ranks in one process, as mounts and operators see them.

mod common;

use common::bench::Bench;
use common::{Client, ROOT};
use mount::{Fs, Mount, Settings};
use proto::caps::Bits;
use proto::message::ClientInfo;
use proto::request::XattrMode;
use proto::{Cred, Errno, RankId};
use runtime::SocketConnector;
use serde_json::{Value, json};
use server::backup::{self, BackupError};
use server::{Server, ServerError, ServerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use stdx::Wall;
use store::folder::FormatOptions;

/// What a move waits for while clients have something open there.
const JOINS: &str = "clients that are to connect to the new owner";
const PIN: &[u8] = b"ceph.dir.pin";

fn client(bench: &Bench) -> Fs {
    let info = ClientInfo { host: "test".into(), mount: "/t".into(), pid: 1, caps_max: 0 };
    let connector = Arc::new(SocketConnector::new(bench.addr()));
    // What a mount of root has a use for: it writes again what a crash took back.
    let settings = Settings { wants: Bits::ALL, ..Settings::default() };
    Fs::new(Mount::open_with(connector, info, settings).expect("mounted"), Cred::ROOT)
}

/// Two ranks of three slots serve.
fn two() -> Bench {
    let bench = Bench::new(Some(3));
    bench.ok(&json!({"cmd": "fs set", "fs": "pandofs", "key": "max_mds", "value": "2"}));
    both_serve(&bench);
    bench
}

fn both_serve(bench: &Bench) {
    bench.until("not both serve", |bench| {
        (0..2).all(|rank| bench.of_rank(rank)["state"] == "active") && bench.checks().is_empty()
    });
}

/// The home may not know yet that the rank serves: then it remembers the pin until a map says so.
fn pin(bench: &Bench, fs: &Fs, path: &str, rank: u64) {
    fs.setxattr(path, PIN, rank.to_string().as_bytes(), XattrMode::Either).expect("pinned");
    let wanted = entry(&format!("/{path}"), rank, "pin");
    bench.until("does not come to its rank", |bench| subtrees(bench).contains(&wanted));
}

/// Path, rank and policy of each entry of the map.
fn subtrees(bench: &Bench) -> Vec<(String, u64, String)> {
    let listed = bench.ok(&json!({"cmd": "subtree ls"}));
    let word = |of: &Value, key: &str| of[key].as_str().expect("a word").to_owned();
    let all = listed["subtrees"].as_array().expect("a list");
    // What is to move and has no entry yet is listed, too.
    all.iter()
        .filter(|of| of["policy"].is_string())
        .map(|of| (word(of, "path"), of["rank"].as_u64().expect("a rank"), word(of, "policy")))
        .collect()
}

fn entry(path: &str, rank: u64, policy: &str) -> (String, u64, String) {
    (path.to_owned(), rank, policy.to_owned())
}

/// Writes and syncs files in a directory until told; answers how many.
fn writes(fs: Fs, dir: &'static str, stop: Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    thread::spawn(move || {
        for n in 0.. {
            if stop.load(Ordering::Acquire) {
                return n;
            }
            let file = fs.create(format!("{dir}/{n}")).expect("created");
            file.write(format!("{dir} {n}").as_bytes()).expect("written");
            file.fsync().expect("synced");
            file.close().expect("closed");
        }
        0
    })
}

fn holds(fs: &Fs, dir: &str, count: u32) {
    for n in 0..count {
        let found = fs.read(format!("{dir}/{n}")).unwrap_or_else(|error| panic!("{dir}/{n}: {error:?}"));
        assert_eq!(found, format!("{dir} {n}").as_bytes(), "{dir}/{n}");
    }
}

#[test]
fn a_pinned_directory_is_served_by_its_rank_and_each_counts_its_own() {
    let mut bench = two();
    let fs = client(&bench);
    for dir in ["here", "there"] {
        fs.mkdir(dir, 0o755).expect("made");
        fs.write(format!("{dir}/before"), b"1").expect("written");
    }
    pin(&bench, &fs, "there", 1);
    assert_eq!(&*fs.getxattr("there", PIN).expect("its pin"), b"1");
    for n in 0..50 {
        fs.write(format!("there/{n}"), b"2").expect("written");
    }
    assert_eq!(fs.read("there/before").expect("read"), b"1");
    // What it does by itself in a delegated directory its rank hears of later.
    fs.syncfs().expect("synced");
    let made = |rank: u16| {
        let perf = bench.ok(&json!({"cmd": "tell", "who": format!("mds.{rank}"), "what": "perf dump"}));
        perf["mds_server"]["req_create_latency"]["avgcount"].as_u64().expect("a count")
    };
    assert!(made(1) >= 50, "{}", made(1));
    let all = bench.ok(&json!({"cmd": "perf dump"}))["mds_server"]["req_create_latency"]["avgcount"].as_u64();
    assert_eq!(all, Some(made(0) + made(1)));
    // One client, with a session at each.
    let status = bench.ok(&json!({"cmd": "fs status"}));
    assert_eq!(status["clients"][0]["clients"], 1, "{status}");
    assert!(bench.of_rank(1)["dns"].as_u64() >= Some(51), "{status}");
    assert!(bench.of_rank(0)["dns"].as_u64() < Some(51), "{status}");
    let sessions = bench.ok(&json!({"cmd": "tell", "who": "mds.1", "what": "session ls"}));
    assert_eq!(sessions["clients"].as_array().map(Vec::len), Some(1), "{sessions}");
    assert_eq!(bench.ok(&json!({"cmd": "client ls"}))["clients"].as_array().map(Vec::len), Some(1));
    assert_eq!(subtrees(&bench), [entry("/", 0, "root"), entry("/there", 1, "pin")]);
    // Both write their last checkpoint.
    drop(fs);
    bench.stop();
    bench.start().expect("again");
    both_serve(&bench);
    for rank in 0..2 {
        let dump = bench.ok(&json!({"cmd": "tell", "who": format!("mds.{rank}"), "what": "perf dump"}));
        assert_eq!(dump["mds_log"]["replayed"], 0, "rank {rank}");
    }
    assert_eq!(client(&bench).read("there/49").expect("read"), b"2");
    bench.stop();
}

/// Lives of both ranks end, in any order, while a mount writes to both: nobody is told of an error, and everything is there.
#[test]
fn lives_of_both_end_under_a_mount_and_nothing_is_lost() {
    let mut bench = two();
    let fs = client(&bench);
    for dir in ["here", "there"] {
        fs.mkdir(dir, 0o755).expect("made");
    }
    pin(&bench, &fs, "there", 1);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = ["here", "there"].map(|dir| writes(fs.clone(), dir, stop.clone()));
    for round in 0..12 {
        let before = bench.incarnation();
        let who = format!("mds.{}", round % 2);
        let command = match round % 3 {
            0 => json!({"cmd": "mds fail", "who": who}),
            _ => json!({"cmd": "tell", "who": who, "what": "crash"}),
        };
        bench.ok(&command);
        bench.until("no next life", |bench| bench.incarnation() > before);
        both_serve(&bench);
    }
    // Both at once, as their process would.
    bench.crash();
    bench.start().expect("again");
    both_serve(&bench);
    stop.store(true, Ordering::Release);
    let counts = writers.map(|writer| writer.join().expect("no error"));
    holds(&fs, "here", counts[0]);
    holds(&fs, "there", counts[1]);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(subtrees(&bench)[1], entry("/there", 1, "pin"));
    drop(fs);
    bench.stop();
}

#[test]
fn a_mounts_own_process_refuses_several_ranks_and_whoever_wants_all_has_all() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir("there", 0o755).expect("made");
    pin(&bench, &fs, "there", 1);
    fs.write("there/file", b"kept").expect("written");
    fs.syncfs().expect("synced");
    bench.crash();
    // Its mount is gone with it.
    drop(fs);
    bench.ranks = None;
    assert!(matches!(bench.start(), Err(ServerError::SeveralRanks(2))));
    let dir = bench.dir.path().join("fs");
    let whole = Server::open_whole(&dir, &ServerOptions::default()).expect("both");
    let file = bench.dir.path().join("backup");
    backup::create(&whole, &file).expect("a backup");
    whole.stop().expect("stopped");
    drop(whole);
    let mut other = Bench::closed(Some(2));
    backup::restore(&file, &other.dir.path().join("fs"), &FormatOptions::new(Wall(1))).expect("restored");
    other.start().expect("open");
    both_serve(&other);
    assert_eq!(client(&other).read("there/file").expect("read"), b"kept");
    other.stop();
}

/// While two ranks come to rest one may wait for the other: `stat` of a boundary asks the owner of its content.
#[test]
fn a_backup_under_load_is_whole() {
    let mut bench = two();
    let fs = client(&bench);
    for dir in ["here", "there"] {
        fs.mkdir(dir, 0o755).expect("made");
    }
    pin(&bench, &fs, "there", 1);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = ["here", "there"].map(|dir| writes(fs.clone(), dir, stop.clone()));
    let (looker, looks) = (client(&bench), stop.clone());
    let looker = thread::spawn(move || {
        while !looks.load(Ordering::Acquire) {
            looker.stat("there").expect("told");
        }
    });
    let file = bench.dir.path().join("backup");
    for round in 0..3 {
        let begin = std::time::Instant::now();
        let path = file.with_extension(round.to_string());
        backup::create(bench.server(), &path).expect("a backup");
        assert!(begin.elapsed().as_secs() < 20, "round {round}: {:?}", begin.elapsed());
        backup::verify(&path).expect("whole");
    }
    stop.store(true, Ordering::Release);
    looker.join().expect("no error");
    let counts = writers.map(|writer| writer.join().expect("no error"));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    drop(fs);
    bench.stop();
}

/// What the journal of a rank without a life says is in no table: a backup of the tables is good, and without it.
#[test]
fn no_backup_without_one_of_its_ranks() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir("there", 0o755).expect("made");
    pin(&bench, &fs, "there", 1);
    fs.write("there/file", b"kept").expect("written");
    fs.syncfs().expect("synced");
    bench.crash();
    drop(fs);
    // Rank 1 waits for a slot.
    bench.ranks = Some(1);
    bench.start().expect("rank 0 serves");
    assert_eq!(bench.of_rank(1)["state"], "failed");
    let file = bench.dir.path().join("backup");
    let refused = backup::create(bench.server(), &file);
    assert!(matches!(refused, Err(BackupError::Lifeless(RankId(1)))), "{refused:?}");
    assert!(!file.exists() && !bench.dir.path().join("backup.partial").exists());
    bench.stop();
    bench.ranks = Some(2);
    bench.start().expect("again");
    both_serve(&bench);
    backup::create(bench.server(), &file).expect("a backup");
    backup::verify(&file).expect("whole");
    bench.stop();
}

/// A start with the map of one rank would never replay the journal of the other.
#[test]
fn without_its_map_a_folder_of_several_ranks_is_refused() {
    let mut bench = two();
    bench.crash();
    let map = bench.dir.path().join("fs/cluster/map");
    std::fs::remove_file(&map).expect("removed");
    for ranks in [Some(2), None] {
        bench.ranks = ranks;
        let refused = bench.start();
        assert!(
            matches!(&refused, Err(ServerError::Damaged(what)) if what.contains("cluster/map")),
            "{refused:?}"
        );
        assert!(!map.exists(), "fsck must still find that it is missing");
    }
}

#[test]
fn subtrees_move_by_command_and_a_rank_that_is_not_wanted_goes() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir_all("a/b/c", 0o755).expect("made");
    fs.write("a/b/c/file", b"1").expect("written");
    let number = |path: &str| fs.stat(path).expect("there").ino.0;
    let moved =
        |path: &str, to: u16| bench.admin(&json!({"cmd": "subtree move", "ino": number(path), "to": to}));
    assert_eq!(moved("a/b", 7)["code"], 5, "no such rank");
    assert_eq!(moved("/", 1)["code"], 2, "the root stays");
    assert_eq!(bench.admin(&json!({"cmd": "subtree cancel", "ino": number("a/b")}))["code"], 5);
    assert_eq!(moved("a/b", 1)["ok"], true);
    bench.until("does not move", |bench| subtrees(bench).contains(&entry("/a/b", 1, "carved")));
    assert_eq!(fs.read("a/b/c/file").expect("read"), b"1");
    fs.write("a/b/c/more", b"2").expect("written");
    bench.ok(&json!({"cmd": "fs set", "fs": "pandofs", "key": "max_mds", "value": "1"}));
    bench.until("does not go", |bench| bench.map()["in"] == json!([0]));
    assert_eq!(subtrees(&bench)[1].1, 0);
    assert_eq!(fs.read("a/b/c/more").expect("read"), b"2");
    drop(fs);
    // And comes again, with what was made for it before.
    bench.ok(&json!({"cmd": "fs set", "fs": "pandofs", "key": "max_mds", "value": "2"}));
    both_serve(&bench);
    let fs = client(&bench);
    pin(&bench, &fs, "a/b", 1);
    assert_eq!(subtrees(&bench)[1], entry("/a/b", 1, "pin"));
    assert_eq!(fs.read("a/b/c/more").expect("read"), b"2");
    drop(fs);
    bench.stop();
}

/// Rows of `subtree ls` about that path.
fn rows(bench: &Bench, path: &str) -> Vec<Value> {
    let listed = bench.ok(&json!({"cmd": "subtree ls"}));
    let all = listed["subtrees"].as_array().expect("a list");
    all.iter().filter(|row| row["path"] == path).cloned().collect()
}

/// That part of a directory which is shown so.
fn part_that(bench: &Bench, path: &str, is_so: impl Fn(&Value) -> bool) -> Option<String> {
    let parts = rows(bench, path).into_iter().filter(|row| row["frag"] != "0x0/0");
    parts.filter(is_so).find_map(|row| row["frag"].as_str().map(str::to_owned))
}

/// What broke: of a move nothing was shown before the map announced it, and no test ended one that was under way.
#[test]
fn moves_show_how_far_they_are_and_end_at_an_operators_word() {
    let mut bench = two();
    // It keeps files open, and never connects to the new owner: moves of what they are in wait for it.
    let mut still = Client::connect(&bench.connector());
    let dirs = ["busy", "next"].map(|name| still.mkdir(ROOT, name));
    for n in 0..32 {
        still.create(dirs[0], &n.to_string());
    }
    let say = |cmd: &str, dir: usize| json!({"cmd": cmd, "ino": dirs[dir].ino.0, "to": 1});
    let moving = |bench: &Bench, path: &str| rows(bench, path).first().map(|row| row["moving"].clone());
    bench.ok(&say("subtree move", 0));
    bench.until("not under way", |bench| {
        moving(bench, "/busy").is_some_and(|of| of["id"].is_u64() && of["waits_for"] == JOINS)
    });
    bench.ok(&say("subtree move", 1));
    let queued = json!({"id": null, "wanted": "move", "to": 1, "waits_for": null});
    bench.until("not queued", |bench| moving(bench, "/next").as_ref() == Some(&queued));
    assert_eq!(rows(&bench, "/next")[0]["policy"], Value::Null, "it has no entry");
    bench.ok(&say("subtree cancel", 1));
    bench.until("queued yet", |bench| rows(bench, "/next").is_empty());
    let told = bench.ok(&say("subtree cancel", 0));
    assert!(told["text"].as_str().is_some_and(|text| text.contains("given up")), "{told}");
    // Its rank hears of it with the next map.
    bench.until("moves yet", |bench| moving(bench, "/busy") == Some(Value::Null));
    assert_eq!(subtrees(&bench)[1], entry("/busy", 0, "carved"));
    // Its rank hands a part of it to the other one, by itself.
    bench.ok(&json!({"cmd": "dirfrag split", "ino": dirs[0].ino.0, "bits": 1}));
    let waits = |row: &Value| row["moving"]["id"].is_u64() && row["moving"]["waits_for"] == JOINS;
    bench.until("no part moves", |bench| part_that(bench, "/busy", waits).is_some());
    let refused = bench.admin(&say("subtree cancel", 0));
    let part = part_that(&bench, "/busy", waits).expect("it waits");
    assert!(
        refused["do"].as_str().is_some_and(|step| step.ends_with(&format!("--frag {part}`"))),
        "{refused}"
    );
    let mut cancel = say("subtree cancel", 0);
    cancel["frag"] = json!(part);
    bench.ok(&cancel);
    cancel["frag"] = json!("0x1/1");
    assert_eq!(bench.admin(&cancel)["code"], 2, "no part");
    drop(still);
    bench.stop();
}

#[test]
fn parts_of_a_directory_are_listed_and_move_by_command() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir_all("a/mail", 0o755).expect("made");
    fs.mkdir("b", 0o755).expect("made");
    for n in 0..32 {
        fs.write(format!("a/mail/{n}"), b"1").expect("written");
    }
    pin(&bench, &fs, "b", 1);
    let number = |path: &str| fs.stat(path).expect("there").ino.0;
    bench.ok(&json!({"cmd": "dirfrag split", "ino": number("a/mail"), "bits": 2}));
    let at_rank_1 = |row: &Value| row["rank"] == 1 && row["policy"] == "spread" && row["moving"].is_null();
    let count = |bench: &Bench| rows(bench, "/a/mail").iter().filter(|row| at_rank_1(row)).count();
    bench.until("not spread", |bench| count(bench) == 2);
    let part = part_that(&bench, "/a/mail", at_rank_1).expect("one");
    let mut back = json!({"cmd": "subtree move", "ino": number("a/mail"), "to": 0, "frag": part});
    bench.ok(&back);
    bench.until("does not come back", |bench| count(bench) == 1);
    back["frag"] = json!("0x0/3");
    assert_eq!(bench.admin(&back)["code"], 5, "no part of it");
    // Only what is below.
    let below = |path: &str| {
        let listed = bench.ok(&json!({"cmd": "subtree ls", "ino": number(path)}));
        let rows = listed["subtrees"].as_array().expect("a list");
        assert_eq!(listed["count"], rows.len());
        rows.iter().filter_map(|row| row["path"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(below("b"), ["/b"]);
    assert!(below("a").len() >= 2 && below("a").iter().all(|path| path == "/a/mail"), "{:?}", below("a"));
    assert_eq!(below("/").len(), 2 + below("a").len());
    for n in 0..32 {
        assert_eq!(fs.read(format!("a/mail/{n}")).expect("read"), b"1");
    }
    drop(fs);
    bench.stop();
}

#[test]
fn an_evicted_client_is_evicted_everywhere() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir("there", 0o755).expect("made");
    pin(&bench, &fs, "there", 1);
    fs.write("there/file", b"1").expect("written");
    let clients = bench.ok(&json!({"cmd": "client ls"}));
    let id = clients["clients"][0]["id"].as_u64().expect("a number");
    bench.ok(&json!({"cmd": "client evict", "id": id}));
    for who in ["mds.0", "mds.1"] {
        let sessions = bench.ok(&json!({"cmd": "tell", "who": who, "what": "session ls"}));
        let has = sessions["clients"].as_array().is_some_and(|all| all.iter().any(|one| one["id"] == id));
        assert!(!has, "{who}: {sessions}");
    }
    let told = fs.read("there/file");
    assert!(matches!(told, Err(Errno::EIO | Errno::ESHUTDOWN)), "{told:?}");
    drop(fs);
    bench.stop();
}

/// Its files, with what is in them.
fn journal_of_rank_1(bench: &Bench) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(bench.dir.path().join("fs/journal/0001")).expect("a journal");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files.map(|path| (path.clone(), std::fs::read(path).expect("read"))).collect()
}

/// What broke: it was answered with success while a rank had no life or replayed, and there the client went on.
#[test]
fn an_eviction_is_no_success_while_a_rank_does_not_serve() {
    let mut bench = two();
    let fs = client(&bench);
    fs.mkdir("there", 0o755).expect("made");
    pin(&bench, &fs, "there", 1);
    fs.write("there/file", b"1").expect("written");
    let clients = bench.ok(&json!({"cmd": "client ls"}));
    let id = clients["clients"][0]["id"].as_u64().expect("a number");
    // Rank 1 cannot read its journal, and so is damaged.
    bench.ok(&json!({"cmd": "fs fail", "fs": "pandofs"}));
    bench.until("a life does not end", |bench| bench.admin(&json!({"cmd": "client ls"}))["ok"] == false);
    let files = journal_of_rank_1(&bench);
    for (path, bytes) in &files {
        let bad: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x55).collect();
        std::fs::write(path, bad).expect("damaged");
    }
    bench.ok(&json!({"cmd": "fs joinable", "fs": "pandofs"}));
    bench.until("not damaged", |bench| {
        let serves = ["reconnect", "active"].map(|state| bench.of_rank(0)["state"] == state);
        bench.map()["damaged"] == json!([1]) && serves.contains(&true)
    });
    let evict = json!({"cmd": "client evict", "id": id});
    let answer = bench.admin(&evict);
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(answer["code"] == 5 && error.contains("mds.1") && !error.contains("mds.0"), "{answer}");
    for (path, bytes) in &files {
        std::fs::write(path, bytes).expect("mended");
    }
    bench.ok(&json!({"cmd": "mds fail", "who": "1"}));
    bench.until("not evicted", |bench| {
        let answer = bench.admin(&evict);
        answer["ok"] == true || answer["error"].as_str().is_some_and(|error| error.starts_with("no client "))
    });
    let told = fs.read("there/file");
    assert!(matches!(told, Err(Errno::EIO | Errno::ESHUTDOWN)), "{told:?}");
    drop(fs);
    bench.stop();
}
