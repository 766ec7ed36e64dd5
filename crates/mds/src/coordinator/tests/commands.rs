//! What operators are answered, and what is refused.
//!
//! Absent: the command line's own words.

use super::*;

fn text(result: Result<String, CommandError>) -> String {
    result.unwrap_or_else(|error| error.to_string())
}

#[test]
fn a_failed_rank_is_said_with_what_it_was_and_what_follows() {
    let (mut w, a, _) = served();
    let answer = w.command(Command::FailRank(RankId(0)));
    assert_eq!(
        text(answer),
        "rank 0 failed: it was active on a (daemon 1): a standby takes over once its last life can neither \
         write nor answer"
    );
    assert_ne!(w.rank(0).daemon, a);
    let answer = w.command(Command::FailRank(RankId(0)));
    assert_eq!(
        text(answer),
        "rank 0 failed: it was active on b (daemon 2): nobody takes over before a standby registers"
    );
    let error = w.command(Command::FailRank(RankId(0))).expect_err("it has no life");
    assert!(matches!(error, CommandError::WrongState(_)));
    assert_eq!(
        error.to_string(),
        "rank 0: it has failed already: nobody takes over before a standby registers"
    );
    let error = w.command(Command::FailRank(RankId(3))).expect_err("there is none");
    assert_eq!(error, CommandError::WrongState("rank 3: no such rank: there is 0".into()));
}

#[test]
fn a_file_system_that_failed_stays_so_until_it_is_joinable() {
    let (mut w, ..) = served();
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    w.register("c");
    assert_eq!(
        text(w.command(Command::FailFs)),
        "2 ranks ended; nobody takes over before the file system is joinable again"
    );
    w.live(100 * SECOND);
    assert_eq!((w.state(0), w.state(1), w.stored().joinable), (RankState::Failed, RankState::Failed, false));
    let error = w.command(Command::FailRank(RankId(1))).expect_err("it has failed");
    assert_eq!(
        error.to_string(),
        "rank 1: it has failed already: nobody takes over, because the file system is not joinable"
    );
    assert_eq!(text(w.command(Command::SetJoinable(true))), "joinable is true");
    assert_eq!(w.state(0), RankState::Active, "{:?}", w.stored());
    assert_eq!(w.state(1), RankState::Failed, "there is one standby");
}

#[test]
fn what_no_map_can_say_is_refused() {
    let (mut w, ..) = served();
    for ranks in [0, 257] {
        let error = w.command(Command::SetMaxMds(ranks)).expect_err("no map has so many");
        let text = format!("max_mds: {ranks}: a file system has 1 to 256 ranks");
        assert_eq!(error, CommandError::Unsupported(text));
    }
    assert_eq!(w.stored().max_mds, 1);
    let version = w.stored().version;
    assert_eq!(text(w.command(Command::SetMaxMds(1))), "max_mds is 1");
    assert_eq!(w.stored().version, version, "it was so");
}

#[test]
fn a_command_is_answered_with_the_map_that_has_it() {
    let (mut w, ..) = served();
    w.hold_registry = true;
    w.give(Input::Command { id: 1, command: Command::SetMaxMds(2) });
    w.give(Input::Command { id: 2, command: Command::SetMaxMds(3) });
    w.give(Input::Command { id: 3, command: Command::Get });
    w.let_go();
    let answers: Vec<(u64, u16)> = (w.said.iter())
        .filter_map(|output| match output {
            Output::Answer { id, result } => Some((*id, result.as_ref().ok()?.map.max_mds)),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(3, 1), (1, 2), (2, 3)]);
}

#[test]
fn queues_end_and_say_so() {
    let (mut w, ..) = served();
    w.hold_registry = true;
    for id in 0..2_000 {
        w.give(Input::Command { id, command: Command::SetJoinable(id % 2 == 0) });
        w.give(Input::Register { token: id, name: "n".into() });
    }
    let busy =
        w.count(|output| matches!(output, Output::Answer { result: Err(CommandError::WrongState(_)), .. }));
    // The first changes nothing and is answered at once; a swap is under way from then on.
    assert_eq!(busy, 2_000 - 1_025);
    let full = w.count(
        |output| matches!(output, Output::Refused { text, .. } if text == "there are 256 daemons already"),
    );
    assert_eq!(full, 2_000 - 254);
    w.let_go();
    assert_eq!(w.count(|output| matches!(output, Output::Answer { result: Ok(_), .. })), 1_025);
    assert_eq!((w.stored().daemons.len(), w.stored().joinable), (256, true));
}

#[test]
fn names_that_are_none_are_refused() {
    let (mut w, ..) = served();
    for name in [String::new(), "n".repeat(256)] {
        w.give(Input::Register { token: 1, name });
    }
    let refused = w.count(|output| matches!(output, Output::Refused { token: 1, .. }));
    assert_eq!((refused, w.stored().daemons.len()), (2, 2));
    w.register(&"n".repeat(255));
    assert_eq!(w.stored().daemons.len(), 3);
}

#[test]
fn who_has_not_begun_says_so() {
    let mut w = World::idle(config(true), &Registry::default());
    assert!(matches!(w.command(Command::Get), Err(CommandError::WrongState(_))));
    w.give(Input::Register { token: 1, name: "a".into() });
    assert_eq!(w.count(|output| matches!(output, Output::Refused { .. })), 1);
    assert_eq!((w.coordinator.map(), w.coordinator.deadline(), w.reads), (None, None, 0));
    w.give(Input::Boot);
    assert!(w.command(Command::Get).is_ok());
}
