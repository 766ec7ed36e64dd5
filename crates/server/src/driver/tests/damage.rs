//! A metadata store that fails, as the driver and a backup meet it.

use super::*;
use crate::driver::FreezeError;

fn damage() -> StoreError {
    StoreError::Damaged { at: "meta/env-03".into(), what: "MDB_CORRUPTED".into() }
}

struct BadMeta;

impl MetaStore for BadMeta {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        requests.iter().map(|_| Err(damage())).collect()
    }

    fn apply(&self, _: &[StoreBatch]) -> Result<(), StoreError> {
        Err(damage())
    }
}

/// What broke: a backup waited for a minute and then blamed a full disk.
#[test]
fn a_backup_of_damaged_metadata_says_so_at_once() {
    let parts = Parts {
        rank: Box::new(Toy::default()),
        journal: Arc::new(MemoryJournal::default()),
        meta: Arc::new(BadMeta),
        data: Arc::new(ToyData::default()),
        ballast: None,
    };
    let log = Arc::new(Log::silent());
    let server = Server::with_parts(parts, "/srv/pando", &ServerOptions::default(), log).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    let node = NodeRef::bare(Ino::ROOT);
    let name = proto::Name::new(b"x").expect("a name");
    port.send(vec![message(0, Request::Lookup { parent: node, name })], &mut Vec::new()).expect("send");
    drop(mailbox.wait(|s| s.replies.contains_key(&Tid(0))));
    assert_eq!(server.driver().expect("a life").damage.first(), None);
    assert_eq!(
        crate::driver::freeze(&[server.driver().expect("a life")]).err(),
        Some(FreezeError::Store(damage()))
    );
    assert!(!server.driver().expect("a life").is_frozen());
}
