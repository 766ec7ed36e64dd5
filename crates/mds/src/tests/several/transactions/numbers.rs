//! Change counters that several ranks give one inode.
//!
//! Absent: the numbers themselves (`cache/dir.rs`).

use super::*;

/// Found by the simulator: the leader counted from what it was told as the inode's home had before it died.
#[test]
pub(super) fn what_a_home_counted_and_lost_no_leader_counts_again() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "g");
    s.c.pass(50);
    // Rank 1's life is a later one than rank 0's, which goes on from its number.
    s.c.worlds[0].auto_durable = false;
    let mode = proto::SetAttr { mode: Some(0o600), ..Default::default() };
    let lost = s.c.attr(0, Request::SetAttr { node: s.file, set: mode }).expect("attributes").change;
    s.c.crash(0);
    s.c.worlds[0].auto_durable = true;
    s.link(s.file, s.dir, "h");
    let change = s.c.stat(s.file).change;
    assert!(s.c.worlds[0].config.incarnation > s.c.worlds[1].config.incarnation, "{lost} {change}");
    assert!(change > lost, "{lost} {change}");
}
