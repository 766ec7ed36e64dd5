//! Folders made by the real server, and hands that reach into them.

#![allow(dead_code, unreachable_pub)]

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use mount::fs::{File as OpenFile, OpenOptions};
use mount::{Fs, Mount};
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::message::ClientInfo;
use proto::request::XattrMode;
use proto::storeio::{StoreKey, Table};
use proto::{Cred, Frag, Ino, NameHash, Writer};
use server::{Server, ServerOptions};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use stdx::Wall;
use stdx::checksum::crc32c_parts;
use stdx::hash::{HashSeed, mix64};
use store::folder::{FormatOptions, Found, format, inspect};
use tempfile::TempDir;

pub const ENVIRONMENTS: u16 = 4;

/// A data folder of a test's own.
pub struct Folder {
    _temp: TempDir,
    pub path: PathBuf,
}

pub fn serve(path: &Path) -> Arc<Server> {
    let options = ServerOptions::default();
    Server::open(path, &options).expect("the server opens the folder")
}

pub fn attach(server: &Arc<Server>) -> Fs {
    let info = ClientInfo { host: "test".into(), mount: "/t".into(), pid: 1, caps_max: 0 };
    Fs::new(Mount::open(server.embedded(), info).expect("mounted"), Cred::ROOT)
}

pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut prng = stdx::Prng::new(seed);
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

/// Small and large files of the sample, with the seed of their content.
pub const FILES: [(&str, u64, usize); 5] = [
    ("a/small", 1, 3000),
    ("a/b/other", 2, 100),
    ("a/b/large", 3, 9 << 20),
    ("d/renamed", 4, 500),
    ("d/name1", 5, 700),
];

/// Makes the sample tree. The file that is returned is open and has no name.
fn fill(fs: &Fs) -> OpenFile {
    for dir in ["a", "a/b", "a/b/c", "d"] {
        fs.mkdir(dir, 0o755).expect("mkdir");
    }
    for (name, seed, len) in FILES {
        let name = name.replace("renamed", "before");
        let file = fs.create(&name).expect("create");
        file.pwrite(0, &content(seed, len)).expect("write");
        file.fsync().expect("fsync");
        file.close().expect("close");
    }
    fs.rename("d/before", "d/renamed").expect("rename");
    fs.link("d/name1", "a/name2").expect("link");
    fs.symlink("../target", "a/symlink").expect("symlink");
    fs.mknod("d/fifo", 0o010_644, 0).expect("mknod");
    fs.mknod("d/device", 0o020_644, 0x103).expect("mknod");
    fs.write("d/xattrs", b"").expect("write");
    for name in [&b"user.a"[..], b"user.b"] {
        fs.setxattr("d/xattrs", name, b"value", XattrMode::Either).expect("setxattr");
    }
    fs.write("d/cut", &content(6, 2000)).expect("write");
    fs.truncate("d/cut", 10).expect("truncate");
    let orphan = fs.open("a/orphan", OpenOptions::READ_WRITE.create()).expect("create");
    orphan.pwrite(0, b"nameless").expect("write");
    fs.unlink("a/orphan").expect("unlink");
    fs.syncfs().expect("syncfs");
    orphan
}

fn formatted() -> Folder {
    let temp = tempfile::tempdir().expect("dir");
    let path = temp.path().join("fs");
    let options = FormatOptions { environments: ENVIRONMENTS, ..FormatOptions::new(Wall(1_000_000_000)) };
    format(&path, &options).expect("format");
    Folder { _temp: temp, path }
}

/// A folder whose server was stopped: all of it is in the tables.
pub fn stopped() -> Folder {
    static SAMPLE: OnceLock<Folder> = OnceLock::new();
    let sample = SAMPLE.get_or_init(|| {
        let folder = formatted();
        let server = serve(&folder.path);
        let fs = attach(&server);
        let orphan = fill(&fs);
        server.stop().expect("stop");
        drop((orphan, fs, server));
        shorten(folder)
    });
    copy(sample)
}

