//! The tables the checks go by. A change here is a change of architecture: say why in the row.
//!
//! Absent: the checks (tests/).

/// What one crate may use.
#[derive(Debug)]
pub struct Crate {
    pub name: &'static str,
    /// Crates below it. A new arrow needs a reason in its row and a line in ARCHITECTURE.md.
    pub uses: &'static [&'static str],
    /// Crates of others, in the shipped code.
    pub others: &'static [&'static str],
    /// What its tests and examples need besides, of ours and of others.
    pub tests_use: &'static [&'static str],
    /// No clock, file, socket, thread, environment, global state or hash order.
    pub pure: bool,
    /// May contain `unsafe`, each block with its proof.
    pub may_unsafe: bool,
}

const fn impure(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Crate {
    Crate { name, uses, others, tests_use: &[], pure: false, may_unsafe: false }
}

const fn pure(name: &'static str, uses: &'static [&'static str], others: &'static [&'static str]) -> Crate {
    Crate { pure: true, ..impure(name, uses, others) }
}

const fn with_unsafe(package: Crate) -> Crate {
    Crate { may_unsafe: true, ..package }
}

impl Crate {
    const fn tests(self, tests_use: &'static [&'static str]) -> Crate {
        Crate { tests_use, ..self }
    }
}

/// Every crate, bottom up. Each row is exact: what it allows, the crate's Cargo.toml has.
pub const CRATES: &[Crate] = &[
    pure("stdx", &[], &["crc32c", "siphasher"]),
    pure("proto", &["stdx"], &["thiserror"]),
    pure("mds", &["proto", "stdx"], &["thiserror"]),
    pure("client", &["proto", "stdx"], &[]),
    // The embedded store: LMDB and the real disk.
    with_unsafe(impure("store", &["proto", "stdx"], &["heed", "libc", "thiserror"])).tests(&["tempfile"]),
    // Never `runtime`: the simulator must not be able to touch a real clock.
    pure("sim", &["mds", "client", "store", "proto", "stdx"], &[]),
    // Tiny wrappers of system calls.
    with_unsafe(impure("runtime", &["proto", "stdx"], &["libc", "mio", "serde", "thiserror", "toml"]))
        .tests(&["tempfile"]),
    impure(
        "server",
        &["mds", "store", "runtime", "proto", "stdx"],
        &["prometheus-client", "serde_json", "thiserror"],
    )
    // Tests of several ranks need a client that goes to each.
    .tests(&["mount", "tempfile"]),
    impure("mount", &["client", "runtime", "proto", "stdx"], &["thiserror"]),
    // mount(2), /dev/fuse, io_uring. Its tests switch on the fake rank that `mount` has for them, and its own null responder.
    with_unsafe(impure("fuse", &["mount", "proto", "stdx"], &["io-uring", "libc"])).tests(&["fuse", "mount"]),
    // An independent reader of the format: it shares checksums and hashes, never a record decoder.
    // Opening an LMDB environment is an unsafe call: nobody else may write the files meanwhile.
    // Its tests make folders with the real thing.
    with_unsafe(impure("fsck", &["stdx"], &["heed", "thiserror"]))
        .tests(&["mount", "server", "store", "proto", "tempfile"]),
    // `mds` and the memory store: the rank stepped alone, with nothing else in the way.
    impure(
        "bench",
        &["mds", "store", "mount", "runtime", "proto", "stdx"],
        &["anyhow", "hdrhistogram", "serde", "serde_json"],
    )
    .tests(&["tempfile"]),
    impure(
        "cli",
        &["bench", "fsck", "fuse", "mount", "server", "runtime", "store", "proto", "stdx"],
        &["clap", "clap_complete", "clap_mangen", "serde_json", "toml"],
    )
    .tests(&["tempfile"]),
    // Feeds hostile bytes to whatever reads bytes; nothing stands on it.
    impure("fuzz", &["mds", "fuse", "runtime", "store", "proto", "stdx"], &[]),
    // A FUSE file system for tests only, and the clients that check what survives it.
    with_unsafe(impure("lossydisk", &["bench", "fuse", "runtime", "proto", "stdx"], &["anyhow", "libc"]))
        .tests(&["tempfile"]),
    impure("tidy", &[], &[]).tests(&["serde_json", "toml"]),
];

/// The row of a crate.
#[must_use]
pub fn of(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|package| package.name == name)
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
