//! A rank, and peers that say whatever can be decoded, in any order, with cuts, pauses and crashes between: it must not panic, it
//! must come to rest, an honest client must be answered and keep its lock, and what is left must be a tree.
//!
//! Absent: bytes that are no message (`messages`); whether answers are right (`sim`).

use super::messages::client_messages;
use super::rank_world::{ROOT_PEER, USER_PEER, World};
use crate::target::{Target, Verdict};
use proto::caps::Bits;
use proto::codec::{Reader, Writer};
use proto::message::{ClientMsg, Told};
use proto::request::{LockKind, LockSpec, NewNode, Request, XattrMode};
use proto::{Cred, Ino, Name, NodeRef, Tid};
use stdx::Wall;

pub(super) const TARGET: Target = Target { name: "rank-session", execute: drive, repair: None, seeds };

/// Parts of an input that are carried out.
const PARTS_MAX: usize = 64;

/// What a part of an input is: a number, a length, and so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A message of a peer that may act for anyone.
    Root = 0,
    /// One of a peer that acts as one user.
    User = 1,
    /// Time passes: fifty milliseconds for each unit of the first byte.
    Pause = 2,
    /// The first peer's connection breaks; it comes back.
    Cut = 3,
    /// The rank dies, and what was not durable with it; everybody comes back.
    Crash = 4,
}

const PARTS: [Part; 5] = [Part::Root, Part::User, Part::Pause, Part::Cut, Part::Crash];

fn drive(input: &[u8]) -> Verdict {
    // One in four, and a byte more or less makes it one.
    let mut world = World::new(input.len() % 4 == 3)?;
    let mut reader = Reader::new(input);
    let mut said = 0;
    for _ in 0..PARTS_MAX {
        let (Ok(kind), Ok(len)) = (reader.u8(), reader.u16()) else { break };
        let Ok(body) = reader.raw(usize::from(len)) else { break };
        match PARTS[usize::from(kind) % PARTS.len()] {
            Part::Root => said += usize::from(say(&mut world, ROOT_PEER, body)?),
            Part::User => said += usize::from(say(&mut world, USER_PEER, body)?),
            Part::Pause => world.pass(u64::from(body.first().copied().unwrap_or(1)) * 50)?,
            Part::Cut => world.come_back(ROOT_PEER)?,
            Part::Crash => world.crash()?,
        }
    }
    world.look()?;
    let ended = [ROOT_PEER, USER_PEER].map(|peer| world.is_over(peer));
    Ok(format!("{} messages, ended {ended:?}, {} names", said.min(3), world.names.min(4)))
}

/// What cannot be decoded ends the connection before the rank sees it.
fn say(world: &mut World, peer: usize, body: &[u8]) -> Result<bool, String> {
    let Ok(message) = ClientMsg::decode(body) else { return Ok(false) };
    world.say(peer, message)?;
    Ok(true)
}

fn part(bytes: &mut Writer, part: Part, body: &[u8]) {
    bytes.u8(part as u8).u16(body.len() as u16).raw(body);
}

fn sequence(parts: &[(Part, Option<ClientMsg>)]) -> Vec<u8> {
    let mut bytes = Writer::new();
    for (kind, message) in parts {
        let mut body = Writer::new();
        match message {
            Some(message) => message.encode(&mut body),
            None => {
                body.u8(80);
            }
        }
        part(&mut bytes, *kind, &body.0);
    }
    bytes.0
}

/// Each message alone, from either peer; and stretches of what a client may well say, for the mutations to spoil.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (number, message) in client_messages().into_iter().enumerate() {
        let peer = if number % 3 == 2 { Part::User } else { Part::Root };
        all.push((format!("one-{number:02}"), sequence(&[(peer, Some(message))])));
    }
    for (name, parts) in [("requests", requests()), ("performed", performed()), ("returns", returns())] {
        all.push((name.to_owned(), sequence(&parts)));
    }
    all
}

fn name(text: &str) -> Option<Name> {
    Name::new(text.as_bytes()).ok()
}

fn ask(tid: u64, request: Request) -> (Part, Option<ClientMsg>) {
    let message = ClientMsg::Request { tid: Tid(tid), floor: Tid(1), cred: Cred::ROOT, request };
    (Part::Root, Some(message))
}

