//! Operations as tests ask for them: one call, one answer.
//!
//! Absent: the world that carries them out (`mod.rs`).

use super::*;

impl World {
    pub(crate) fn next_tid(&mut self) -> Tid {
        self.tid += 1;
        Tid(self.tid)
    }

    pub(crate) fn start(&mut self, conn: ConnId, cred: Cred, request: Request) -> Tid {
        self.tid += 1;
        let tid = Tid(self.tid);
        self.retry(conn, tid, cred, request);
        tid
    }

    /// The same behind what is on its way already.
    pub(crate) fn queue(&mut self, conn: ConnId, cred: Cred, request: Request) -> Tid {
        self.tid += 1;
        let tid = Tid(self.tid);
        let message = ClientMsg::Request { tid, floor: Tid(0), cred, request };
        self.inbox.push_back(Input::Message { conn, message });
        tid
    }

    pub(crate) fn retry(&mut self, conn: ConnId, tid: Tid, cred: Cred, request: Request) {
        self.say(conn, ClientMsg::Request { tid, floor: Tid(0), cred, request });
    }

    pub(crate) fn answer(&mut self, conn: ConnId, tid: Tid) -> Option<Outcome> {
        let at = self
            .sent
            .iter()
            .position(|(c, m)| *c == conn && matches!(m, ServerMsg::Reply { tid: t, .. } | ServerMsg::Granted { tid: t, .. } if *t == tid))?;
        match self.sent.remove(at).1 {
            ServerMsg::Reply { outcome, .. } | ServerMsg::Granted { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    pub(crate) fn call_as(&mut self, conn: ConnId, cred: Cred, request: Request) -> Outcome {
        let tid = self.start(conn, cred, request.clone());
        // The journal may have to be stored first.
        for _ in 0..200 {
            if self.rank.status().parked > 0 && !self.hold_loads && !self.hold_data && !self.hold_stores {
                self.pass(1);
            }
        }
        self.answer(conn, tid).unwrap_or_else(|| panic!("no answer to {request:?}; {:?}", self.notes))
    }

    pub(crate) fn call(&mut self, request: Request) -> Outcome {
        self.call_as(EMBEDDED, Cred::ROOT, request)
    }

    pub(crate) fn attr(&mut self, request: Request) -> Result<Attr, Errno> {
        match self.call(request)? {
            Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. } => Ok(attr),
            other => panic!("no attributes: {other:?}"),
        }
    }

    pub(crate) fn lookup(&mut self, parent: NodeRef, name: &str) -> Result<Attr, Errno> {
        self.attr(Request::Lookup { parent, name: n(name) })
    }

    /// Looks up a path from the root.
    pub(crate) fn path(&mut self, path: &str) -> Result<NodeRef, Errno> {
        let mut at = root();
        for part in path.split('/').filter(|p| !p.is_empty()) {
            at = node(&self.lookup(at, part)?);
        }
        Ok(at)
    }

    pub(crate) fn stat(&mut self, path: &str) -> Result<Attr, Errno> {
        let node = self.path(path)?;
        self.attr(Request::GetAttr { node })
    }

    pub(crate) fn mkdir(&mut self, parent: NodeRef, name: &str) -> NodeRef {
        node(&self.attr(Request::MkDir { parent, name: n(name), new: mode(0o755) }).expect("mkdir"))
    }

    pub(crate) fn create(&mut self, parent: NodeRef, name: &str) -> NodeRef {
        node(&self.attr(Request::MkNod { parent, name: n(name), new: mode(0o100_644) }).expect("mknod"))
    }

    pub(crate) fn open(&mut self, node: NodeRef, flags: u32) -> Outcome {
        self.call(Request::Open { node, flags })
    }

    pub(crate) fn write(&mut self, node: NodeRef, offset: u64, data: &[u8]) -> Outcome {
        let data = Payload::Owned(data.to_vec());
        self.call(Request::Write { node, offset, append: false, kill_suidgid: false, data })
    }

    pub(crate) fn read(&mut self, node: NodeRef) -> Vec<u8> {
        match self.call(Request::Read { node, offset: 0, len: 1 << 20, into: None }) {
            Ok(Reply::Data(Payload::Owned(bytes))) => bytes,
            other => panic!("read: {other:?}"),
        }
    }

    pub(crate) fn unlink(&mut self, parent: NodeRef, name: &str) -> Outcome {
        self.call(Request::Unlink { parent, name: n(name) })
    }

    pub(crate) fn rename(&mut self, from: (NodeRef, &str), to: (NodeRef, &str), flags: u32) -> Outcome {
        let request =
            Request::Rename { parent: from.0, name: n(from.1), new_parent: to.0, new_name: n(to.1), flags };
        self.call(request)
    }

    pub(crate) fn page(&mut self, dir: NodeRef, after: u64, attrs: bool) -> (Vec<DirEntry>, bool) {
        match self.call(Request::ReadDir { dir, after, attrs, bytes_max: 600 }) {
            Ok(Reply::Entries { entries, end }) => (entries, end),
            other => panic!("readdir: {other:?}"),
        }
    }

    pub(crate) fn list(&mut self, dir: NodeRef) -> Vec<DirEntry> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (entries, end) = self.page(dir, after, true);
            after = entries.last().map_or(after, |e| e.hash.cookie());
            all.extend(entries);
            if end {
                return all;
            }
        }
    }

    /// Every path with what is known of it, as one text: for comparing whole trees.
    pub(crate) fn tree(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut todo = vec![(String::new(), root())];
        while let Some((path, at)) = todo.pop() {
            let attr = self.attr(Request::GetAttr { node: at }).expect("getattr");
            let xattrs = self.call(Request::ListXattr { node: at });
            lines.push(format!("{path} {:?} {xattrs:?}", Attr { change: 0, atime: Wall(0), ..attr }));
            if attr.mode & 0o170_000 != 0o040_000 {
                continue;
            }
            let entries = self.list(at);
            assert_eq!(entries.len() as u64, attr.size, "entries of {path}");
            for entry in entries {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let found = self.lookup(at, &name).expect("a listed name");
                assert_eq!(found.ino, entry.ino);
                todo.push((format!("{path}/{name}"), node(&found)));
            }
        }
        lines.sort();
        lines
    }

    /// The stored value of a name.
    pub(crate) fn stored(&self, dir: Ino, name: &str) -> Option<DentryValue> {
        let hash = name_hash(&SEED, name.as_bytes());
        let bytes = self.store.get(&key_bytes(StoreKey::head(dir, hash, name.as_bytes())))?;
        DentryValue::decode(bytes).ok()
    }

    pub(crate) fn checkpoint(&mut self) {
        let before = self.rank.status().checkpoints;
        self.inject(Input::Checkpoint);
        for _ in 0..10_000 {
            if self.rank.status().checkpoints > before {
                return;
            }
            self.pass(1);
        }
        panic!("no checkpoint: {:?}", self.notes);
    }

    /// Forgets everything that is clean.
    pub(crate) fn drop_cache(&mut self) {
        self.inject(Input::DropCache);
        self.pass(1);
    }
}
