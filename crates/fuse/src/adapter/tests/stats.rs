//! What a mount tells of itself.
//! Absent: what is made of it (`pando stats`).

use super::*;

/// The numbers as told to this user.
fn told(kernel: &Kernel, nodeid: u64) -> Result<String, i32> {
    let operation = Operation::GetXattr { name: b"pando.stats", size: 65_536 };
    kernel.ask(nodeid, operation).map(|value| String::from_utf8(value).expect("text"))
}

fn number(text: &str, key: &str) -> u64 {
    let (_, rest) = text.split_once(&format!("\"{key}\":")).expect("it is there");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// The tests' kernel asks for user 10: these look as whoever mounted would.
fn stats(kernel: &Kernel) -> String {
    let about = RequestContext {
        cred: Cred::ROOT,
        pid: 1,
        nodeid: ROOT_ID,
        node: kernel.adapter.shared.root,
        stale: false,
    };
    let channel = Channel::Device(DeviceChannel::new(Arc::clone(&kernel.device), None));
    kernel.adapter.shared.answer_stats(&about, KernelReply::new(channel, 1, Opcode::GetXattr, 65_536));
    String::from_utf8(kernel.receive().2).expect("text")
}

#[test]
fn the_numbers_are_for_root_and_whoever_mounted() {
    let kernel = Kernel::new(Behaviour::default());
    assert_eq!(told(&kernel, 1), Err(libc::EPERM));
    let (file, _) = kernel.create(b"f", RDWR);
    assert_eq!(told(&kernel, file.nodeid), Err(libc::ENODATA), "the rank's to answer: of the root alone");
    let set = Operation::SetXattr { name: b"pando.stats", value: b"x", flags: 0, acl_kill_sgid: false };
    assert_eq!(kernel.ask(1, set), Err(libc::EPERM));
    assert_eq!(kernel.ask(1, Operation::RemoveXattr { name: b"pando.stats" }), Err(libc::EPERM));
    assert_eq!(kernel.ask(1, Operation::ListXattr { size: 4096 }), Ok(Vec::new()));
}

#[test]
fn what_happens_is_counted() {
    let kernel = Kernel::new(Behaviour::default());
    let before = stats(&kernel);
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.write(file.nodeid, 0, b"hello", RDWR, false).expect("written");
    kernel.read(file.nodeid).expect("read");
    assert_eq!(kernel.lookup(b"g").err(), Some(libc::ENOENT));
    let after = stats(&kernel);
    let more = |key: &str| number(&after, key) - number(&before, key);
    let keys = ["requests", "asked", "failed", "errors", "written_bytes", "read_bytes", "nodes", "caps"];
    assert_eq!(keys.map(more), [4, 4, 1, 0, 5, 5, 1, 1], "{after}");
    assert_eq!(["open_files", "cached_files", "waiting"].map(|key| number(&after, key)), [1, 1, 0]);
    assert!(after.contains(r#""transport":"classic""#) && more("request_ns") > 0);
    kernel.fake.recall(Ino(file.nodeid), Bits::ATTRS.with(Bits::FC), None);
    kernel.fake.wait_returned(1, PATIENCE);
    // Attributes twice, pages once: the messages to the kernel come before its next answer.
    for _ in 0..3 {
        kernel.notified();
    }
    let last = stats(&kernel);
    assert_eq!(["caps", "cached_files", "recalls"].map(|key| number(&last, key)), [0, 0, 1]);
    kernel.adapter.comes_over(crate::transport::Transport::Uring);
    assert!(stats(&kernel).contains(r#""transport":"io_uring""#));
}
