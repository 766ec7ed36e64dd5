//! `client_cache_size`: the kernel is asked to forget.
//! Absent: whether it does; a system test shows that.

use super::*;
use crate::abi::NotifyPruneOut;

#[test]
fn idle_nodes_go_and_those_in_use_stay() {
    let kernel = Kernel::new(Behaviour { nodes_max: 16, ..Behaviour::default() });
    let mut open = Vec::new();
    let mut pruned = BTreeSet::new();
    for i in 0..60 {
        let name = format!("f{i}");
        let flags = RDWR;
        let sent = kernel.send(
            1,
            Operation::Create { name: name.as_bytes(), flags, mode: 0o600, umask: 0, kill_suidgid: false },
        );
        let made = loop {
            match kernel.receive() {
                (0, code, body) => take_pruned(code, &body, &mut pruned),
                (unique, error, body) => {
                    assert_eq!((unique, error), (sent, 0));
                    break CreateOut::read(&body).expect("a whole answer").entry.nodeid;
                }
            }
        };
        if i < 4 {
            open.push(made);
        } else {
            kernel.adapter.shared.nodes.closed(made);
        }
    }
    // The thread may come late; the next look is due after a pause.
    while pruned.is_empty() {
        let (_, code, body) = kernel.receive();
        take_pruned(code, &body, &mut pruned);
    }
    assert!(!pruned.contains(&ROOT_ID) && open.iter().all(|nodeid| !pruned.contains(nodeid)));
}

fn take_pruned(code: i32, body: &[u8], pruned: &mut BTreeSet<u64>) {
    assert_eq!(code, abi::NotifyCode::Prune as i32);
    let out = NotifyPruneOut::read(body).expect("a whole message");
    let ids = body[size_of::<NotifyPruneOut>()..].chunks(8);
    assert_eq!(ids.len(), out.count as usize);
    pruned.extend(ids.map(|id| u64::read(id).expect("a node")));
}
