//! Operators' commands about parts of directories: `dirfrag split`, `merge`.
//!
//! Absent: `dirfrag ls`, which looks at the mount (crate `cli`); how a directory is spread and merged (crate `mds`).

use crate::admin::{done, refusal, refusal_with};
use crate::server::Server;
use crate::subtree::{feed, number, owner_of};
use mds::input::Input;
use proto::Ino;
use proto::admin::Refusal;
use proto::header::SPREAD_DEPTH_MAX;
use serde_json::{Value, json};

/// Has the rank that owns a directory's content divide it into parts for several ranks. What comes of it `dirfrag ls` shows, or the
/// log.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn split(server: &Server, command: &Value) -> Result<Value, Value> {
    let (dir, bits) = (Ino(number(command, "ino")?), number(command, "bits")?);
    let usage = |what: &str| refusal(Refusal::Usage, what);
    if dir.is_reserved() || dir == Ino::ROOT {
        return Err(usage("the root directory stays in one part"));
    }
    let depth = u8::try_from(bits).ok().filter(|depth| (1..=SPREAD_DEPTH_MAX).contains(depth));
    let depth = depth.ok_or_else(|| usage(&format!("{bits} bits: 1 to {SPREAD_DEPTH_MAX}")))?;
    let owner = owner_of(server, dir)?;
    let state = owner.driver.report(&json!({ "cmd": "spread", "ino": dir.0 })).unwrap_or_default();
    if state["busy"].as_bool() == Some(true) {
        let step = "look at `pando dirfrag ls PATH`";
        return Err(refusal_with(Refusal::State, "it is being divided or put together already", step));
    }
    let before = state["depth"].as_u64().unwrap_or(0);
    if before > 0 {
        let text = format!("its names are in {} parts already", 1_u64 << before);
        let step = "`pando dirfrag merge PATH`, and try again when they are in one part";
        return Err(refusal_with(Refusal::State, &text, step));
    }
    feed(server, &owner, Input::Spread { dir, depth });
    let rank = owner.identity.rank;
    let text = format!(
        "rank {} divides it into {} parts: `pando dirfrag ls` shows who has them",
        rank.0,
        1 << depth
    );
    Ok(done(json!({ "text": text, "rank": rank.0, "bits": depth, "ino": dir.0 })))
}

/// Has the rank that owns a directory's content put it together again. What comes of it `dirfrag ls` shows, or the log.
///
/// # Errors
/// What is refused, to the operator.
pub(crate) fn merge(server: &Server, command: &Value) -> Result<Value, Value> {
    let dir = Ino(number(command, "ino")?);
    if dir.is_reserved() || dir == Ino::ROOT {
        return Err(refusal(Refusal::Usage, "the root directory is in one part"));
    }
    let owner = owner_of(server, dir)?;
    let state = owner.driver.report(&json!({ "cmd": "spread", "ino": dir.0 })).unwrap_or_default();
    let is = |what: &str| state[what].as_bool() == Some(true);
    let refused = |what: &str, step: &str| Err(refusal_with(Refusal::State, what, step));
    if is("busy") {
        return refused("it is being divided or put together already", "look at `pando dirfrag ls PATH`");
    }
    if state["depth"].as_u64().unwrap_or(0) == 0 {
        return Err(refusal(Refusal::State, "its names are in one part"));
    }
    if is("distributed") {
        let step = "`setfattr -n ceph.dir.pin.distributed -v 0 PATH`, and try again";
        return refused("`dir.pin.distributed` is set", step);
    }
    feed(server, &owner, Input::Merge { dir });
    let rank = owner.identity.rank;
    let text = format!("rank {} puts it together: `pando dirfrag ls` shows its parts until then", rank.0);
    Ok(done(json!({ "text": text, "rank": rank.0, "ino": dir.0 })))
}
