//! Servers over real folders, as clients see them.

mod common;

use common::{Client, ROOT};
use proto::caps::Bits;
use proto::cluster::{ClusterMap, MoveId, RankState};
use proto::fsrecord::{INCOMPAT_RANKS, INCOMPAT_SESSIONS};
use proto::request::Request;
use proto::storeio::{LoadRequest, Loaded};
use proto::{Incarnation, Ino, RankId};
use runtime::{Addr, SocketConnector};
use serde_json::json;
use server::{Server, ServerError, ServerOptions, backup};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use stdx::Wall;
use store::disk_real::RealDisk;
use store::folder::{Folder, FolderError, FormatOptions, format};
use store::initial::ensure_rank;
use store::meta::MetaStore;
use store::registry::{MAP, Registry, RegistryFiles};

fn new_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("dir");
    format(&dir.path().join("fs"), &FormatOptions::new(Wall(1))).expect("format");
    dir
}

fn open(dir: &Path) -> Result<Arc<Server>, ServerError> {
    let options = ServerOptions::default();
    Server::open(&dir.join("fs"), &options)
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut prng = stdx::Prng::new(seed);
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

#[test]
fn what_was_synced_is_there_after_a_kill() {
    let dir = new_folder();
    let (small, large) = (content(1, 3_000), content(2, 700_000));
    let server = open(dir.path()).expect("open");
    let mut client = Client::connect(server.embedded().as_ref());
    let folder = client.mkdir(ROOT, "folder");
    for (n, bytes) in [("small", &small), ("large", &large)] {
        let file = client.create(folder, n);
        client.write(file, 0, bytes);
        client.fsync(file);
        assert_eq!(&client.read(file, 0, 1 << 20), bytes);
    }
    drop(server);
    for round in 0..3 {
        let server = open(dir.path()).expect("reopen");
        let mut client = Client::connect(server.embedded().as_ref());
        let folder = common::node(&client.lookup(ROOT, "folder").expect("folder"));
        for (n, bytes) in [("small", &small), ("large", &large)] {
            let file = common::node(&client.lookup(folder, n).expect("file"));
            assert_eq!(&client.read(file, 0, 1 << 20), bytes, "{n} in round {round}");
        }
        assert_eq!(client.list(folder), ["large", "small"]);
        if round == 0 {
            server.stop().expect("stop");
        }
    }
}

#[test]
fn two_connections_see_each_other() {
    let dir = new_folder();
    let server = open(dir.path()).expect("open");
    let at = Addr::Unix(dir.path().join("fs/pando.sock"));
    server.listen(std::slice::from_ref(&at)).expect("listen");
    let connector = SocketConnector::new(at);
    let (mut a, mut b) = (Client::connect(&connector), Client::connect(&connector));
    let mut embedded = Client::connect(server.embedded().as_ref());
    for n in 0..50 {
        let text = format!("file{n}");
        let file = a.create(ROOT, &text);
        a.write(file, 0, text.as_bytes());
        let seen = common::node(&b.lookup(ROOT, &text).expect("b sees it"));
        assert_eq!(b.read(seen, 0, 100), text.as_bytes());
        assert!(embedded.lookup(ROOT, &text).is_some());
        if n % 2 == 0 {
            b.ok(Request::Unlink { parent: ROOT, name: common::name(&text) });
            assert!(a.lookup(ROOT, &text).is_none());
        }
    }
    assert_eq!(b.list(ROOT).len(), 25);
    server.stop().expect("stop");
}

#[test]
fn hostile_bytes_hurt_nobody_else() {
    let dir = new_folder();
    let server = open(dir.path()).expect("open");
    let path = dir.path().join("fs/pando.sock");
    server.listen(&[Addr::Unix(path.clone())]).expect("listen");
    let mut client = Client::connect(&SocketConnector::new(Addr::Unix(path.clone())));
    let file = client.create(ROOT, "kept");
    for seed in 0..20 {
        let mut stream = UnixStream::connect(&path).expect("connect");
        // Half the attacks are framed, so that the decoder of messages meets them.
        let mut w = proto::Writer::new();
        if seed % 2 == 0 {
            w.raw(&content(seed, 5_000));
        } else {
            proto::frame::put_frame(&mut w, |w| {
                w.u8(1 + (seed % 9) as u8).raw(&content(seed, 300));
            });
        }
        // The server may close while we still write.
        let _cut_short = stream.write_all(&w.0);
        let _half_closed = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
    }
    client.write(file, 0, b"still here");
    assert_eq!(client.read(file, 0, 100), b"still here");
}

#[test]
fn a_server_warms_itself_if_it_shall() {
    let dir = new_folder();
    let server = open(dir.path()).expect("open");
    let mut client = Client::connect(server.embedded().as_ref());
    let folder = client.mkdir(ROOT, "folder");
    for n in 0..20 {
        client.create(folder, &format!("file{n}"));
    }
    server.stop().expect("stop");
    drop(server);
    for warm in [false, true] {
        let mut options = ServerOptions::default();
        options.config.mds_warmup_on_start = warm;
        let server = Server::open(&dir.path().join("fs"), &options).expect("reopen");
        let status = || server.admin(&json!({"cmd": "warmup status"}))["result"].clone();
        while status()["state"] == "running" {
            std::thread::yield_now();
        }
        let (state, names) = if warm { ("done", 21) } else { ("never", 0) };
        assert_eq!((status()["state"].as_str(), status()["names"].as_u64()), (Some(state), Some(names)));
        server.stop().expect("stop");
    }
}

#[test]
fn a_second_server_is_refused_by_pid() {
    let dir = new_folder();
    let first = open(dir.path()).expect("open");
    match open(dir.path()) {
        Err(ServerError::Folder(FolderError::InUse { pid, .. })) => assert_eq!(pid, std::process::id()),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("opened twice"),
    }
    drop(first);
    open(dir.path()).expect("free again");
}

#[test]
fn operators_get_answers() {
    let dir = new_folder();
    let server = open(dir.path()).expect("open");
    let mut client = Client::connect(server.embedded().as_ref());
    client.create(ROOT, "x");
    let status = client.admin(&json!({ "cmd": "status" }));
    assert_eq!(status["result"]["state"], "active");
    let clients = client.admin(&json!({ "cmd": "client ls" }))["result"]["clients"].take();
    assert_eq!((clients[0]["host"].as_str(), clients[0]["requests"].as_u64()), (Some("test"), Some(1)));
    assert!(clients[0]["age_ms"].as_u64().is_some_and(|age| age < 60_000), "{clients}");
    assert_eq!(client.admin(&json!({ "cmd": "checkpoint" }))["ok"], true);
    assert!(client.admin(&json!({ "cmd": "perf dump" }))["result"]["driver"]["turns"].as_u64() > Some(0));
    let refused = client.admin(&json!({ "cmd": "make coffee" }));
    assert_eq!((&refused["ok"], &refused["code"]), (&json!(false), &json!(2)));
    assert_eq!(server.admin(&json!({}))["ok"], false);
}

/// `health` and the metrics page left out the records of capabilities, which may be half of the cache's memory: no warning came.
#[test]
fn the_cache_is_as_large_whoever_asks() {
    let dir = new_folder();
    let server = open(dir.path()).expect("open");
    let mut client = Client::wanting(server.embedded().as_ref(), Bits::ATTRS);
    for name in ["x", "y"] {
        client.create(ROOT, name);
    }
    let status = client.admin(&json!({ "cmd": "status" }))["result"].take();
    let gauges = client.admin(&json!({ "cmd": "perf dump" }))["result"]["rank"].take();
    assert!(gauges["caps_bytes"].as_u64() > Some(0), "{gauges}");
    assert_eq!(gauges["cache_bytes"], status["cache_bytes"]);
}

#[test]
fn a_backup_restores_to_the_same_tree() {
    let dir = new_folder();
    let (small, large) = (content(3, 2_000), content(4, 9_000_000));
    let file = dir.path().join("backup");
    let before = {
        let server = open(dir.path()).expect("open");
        let mut client = Client::connect(server.embedded().as_ref());
        let folder = client.mkdir(ROOT, "folder");
        for (n, bytes) in [("small", &small), ("large", &large)] {
            let node = client.create(folder, n);
            for (at, piece) in bytes.chunks(1 << 20).enumerate() {
                client.write(node, (at as u64) << 20, piece);
            }
        }
        let sparse = client.create(folder, "sparse");
        client.write(sparse, 1 << 40, b"end");
        for n in 0..300 {
            client.create(folder, &format!("empty{n}"));
        }
        let summary = backup::create(&server, &file).expect("backup");
        assert_eq!(summary.files, 3);
        assert!(summary.data_bytes < 10_000_000, "holes are not copied");
        // The server goes on, and is not part of the backup any more.
        client.create(folder, "later");
        summary
    };
    assert_eq!(backup::verify(&file).expect("verify"), before);
    let options = FormatOptions::new(Wall(1));
    backup::restore(&file, &dir.path().join("second/fs"), &options).expect("restore");
    let server = open(&dir.path().join("second")).expect("open");
    let mut client = Client::connect(server.embedded().as_ref());
    let folder = common::node(&client.lookup(ROOT, "folder").expect("folder"));
    assert_eq!(client.list(folder).len(), 303);
    assert!(client.lookup(folder, "later").is_none());
    for (n, bytes) in [("small", &small), ("large", &large)] {
        let node = common::node(&client.lookup(folder, n).expect("file"));
        for (at, piece) in bytes.chunks(1 << 20).enumerate() {
            assert_eq!(client.read(node, (at as u64) << 20, 1 << 20), piece);
        }
    }
    let sparse = common::node(&client.lookup(folder, "sparse").expect("file"));
    assert_eq!(client.read(sparse, (1 << 40) - 3, 10), b"\0\0\0end");
    client.create(folder, "new");
    server.stop().expect("stop");
    // A flipped bit anywhere is found before anything is believed.
    let mut bytes = std::fs::read(&file).expect("read");
    let at = bytes.len() / 3;
    bytes[at] ^= 4;
    std::fs::write(&file, bytes).expect("write");
    assert!(backup::verify(&file).is_err_and(|error| error.is_damage()));
    assert!(backup::restore(&file, &dir.path().join("third"), &options).is_err());
    // What cannot be told from anything else is not called damaged.
    std::fs::write(&file, b"").expect("write");
    assert!(backup::verify(&file).is_err_and(|error| !error.is_damage()));
}

/// Journals and sessions stay behind; what the map says of owners and settings goes along, and nobody in it lives.
#[test]
fn a_backup_takes_the_cluster_map_along() {
    let dir = new_folder();
    let source = dir.path().join("fs");
    let registry = |dir: &Path| RegistryFiles::open(RealDisk::new(dir)).expect("opened");
    let mut map = ClusterMap::first();
    (map.max_mds, map.last_incarnation, map.last_move) = (2, Incarnation(40), MoveId(17));
    map.made = map.made.with(RankId(1));
    let first = map.encode();
    registry(&source).swap(MAP, 0, &first).expect("written");
    let seed = {
        let folder = Folder::open(&source).expect("opened");
        folder.allow_ranks().expect("noted");
        let seed = folder.record().hash_seed;
        ensure_rank(&folder.open_meta().expect("meta"), &seed, RankId(1), Wall(1)).expect("made");
        seed
    };
    let file = dir.path().join("backup");
    let server = open(dir.path()).expect("open");
    let summary = backup::create(&server, &file).expect("backup");
    server.stop().expect("stop");
    drop(server);
    assert_eq!(summary.record.incompat, INCOMPAT_SESSIONS | INCOMPAT_RANKS);
    assert_eq!(backup::verify(&file).expect("verify"), summary);
    assert_eq!(std::fs::read(&file).expect("read")[8], 2, "earlier versions say that it is newer");
    let copy = dir.path().join("second/fs");
    let restore = || backup::restore(&file, &copy, &FormatOptions::new(Wall(1)));
    restore().expect("restored");
    let record = registry(&copy).read(MAP).expect("read").expect("there");
    let restored = ClusterMap::decode(&record.bytes).expect("a map");
    assert!(record.version > 1 && restored.version == record.version);
    assert_eq!((restored.max_mds, restored.made, restored.last_move), (2, map.made, map.last_move));
    assert!(restored.last_incarnation >= Incarnation(40));
    assert!(
        restored.daemons.is_empty() && restored.ranks.values().all(|rank| rank.state == RankState::Failed)
    );
    let folder = Folder::open(&copy).expect("opened");
    assert!(folder.allows_ranks());
    let name = b"orphans-1"[..].into();
    let hash = proto::name::name_hash(&seed, b"orphans-1");
    let there =
        folder.open_meta().expect("meta").load(&[LoadRequest::Dentry { dir: Ino::SYSTEM, hash, name }]);
    assert!(matches!(there.as_slice(), [Ok(Loaded::Value(Some(_)))]), "{there:?}");
    drop(folder);
    open(&dir.path().join("second")).expect("it serves").stop().expect("stop");
    // What cannot be a map is not restored, and what was restored until then is not left.
    let mut bytes = std::fs::read(&file).expect("read");
    let at = bytes.windows(first.len()).position(|window| window[..6] == first[..6]).expect("the map");
    bytes[at] = 9;
    std::fs::write(&file, bytes).expect("write");
    assert!(backup::verify(&file).is_err_and(|error| error.is_damage()));
    assert!(backup::restore(&file, &dir.path().join("third"), &FormatOptions::new(Wall(1))).is_err());
    assert!(!dir.path().join("third/cluster").exists());
}
