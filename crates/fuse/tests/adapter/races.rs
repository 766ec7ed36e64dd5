//! What is taken back while the kernel is in the middle of something.
//! Absent: what a socket pair in the kernel's place shows as well (`src/adapter/tests`).

use super::*;

/// While a mount moves d/n to e/m another one gives its name to another file.
fn moved_meanwhile(name: &str, flags: u32) {
    let place = Place::new(name, "");
    for dir in ["d", "e"] {
        fs::create_dir(place.at(dir)).expect("made");
    }
    let ino = |name: &str| {
        fs::write(place.at(name), name).expect("written");
        Ino(fs::metadata(place.at(name)).expect("attributes").ino())
    };
    let (before, after, other_end) = (ino("d/n"), ino("d/next"), ino("e/m"));
    let dir = Ino(fs::metadata(place.at("d")).expect("attributes").ino());
    // The kernel goes by the name that it has, and has both directories locked until it is answered.
    place.fake.hold_only(|request| match request {
        Request::Rename { new_name, .. } => new_name.as_bytes() == b"m",
        _ => false,
    });
    let path = |name| CString::new(place.at(name).as_os_str().as_bytes()).expect("no NUL");
    let (from, to) = (path("d/n"), path("e/m"));
    let mover = thread::spawn(move || {
        // SAFETY: both paths are NUL-terminated and outlive the call.
        let result =
            unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    wait_until(|| place.fake.held() > 0);
    place.fake.recall(before, Bits::ATTRS, Some((dir, b"n")));
    place.fake.wait_returned(1, PATIENCE);
    // What another mount did before: the rename of this one moves what has the name by then.
    let other = place.other();
    other.rename("/d/n", "/kept").expect("moved by the other");
    other.rename("/d/next", "/d/n").expect("moved by the other");
    place.fake.release();
    mover.join().expect("no panic").expect("renamed");
    let ino_of = |name| Ino(fs::metadata(place.at(name)).expect("attributes").ino());
    assert_eq!(ino_of("e/m"), after, "not what the kernel had under the name");
    assert_eq!(fs::read(place.at("e/m")).expect("read"), b"d/next");
    assert_eq!(ino_of("kept"), before);
    if flags == libc::RENAME_EXCHANGE {
        assert_eq!(ino_of("d/n"), other_end);
    }
}

/// What broke: the drop of the old name waited for the rename, found nothing under it any more, and the kernel had the wrong
/// inode under the new one until its time was over.
#[test]
fn a_name_that_was_taken_back_is_not_believed_where_it_was_moved_to() {
    moved_meanwhile("follow", 0);
    moved_meanwhile("exchange", libc::RENAME_EXCHANGE);
}

/// What broke: the thread that renews the lease waited for the page, and the page for an answer that waited for another mount.
#[test]
fn a_read_that_outlives_its_connection_costs_no_lease() {
    let place = Place::new("lease", "");
    let path = place.at("f");
    fs::write(&path, b"content").expect("written");
    let held = File::open(&path).expect("open");
    place.fake.lease(200);
    place.fake.hold_only(|request| matches!(request, Request::Read { .. }));
    let reader = thread::spawn(move || {
        let mut content = [0; 7];
        held.read_exact_at(&mut content, 0).map(|()| content)
    });
    wait_until(|| place.fake.held() > 0);
    place.fake.cut();
    wait_until(|| place.fake.held() > 0);
    place.fake.wait_renewed(6, PATIENCE);
    assert_eq!(place.fake.settled(), 0, "the page is in use");
    place.fake.release();
    assert_eq!(&reader.join().expect("no panic").expect("read"), b"content");
    place.fake.wait_settled(1, PATIENCE);
}

/// What broke: until it is dropped the old name of a directory leads to it, and that waited for any other directory, too.
#[test]
fn a_directory_that_others_move_is_gone_by_its_old_name_although_another_is_locked() {
    let place = Place::new("directories", "");
    for dir in ["locked", "locked/dir", "d", "d/sub"] {
        fs::create_dir(place.at(dir)).expect("made");
    }
    fs::write(place.at("locked/f"), b"").expect("written");
    let ino = |name: &str| Ino(fs::metadata(place.at(name)).expect("attributes").ino());
    let (locked, file, dir, sub) = (ino("locked"), ino("locked/f"), ino("d"), ino("d/sub"));
    let inside = ino("locked/dir");
    place.fake.hold_only(|request| match request {
        Request::Lookup { name, .. } => name.as_bytes() == b"slow",
        _ => false,
    });
    let slow = place.at("locked/slow");
    let slow = thread::spawn(move || fs::metadata(slow).map(drop));
    wait_until(|| place.fake.held() > 0);
    // More than there are threads for one by one: all in the directory that is locked.
    for times in 1..=40 {
        place.fake.recall(file, Bits::ATTRS, Some((locked, b"f")));
        place.fake.wait_returned(times, PATIENCE);
    }
    place.fake.recall(inside, Bits::ATTRS, Some((locked, b"dir")));
    place.fake.wait_returned(41, PATIENCE);
    place.fake.recall(sub, Bits::ATTRS, Some((dir, b"sub")));
    place.fake.wait_returned(42, PATIENCE);
    let other = place.other();
    other.rename("/d/sub", "/d/moved").expect("moved by the other");
    let gone = fs::metadata(place.at("d/sub/f")).expect_err("moved away");
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    fs::write(place.at("d/sub"), b"").expect("nothing is there");
    place.fake.release();
    slow.join().expect("no panic").expect_err("never was");
    assert!(fs::metadata(place.at("d/moved")).expect("its new name").is_dir());
}
