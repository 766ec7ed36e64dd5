//! Messages between clients and ranks, and the frame around them.
//!
//! Absent: sessions; a decoded message is not executed.

use crate::class::class;
use crate::repair;
use crate::target::{Exact, Target, Verdict, check_size, round_trip};
use proto::caps::{Bits, Grants, Recalled, Returned};
use proto::cluster::{MoveId, Unit};
use proto::codec::Writer;
use proto::frame::{FRAME_HEADER_BYTES, put_frame, take_frame};
use proto::holder::{Holder, Moved};
use proto::message::{At, ClientInfo, ClientMsg, Delegated, JoinToken, PROTOCOL, ServerMsg, Told};
use proto::reply::{DirEntry, Reply, StatFs};
use proto::request::{LockKind, LockSpec, NewNode, Request, XattrMode};
use proto::storeio::{Payload, Space};
use proto::{
    Attr, Cred, Errno, FileKind, Frag, Incarnation, Ino, Name, NameHash, NodeRef, Position, RankId,
    SessionId, SetAttr, Tid, attr::SetTime,
};
use stdx::Wall;
use stdx::hash::HashSeed;

pub(super) const CLIENT: Target =
    Target { name: "client-msg", execute: client, repair: None, seeds: client_seeds };
pub(super) const SERVER: Target =
    Target { name: "server-msg", execute: server, repair: None, seeds: server_seeds };
pub(super) const FRAME: Target =
    Target { name: "frame", execute: frame, repair: Some(repair::frame), seeds: frame_seeds };

fn client(input: &[u8]) -> Verdict {
    let weigh = |message: &ClientMsg| {
        size_of::<ClientMsg>()
            + match message {
                ClientMsg::Reclaim { locks, .. } => locks.capacity() * size_of::<LockSpec>(),
                ClientMsg::Request { cred, request, .. } | ClientMsg::Performed { cred, request, .. } => {
                    cred.groups.capacity() * 4 + weigh_request(request)
                }
                ClientMsg::Hello { info, .. } => info.host.capacity() + info.mount.capacity(),
                ClientMsg::Admin { command, .. } => command.capacity(),
                ClientMsg::Returned { list } => list.capacity() * size_of::<Returned>(),
                ClientMsg::Idle { list } => list.capacity() * size_of::<Ino>(),
                _ => 0,
            }
    };
    round_trip(input, Exact::Bytes, ClientMsg::decode, encode_client, weigh)
}

fn weigh_request(request: &Request) -> usize {
    match request {
        Request::Write { data: Payload::Owned(bytes), .. } => bytes.capacity(),
        Request::SetXattr { value, .. } => value.len(),
        Request::Symlink { target, .. } => target.len(),
        _ => 0,
    }
}

fn encode_client(message: &ClientMsg) -> Vec<u8> {
    let mut w = Writer::new();
    message.encode(&mut w);
    w.0
}

fn server(input: &[u8]) -> Verdict {
    let weigh = |message: &ServerMsg| {
        size_of::<ServerMsg>()
            + match message {
                ServerMsg::Reply { outcome: Ok(Reply::Entries { entries, .. }), .. }
                | ServerMsg::Granted {
                    outcome: Ok(Reply::Entries { entries, .. }),
                    grants: Grants::None,
                    ..
                } => {
                    let names: usize = entries.iter().map(|entry| entry.name.len()).sum();
                    entries.capacity() * size_of::<DirEntry>() + names
                }
                ServerMsg::Early { outcome: Ok(Reply::Entries { entries, .. }), delegated, .. } => {
                    let names: usize = entries.iter().map(|entry| entry.name.len()).sum();
                    entries.capacity() * size_of::<DirEntry>()
                        + names
                        + delegated.capacity() * size_of::<Delegated>()
                }
                ServerMsg::Reply { outcome: Ok(Reply::Data(Payload::Owned(bytes))), .. } => bytes.capacity(),
                ServerMsg::Early { outcome: Ok(Reply::Data(Payload::Owned(bytes))), delegated, .. } => {
                    bytes.capacity() + delegated.capacity() * size_of::<Delegated>()
                }
                ServerMsg::Early { delegated, .. } => delegated.capacity() * size_of::<Delegated>(),
                ServerMsg::Admin { answer, .. } => answer.capacity(),
                ServerMsg::Recall { list } => {
                    let name = |recalled: &Recalled| {
                        recalled.name.as_ref().map_or(0, |(_, name)| name.as_bytes().len())
                    };
                    list.capacity() * size_of::<Recalled>() + list.iter().map(name).sum::<usize>()
                }
                ServerMsg::Granted { grants: Grants::Each(all), .. } => size_of_val(&**all),
                _ => 0,
            }
    };
    round_trip(input, Exact::Bytes, ServerMsg::decode, encode_server, weigh)
}