fn requests() -> Vec<(Part, Option<ClientMsg>)> {
    let (Some(d), Some(f), Some(x)) = (name("d"), name("f"), name("user.x")) else { return Vec::new() };
    let parent = NodeRef::bare(Ino::ROOT);
    let new = NewNode { mode: 0o644, umask: 0, rdev: 0 };
    // The honest client's file is the second inode that is made.
    let node = NodeRef::bare(Ino(Ino::FIRST_COUNTER + 1));
    let lock = LockSpec { flock: true, owner: 7, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
    let data = proto::storeio::Payload::Owned(b"bytes".to_vec());
    vec![
        ask(1, Request::MkDir { parent, name: d.clone(), new: new.clone() }),
        ask(2, Request::Create { parent, name: f.clone(), new, flags: 2 }),
        ask(3, Request::Write { node, offset: 3, append: false, kill_suidgid: false, data }),
        ask(4, Request::SetXattr { node, name: x, value: b"v"[..].into(), mode: XattrMode::Either }),
        ask(5, Request::SetLock { node, lock, wait: true }),
        ask(6, Request::Fallocate { node, mode: 0, offset: 0, len: 9_000 }),
        ask(
            7,
            Request::CopyRange { source: node, source_offset: 0, target: node, target_offset: 64, len: 4 },
        ),
        ask(8, Request::Open { node, flags: 2 }),
        (Part::Pause, None),
        (Part::Root, Some(ClientMsg::Cancel { tid: Tid(5) })),
        ask(9, Request::Rename { parent, name: f, new_parent: parent, new_name: d, flags: 0 }),
        (Part::Cut, None),
        (Part::Root, Some(ClientMsg::Reclaim { node, count: 3, writes: true, locks: vec![lock] })),
        (Part::Root, Some(ClientMsg::Reclaimed)),
        (Part::Crash, None),
        (Part::Root, Some(ClientMsg::Reclaim { node, count: 3, writes: true, locks: vec![lock] })),
        (Part::Root, Some(ClientMsg::Reclaimed)),
        (Part::Root, Some(ClientMsg::Goodbye)),
    ]
}

fn performed() -> Vec<(Part, Option<ClientMsg>)> {
    let (Some(d), Some(f)) = (name("d"), name("f")) else { return Vec::new() };
    let parent = NodeRef::bare(Ino::ROOT);
    let new = NewNode { mode: 0o644, umask: 0, rdev: 0 };
    let tell = |tid, ino, heard, request| {
        let told = Told { ino: Ino(ino), wall: Wall(5), heard };
        let message = ClientMsg::Performed { tid: Tid(tid), floor: Tid(1), cred: Cred::ROOT, told, request };
        (Part::Root, Some(message))
    };
    let first = Ino::FIRST_COUNTER + 2;
    let dir = NodeRef::bare(Ino(first));
    vec![
        ask(1, Request::MkDir { parent, name: d.clone(), new: new.clone() }),
        (Part::Pause, None),
        tell(
            2,
            first + 1,
            false,
            Request::Create { parent: dir, name: f.clone(), new: new.clone(), flags: 2 },
        ),
        tell(3, first + 2, true, Request::MkDir { parent: dir, name: d.clone(), new }),
        tell(4, 0, false, Request::Unlink { parent: dir, name: f }),
        (Part::Crash, None),
        (Part::Root, Some(ClientMsg::Reclaimed)),
        tell(5, first + 2, true, Request::RmDir { parent: dir, name: d }),
        (Part::Root, Some(ClientMsg::Presented)),
        (Part::Root, Some(ClientMsg::Settled)),
        (Part::Pause, None),
    ]
}

fn returns() -> Vec<(Part, Option<ClientMsg>)> {
    let item = |number| proto::caps::Returned { ino: Ino::ROOT, bits: Bits::ATTRS, number };
    let say = |message| (Part::User, Some(message));
    vec![
        ask(1, Request::ReadDir { dir: NodeRef::bare(Ino::ROOT), after: 0, attrs: true, bytes_max: 4096 }),
        say(ClientMsg::Returned { list: vec![item(0), item(1), item(u32::MAX)] }),
        say(ClientMsg::Settled),
        say(ClientMsg::Presented),
        say(ClientMsg::Renew { number: u32::MAX }),
        (Part::Pause, None),
        say(ClientMsg::Goodbye),
    ]
}
