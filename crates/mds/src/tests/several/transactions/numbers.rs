//! Change counters that several ranks give one inode.
//!
//! Absent: the numbers themselves (`cache/dir.rs`).

use super::*;

/// What broke: the leader counted from what it was told as the inode's home had before it died.
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

/// What broke: the home carried the same out in two lives, and counted on from the leader's number in both.
#[test]
pub(super) fn what_another_rank_counted_no_later_life_counts_on() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "g");
    s.c.pass(50);
    // The home's life is a later one than the leader's.
    s.c.crash(0);
    let file = s.file;
    let counted = |s: &Scene| {
        let cache = &s.c.worlds[0].rank.view.cache;
        cache.node(cache.by_ino(file.ino).expect("cached")).core.change
    };
    let set = |mode| {
        let set = proto::SetAttr { mode: Some(mode), ..Default::default() };
        Request::SetAttr { node: file, set }
    };
    s.c.worlds[1].auto_durable = false;
    s.c.start(1, EMBEDDED, Request::Link { node: file, parent: s.dir, name: n("h") });
    assert!(!s.c.worlds[0].rank.view.transactions.is_free(), "it is reserved");
    s.c.worlds[0].auto_durable = false;
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    let told = counted(&s);
    s.c.start(0, EMBEDDED, set(0o600));
    let lost = counted(&s);
    assert!(lost > told, "it was carried out, and counted on");
    s.c.crash(0);
    s.c.worlds[0].auto_durable = true;
    s.c.pass(50);
    assert_eq!(counted(&s), told, "the same once more");
    let now = s.c.attr(0, set(0o640)).expect("attributes").change;
    assert!(now > lost, "{told} {lost} {now}");
    assert!(now >= s.c.worlds[0].config.incarnation.first_change(), "{told} {lost} {now}");
}
