//! Sessions that are limited to a directory: what each rank lets pass, whoever has it, whatever moves, and whoever dies.
//!
//! Absent: random operations (`random.rs`); the text in the journal (`session/greeting.rs`).

mod lives;
mod requests;

use super::*;

pub(super) const LIMITED: ConnId = ConnId(70);

const DENIED: Answered = Answered::Outcome(Err(Errno::EACCES));

/// Ranks with one limited session at each of them.
struct Yard {
    c: Cluster,
    ranks: usize,
    /// What it is limited to, and what is beside that.
    inside: NodeRef,
    outside: NodeRef,
    session: SessionId,
}

impl Cluster {
    /// The limited session, at that rank, over a connection that is limited as well.
    pub(super) fn greets_limited(
        &mut self,
        at: usize,
        (session, join): (SessionId, bool),
        wants: Bits,
        (decided, limit): (Ino, Ino),
    ) -> ServerMsg {
        self.inject(at, Input::Disconnected { conn: LIMITED });
        self.inject(at, Input::Connected { conn: LIMITED, peer: Peer::Trusted });
        self.inject(at, Input::Limit { conn: LIMITED, dir: decided });
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        let token = JoinToken::of(&self.worlds[at].config.join_key, session);
        let to = At { join, token, limit, ..self.worlds[at].at() };
        let hello = ClientMsg::Hello { protocol: PROTOCOL, session, info, wants, at: to };
        self.inject(at, Input::Message { conn: LIMITED, message: through_codec(&hello) });
        let welcome = self.worlds[at].welcomed(LIMITED).expect("an answer");
        self.settle();
        welcome
    }

    pub(super) fn ask_limited(&mut self, at: usize, request: Request) -> Answered {
        let tid = self.start(at, LIMITED, request);
        self.wait(at, LIMITED, tid)
    }

    /// At whatever rank has it. ESTALE: none has.
    pub(super) fn call_limited(&mut self, request: Request) -> Outcome {
        let (mut at, mut by) = (0, Vec::new());
        for _ in 0..16 {
            by.push(at);
            at = match self.ask_limited(at, request.clone()) {
                Answered::Outcome(outcome) => return outcome,
                // It may have come there since.
                Answered::NotMine(Some(owner)) if by.len() < 8 => usize::from(owner.0),
                Answered::NotMine(_) => match (0..self.worlds.len()).find(|rank| !by.contains(rank)) {
                    Some(other) => other,
                    None => return Err(Errno::ESTALE),
                },
            };
        }
        Err(Errno::ESTALE)
    }
}

impl Yard {
    fn of(ranks: u16) -> Self {
        let mut c = Cluster::of(ranks);
        let (inside, outside) = (c.mkdir(root(), "in"), c.mkdir(root(), "out"));
        let mut yard = Self { c, ranks: usize::from(ranks), inside, outside, session: SessionId(0) };
        yard.begin(Bits::NONE);
        yard
    }

    /// Three ranks: `in/x/d` is rank 1's, `in/x/d/e` rank 2's, and `out/o` rank 1's.
    fn with_parts() -> (Self, [NodeRef; 4]) {
        let mut yard = Self::of(3);
        let x = yard.c.mkdir(yard.inside, "x");
        let d = yard.c.mkdir(x, "d");
        let e = yard.c.mkdir(d, "e");
        let o = yard.c.mkdir(yard.outside, "o");
        for (dir, rank) in [(d, 1), (e, 2), (o, 1)] {
            assert_eq!(yard.c.pin(dir, rank), Ok(Reply::Ok));
        }
        (yard, [x, d, e, o])
    }

    /// The session begins at rank 0, and joins the others.
    fn begin(&mut self, wants: Bits) {
        let (limit, ranks) = (self.inside.ino, self.ranks);
        let welcome = self.greets(0, (SessionId(0), false), wants, limit);
        assert!(matches!(welcome, ServerMsg::Welcome { root, .. } if root == limit), "{welcome:?}");
        self.session = self.c.worlds[0].sessions[&LIMITED];
        for at in 1..ranks {
            let welcome = self.greets(at, (self.session, true), wants, limit);
            assert!(matches!(welcome, ServerMsg::Welcome { root, .. } if root == limit), "{welcome:?}");
        }
    }

