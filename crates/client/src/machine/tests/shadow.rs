//! Routers that follow a client step by step: while one rank owns everything a router says what the client behind it says, and waits
//! for what it waits for. So every test of the machine is one of the router.
//!
//! Absent: several ranks (`router/tests.rs`).

use super::*;
use crate::router::Router;
use crate::validity::Validity;

/// A router, and how its stamps differ.
pub(super) struct Shadow {
    pub(super) router: Router,
    /// Stamps say of which rank they are.
    lanes: bool,
}

impl Shadow {
    /// Of the only rank.
    pub(super) fn of_one(client: &Client) -> Self {
        Self { router: Router::of_one(client.clone()), lanes: false }
    }

    /// Of one of several, which owns everything.
    pub(super) fn of_many(client: &Client) -> Self {
        Self { router: Router::of_many(client.clone()), lanes: true }
    }

    fn stamp(&self, stamp: u64) -> u64 {
        if self.lanes && stamp > 1 { (stamp - 1) << 8 } else { stamp }
    }

    fn input(&self, input: Input) -> Input {
        match input {
            Input::Returned { stamp, list } => Input::Returned { stamp: self.stamp(stamp), list },
            Input::Dropped { stamp } => Input::Dropped { stamp: self.stamp(stamp) },
            other => other,
        }
    }

    fn output(&self, output: Output) -> Output {
        match output {
            Output::Answer { call, outcome, validity } => {
                // One that leaves nothing has none.
                let stamp = self.stamp(validity.stamp);
                Output::Answer { call, outcome, validity: Validity { stamp, ..validity } }
            }
            Output::Recalled { stamp, list } => Output::Recalled { stamp: self.stamp(stamp), list },
            Output::Lost { stamp } => Output::Lost { stamp: self.stamp(stamp) },
            other => other,
        }
    }

    /// The client has done that step; the router does it now.
    pub(super) fn follows(&mut self, client: &Client, at: Now, input: Input, said: &[Output]) {
        self.router.each_client().for_each(|own| own.config = client.config.clone());
        let mut out = Vec::new();
        self.router.step(at, self.input(input), &mut out);
        let said: Vec<_> = said.iter().cloned().map(|output| self.output(output)).collect();
        assert_eq!(out, said, "what the router says");
        assert_eq!(self.router.deadline(), client.deadline());
        assert_eq!((self.router.session(), self.router.root()), (client.session(), client.root()));
        assert_eq!(
            (self.router.kept(), self.router.queued(), self.router.delegated()),
            (client.kept(), client.queued(), client.delegated())
        );
    }
}
