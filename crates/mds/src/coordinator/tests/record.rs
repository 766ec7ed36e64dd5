//! The record: nothing is said before it is durable, nothing of another is overwritten, and what fails is tried again.
//!
//! Absent: leases.

use super::*;

const DISK: StoreError = StoreError::NoSpace;

/// Outputs that tell somebody what the map says.
fn tells(output: &Output) -> bool {
    match output {
        Output::Registered { .. }
        | Output::Publish(_)
        | Output::Assign { .. }
        | Output::Fence { .. }
        | Output::Dismiss { .. }
        | Output::Answer { .. } => true,
        Output::Read
        | Output::Swap { .. }
        | Output::Refused { .. }
        | Output::Ack { .. }
        | Output::Deposed
        | Output::Note { .. } => false,
    }
}

#[test]
fn nothing_is_said_before_it_is_durable() {
    let (mut w, a, _) = served();
    let turns: [Input; 3] = [
        Input::Register { token: 9, name: "c".into() },
        Input::Command { id: 1, command: Command::SetMaxMds(2) },
        Input::Gone { daemon: a },
    ];
    w.hold_fences = true;
    for input in turns {
        w.hold_registry = true;
        w.give(input);
        assert_eq!(w.count(tells), 0, "{:?}", w.said);
        assert_eq!(w.held.len(), 1);
        let answer = w.held.pop_front().expect("the swap's");
        w.hold_registry = false;
        w.give(answer);
        let Some(Output::Publish(map)) = w.said.iter().find(|output| tells(output)) else {
            panic!("first of all the map: {:?}", w.said)
        };
        assert!(map.version <= w.stored().version);
        assert!(w.count(tells) > 1, "{:?}", w.said);
        w.said.clear();
    }
}

/// A takeover in the middle of the registry's answer: the life is not begun before the map names it.
#[test]
fn a_life_begins_when_the_map_names_it() {
    let (mut w, a, b) = served();
    w.hold_fences = true;
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    let fenced = w.held.pop_front().expect("the fence's answer");
    w.said.clear();
    w.hold_registry = true;
    w.give(fenced);
    assert_eq!((w.lives(), w.count(tells)), (vec![], 0));
    w.let_go();
    assert_eq!(w.lives(), [(0, 2, b.0)]);
}

/// Whoever else wrote it, the plan is made anew from what is there.
#[test]
fn what_another_wrote_is_read_and_kept() {
    let (mut w, a, b) = served();
    w.hold_registry = true;
    w.give(Input::Gone { daemon: a });
    let mut other = w.stored();
    assert_eq!(other.state_of(0), RankState::Failed, "it is stored, and not answered yet");
    // The swap was too late: this is there instead.
    other = (*w.coordinator.map().expect("it leads").clone()).clone();
    other.version += 1;
    other.bal_rank_mask = proto::cluster::Mask::NONE.with(RankId(0));
    *w.registry.borrow_mut() = Some((other.version, other.encode()));
    w.held.clear();
    let reads = w.reads;
    w.hold_registry = false;
    w.give(Input::Swapped(Err(SwapFailure::Stale { stored: other.version })));
    assert_eq!(w.stored().bal_rank_mask, other.bal_rank_mask, "it is lost");
    assert_eq!(w.reads, reads + 1);
    assert_eq!(w.rank(0).daemon, b, "and what was planned is planned again");
}

trait StateOf {
    fn state_of(&self, rank: u16) -> RankState;
}

impl StateOf for ClusterMap {
    fn state_of(&self, rank: u16) -> RankState {
        self.ranks[&RankId(rank)].state
    }
}