    fn greets(
        &mut self,
        at: usize,
        (session, join): (SessionId, bool),
        wants: Bits,
        limit: Ino,
    ) -> ServerMsg {
        self.greets_over(at, (session, join), wants, (Ino::NONE, limit))
    }

    fn greets_over(
        &mut self,
        at: usize,
        session: (SessionId, bool),
        wants: Bits,
        limits: (Ino, Ino),
    ) -> ServerMsg {
        self.c.greets_limited(at, session, wants, limits)
    }

    /// It comes back to a rank that lives again.
    fn comes_back(&mut self, at: usize) {
        self.claims(at, &[]);
    }

    /// And says that it has these open for writing.
    fn claims(&mut self, at: usize, nodes: &[NodeRef]) {
        let welcome = self.greets(at, (self.session, false), Bits::NONE, self.inside.ino);
        assert!(matches!(welcome, ServerMsg::Welcome { resumed: true, .. }), "{welcome:?}");
        for node in nodes {
            let claim = ClientMsg::Reclaim { node: *node, count: 1, writes: true, locks: Vec::new() };
            self.c.hold(at).say(LIMITED, claim);
        }
        self.c.hold(at).say(LIMITED, ClientMsg::Reclaimed);
        self.c.settle();
    }

    fn at(&mut self, at: usize, request: Request) -> Answered {
        self.c.ask_limited(at, request)
    }

    fn asks(&mut self, request: Request) -> Outcome {
        self.c.call_limited(request)
    }

    fn stats(&mut self, node: NodeRef) -> Result<(), Errno> {
        self.asks(Request::GetAttr { node }).map(|_| ())
    }

    fn looks(&mut self, parent: NodeRef, name: &str) -> Result<(), Errno> {
        self.asks(Request::Lookup { parent, name: n(name) }).map(|_| ())
    }

    fn opens(&mut self, node: NodeRef) {
        let opened = self.asks(Request::Open { node, flags: 2 });
        assert!(opened.is_ok(), "{opened:?}");
    }

    /// What the session was told to give back.
    fn recalled(&mut self, at: usize) -> bool {
        let sent = &self.c.worlds[at].sent;
        sent.iter().any(|(to, message)| *to == LIMITED && matches!(message, ServerMsg::Recall { .. }))
    }
}

fn rename(from: (NodeRef, &str), to: (NodeRef, &str), flags: u32) -> Request {
    Request::Rename { parent: from.0, name: n(from.1), new_parent: to.0, new_name: n(to.1), flags }
}

#[test]
fn a_way_that_leads_over_other_ranks_is_followed() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    for (dir, rank) in [(x, 0), (d, 1), (e, 2)] {
        let made = yard.at(rank, Request::MkNod { parent: dir, name: n("f"), new: mode(0o100_644) });
        let Answered::Outcome(Ok(Reply::Attr(attr))) = made else { panic!("{made:?}") };
        assert!(yard.stats(node(&attr)).is_ok());
    }
    let secret = yard.c.create(o, "secret");
    assert_eq!(yard.at(1, Request::Lookup { parent: o, name: n("secret") }), DENIED);
    assert_eq!(yard.at(1, Request::GetAttr { node: secret }), DENIED);
    assert_eq!(yard.at(1, Request::MkDir { parent: o, name: n("new"), new: mode(0o755) }), DENIED);
    assert_eq!(yard.stats(o), Err(Errno::EACCES));
    // The replica of the home is all that it takes, and it is asked for once.
    let replicas = yard.c.worlds[2].rank.peers.replicas.len();
    assert!(yard.looks(e, "f").is_ok());
    assert_eq!(yard.c.worlds[2].rank.peers.replicas.len(), replicas);
    // With next to no cache, too.
    (0..3).for_each(|rank| yard.c.drop_cache(rank));
    assert!(yard.looks(e, "f").is_ok() && yard.looks(d, "f").is_ok());
    assert_eq!(yard.looks(o, "secret"), Err(Errno::EACCES));
}

