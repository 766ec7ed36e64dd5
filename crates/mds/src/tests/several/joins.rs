//! Sessions that join a rank: their token, and what becomes of one that has ended there; greetings that may come again.
//!
//! Absent: what a client makes of it (`client`, `router`).

use super::*;

const JOINED: SessionId = SessionId((1 << 32) + 7);

fn token(session: SessionId) -> JoinToken {
    JoinToken::of(&[0; 16], session)
}

fn joins(c: &mut Cluster, at: usize, conn: ConnId, token: JoinToken) -> Option<ServerMsg> {
    let rank = RankId(at as u16);
    let at = At { rank, join: true, token, map_version: 1, ..At::default() };
    greets(c.hold(usize::from(rank.0)), conn, JOINED, at)
}

fn greets(world: &mut World, conn: ConnId, session: SessionId, at: At) -> Option<ServerMsg> {
    world.inject(Input::Connected { conn, peer: Peer::Trusted });
    let info = ClientInfo::default();
    world.say(conn, ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at });
    world.welcomed(conn)
}

fn refused(message: Option<&ServerMsg>) -> Option<Errno> {
    match message {
        Some(ServerMsg::Refused { errno, .. }) => Some(Errno(*errno as i32)),
        _ => None,
    }
}

#[test]
fn a_greeting_meant_for_another_rank_may_come_again_and_hears_of_the_map() {
    let mut c = Cluster::new();
    let map = c.map.clone();
    let world = c.hold(1);
    let refusal = greets(world, REMOTE, SessionId(0), At::default());
    assert_eq!(refused(refusal.as_ref()), Some(Errno::ESHUTDOWN), "it is no eviction");
    let told = world.sent.iter().find(|(to, _)| *to == REMOTE);
    let Some((_, ServerMsg::Map { bytes, .. })) = told else { panic!("{:?}", world.sent) };
    assert_eq!(ClusterMap::decode(bytes), Ok(map));
}

#[test]
fn who_joins_shows_that_the_number_is_its_own() {
    let mut c = Cluster::new();
    // The rank that makes a session says what goes with it, and another one takes that.
    c.greet(0, Peer::Trusted, Bits::NONE);
    let session = c.worlds[0].sessions[&REMOTE];
    let again = c.hold(0).hello(ConnId(60), Peer::Trusted, session);
    let Some(ServerMsg::Welcome { token: told, .. }) = again else { panic!("{again:?}") };
    assert_eq!(told, token(session));
    for wrong in [JoinToken::default(), token(SessionId(JOINED.0 + 1))] {
        let refusal = joins(&mut c, 1, REMOTE, wrong);
        assert_eq!(refused(refusal.as_ref()), Some(Errno::ESTALE));
    }
    let welcome = joins(&mut c, 1, ConnId(51), token(JOINED));
    assert!(
        matches!(welcome, Some(ServerMsg::Welcome { session: JOINED, resumed: false, .. })),
        "{welcome:?}"
    );
    // Whoever has joined comes back as anybody does.
    let welcome = joins(&mut c, 1, ConnId(52), token(JOINED));
    assert!(matches!(welcome, Some(ServerMsg::Welcome { session: JOINED, resumed: true, .. })));
}

#[cfg(feature = "mutants")]
#[test]
fn a_rank_that_does_not_look_at_the_token_is_caught() {
    stdx::mutant::activate(Some("mds_joins_without_token"));
    let verdict = std::panic::catch_unwind(who_joins_shows_that_the_number_is_its_own);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: the record of a session that had ended at a rank and joined it again was deleted by the next checkpoint, and the
/// rank's next life took its client for evicted.
#[test]
fn a_session_that_has_ended_at_a_rank_joins_it_again_and_stays() {
    let mut c = Cluster::new();
    let first = joins(&mut c, 1, ConnId(51), token(JOINED));
    assert!(matches!(first, Some(ServerMsg::Welcome { .. })));
    c.hold(1).say(ConnId(51), ClientMsg::Goodbye);
    let again = joins(&mut c, 1, ConnId(52), token(JOINED));
    assert!(matches!(again, Some(ServerMsg::Welcome { resumed: false, .. })), "{again:?}");
    c.checkpoint(1);
    c.crash(1);
    let at = At { rank: RankId(1), ..At::default() };
    let welcome = greets(c.hold(1), ConnId(53), JOINED, at);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
}

#[test]
fn a_session_with_a_map_hears_of_newer_ones_with_its_lease() {
    let mut c = Cluster::new();
    c.greet(0, Peer::Trusted, Bits::NONE);
    let renew = |c: &mut Cluster| {
        c.hold(0).say(REMOTE, ClientMsg::Renew { number: 1 });
        c.settle();
        let map = c.heard(0, |message| matches!(message, ServerMsg::Map { .. }));
        assert!(c.heard(0, |message| matches!(message, ServerMsg::Renewed { .. })).is_some());
        map
    };
    assert_eq!(renew(&mut c), None, "one that knows of no map needs none");
    c.hold(0).say(REMOTE, ClientMsg::WantMap { have: 0 });
    let Some(ServerMsg::Map { bytes, version, .. }) = c.heard(0, |m| matches!(m, ServerMsg::Map { .. }))
    else {
        panic!("it asked for it")
    };
    let mut known = ClusterMap::decode(&bytes).expect("a map");
    assert_eq!((&known, version), (&c.map, c.map.version));
    assert_eq!(renew(&mut c), None, "it has it");
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.hold(0).say(REMOTE, ClientMsg::Renew { number: 2 });
    while let Some(ServerMsg::Map { bytes, .. }) = c.heard(0, |m| matches!(m, ServerMsg::Map { .. })) {
        known.apply(&proto::cluster::Delta::decode(&bytes).expect("changes")).expect("they fit");
    }
    assert_eq!(known, c.map);
    assert_eq!(renew(&mut c), None);
}
