//! The tables the checks go by. A change here is a change of architecture: say why in the row.
//!
//! Absent: the checks (tests/).

/// What one room may use.
#[derive(Debug)]
pub struct Room {
    pub name: &'static str,
    /// Rooms below it. A new arrow needs a reason in its row and a line in ARCHITECTURE.md.
    pub uses: &'static [&'static str],
    /// Crates of others, in the shipped code.
    pub others: &'static [&'static str],
    /// What its tests and examples need besides: rooms, and crates of others.
    pub tests_use: &'static [&'static str],
    /// No clock, file, socket, thread, environment, global state or hash order.
    pub pure: bool,
    /// May contain `unsafe`, each block with its proof.
    pub may_unsafe: bool,
}

const fn room(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Room {
    Room { name, uses, others, tests_use: &[], pure: false, may_unsafe: false }
}

const fn pure(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Room {
    Room { pure: true, ..room(name, uses, others) }
}

const fn with_unsafe(room: Room) -> Room {
    Room { may_unsafe: true, ..room }
}

impl Room {
    const fn tests(self, tests_use: &'static [&'static str]) -> Room {
        Room { tests_use, ..self }
    }
}

/// Every room, bottom up. Each row is exact: what it allows, the room's Cargo.toml has.
pub const ROOMS: &[Room] = &[
    pure("stdx", &[], &["crc32c", "siphasher"]),
    pure("proto", &["stdx"], &["thiserror"]),
    pure("mds", &["proto", "stdx"], &["thiserror"]),
    pure("client", &["proto", "stdx"], &[]),
    // The embedded store: LMDB and the real disk.
    with_unsafe(room("store", &["proto", "stdx"], &["heed", "libc", "thiserror"])).tests(&["tempfile"]),
    // Never `runtime`: the simulator must not be able to touch a real clock.
    pure("sim", &["mds", "client", "store", "proto", "stdx"], &[]),
    // Tiny wrappers of system calls.
    with_unsafe(room("runtime", &["proto", "stdx"], &["libc", "mio", "serde", "thiserror", "toml"]))
        .tests(&["tempfile"]),
    room(
        "server",
        &["mds", "store", "runtime", "proto", "stdx"],
        &["prometheus-client", "serde_json", "thiserror"],
    )
    .tests(&["tempfile"]),
    room("mount", &["client", "runtime", "proto", "stdx"], &["thiserror"]),
    // mount(2), /dev/fuse, io_uring. Its tests switch on the fake rank that `mount` has for them, and its own null responder.
    with_unsafe(room("fuse", &["mount", "proto", "stdx"], &["io-uring", "libc"])).tests(&["fuse", "mount"]),
    // An independent reader of the format: it shares checksums and hashes, never a record decoder.
    // Opening an LMDB environment is an unsafe call: nobody else may write the files meanwhile.
    // Its tests make folders with the real thing.
    with_unsafe(room("fsck", &["stdx"], &["heed", "thiserror"]))
        .tests(&["mount", "server", "store", "proto", "tempfile"]),
    // `mds` and the memory store: the rank stepped alone, with nothing else in the way.
    room(
        "bench",
        &["mds", "store", "mount", "runtime", "proto", "stdx"],
        &["anyhow", "hdrhistogram", "serde", "serde_json"],
    )
    .tests(&["tempfile"]),
    room(
        "cli",
        &["bench", "fsck", "fuse", "mount", "server", "runtime", "store", "proto", "stdx"],
        &["clap", "clap_complete", "clap_mangen", "serde_json", "toml"],
    )
    .tests(&["tempfile"]),
    // Feeds hostile bytes to whatever reads bytes; nothing stands on it.
    room("fuzz", &["mds", "fuse", "runtime", "store", "proto", "stdx"], &[]),
    // A FUSE file system for tests only, and the clients that check what survives it.
    with_unsafe(room("lossydisk", &["bench", "fuse", "runtime", "proto", "stdx"], &["anyhow", "libc"]))
        .tests(&["tempfile"]),
    room("tidy", &[], &[]).tests(&["serde_json", "toml"]),
];

/// The row of a room.
#[must_use]
pub fn of(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Licences that may be linked into the binary; deny.toml says the same.
pub const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
    "BSL-1.0",
    // LMDB.
    "OLDAP-2.8",
];

/// Lines per file without tests: where a file should be split, and where it must.
pub const LINES_WANTED: usize = 400;
pub const LINES_MAX: usize = 1000;