#[test]
fn a_coordinator_that_finds_another_ends_and_says_so_to_everybody() {
    let mut w = World::shared(&Registry::default());
    w.register("a");
    let mut other = w.beside(false);
    w.hold_registry = true;
    w.give(Input::Command { id: 1, command: Command::SetMaxMds(2) });
    w.give(Input::Command { id: 2, command: Command::FailRank(RankId(0)) });
    w.give(Input::Register { token: 3, name: "b".into() });
    w.said.clear();
    w.let_go();
    let refused = w.count(|output| {
        matches!(output, Output::Answer { result: Err(CommandError::WrongState(_)), .. })
            || matches!(output, Output::Refused { .. })
    });
    assert_eq!((refused, w.count(|output| matches!(output, Output::Deposed))), (3, 1), "{:?}", w.said);
    assert_eq!(w.coordinator.map(), None);
    assert!(matches!(w.command(Command::Get), Err(CommandError::WrongState(_))));
    assert_eq!((w.stored().max_mds, w.stored().coordinator), (1, 2));
    // It may begin again; then the other one has to end.
    w.give(Input::Boot);
    assert_eq!(w.stored().coordinator, 3);
    other.register_fails();
    assert!(other.said.iter().any(|output| matches!(output, Output::Deposed)));
}

impl World {
    fn register_fails(&mut self) {
        self.give(Input::Register { token: 8, name: "late".into() });
        assert_eq!(self.count(|output| matches!(output, Output::Refused { token: 8, .. })), 1);
    }
}

#[test]
fn a_registry_that_fails_is_told_of_once_and_tried_again() {
    let (mut w, a, b) = served();
    w.fails = Some(DISK);
    let error = w.command(Command::SetMaxMds(2)).expect_err("it cannot be written");
    assert_eq!(error, CommandError::Store(DISK));
    assert_eq!(error.to_string(), "the cluster map: no space left");
    // The map that is known is still an answer, and who serves goes on: nobody else can begin here.
    assert!(w.command(Command::Get).is_ok());
    w.live(60 * SECOND);
    assert_eq!((w.notes("no space left"), w.stored().max_mds), (1, 1), "{:?}", w.said);
    assert!(w.acknowledged(a) > 10 && w.acknowledged(b) > 10);
    assert!((50..70).contains(&w.reads), "{}", w.reads);
    // What happens meanwhile is done when it can be.
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    w.fails = None;
    w.live(4 * SECOND);
    assert_eq!((w.rank(0).daemon, w.lives()), (b, vec![(0, 2, b.0)]));
}

/// What broke: in a mount's own process it was tried again after a fifteenth of the grace, which is ten years there.
#[test]
fn what_failed_is_tried_again_soon_whatever_the_grace_is() {
    for grace_ns in [3_600 * SECOND, u64::MAX / 4] {
        let mut w = World::idle(CoordinatorConfig { grace_ns, ..config(true) }, &Registry::default());
        w.give(Input::Boot);
        w.register("a");
        w.fails = Some(DISK);
        let error = w.command(Command::SetMaxMds(2)).expect_err("it cannot be written");
        assert_eq!(error, CommandError::Store(DISK));
        w.live(4 * SECOND);
        w.fails = None;
        w.give(Input::Command { id: 5, command: Command::SetMaxMds(3) });
        w.live(4 * SECOND);
        assert_eq!(w.stored().max_mds, 3, "{:?}", w.said);
    }
}

/// An error does not say that nothing was written.
#[test]
fn a_swap_that_failed_and_is_there_counts() {
    let (mut w, a, b) = served();
    w.hold_registry = true;
    w.give(Input::Gone { daemon: a });
    assert_eq!(w.held.len(), 1);
    w.held.clear();
    w.hold_registry = false;
    let stored = w.stored().version;
    w.give(Input::Swapped(Err(SwapFailure::Store(DISK))));
    w.alive.remove(&a);
    w.live(4 * SECOND);
    assert!(w.stored().version > stored);
    assert_eq!(w.lives(), [(0, 2, b.0)]);
    let fences = w.count(|output| matches!(output, Output::Fence { .. }));
    assert_eq!(fences, 1);
}