#[test]
fn what_was_moved_out_is_outside_at_once_wherever_it_is() {
    let (mut yard, [x, d, e, _]) = Yard::with_parts();
    yard.c.create(e, "f");
    let (inside, outside) = (yard.inside, yard.outside);
    for (there, back) in [("x", "y"), ("y", "x")] {
        assert!(yard.looks(e, "f").is_ok() && yard.stats(d).is_ok());
        assert_eq!(yard.c.rename((inside, there), (outside, there)), Ok(Reply::Ok));
        for (dir, rank) in [(x, 0), (d, 1), (e, 2)] {
            let lookup = Request::Lookup { parent: dir, name: n("f") };
            assert_eq!(yard.at(rank, lookup), DENIED);
        }
        assert_eq!((yard.stats(e), yard.looks(inside, there)), (Err(Errno::EACCES), Err(Errno::ENOENT)));
        assert_eq!(yard.c.rename((outside, there), (inside, back)), Ok(Reply::Ok));
        assert!(yard.looks(e, "f").is_ok());
    }
}

#[test]
fn a_directory_that_another_rank_leads_out_is_outside() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    yard.c.create(e, "f");
    assert!(yard.looks(e, "f").is_ok());
    // Its name is rank 0's, and the new one rank 1's.
    assert_eq!(yard.c.rename((x, "d"), (o, "d")), Ok(Reply::Ok));
    assert_eq!((yard.looks(e, "f"), yard.looks(d, "e")), (Err(Errno::EACCES), Err(Errno::EACCES)));
    // What is above it changes places with something outside.
    assert_eq!(yard.c.rename((o, "d"), (x, "d")), Ok(Reply::Ok));
    assert!(yard.looks(e, "f").is_ok());
    let exchange = proto::request::rename_flags::EXCHANGE;
    let (inside, outside) = (yard.inside, yard.outside);
    assert_eq!(yard.c.call(0, rename((inside, "x"), (outside, "o"), exchange)), Ok(Reply::Ok));
    assert_eq!((yard.looks(e, "f"), yard.looks(o, "nothing")), (Err(Errno::EACCES), Err(Errno::ENOENT)));
    // The directory itself goes below another one, and back.
    assert_eq!(yard.c.rename((root(), "in"), (outside, "deep")), Ok(Reply::Ok));
    assert_eq!((yard.looks(o, "nothing"), yard.stats(inside)), (Err(Errno::ENOENT), Ok(())));
    assert_eq!(yard.stats(outside), Err(Errno::EACCES));
}

/// What broke where it was looked at before it was known which transaction is planned: it waited for what it had reserved itself. And the
/// replica of what it moves, which it asked for with each try, is taken back by each try.
#[test]
fn a_directory_that_is_to_come_below_itself_is_refused() {
    for (ranks, home, content) in [(2, 0, 1), (2, 1, 0), (3, 1, 2)] {
        let mut yard = Yard::of(ranks);
        let a = yard.c.mkdir(yard.inside, "a");
        let b = yard.c.mkdir(a, "b");
        let below = yard.c.mkdir(b, "below");
        for (dir, rank) in [(yard.inside, home), (a, content)] {
            assert_eq!(yard.c.pin(dir, rank), Ok(Reply::Ok));
        }
        for into in [a, b, below] {
            let request = rename((yard.inside, "a"), (into, "new"), 0);
            assert_eq!(yard.asks(request), Err(Errno::EINVAL), "{ranks} {home} {content}");
        }
        let exchange = proto::request::rename_flags::EXCHANGE;
        let request = rename((yard.inside, "a"), (b, "below"), exchange);
        assert_eq!(yard.asks(request), Err(Errno::EINVAL), "{ranks} {home} {content}");
        let request = rename((yard.inside, "a"), (yard.inside, "c"), 0);
        assert_eq!(yard.asks(request), Ok(Reply::Ok));
        assert!(yard.stats(below).is_ok());
    }
}

