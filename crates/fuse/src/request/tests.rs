//! Parser tests: every opcode, every truncation, and bytes nobody meant.
//! Absent: a kernel; `tests/mount.rs` has that.

use super::*;
use crate::abi::{self, Dialect, InHeader, Opcode};

const DIALECT: Dialect = Dialect { setxattr_ext: true };

fn message(opcode: Opcode, body: &[u8], payload: &[u8], extensions: &[u8]) -> Vec<u8> {
    let len = size_of::<InHeader>() + body.len() + payload.len() + extensions.len();
    let header = InHeader {
        len: u32::try_from(len).expect("test messages are small"),
        opcode: opcode as u32,
        unique: 8,
        nodeid: 1,
        uid: 1000,
        gid: 100,
        pid: 42,
        total_extlen: u16::try_from(extensions.len() / 8).expect("test extensions are small"),
        padding: 0,
    };
    [header.bytes(), body, payload, extensions].concat()
}

/// A body of zeroes and a payload with room for two names and some data.
fn plausible(opcode: Opcode) -> Vec<u8> {
    message(opcode, &vec![0; opcode.body_size(DIALECT)], b"first\0second\0", &[])
}

#[test]
fn every_opcode_parses() {
    for &opcode in Opcode::ALL {
        let bytes = plausible(opcode);
        let parsed = KernelRequest::parse(&bytes, DIALECT);
        match opcode {
            Opcode::Init => assert_eq!(parsed.err(), Some(ParseError::UnknownOpcode(26))),
            _ => assert!(parsed.is_ok(), "{opcode:?}: {parsed:?}"),
        }
    }
}

#[test]
fn no_length_panics() {
    for &opcode in Opcode::ALL {
        let whole = plausible(opcode);
        let needed = size_of::<InHeader>() + opcode.body_size(DIALECT);
        for length in 0..whole.len() {
            let parsed = KernelRequest::parse(&whole[..length], DIALECT);
            if length < needed {
                assert!(parsed.is_err(), "{opcode:?} of {length} bytes: {parsed:?}");
            }
        }
    }
}

#[test]
fn no_bytes_panic() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    for round in 0..20_000_usize {
        let mut bytes: Vec<u8> = (0..round % 200).map(|_| next()).collect();
        if let Some(opcode) = bytes.get_mut(4..8) {
            opcode.copy_from_slice(&u32::from(next() % 56).to_ne_bytes());
        }
        if let Ok(KernelRequest { operation: Operation::BatchForget { items }, .. }) =
            KernelRequest::parse(&bytes, DIALECT)
        {
            assert_eq!(items.iter().count(), items.len());
        }
    }
}

#[test]
fn names_are_split_and_never_empty() {
    let bytes =
        message(Opcode::Rename2, abi::Rename2In { newdir: 9, flags: 1, padding: 0 }.bytes(), b"a\0bc\0", &[]);
    let request = KernelRequest::parse(&bytes, DIALECT).expect("a valid rename");
    assert!(matches!(
        request.operation,
        Operation::Rename { name: b"a", new_parent: 9, new_name: b"bc", flags: 1 }
    ));
    assert_eq!(
        (request.unique, request.nodeid, request.uid, request.gid, request.pid),
        (8, 1, 1000, 100, 42)
    );
    let empty = message(Opcode::Lookup, &[], b"\0", &[]);
    assert_eq!(KernelRequest::parse(&empty, DIALECT).err(), Some(ParseError::Malformed));
    let open_ended = message(Opcode::Lookup, &[], b"abc", &[]);
    assert_eq!(KernelRequest::parse(&open_ended, DIALECT).err(), Some(ParseError::Truncated));
}

#[test]
fn locks_tell_flock_from_fcntl() {
    let range = abi::FileLock { start: 1, end: 9, kind: 1, pid: 7 };
    for (lk_flags, flock) in [(abi::LK_FLOCK, true), (0, false)] {
        let body = abi::LkIn { fh: 3, owner: 5, lk: range, lk_flags, padding: 0 };
        let bytes = message(Opcode::SetLkW, body.bytes(), &[], &[]);
        let request = KernelRequest::parse(&bytes, DIALECT).expect("a valid lock");
        let Operation::SetLk { lock, sleep: true } = request.operation else {
            panic!("not a sleeping lock: {request:?}");
        };
        assert_eq!(lock, Lock { fh: 3, owner: 5, range, flock });
    }
}

#[test]
fn setattr_gives_only_valid_fields() {
    let body = abi::SetAttrIn {
        valid: abi::fattr::SIZE | abi::fattr::MTIME | abi::fattr::ATIME | abi::fattr::ATIME_NOW,
        size: 77,
        mtime: (-5_i64).cast_unsigned(),
        mtimensec: 9,
        mode: 0o777,
        ..Default::default()
    };
    let bytes = message(Opcode::SetAttr, body.bytes(), &[], &[]);
    let Ok(KernelRequest { operation: Operation::SetAttr(set), .. }) = KernelRequest::parse(&bytes, DIALECT)
    else {
        panic!("not a setattr");
    };
    let expected = SetAttr {
        size: Some(77),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(Time { secs: -5, nanos: 9 })),
        valid: body.valid,
        ..SetAttr::default()
    };
    assert_eq!(set, expected);
}

#[test]
fn setxattr_follows_the_dialect() {
    let long = abi::SetXattrIn { size: 2, flags: 1, setxattr_flags: 1, padding: 0 };
    let bytes = message(Opcode::SetXattr, long.bytes(), b"user.a\0vw", &[]);
    let request = KernelRequest::parse(&bytes, DIALECT).expect("a valid long setxattr");
    assert!(matches!(
        request.operation,
        Operation::SetXattr { name: b"user.a", value: b"vw", flags: 1, acl_kill_sgid: true }
    ));
    let short = abi::SetXattrShortIn { size: 2, flags: 1 };
    let bytes = message(Opcode::SetXattr, short.bytes(), b"user.a\0vw", &[]);
    let request =
        KernelRequest::parse(&bytes, Dialect { setxattr_ext: false }).expect("a valid short setxattr");
    assert!(matches!(request.operation, Operation::SetXattr { name: b"user.a", acl_kill_sgid: false, .. }));
}

#[test]
fn extensions_are_read_and_bounded() {
    let mut extension = abi::ExtHeader { size: 16, kind: abi::EXT_GROUPS }.bytes().to_vec();
    extension.extend([1_u32.bytes(), 4242_u32.bytes()].concat());
    let mut security = abi::ExtHeader { size: 8 + 8 + 4 + 3, kind: 1 }.bytes().to_vec();
    security.extend(abi::SecCtx { size: 3, padding: 0 }.bytes());
    security.extend(b"sec\0lab\0");
    let both = [security, extension].concat();
    let body = abi::MkDirIn { mode: 0o755, umask: 0o22 };
    let bytes = message(Opcode::MkDir, body.bytes(), b"d\0", &both);
    let request = KernelRequest::parse(&bytes, DIALECT).expect("a valid mkdir");
    assert_eq!(request.extensions.supplementary_group, Some(4242));
    assert_eq!(request.extensions.security, Some(SecurityContext { name: b"sec", value: b"lab" }));
    for (position, value) in [(0, 4_u32), (0, 1000)] {
        let mut broken = both.clone();
        broken[position..position + 4].copy_from_slice(value.bytes());
        let bytes = message(Opcode::MkDir, body.bytes(), b"d\0", &broken);
        assert!(KernelRequest::parse(&bytes, DIALECT).is_err());
    }
}
