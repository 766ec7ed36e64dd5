//! Requests of the kernel as they arrive from /dev/fuse.
//!
//! Absent: answers; what the adapter makes of a request.

use crate::class::class;
use crate::target::{Target, Verdict};
use fuse::abi::{self, Dialect, InHeader, Opcode, Plain};
use fuse::{KernelRequest, Operation};

pub(super) const REQUEST: Target =
    Target { name: "fuse-request", execute: request, repair: Some(lengths), seeds };

/// The kernel's message states its length; the parser goes by what it was given.
fn lengths(bytes: &mut [u8]) {
    let len = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(..4) {
        field.copy_from_slice(&len.to_le_bytes());
    }
}

fn request(input: &[u8]) -> Verdict {
    let mut text = String::new();
    for setxattr_ext in [true, false] {
        text = match KernelRequest::parse(input, Dialect { setxattr_ext }) {
            Err(error) => class("refused", &error),
            Ok(request) => {
                check(&request, input)?;
                class("parsed", &request.operation)
            }
        };
    }
    Ok(text)
}

/// Names are names, and everything borrowed lies inside the message.
fn check(request: &KernelRequest<'_>, input: &[u8]) -> Result<(), String> {
    let (names, data): (Vec<&[u8]>, &[u8]) = match request.operation {
        Operation::Lookup { name }
        | Operation::MkNod { name, .. }
        | Operation::MkDir { name, .. }
        | Operation::Unlink { name }
        | Operation::RmDir { name }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. }
        | Operation::GetXattr { name, .. }
        | Operation::RemoveXattr { name } => (vec![name], &[]),
        Operation::SetXattr { name, value, .. } => (vec![name], value),
        Operation::Symlink { name, target } => (vec![name, target], &[]),
        Operation::Rename { name, new_name, .. } => (vec![name, new_name], &[]),
        Operation::Write(write) => (Vec::new(), write.data),
        Operation::Ioctl { data, .. } | Operation::NotifyReply { data, .. } => (Vec::new(), data),
        Operation::BatchForget { items } => {
            if items.iter().count() != items.len() || items.len() * size_of::<abi::ForgetOne>() > input.len()
            {
                return Err(format!("{} forgets in {} bytes", items.len(), input.len()));
            }
            (Vec::new(), &[])
        }
        _ => (Vec::new(), &[]),
    };
    if names.iter().any(|name| name.is_empty() || name.contains(&0)) {
        return Err(format!("a name that is none: {:?}", request.operation));
    }
    let security = request.extensions.security.map_or(0, |context| context.name.len() + context.value.len());
    let borrowed = names.iter().map(|name| name.len() + 1).sum::<usize>() + data.len() + security;
    if borrowed + size_of::<InHeader>() > input.len() {
        return Err(format!("{borrowed} bytes borrowed of a message of {}", input.len()));
    }
    Ok(())
}

fn message(opcode: Opcode, body: &[u8], payload: &[u8], extensions: &[u8]) -> Vec<u8> {
    let len = size_of::<InHeader>() + body.len() + payload.len() + extensions.len();
    let header = InHeader {
        len: len as u32,
        opcode: opcode as u32,
        unique: 8,
        nodeid: 1,
        uid: 1000,
        gid: 100,
        pid: 42,
        total_extlen: (extensions.len() / 8) as u16,
        padding: 0,
    };
    [header.bytes(), body, payload, extensions].concat()
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let dialect = Dialect { setxattr_ext: true };
    let plain = Opcode::ALL.iter().map(|opcode| {
        let body = vec![0; opcode.body_size(dialect)];
        (format!("{:02}", *opcode as u32), message(*opcode, &body, b"first\0second\0", &[]))
    });
    let write = abi::WriteIn { fh: 1, offset: 4096, size: 5, ..abi::WriteIn::default() };
    let xattr = abi::SetXattrIn { size: 5, flags: 1, ..abi::SetXattrIn::default() };
    let forget = abi::BatchForgetIn { count: 2, dummy: 0 };
    let forgets = [abi::ForgetOne { nodeid: 2, nlookup: 1 }, abi::ForgetOne { nodeid: 3, nlookup: 2 }];
    let forgets: Vec<u8> = forgets.iter().flat_map(|one| one.bytes().to_vec()).collect();
    let ioctl = abi::IoctlIn { in_size: 4, out_size: 8, ..abi::IoctlIn::default() };
    let make = abi::MkDirIn { mode: 0o755, umask: 0o22 };
    let mut groups = abi::ExtHeader { size: 16, kind: abi::EXT_GROUPS }.bytes().to_vec();
    groups.extend([1_u32.bytes(), 4242_u32.bytes()].concat());
    let mut security = abi::ExtHeader { size: 8 + 8 + 4 + 3, kind: 1 }.bytes().to_vec();
    security.extend(abi::SecCtx { size: 3, padding: 0 }.bytes());
    security.extend(b"sec\0lab\0");
    let full = [
        ("write", message(Opcode::Write, write.bytes(), b"bytes", &[])),
        ("set-xattr", message(Opcode::SetXattr, xattr.bytes(), b"user.a\0value", &[])),
        ("forgets", message(Opcode::BatchForget, forget.bytes(), &forgets, &[])),
        ("ioctl", message(Opcode::Ioctl, ioctl.bytes(), b"data", &[])),
        ("extensions", message(Opcode::MkDir, make.bytes(), b"d\0", &[security, groups].concat())),
    ];
    plain.chain(full.map(|(name, bytes)| (name.to_owned(), bytes))).collect()
}