/// A folder whose server was killed twice: nearly all of it is in two segments of the journal.
pub fn crashed() -> Folder {
    static SAMPLE: OnceLock<Folder> = OnceLock::new();
    let sample = SAMPLE.get_or_init(|| {
        let folder = formatted();
        let server = serve(&folder.path);
        let fs = attach(&server);
        let orphan = fill(&fs);
        drop(server);
        drop((orphan, fs));
        for life in 0..2 {
            let server = serve(&folder.path);
            let fs = attach(&server);
            fs.mkdir(format!("life{life}"), 0o700).expect("mkdir");
            fs.write(format!("life{life}/file"), b"content").expect("write");
            fs.syncfs().expect("syncfs");
            drop(server);
            drop(fs);
        }
        shorten(folder)
    });
    copy(sample)
}

/// Cuts the zeros that journal segments end with, so that copies are quick.
fn shorten(folder: Folder) -> Folder {
    for entry in fs::read_dir(folder.path.join("journal")).expect("dir") {
        let path = entry.expect("entry").path();
        let bytes = fs::read(&path).expect("read");
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_len(used.next_multiple_of(4096) as u64 + 4096).expect("length");
    }
    folder
}

fn copy(sample: &Folder) -> Folder {
    let temp = tempfile::tempdir().expect("dir");
    let path = temp.path().join("fs");
    copy_folder(&sample.path, &path);
    Folder { _temp: temp, path }
}

/// Copies without what is large and means nothing; zeros become holes.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("dir");
    for entry in fs::read_dir(from).expect("dir") {
        let (from, name) = entry.map(|e| (e.path(), e.file_name())).expect("entry");
        let text = name.to_string_lossy().into_owned();
        let to = to.join(&name);
        if from.is_dir() {
            copy_folder(&from, &to);
        } else if !(text.starts_with("spare.") || text == "pando.ballast" || text.ends_with("-lock"))
            && from.is_file()
        {
            let bytes = fs::read(&from).expect("read");
            let file = fs::File::create(&to).expect("create");
            file.set_len(bytes.len() as u64).expect("length");
            for (index, piece) in bytes.chunks(1 << 14).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    file.write_all_at(piece, (index << 14) as u64).expect("write");
                }
            }
        }
    }
}

/// Turns a bit of a file.
pub fn flip(path: &Path, offset: u64, bit: u8) {
    let file = fs::File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ (1 << bit)], offset).expect("write");
}

type Records = Database<'static, Bytes, Bytes>;

/// The tables, open for writing.
pub struct Meta {
    environments: Vec<(Env<WithoutTls>, [Records; 3])>,
    pub seed: HashSeed,
}

