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
    /// Crates of others, in tests only.
    pub test_others: &'static [&'static str],
    /// No clock, file, socket, thread, environment, global state or hash order.
    pub pure: bool,
    /// May contain `unsafe`, each block with its proof.
    pub may_unsafe: bool,
}

const fn room(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Room {
    Room { name, uses, others, test_others: &["tempfile"], pure: false, may_unsafe: false }
}

const fn pure(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Room {
    Room { name, uses, others, test_others: &[], pure: true, may_unsafe: false }
}

const fn with_unsafe(room: Room) -> Room {
    Room { may_unsafe: true, ..room }
}

/// Every room, bottom up.
pub const ROOMS: &[Room] = &[
    pure("stdx", &[], &["crc32c", "siphasher"]),
    pure("proto", &["stdx"], &["thiserror"]),
    pure("mds", &["proto", "stdx"], &["thiserror"]),
    pure("client", &["proto", "stdx"], &["thiserror"]),
    // The embedded store: LMDB and the real disk.
    with_unsafe(room("store", &["proto", "stdx"], &["heed", "libc", "thiserror"])),
    // Never `runtime`: the simulator must not be able to touch a real clock.
    pure("sim", &["mds", "client", "store", "proto", "stdx"], &[]),
    // Tiny wrappers of system calls.
    with_unsafe(room("runtime", &["proto", "stdx", "store"], &["libc", "mio", "serde", "thiserror", "toml"])),
    room(
        "server",
        &["mds", "store", "runtime", "proto", "stdx"],
        &["anyhow", "serde", "serde_json", "thiserror"],
    ),
    room("mount", &["client", "runtime", "proto", "stdx"], &["thiserror"]),
    // mount(2), /dev/fuse, io_uring.
    with_unsafe(room("fuse", &["mount", "proto", "stdx"], &["io-uring", "libc", "thiserror"])),
    // An independent reader of the format: it shares checksums and hashes, never a record decoder.
    // Opening an LMDB environment is an unsafe call: nobody else may write the files meanwhile.
    with_unsafe(room("fsck", &["stdx"], &["heed", "libc", "thiserror"])),
    room(
        "bench",
        &["client", "fuse", "mds", "mount", "proto", "runtime", "server", "stdx", "store"],
        &["anyhow", "clap", "hdrhistogram", "libc", "serde", "serde_json"],
    ),
    room(
        "cli",
        &["bench", "fsck", "fuse", "mount", "proto", "runtime", "server", "stdx", "store"],
        &["anyhow", "clap", "clap_complete", "clap_mangen", "serde", "serde_json", "toml"],
    ),
    // Feeds hostile bytes to whatever reads bytes; nothing stands on it.
    room("fuzz", &["fuse", "proto", "runtime", "stdx", "store"], &[]),
    // A FUSE file system for tests only, and the clients that check what survives it.
    with_unsafe(room("lossydisk", &["bench", "fuse", "proto", "runtime", "stdx"], &["anyhow", "libc"])),
    room("tidy", &[], &["serde_json", "toml"]),
];

/// The row of a room.
#[must_use]
pub fn of(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Licences that may be linked into the binary.
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