#[test]
fn a_record_that_is_no_map_is_never_overwritten() {
    for bytes in [b"garbage".to_vec(), ClusterMap::first().encode()] {
        // Version 1 in a record of version 3 is no better.
        let registry = Rc::new(RefCell::new(Some((3, bytes.clone()))));
        let mut w = World::shared(&registry);
        w.give(Input::Register { token: 1, name: "a".into() });
        w.pass_to(w.now + 60 * SECOND);
        assert_eq!((w.swaps, registry.borrow().clone()), (0, Some((3, bytes))));
        assert_eq!(w.notes("the cluster map: cluster/map: "), 1, "{:?}", w.said);
        w.give(Input::Command { id: 1, command: Command::FailFs });
        w.pass_to(w.now + 2 * SECOND);
        let failed = w.count(|output| {
            matches!(
                output,
                Output::Answer { result: Err(CommandError::Store(StoreError::Damaged { .. })), .. }
            )
        });
        assert_eq!((failed, w.notes("the cluster map: cluster/map: ")), (1, 1));
    }
}

/// What broke: a swap was acknowledged that an old map had come back over. The next one was refused, what was there was read, and
/// followed: lives that were begun, and what had changed hands, were in no stored map any more.
#[test]
fn a_map_that_goes_back_is_not_followed() {
    let (mut w, a, _) = served();
    let old = w.registry.borrow().clone();
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    let known = w.coordinator.map().expect("it leads").version;
    *w.registry.borrow_mut() = old.clone();
    w.said.clear();
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    w.pass_to(w.now + 10 * SECOND);
    let followed = w.count(|output| matches!(output, Output::Publish(map) if map.version < known));
    assert_eq!((followed, w.registry.borrow().clone()), (0, old), "nothing is written over it: {:?}", w.said);
    assert_eq!(w.notes("the cluster map: cluster/map: "), 1, "{:?}", w.said);
    assert_eq!(w.coordinator.map().map(|map| map.version), Some(known));
}

#[test]
fn one_thing_is_under_way_and_an_answer_to_nothing_is_nothing() {
    let (mut w, a, b) = served();
    w.hold_registry = true;
    w.give(Input::Gone { daemon: a });
    let (swaps, reads) = (w.swaps, w.reads);
    w.give(Input::Command { id: 1, command: Command::SetMaxMds(2) });
    w.give(Input::Register { token: 4, name: "d".into() });
    w.live(8 * SECOND);
    assert_eq!((w.swaps, w.reads), (swaps, reads));
    w.let_go();
    assert_eq!((w.rank(0).daemon, w.stored().max_mds), (b, 2));
    let map = w.stored();
    w.give(Input::Swapped(Ok(99)));
    w.give(Input::Read(Ok(None)));
    w.give(Input::Fenced { rank: RankId(9), incarnation: Incarnation(9) });
    assert_eq!(w.stored(), map);
}

/// Its own map said so already, and another coordinator's does not any more.
#[test]
fn a_command_that_changes_nothing_is_answered_by_the_map_that_is_stored() {
    let mut w = World::shared(&Registry::default());
    let mut other = w.beside(false);
    assert!(other.command(Command::SetJoinable(false)).is_ok());
    let answer = w.command(Command::SetJoinable(true));
    assert!(matches!(answer, Err(CommandError::WrongState(_))), "{answer:?}");
    assert!(!w.stored().joinable);
    assert!(other.command(Command::SetJoinable(false)).is_ok(), "its map is the one that is stored");
}

#[test]
fn ordinary_life_costs_no_swap() {
    let (mut w, ..) = served();
    w.live(4 * SECOND);
    let (swaps, version) = (w.swaps, w.stored().version);
    w.live(100 * SECOND);
    assert_eq!((w.swaps, w.stored().version, w.reads), (swaps, version, 1));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_the_record_are_caught() {
    let defects: [(&str, fn()); 7] = [
        ("coord_follows_back", a_map_that_goes_back_is_not_followed),
        ("coord_publishes_early", nothing_is_said_before_it_is_durable),
        ("coord_answers_early", nothing_is_said_before_it_is_durable),
        ("coord_assigns_early", a_life_begins_when_the_map_names_it),
        ("coord_overwrites", what_another_wrote_is_read_and_kept),
        ("coord_retries_by_grace", what_failed_is_tried_again_soon_whatever_the_grace_is),
        ("coord_answers_unread", a_command_that_changes_nothing_is_answered_by_the_map_that_is_stored),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
