//! A place of a server where all that comes in is limited to a directory.
//!
//! Absent: what each rank looks at; crate `mds` has that.

mod common;

use common::bench::Bench;
use common::{Client, ROOT};
use mount::{Fs, Mount, Settings};
use proto::message::ClientInfo;
use proto::request::{Request, XattrMode};
use proto::{Cred, Errno, Ino};
use runtime::{Addr, SocketConnector};
use serde_json::json;
use std::sync::Arc;

fn mounted(addr: &Addr, settings: Settings) -> Result<(Arc<Mount>, Fs), mount::MountError> {
    let connector = Arc::new(SocketConnector::new(addr.clone()));
    let mount = Mount::open_with(connector, ClientInfo::default(), settings)?;
    Ok((Arc::clone(&mount), Fs::new(mount, Cred::ROOT)))
}

#[test]
fn what_comes_in_there_gets_one_directory_and_nothing_else() {
    let bench = Bench::new(Some(3));
    bench.ok(&json!({"cmd": "fs set", "fs": "pandofs", "key": "max_mds", "value": "2"}));
    bench.until("not both serve", |bench| (0..2).all(|rank| bench.of_rank(rank)["state"] == "active"));
    let (_mount, all) = mounted(&bench.addr(), Settings::default()).expect("mounted");
    for dir in ["in", "in/d", "out", "out/d"] {
        all.mkdir(dir, 0o755).expect("made");
    }
    for dir in ["in/d", "out/d"] {
        all.setxattr(dir, b"ceph.dir.pin", b"1", XattrMode::Either).expect("pinned");
        all.create(format!("{dir}/f")).expect("created").write(b"text").expect("written");
    }
    let limit = all.stat("in").expect("there").ino;
    let (near, far) = (all.stat("out").expect("there").node(), all.stat("out/d/f").expect("there").node());

    let at = Addr::Unix(bench.dir.path().join("in.sock"));
    bench.server().listen_limited(std::slice::from_ref(&at), limit).expect("listen");
    let (mount, limited) = mounted(&at, Settings::default()).expect("mounted");
    assert_eq!(limited.stat("/").expect("its root").ino, limit);
    assert_eq!(limited.read("d/f").expect("read"), b"text");
    limited.rename("d/f", "g").expect("from rank to rank");
    assert_eq!(limited.stat("out").map(|attr| attr.ino), Err(Errno::ENOENT));
    for node in [ROOT, near, far] {
        let outcome = mount.call(Cred::ROOT, Request::GetAttr { node });
        assert_eq!(outcome, Err(Errno::EACCES));
    }
    // What it wants for itself has to be the same.
    assert!(mounted(&at, Settings { limit, ..Settings::default() }).is_ok());
    assert!(mounted(&at, Settings { limit: near.ino, ..Settings::default() }).is_err());
    assert!(mounted(&bench.addr(), Settings { limit: Ino::LINKS, ..Settings::default() }).is_err());

    // An operator asks elsewhere, whether he is a client or not.
    let status = json!({"cmd": "status"});
    let connector = SocketConnector::new(at);
    for mut asker in [Client::connect_only(&connector), Client::connect(&connector)] {
        let answer = asker.admin(&status);
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(4)), "{answer}");
    }
    assert_eq!(bench.admin(&status)["ok"], true);
}

#[test]
fn a_mount_that_limits_itself_gets_nothing_else() {
    let bench = Bench::new(None);
    let (_mount, all) = mounted(&bench.addr(), Settings::default()).expect("mounted");
    for dir in ["in", "in/d", "out"] {
        all.mkdir(dir, 0o755).expect("made");
    }
    let (limit, out) = (all.stat("in").expect("there").ino, all.stat("out").expect("there").node());
    let settings = Settings { limit, wants: proto::caps::Bits::ALL, ..Settings::default() };
    let (mount, limited) = mounted(&bench.addr(), settings).expect("mounted");
    assert_eq!(limited.stat("/").expect("its root").ino, limit);
    limited.create("d/f").expect("created").write(b"text").expect("written");
    let outcome = mount.call(Cred::ROOT, Request::GetAttr { node: out });
    assert_eq!(outcome, Err(Errno::EACCES));
    all.rename("in/d", "out/d").expect("moved out");
    assert_eq!(limited.stat("d").map(|attr| attr.ino), Err(Errno::ENOENT));
    let listed = bench.ok(&json!({"cmd": "client ls"}));
    let limits: Vec<_> =
        listed["clients"].as_array().into_iter().flatten().map(|one| &one["limit"]).collect();
    assert!(limits.contains(&&json!(format!("0x{:x}", limit.0))), "{listed}");
}
