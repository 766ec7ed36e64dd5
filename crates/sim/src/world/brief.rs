//! How messages and operations read in a trace.
//!
//! Absent: the trace (`trace.rs`).

use proto::message::ClientMsg;
use proto::storeio::{DataDone, DataOp, StoreBatch, StoreError, StoreKey};

pub(super) fn brief(op: &DataOp) -> String {
    match op {
        DataOp::Write { file, offset, data, cut } => {
            format!("Write {} at {offset} +{} {cut:?}", file.ino.0, data.len())
        }
        DataOp::Redo { file, truncate_seq, write_seq, data } => {
            format!("Redo {} {truncate_seq}/{write_seq} +{}", file.ino.0, data.len())
        }
        other => format!("{other:?}"),
    }
}

pub(super) fn brief_batch(batch: &StoreBatch) -> String {
    let mut text = format!("[{}:", batch.shard.0);
    for (table, key, value) in batch.iter() {
        let sign = if value.is_some() { '+' } else { '-' };
        let key = match StoreKey::decode(table, key) {
            Ok(StoreKey::Dentry { dir, name, .. }) => format!("{}/{}", dir.0, name.escape_ascii()),
            Ok(StoreKey::Header { dir, .. }) => format!("header {}", dir.0),
            other => format!("{other:?}"),
        };
        text.push_str(&format!(" {sign}{key}"));
    }
    text.push(']');
    text
}

pub(super) fn brief_done(result: &Result<DataDone, StoreError>) -> String {
    match result {
        Ok(DataDone::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(DataDone::Redo { truncate_seq, write_seq, data }) => {
            format!("Redo {truncate_seq}/{write_seq} +{}", data.len())
        }
        other => format!("{other:?}"),
    }
}

pub(super) fn brief_message(message: &ClientMsg) -> String {
    match message {
        ClientMsg::Request { tid, request, .. } => {
            let text = format!("{request:?}");
            format!("{} {text:.200}", tid.0)
        }
        ClientMsg::Performed { tid, told, request, .. } => {
            let text = format!("{request:?}");
            format!("{} {told:?} {text:.200}", tid.0)
        }
        other => format!("{other:?}"),
    }
}