fn encode_server(message: &ServerMsg) -> Vec<u8> {
    let mut w = Writer::new();
    message.encode(&mut w);
    w.0
}

fn frame(input: &[u8]) -> Verdict {
    match take_frame(input) {
        Err(error) => Ok(class("refused", &error)),
        Ok(None) => Ok("incomplete".to_owned()),
        Ok(Some((body, len))) => {
            check_size(len, input)?;
            if len != FRAME_HEADER_BYTES + body.len() || len > input.len() {
                return Err(format!("a frame of {len} bytes with a body of {}", body.len()));
            }
            let mut w = Writer::new();
            put_frame(&mut w, |w| {
                w.raw(body);
            });
            if w.0 != input[..len] {
                return Err("a frame is not built as it was".to_owned());
            }
            let messages = [client(body), server(body)];
            let classes: Result<Vec<String>, String> = messages.into_iter().collect();
            // What is inside need not be a message, and may be a strange one: only its panics count here.
            Ok(format!(
                "taken {}",
                classes.is_ok_and(|classes| classes.iter().any(|text| text.starts_with("read")))
            ))
        }
    }
}

/// What ranks ask each other about directories, and tell each other of opens and locks that move.
fn of_moves() -> [Request; 4] {
    let unit = Unit { dir: Ino(4097), frag: Frag { prefix: 1 << 61, depth: 3 } };
    let lock = LockSpec { flock: false, owner: 5, kind: LockKind::Read, start: 0, end: 9, pid: 2 };
    [
        Request::Unpin { dir: Ino(4097) },
        Request::Heat { unit },
        Request::Sessions { sessions: vec![SessionId(7), SessionId(8)] },
        Request::Holders {
            id: MoveId(3),
            moved: Moved { unit, slot: 0 },
            version: 9,
            first: true,
            list: vec![Holder {
                session: SessionId(7),
                ino: Ino(4097),
                opens: 1,
                locks: vec![lock],
                ..Holder::default()
            }],
        },
    ]
}

fn requests() -> Vec<Request> {
    let unit = |depth| Unit { dir: Ino(4097), frag: Frag::leading(NameHash(u64::MAX), depth) };
    let node = NodeRef { ino: Ino(4097), parent: Ino::ROOT, hash: NameHash(99) };
    let parent = NodeRef::bare(Ino::ROOT);
    let Ok(name) = Name::new(b"name") else { return Vec::new() };
    let new = NewNode { mode: 0o100_644, umask: 0o22, rdev: 0 };
    let lock = LockSpec { flock: false, owner: 5, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 7 };
    let set = SetAttr {
        mode: Some(0o600),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(Wall(-1))),
        ctime: None,
        kill_suidgid: true,
    };
    let data = Payload::Owned(b"content".to_vec());
    let mut all = vec![
        Request::Lookup { parent, name: name.clone() },
        Request::GetAttr { node },
        Request::SetAttr { node, set },
        Request::ReadLink { node },
        Request::MkNod { parent, name: name.clone(), new: new.clone() },
        Request::MkDir { parent, name: name.clone(), new: new.clone() },
        Request::Symlink { parent, name: name.clone(), target: b"to"[..].into() },
        Request::Link { node, parent, name: name.clone() },
        Request::Unlink { parent, name: name.clone() },
        Request::RmDir { parent, name: name.clone() },
        Request::Rename { parent, name: name.clone(), new_parent: node, new_name: name.clone(), flags: 1 },
        Request::Open { node, flags: 2 },
        Request::Create { parent, name: name.clone(), new: new.clone(), flags: 0o300 },
        Request::TmpFile { parent, new, flags: 2 },
        Request::Release { node, count: 1 },
        Request::ReadDir { dir: parent, after: 9, attrs: true, bytes_max: 4096 },
        Request::Read { node, offset: 0, len: 4096, into: None },
        Request::Write { node, offset: 3, append: false, kill_suidgid: true, data },
        Request::Fallocate { node, mode: 3, offset: 0, len: 10 },
        Request::Seek { node, offset: 1, hole: true },
        Request::CopyRange { source: node, source_offset: 1, target: parent, target_offset: 2, len: 3 },
        Request::Fsync { node, data_only: true },
        Request::SyncFs,
        Request::StatFs,
        Request::GetXattr { node, name: name.clone() },
        Request::ListXattr { node },
        Request::SetXattr { node, name: name.clone(), value: b"v"[..].into(), mode: XattrMode::Replace },
        Request::RemoveXattr { node, name },
        Request::TestLock { node, lock },
        Request::SetLock { node, lock, wait: true },
        Request::ReleaseLocks { node, flock: true, owner: 5 },
        Request::Access { node, mask: 4 },
        Request::Parent { node },
        Request::Replicate { node },
        Request::Facts { node },
        Request::Totals { unit: unit(0) },
        Request::Totals { unit: unit(3) },
        Request::Hand { unit: unit(0), to: RankId(1) },
        Request::SetTimes { dir: Ino(4097), mtime: Wall(-5), first: Ino(5001), stamp: 9 },
        Request::Opened { node, session: SessionId(7) },
        Request::Rewrite {
            node,
            wrote: Tid(3),
            life: Incarnation(1),
            append: true,
            offset: 4,
            data: Payload::Owned(vec![5; 6]),
        },
    ];
    all.extend(of_moves());
    all
}