#[test]
fn both_ends_are_looked_at() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    let (inside, outside) = (yard.inside, yard.outside);
    let (secret, own) = (yard.c.create(o, "secret"), yard.c.create(d, "own"));
    let near = yard.c.create(outside, "near");
    for (from, to) in [((o, "secret"), (d, "s")), ((o, "secret"), (x, "s")), ((outside, "near"), (e, "s"))] {
        assert_eq!(yard.asks(rename(from, to, 0)), Err(Errno::EACCES));
        assert_eq!(yard.asks(rename(to, from, 0)), Err(Errno::EACCES));
    }
    for (node, dirs) in [(secret, [d, x, e]), (near, [d, x, e])] {
        for parent in dirs {
            let link = Request::Link { node, parent, name: n("l") };
            assert_eq!(yard.asks(link), Err(Errno::EACCES));
        }
    }
    let link = |node, parent| Request::Link { node, parent, name: n("l") };
    assert_eq!(yard.asks(link(own, o)), Err(Errno::EACCES));
    assert!(yard.asks(link(own, x)).is_ok() && yard.asks(link(own, e)).is_ok());
    let copy =
        |source, target| Request::CopyRange { source, source_offset: 0, target, target_offset: 0, len: 1 };
    let own = yard.c.create(d, "plain");
    let far = yard.c.create(o, "far");
    assert_eq!(yard.at(1, copy(own, far)), DENIED);
    assert_eq!(yard.at(1, copy(far, own)), DENIED);
    assert!(matches!(yard.at(1, copy(own, own)), Answered::Outcome(Ok(_) | Err(Errno::EINVAL))));
    assert_eq!(yard.asks(rename((e, "l"), (inside, "l"), 0)), Ok(Reply::Ok));
}

#[test]
fn an_inode_is_inside_by_any_of_its_names() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    let file = yard.c.create(o, "f");
    assert!(yard.c.call(1, Request::Link { node: file, parent: e, name: n("l") }).is_ok());
    let file = NodeRef { parent: Ino::LINKS, hash: name_hash(&SEED, &file.ino.link_name()), ..file };
    assert!(yard.stats(file).is_ok() && yard.looks(e, "l").is_ok());
    // It leaves with what is above it, and comes back.
    assert_eq!(yard.c.rename((x, "d"), (yard.outside, "d")), Ok(Reply::Ok));
    assert_eq!(yard.stats(file), Err(Errno::EACCES));
    assert_eq!(yard.c.rename((yard.outside, "d"), (x, "d")), Ok(Reply::Ok));
    assert!(yard.stats(file).is_ok());
    let link = Request::Link { node: file, parent: d, name: n("again") };
    assert!(yard.asks(link).is_ok());
    for (parent, name) in [(e, "l"), (d, "again")] {
        assert!(yard.stats(file).is_ok());
        assert_eq!(yard.c.call(0, Request::Unlink { parent, name: n(name) }), Ok(Reply::Ok));
    }
    assert_eq!(yard.stats(file), Err(Errno::EACCES));
    // What comes first of so many is looked at, and no more.
    for dir in 0..64 {
        let parent = yard.c.mkdir(yard.outside, &format!("d{dir}"));
        assert!(yard.c.call(0, Request::Link { node: file, parent, name: n("l") }).is_ok());
    }
    assert!(yard.c.call(0, Request::Link { node: file, parent: x, name: n("l") }).is_ok());
    assert_eq!(yard.stats(file), Err(Errno::EACCES));
    assert!(yard.looks(x, "l").is_ok(), "its name is inside");
}

