//! How messages and operations read in a trace.
//!
//! Absent: the trace (`trace.rs`).

use proto::dentry::DentryValue;
use proto::ids::Position;
use proto::journal::{Mutations, Payload, read_entry};
use proto::message::ClientMsg;
use proto::mutation::Mutation;
use proto::storeio::{DataDone, DataOp, StoreBatch, StoreError, StoreKey};

pub(crate) fn brief(op: &DataOp) -> String {
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

pub(crate) fn brief_batch(batch: &StoreBatch) -> String {
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

pub(crate) fn brief_done(result: &Result<DataDone, StoreError>) -> String {
    match result {
        Ok(DataDone::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(DataDone::Redo { truncate_seq, write_seq, data }) => {
            format!("Redo {truncate_seq}/{write_seq} +{}", data.len())
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn brief_message(message: &ClientMsg) -> String {
    match message {
        ClientMsg::Request { tid, request, .. } => {
            let text = format!("{request:?}");
            format!("{} {text:.900}", tid.0)
        }
        ClientMsg::Performed { tid, told, request, .. } => {
            let text = format!("{request:?}");
            format!("{} {told:?} {text:.900}", tid.0)
        }
        other => format!("{other:?}"),
    }
}

/// The transactions of an append, a line each: where it ends, whose it is, what it states.
pub(crate) fn brief_entries(mut at: Position, mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(entry) = read_entry(bytes, at) {
        at = Position(at.0 + entry.len as u64);
        if let Payload::Transaction { origin, mutations, .. } = entry.payload {
            let author = origin.map_or_else(String::new, |o| format!(" {} of {}", o.tid.0, o.session.0));
            let stated: Vec<String> = Mutations::new(mutations).flatten().map(brief_mutation).collect();
            lines.push(format!("{}{author}: {}", at.0, stated.join("; ")));
        }
        bytes = &bytes[entry.len..];
    }
    lines
}

fn brief_mutation(mutation: Mutation<'_>) -> String {
    match mutation {
        Mutation::PutDentry { dir, name, value, .. } => {
            let what = match DentryValue::decode(value) {
                Ok(DentryValue::Primary(inode)) => {
                    let core = &inode.core;
                    format!(
                        "{} mode {:o} nlink {} size {} change {}",
                        core.ino.0, core.mode, core.nlink, core.size, core.change
                    )
                }
                other => format!("{other:?}"),
            };
            format!("{}/{} is {what}", dir.0, name.escape_ascii())
        }
        Mutation::DelDentry { dir, name, .. } => format!("{}/{} is gone", dir.0, name.escape_ascii()),
        Mutation::PutHeader { dir, version, .. } => format!("header {} version {}", dir.0, version.0),
        other => format!("{other:.200?}"),
    }
}