pub(super) fn client_messages() -> Vec<ClientMsg> {
    let info = ClientInfo { host: "host".into(), mount: "/mnt".into(), pid: 42, caps_max: 0 };
    let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Read, start: 0, end: 9, pid: 2 };
    let mut messages = vec![
        ClientMsg::Hello {
            protocol: PROTOCOL,
            session: SessionId(0),
            info,
            wants: Bits::NONE,
            at: At::default(),
        },
        ClientMsg::Cancel { tid: Tid(3) },
        ClientMsg::Renew { number: 6 },
        ClientMsg::Reclaim { node: NodeRef::bare(Ino(4097)), count: 2, writes: true, locks: vec![lock; 3] },
        ClientMsg::Reclaimed,
        ClientMsg::Goodbye,
        ClientMsg::Admin { id: 1, command: "{\"verb\":\"status\"}".into() },
        ClientMsg::Returned { list: vec![Returned { ino: Ino(4097), bits: Bits::ATTRS, number: 5 }; 3] },
        ClientMsg::Settled,
        ClientMsg::Presented,
    ];
    let cred = Cred { uid: 1000, gid: 100, groups: vec![4, 24] };
    let request = |request| ClientMsg::Request { tid: Tid(7), floor: Tid(5), cred: cred.clone(), request };
    messages.extend(requests().into_iter().map(request));
    let told = Told { ino: Ino(4098), wall: Wall(3), heard: false };
    messages.extend(requests().into_iter().map(|request| ClientMsg::Performed {
        tid: Tid(7),
        floor: Tid(5),
        cred: cred.clone(),
        told,
        request,
    }));
    messages.push(ClientMsg::Idle { list: vec![Ino(4097), Ino(4098)] });
    messages.push(ClientMsg::WantMap { have: 3 });
    messages.push(ClientMsg::CapsMax { caps_max: 1000 });
    messages.push(ClientMsg::RankHello {
        protocol: PROTOCOL,
        from: RankId(1),
        incarnation: Incarnation(7),
        to: RankId(0),
        map_version: 3,
        settled: true,
    });
    messages
}

fn client_seeds() -> Vec<(String, Vec<u8>)> {
    numbered(client_messages().iter().map(encode_client))
}

fn numbered(seeds: impl Iterator<Item = Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    seeds.enumerate().map(|(number, bytes)| (format!("{number:02}"), bytes)).collect()
}

