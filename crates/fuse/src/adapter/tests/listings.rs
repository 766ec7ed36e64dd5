//! Listings, with and without attributes.
//!
//! Absent: whether the kernel keeps them (`nodes/tests.rs`).

use super::*;

/// Lists the root in buffers of `size`, as names with their offsets.
fn list(kernel: &Kernel, plus: bool, size: u32) -> Vec<Vec<u8>> {
    let body = kernel.ask(1, Operation::OpenDir { flags: 0 }).expect("opened");
    let fh = OpenOut::read(&body).expect("a whole answer").fh;
    let (mut names, mut offset) = (Vec::new(), 0);
    loop {
        let operation = match plus {
            true => Operation::ReadDirPlus { fh, offset, size },
            false => Operation::ReadDir { fh, offset, size },
        };
        let mut body = &kernel.ask(1, operation).expect("a page")[..];
        if body.is_empty() {
            let closed = Release { fh, flags: 0, lock_owner: 0, flush: false, flock_unlock: false };
            kernel.ask(1, Operation::ReleaseDir(closed)).expect("closed");
            return names;
        }
        while !body.is_empty() {
            let entry_bytes = if plus { size_of::<EntryOut>() } else { 0 };
            let header = DirentHeader::read(&body[entry_bytes..]).expect("a whole entry");
            let at = entry_bytes + size_of::<DirentHeader>();
            names.push(body[at..at + header.namelen as usize].to_vec());
            offset = header.off;
            body = &body[(at + header.namelen as usize).next_multiple_of(8)..];
        }
    }
}

#[test]
fn each_entry_of_a_listing_is_kept_as_granted() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.ask(1, Operation::Link { target: file.nodeid, name: b"g" }).expect("linked");
    let list = || {
        let body = kernel.ask(1, Operation::OpenDir { flags: 0 }).expect("opened");
        let opened = OpenOut::read(&body).expect("a whole answer");
        assert_eq!(opened.open_flags, 0, "listings are not cached");
        let ask = Operation::ReadDirPlus { fh: opened.fh, offset: 0, size: 4096 };
        let body = kernel.ask(1, ask).expect("a page");
        let dots = 2 * (size_of::<EntryOut>() + size_of::<DirentHeader>() + 8);
        EntryOut::read(&body[dots..]).map(|entry| kept(&entry))
    };
    assert_eq!(list(), Some((1, 1)));
    kernel.fake.grant(false);
    assert_eq!(list(), Some((0, 0)));
}

#[test]
fn a_listing_carries_attributes_for_who_looks_them_up() {
    let kernel = Kernel::new(Behaviour::default());
    for name in [b"f", b"g", b"h"] {
        kernel.create(name, RDWR);
    }
    let body = kernel.ask(1, Operation::OpenDir { flags: 0 }).expect("opened");
    let fh = OpenOut::read(&body).expect("a whole answer").fh;
    let node_of_first = |offset| {
        let body = kernel.ask(1, Operation::ReadDirPlus { fh, offset, size: 4096 }).expect("a page");
        EntryOut::read(&body).expect("a whole entry").nodeid
    };
    assert_eq!(node_of_first(2), 0, "a name alone");
    for name in [b"f", b"g"] {
        kernel.lookup(name).expect("there");
    }
    assert_ne!(node_of_first(2), 0);
}

#[test]
fn listings_hold_each_name_once_whatever_the_buffer() {
    let kernel = Kernel::new(Behaviour::default());
    assert_eq!(list(&kernel, false, 4096), [b".".to_vec(), b"..".to_vec()]);
    let mut want: BTreeSet<Vec<u8>> = [b".".to_vec(), b"..".to_vec()].into();
    for index in 0..300 {
        let name = format!("name-{index}").into_bytes();
        kernel.create(&name, RDWR);
        want.insert(name);
    }
    for (plus, size) in
        [(false, 4096), (false, 256), (true, 4096), (true, 600), (false, 1 << 20), (true, 1 << 20)]
    {
        let names = list(&kernel, plus, size);
        assert_eq!(names.len(), want.len(), "plus {plus} size {size}");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), want);
    }
}

#[test]
fn each_node_of_a_listing_is_counted_once() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    let before = kernel.adapter.shared.nodes.lookups(entry.nodeid);
    list(&kernel, true, 4096);
    assert_eq!(kernel.adapter.shared.nodes.lookups(entry.nodeid), before + 1);
    list(&kernel, false, 4096);
    assert_eq!(kernel.adapter.shared.nodes.lookups(entry.nodeid), before + 1);
}
