//! Messages to connections, in order: outboxes are filled under the rank's mutex and emptied outside
//! it, by one thread at a time for each connection.
//!
//! Absent: encoding (the sink's business).

use super::Driver;
use super::core::Turn;
use mds::input::ConnId;
use proto::message::ServerMsg;
use runtime::port::Sink;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

thread_local! {
    /// How many sinks this thread is in: a sink of one connection may send, and what that sets off
    /// may be delivered to another by the same thread.
    static SINKS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a sink, called by whatever thread had something to deliver.
pub(super) fn in_sink() -> bool {
    SINKS.get() > 0
}

/// One batch on its way to a sink.
pub(super) struct Delivery {
    conn: ConnId,
    sink: Arc<dyn Sink>,
    batch: Vec<ServerMsg>,
    close: bool,
}

struct Slot {
    sink: Arc<dyn Sink>,
    outbox: Vec<ServerMsg>,
    /// A thread is calling the sink: it comes back for what was added meanwhile.
    busy: bool,
    close: bool,
}

/// The connections.
#[derive(Default)]
pub(super) struct Conns {
    slots: BTreeMap<ConnId, Slot>,
}

impl Conns {
    pub(super) fn add(&mut self, conn: ConnId, sink: Arc<dyn Sink>) {
        self.slots.insert(conn, Slot { sink, outbox: Vec::new(), busy: false, close: false });
    }

    pub(super) fn remove(&mut self, conn: ConnId) -> bool {
        self.slots.remove(&conn).is_some()
    }

    pub(super) fn push(&mut self, conn: ConnId, message: ServerMsg, turn: &mut Turn<'_>) {
        let Some(slot) = self.slots.get_mut(&conn) else { return };
        slot.outbox.push(message);
        Self::begin(conn, slot, turn);
    }

    /// Closes the connection once its outbox is delivered.
    pub(super) fn close(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let Some(slot) = self.slots.get_mut(&conn) else { return };
        slot.close = true;
        Self::begin(conn, slot, turn);
    }

    fn begin(conn: ConnId, slot: &mut Slot, turn: &mut Turn<'_>) {
        if slot.busy {
            // Still in this turn: the batch of this connection takes the rest as well.
            if let Some(open) = turn.deliveries.iter_mut().find(|d| d.conn == conn) {
                open.batch.append(&mut slot.outbox);
                open.close |= slot.close;
            }
            return;
        }
        slot.busy = true;
        turn.deliveries.push(Delivery {
            conn,
            sink: slot.sink.clone(),
            batch: std::mem::take(&mut slot.outbox),
            close: slot.close,
        });
    }

    /// After a delivery: go on with what was added meanwhile, or let the next thread begin.
    pub(super) fn delivered(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let Some(slot) = self.slots.get_mut(&conn) else { return };
        slot.busy = false;
        if !slot.outbox.is_empty() || slot.close {
            Self::begin(conn, slot, turn);
        }
    }
}

impl Driver {
    /// Calls the sinks. No mutex is held.
    pub(super) fn deliver(&self, turn: &mut Turn<'_>) {
        if turn.deliveries.is_empty() {
            return;
        }
        // A panic in a sink ends the process, so the count needs no guard.
        SINKS.set(SINKS.get() + 1);
        for Delivery { conn, sink, batch, close } in std::mem::take(&mut turn.deliveries) {
            if !batch.is_empty() {
                sink.messages(batch);
            }
            if close {
                self.sinks().remove(&conn);
                if let Some(mut core) = self.core() {
                    core.conns.remove(conn);
                }
                sink.disconnected();
            } else {
                turn.delivered.push(conn);
            }
        }
        SINKS.set(SINKS.get() - 1);
    }
}