fn replies() -> Vec<Reply> {
    let attr = Attr { ino: Ino(4097), mode: 0o100_644, nlink: 1, size: 7, ..Attr::default() };
    let lock = LockSpec { flock: false, owner: 5, kind: LockKind::Unlock, start: 0, end: 1, pid: 7 };
    let entry = |attr| DirEntry {
        hash: NameHash(50),
        name: b"entry"[..].into(),
        ino: Ino(4098),
        kind: FileKind::Regular,
        attr,
    };
    vec![
        Reply::Ok,
        Reply::Attr(attr),
        Reply::Created { attr, new: true },
        Reply::Target(b"target"[..].into()),
        Reply::Entries { entries: vec![entry(None), entry(Some(attr))], end: true },
        Reply::Data(Payload::Owned(b"data".to_vec())),
        Reply::Written { count: 4, attr },
        Reply::Offset(4096),
        Reply::StatFs(StatFs { space: Space { total: 9, free: 8, available: 7 }, files: 6 }),
        Reply::Xattr(b"value"[..].into()),
        Reply::XattrNames(b"user.a\0user.b\0"[..].into()),
        Reply::Lock(Some(lock)),
        Reply::Lock(None),
        Reply::Node(NodeRef::bare(Ino::ROOT)),
        Reply::Record {
            place: NodeRef::bare(Ino(4097)),
            name: b"dir"[..].into(),
            value: b"record"[..].into(),
        },
        Reply::Totals(b"header"[..].into()),
    ]
}

fn server_messages() -> Vec<ServerMsg> {
    let name = Name::new(b"name").expect("a name");
    let recalled = |name| Recalled { ino: Ino(4097), bits: Bits::FC, number: 5, name };
    let mut messages = vec![
        ServerMsg::Recall { list: vec![recalled(None), recalled(Some((Ino::ROOT, name)))] },
        ServerMsg::Welcome {
            protocol: PROTOCOL,
            session: SessionId(4),
            incarnation: Incarnation(2),
            fsid: [9; 16],
            resumed: false,
            lease_ms: 10_000,
            root: Ino::ROOT,
            synced: true,
            former: Incarnation(1),
            token: JoinToken([5; 16]),
        },
        ServerMsg::Renewed { number: 6 },
        ServerMsg::Damaged,
        ServerMsg::Join { rank: RankId(1), version: 2 },
        ServerMsg::Refused { errno: 116, reason: "evicted".into() },
        ServerMsg::Admin { id: 1, answer: "{}".into() },
        ServerMsg::Reply { tid: Tid(7), outcome: Err(Errno::ENOENT) },
    ];
    messages.extend(replies().into_iter().map(|reply| ServerMsg::Reply { tid: Tid(7), outcome: Ok(reply) }));
    let early = |reply| ServerMsg::Early {
        tid: Tid(7),
        position: Position(99),
        wall: Wall(3),
        outcome: Ok(reply),
        grants: Grants::None,
        delegated: vec![Delegated { dir: Attr::default(), empty: true }; 2],
    };
    messages.extend(replies().into_iter().map(early));
    let seed = HashSeed([7; 16]);
    messages.extend([
        ServerMsg::Done { tid: Tid(7), position: Position(99) },
        ServerMsg::Durable { position: Position(99) },
        ServerMsg::NotMine { tid: Tid(7), owner: Some(RankId(1)), version: 3 },
        ServerMsg::NotMine { tid: Tid(7), owner: None, version: 3 },
        ServerMsg::Map { version: 3, part: 1, parts: 2, bytes: b"map".to_vec() },
        ServerMsg::Numbers { first: Ino(8192), count: 4096, generation: 1, seed },
    ]);
    messages.extend(replies().into_iter().map(|reply| {
        let grants = match &reply {
            Reply::Entries { .. } => Grants::Each([Bits::NONE, Bits::ATTRS].into()),
            _ => Grants::One(Bits::ATTRS),
        };
        ServerMsg::Granted { tid: Tid(7), outcome: Ok(reply), grants }
    }));
    messages
}

fn server_seeds() -> Vec<(String, Vec<u8>)> {
    numbered(server_messages().iter().map(encode_server))
}

fn frame_seeds() -> Vec<(String, Vec<u8>)> {
    let bodies = client_seeds().into_iter().chain(server_seeds());
    let some: Vec<Vec<u8>> = bodies.map(|(_, body)| body).step_by(5).collect();
    let mut seeds = numbered(some.iter().map(|body| {
        let mut w = Writer::new();
        put_frame(&mut w, |w| {
            w.raw(body);
        });
        w.0
    }));
    let mut two = Writer::new();
    for body in some.iter().take(2) {
        put_frame(&mut two, |w| {
            w.raw(body);
        });
    }
    seeds.push(("two".to_owned(), two.0));
    seeds
}