/// It is rank 0 that knows of whoever keeps something.
#[test]
fn a_home_that_lives_again_moves_no_directory_before_it_is_greeted() {
    let (mut yard, [_, d, e, _]) = Yard::with_parts();
    let d2 = yard.c.mkdir(d, "plain");
    yard.c.create(e, "f");
    assert!(yard.looks(e, "f").is_ok());
    // What is above is no boundary, and rank 1 has a replica of it.
    let (inside, outside) = (yard.inside, yard.outside);
    yard.c.cut.insert((1, 0));
    yard.c.cut.insert((2, 0));
    yard.c.crash(0);
    yard.comes_back(0);
    let request = rename((inside, "x"), (outside, "x"), 0);
    let tid = yard.c.start(0, EMBEDDED, request);
    yard.c.pass(50);
    assert_eq!(yard.c.take_answer(0, EMBEDDED, tid), None);
    assert!(yard.c.attr(0, Request::MkDir { parent: inside, name: n("else"), new: mode(0o755) }).is_ok());
    yard.c.cut.clear();
    assert_eq!(yard.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!((yard.looks(e, "f"), yard.stats(d2)), (Err(Errno::EACCES), Err(Errno::EACCES)));
}

/// What broke: clients perform these, and nothing that was performed may wait for another rank.
#[test]
fn a_home_that_lives_again_renames_within_a_directory_at_once() {
    let (mut yard, [_, _, e, _]) = Yard::with_parts();
    yard.c.create(e, "f");
    assert!(yard.looks(e, "f").is_ok());
    let inside = yard.inside;
    yard.c.cut.insert((1, 0));
    yard.c.cut.insert((2, 0));
    yard.c.crash(0);
    yard.comes_back(0);
    assert_eq!(yard.c.rename((inside, "x"), (inside, "y")), Ok(Reply::Ok));
    yard.c.cut.clear();
    assert!(yard.looks(e, "f").is_ok());
}

/// What broke: it waited for the rank of the name that came first.
#[test]
fn a_name_inside_is_enough_when_another_names_rank_is_down() {
    let (mut yard, [x, _, _, o]) = Yard::with_parts();
    let inner = yard.c.mkdir(o, "inner");
    let file = yard.c.create(x, "f");
    for (parent, name) in [(inner, "l"), (x, "l")] {
        assert!(yard.c.call(0, Request::Link { node: file, parent, name: n(name) }).is_ok());
    }
    assert!(yard.c.call(0, Request::Unlink { parent: x, name: n("f") }).is_ok());
    yard.c.cut.insert((0, 1));
    let file = NodeRef { parent: Ino::LINKS, hash: name_hash(&SEED, &file.ino.link_name()), ..file };
    let tid = yard.c.start(0, LIMITED, Request::GetAttr { node: file });
    yard.c.pass(50);
    let answer = yard.c.take_answer(0, LIMITED, tid);
    assert!(matches!(answer, Some(Answered::Outcome(Ok(_)))), "{answer:?}");
}

/// The same where another rank leads.
#[test]
fn a_directory_is_reserved_when_its_home_was_greeted() {
    let (mut yard, [_, _, e, o]) = Yard::with_parts();
    yard.c.create(e, "f");
    assert!(yard.looks(e, "f").is_ok());
    yard.c.cut.insert((2, 0));
    yard.c.crash(0);
    yard.comes_back(0);
    let tid = yard.c.start(1, EMBEDDED, rename((yard.inside, "x"), (o, "x"), 0));
    yard.c.pass(100);
    assert!(yard.c.worlds[0].rank.view.transactions.is_free());
    assert_eq!(yard.c.take_answer(1, EMBEDDED, tid), None);
    yard.c.cut.clear();
    assert_eq!(yard.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(yard.looks(e, "f"), Err(Errno::EACCES));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_limits_are_caught() {
    let defects: [(&str, fn()); 19] = [
        ("mds_limit_unchecked", requests::each_request_is_looked_at),
        ("mds_limit_first_only", both_ends_are_looked_at),
        ("mds_limit_looks_late", requests::a_link_of_what_another_rank_has_outside_disturbs_nobody),
        ("mds_limit_first_only", requests::a_link_of_what_another_rank_has_outside_disturbs_nobody),
        ("mds_linked_directory_leaves", requests::a_link_of_a_directory_carves_nothing),
        ("mds_limit_ends_at_boundary", a_way_that_leads_over_other_ranks_is_followed),
        ("mds_limit_tells_kind", requests::what_another_rank_has_outside_is_refused_whatever_it_is),
        ("mds_limit_not_restored", lives::a_limit_outlives_the_rank),
        ("mds_resumes_without_limit", lives::who_comes_back_has_the_same_limit),
        ("mds_claims_pass_limit", lives::a_session_that_begins_claims_nothing),
        ("mds_claims_outlive_names", lives::what_was_claimed_outside_counts_for_nothing_when_its_name_goes),
        ("mds_last_name_unlooked", lives::what_was_claimed_inside_is_inside_when_its_name_goes),
        ("mds_last_name_unlooked", lives::what_was_claimed_at_another_rank_is_inside_when_its_name_goes),
        ("mds_links_pass_limit", an_inode_is_inside_by_any_of_its_names),
        ("mds_outside_takes_back", requests::who_names_what_is_outside_takes_nothing_back),
        ("mds_renamed_unheard", a_home_that_lives_again_moves_no_directory_before_it_is_greeted),
        ("mds_renamed_unheard", a_directory_is_reserved_when_its_home_was_greeted),
        ("mds_open_grants_outside", requests::nothing_is_granted_of_what_is_outside_and_open),
        ("mds_limit_ends_at_boundary", what_was_moved_out_is_outside_at_once_wherever_it_is),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
