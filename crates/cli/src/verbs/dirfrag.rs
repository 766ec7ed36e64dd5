//! `pando dirfrag`: the parts of a directory's names, and which rank has each.
//!
//! Absent: who divides a directory and puts it together (crate `mds`).

use crate::args::Dirfrag;
use crate::output::{Output, table};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::verbs::fs::changed;
use crate::verbs::subtree::directory;
use crate::{ANSWER_TIME, admin};
use serde_json::{Value, json};
use std::path::Path;

/// What the rank that has a directory's inode says of its parts.
const XATTR: &str = "pando.dir.owner";

/// Runs the verb. `server`: the one behind a path.
///
/// # Errors
/// No mount, no server, its refusals.
pub fn run(
    verb: &Dirfrag,
    server: impl FnOnce(Option<&Path>) -> Result<Source, Problem>,
    out: &Output,
) -> Verdict {
    match verb {
        Dirfrag::Ls { path } => {
            let text =
                runtime::process::xattr(path, XATTR).map_err(|error| Problem::io(path.display(), &error))?;
            let parts = parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
                Problem::new(Exit::Failed, format!("{}: {XATTR} is not understood", path.display()))
            })?;
            let mut rows = vec![vec!["FRAG".to_owned(), "RANK".to_owned()]];
            rows.extend(parts.iter().map(|(frag, rank)| vec![frag.clone(), rank.to_string()]));
            let json: Vec<Value> =
                parts.iter().map(|(frag, rank)| json!({"frag": frag, "rank": rank})).collect();
            out.result(&table(&rows), json!({"dirfrags": json}));
        }
        Dirfrag::Split { path, bits } => {
            let command = json!({"cmd": "dirfrag split", "ino": directory(path)?, "bits": bits});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
        Dirfrag::Merge { path } => {
            let command = json!({"cmd": "dirfrag merge", "ino": directory(path)?});
            changed(admin::ask(&server(Some(path))?, &command, ANSWER_TIME)?, out);
        }
    }
    Ok(0)
}

/// `PREFIX/BITS=RANK,...`
fn parse(text: &str) -> Option<Vec<(String, u16)>> {
    let part = |part: &str| {
        let (frag, rank) = part.split_once('=')?;
        Some((frag.to_owned(), rank.parse().ok()?))
    };
    text.split(',').map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_ranks_say_them() {
        let parts = parse("0x0/1=0,0x8000000000000000/1=12");
        assert_eq!(parts, Some(vec![("0x0/1".into(), 0), ("0x8000000000000000/1".into(), 12)]));
        for odd in ["", "0x0/1", "0x0/1=x", "0x0/0=0,"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
