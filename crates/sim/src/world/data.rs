//! Operations on data. Each is one step, but while a `SyncAll` keeps the disk busy, what only touches memory goes on: in
//! the server the rank's thread runs such operations itself, beside the thread that syncs.
//!
//! Absent: their order (`order.rs`).

use super::brief::{brief, brief_done};
use super::{Event, World};
use crate::model::judge::Verdict;
use mds::input::{Input, Tag};
use proto::storeio::{DataDone, DataOp, StoreError};
use std::sync::Arc;
use std::sync::mpsc::channel;
use stdx::Prng;

type Done = Result<DataDone, StoreError>;
type Due = (Tag, Box<DataOp>);

impl World {
    pub(super) fn data(&mut self, tag: Tag, op: &DataOp) -> Verdict {
        if *op != DataOp::SyncAll {
            let result = self.run_data(op);
            return if self.disk.is_dead() { Ok(()) } else { self.data_done(tag, op, result) };
        }
        let Some(life) = &self.life else { return Ok(()) };
        let data = Arc::clone(&life.data);
        let mut due = self.take_due();
        let (done, answers) = channel();
        let mut waiting: Vec<(Tag, DataOp)> = due.iter().map(|(tag, op)| (*tag, (**op).clone())).collect();
        let mut dice = Prng::new(self.rng.next_u64());
        self.disk.meanwhile(Some(Box::new(move || {
            waiting.retain(|(tag, op)| {
                let result = if dice.chance(1, 2) { data.run_quick(op) } else { None };
                // The receiver outlives this.
                result.is_none_or(|result| done.send((*tag, result)).is_err())
            });
        })));
        let result = self.run_data(op);
        self.disk.meanwhile(None);
        if self.disk.is_dead() {
            return Ok(());
        }
        for (tag, result) in answers.try_iter() {
            let Some(at) = due.iter().position(|(due, _)| *due == tag) else { continue };
            let (tag, op) = due.remove(at);
            self.data_done(tag, &op, result)?;
        }
        for (tag, op) in due {
            self.at(self.now, Event::Data { life: self.lives, tag, op });
        }
        self.data_done(tag, op, result)
    }

    /// Takes what is due while the disk may be busy.
    fn take_due(&mut self) -> Vec<Due> {
        let horizon = self.now + 4 * self.plan.disk_ns;
        let ours = |event: &Event| matches!(event, Event::Data { life, .. } if *life == self.lives);
        let soon = self.heap.range(..(horizon, 0)).filter(|(_, event)| ours(event));
        let keys: Vec<_> = soon.map(|(key, _)| *key).collect();
        let events = keys.iter().filter_map(|key| self.heap.remove(key));
        let due = events.filter_map(|event| match event {
            Event::Data { tag, op, .. } => Some((tag, op)),
            _ => None,
        });
        due.collect()
    }

    fn run_data(&mut self, op: &DataOp) -> Done {
        let Some(life) = &self.life else { return Err(StoreError::Poisoned) };
        let result = life.data.run(op);
        if result != Err(StoreError::NoSpace) || !op.may_use_ballast() {
            return result;
        }
        self.release_ballast();
        let Some(life) = &self.life else { return result };
        life.data.run(op)
    }

    fn data_done(&mut self, tag: Tag, op: &DataOp, result: Done) -> Verdict {
        if let Err(error) = &result
            && *error != StoreError::NoSpace
            && !self.faults.injected_io
        {
            return Err(format!("data store: {error} on {}", brief(op)));
        }
        self.trace.event(self.now, "done", tag.0, || format!("{} {}", tag.0, brief_done(&result)));
        let input = Input::DataDone { tag, result };
        self.after(self.plan.disk_ns, Event::Rank { life: self.lives, input: Box::new(input) });
        Ok(())
    }
}