/// A record found in the tables.
#[derive(Clone, Debug)]
pub struct Record {
    pub environment: usize,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Meta {
    pub fn open(folder: &Path) -> Self {
        let Ok(Found::Complete(record)) = inspect(folder) else { panic!("no folder") };
        let environments = (0..record.environments).map(|number| {
            let mut options = EnvOpenOptions::new().read_txn_without_tls();
            options.max_dbs(3).map_size(1 << 30);
            // SAFETY: nobody else has the folder open.
            let env = unsafe {
                options.flags(EnvFlags::NO_SUB_DIR | EnvFlags::NO_LOCK);
                options.open(folder.join(format!("meta/env-{number:02x}.mdb"))).expect("environment")
            };
            let opened = env.open_databases_and_commit(env.read_txn().expect("txn"), |opener, txn| {
                let open = |name| opener.open_database::<Bytes, Bytes>(txn, Some(name));
                let tables = [open("dentry")?, open("backptr")?, open("system")?];
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
            });
            let tables = opened.expect("tables").commit().expect("tables").map(|table| table.expect("table"));
            (env, tables)
        });
        Self { environments: environments.collect(), seed: record.hash_seed }
    }

    pub fn close(self) {
        for (env, _) in self.environments {
            env.prepare_for_closing().wait();
        }
    }

    pub fn hash(&self, name: &[u8]) -> NameHash {
        proto::name::name_hash(&self.seed, name)
    }

    pub fn home(&self, shard: u64) -> usize {
        (mix64(shard) % self.environments.len() as u64) as usize
    }

    /// Writes stored bytes as they are.
    pub fn put_raw(&self, environment: usize, table: Table, key: &[u8], stored: &[u8]) {
        let (env, tables) = &self.environments[environment];
        let mut txn = env.write_txn().expect("txn");
        tables[table as usize - 1].put(&mut txn, key, stored).expect("put");
        txn.commit().expect("commit");
    }

    /// Writes a value with its checksum.
    pub fn put_at(&self, environment: usize, table: Table, key: &[u8], value: &[u8]) {
        let crc = crc32c_parts(&[key, value]).to_le_bytes();
        self.put_raw(environment, table, key, &[&crc, value].concat());
    }

    pub fn delete_at(&self, environment: usize, table: Table, key: &[u8]) {
        let (env, tables) = &self.environments[environment];
        let mut txn = env.write_txn().expect("txn");
        assert!(tables[table as usize - 1].delete(&mut txn, key).expect("delete"), "nothing deleted");
        txn.commit().expect("commit");
    }

    pub fn put(&self, key: StoreKey<'_>, value: &[u8]) {
        self.put_at(self.home(key.shard().0), key.table(), &bytes(key), value);
    }

    pub fn delete(&self, key: StoreKey<'_>) {
        self.delete_at(self.home(key.shard().0), key.table(), &bytes(key));
    }

    /// The stored bytes of a key, checksum included.
    pub fn stored(&self, key: StoreKey<'_>) -> Vec<u8> {
        self.stored_at(self.home(key.shard().0), key.table(), &bytes(key))
    }

    pub fn stored_at(&self, environment: usize, table: Table, key: &[u8]) -> Vec<u8> {
        let (env, tables) = &self.environments[environment];
        let txn = env.read_txn().expect("txn");
        let stored = tables[table as usize - 1].get(&txn, key).expect("get");
        stored.expect("there").to_vec()
    }

    pub fn value(&self, key: StoreKey<'_>) -> Vec<u8> {
        self.stored(key)[4..].to_vec()
    }

    /// Every record of a table.
    pub fn all(&self, table: Table) -> Vec<Record> {
        let mut records = Vec::new();
        for (environment, (env, tables)) in self.environments.iter().enumerate() {
            let txn = env.read_txn().expect("txn");
            for record in tables[table as usize - 1].iter(&txn).expect("iter") {
                let (key, stored) = record.expect("record");
                records.push(Record { environment, key: key.into(), value: stored[4..].into() });
            }
        }
        records
    }

    /// The dentry with this name, wherever it is.
    pub fn named(&self, name: &str) -> Record {
        let is = |record: &Record| {
            record.key.len() == 24 + name.len() && &record.key[16..16 + name.len()] == name.as_bytes()
        };
        self.all(Table::Dentry).into_iter().find(is).expect("the name is there")
    }

    pub fn rewrite(&self, record: &Record, value: &[u8]) {
        self.put_at(record.environment, Table::Dentry, &record.key, value);
    }

    /// Changes the inode record of a primary dentry.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut proto::inode::InodeRecord)) {
        let record = self.named(name);
        let Ok(DentryValue::Primary(mut inode)) = DentryValue::decode(&record.value) else {
            panic!("remote")
        };
        change(&mut inode);
        self.rewrite(&record, &encode(&DentryValue::Primary(inode)));
    }

    pub fn ino(&self, name: &str) -> Ino {
        DentryValue::decode(&self.named(name).value).expect("dentry").ino()
    }

    /// Changes a directory's header.
    pub fn edit_header(&self, dir: Ino, change: impl FnOnce(&mut FragHeader)) {
        let key = StoreKey::Header { dir, frag: Frag::WHOLE };
        let mut header = FragHeader::decode(&self.value(key)).expect("header");
        change(&mut header);
        let mut w = Writer::new();
        header.encode(&mut w);
        self.put(key, &w.0);
    }
}

pub fn bytes(key: StoreKey<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

pub fn encode(value: &DentryValue) -> Vec<u8> {
    let mut w = Writer::new();
    value.encode(&mut w);
    w.0
}

/// Every path below the root, through the server.
pub fn listing(fs: &Fs) -> Vec<String> {
    let (mut names, mut waiting) = (Vec::new(), vec![String::new()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs.readdir(&dir).expect("readdir") {
            let entry = entry.expect("entry");
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            let attr = fs.lstat(&path).expect("stat");
            if attr.kind() == proto::FileKind::Directory {
                waiting.push(path.clone());
            }
            names.push(path);
        }
    }
    names.sort();
    names
}
