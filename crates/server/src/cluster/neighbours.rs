//! What leads out of a life of this process: connections to the lives of other ranks here, and its wishes to the coordinator.
//!
//! Ranks talk in messages, over the codec of clients, as they would across hosts.
//!
//! Absent: other processes.

use super::Shared;
use super::coordinator::Event;
use crate::driver::Neighbours;
use mds::coordinator::Life;
use mds::output::MapWish;
use proto::RankId;
use runtime::port::{Port, Sink};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};

/// Those of one life. Weak: what the stage keeps must not keep the stage.
pub(super) struct Around {
    pub(super) shared: Weak<Shared>,
    pub(super) life: Life,
}

impl Neighbours for Around {
    fn connect(&self, rank: RankId, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>> {
        let gone = || io::Error::from(ErrorKind::NotConnected);
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        let life = shared.stage.serving(rank).ok_or_else(gone)?;
        let (guest, port) = runtime::within_process(sink)?;
        shared.stage.hand(&life, guest, &shared.log)?;
        Ok(port)
    }

    fn wish(&self, wish: MapWish) {
        if let Some(shared) = self.shared.upgrade() {
            // After the end nobody listens.
            let _over = shared.events.send(Event::Wish { life: self.life, wish });
        }
    }
}
