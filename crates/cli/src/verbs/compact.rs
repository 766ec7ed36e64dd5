//! `pando compact`: a checkpoint, so that the journal is not needed, then the metadata store without its free
//! pages.
//!
//! Absent: compaction of file data, which the server does by itself all the time.

use crate::args::Compact;
use crate::output::{Output, bytes};
use crate::place;
use crate::problem::{Problem, Verdict, chain};
use crate::source::Source;
use crate::{ANSWER_TIME, admin, conf};
use serde_json::json;
use std::path::Path;
use store::folder::{Folder, SOCKET};

/// Runs the verb. `source` finds a server when no folder is named.
///
/// # Errors
/// The folder's and the server's refusals.
pub fn run(
    args: &Compact,
    source: impl FnOnce() -> Result<Source, Problem>,
    conf_file: Option<&Path>,
    out: &Output,
) -> Verdict {
    if let Some(dir) = &args.dir {
        place::expect_existing(dir, "compact DIR")?;
    }
    match &args.dir {
        Some(dir) if !admin::is_alive(&dir.join(SOCKET)) => alone(dir, conf_file, out),
        Some(dir) => by_server(&Source::Folder(dir.clone()), out),
        None => by_server(&source()?, out),
    }
}

fn by_server(source: &Source, out: &Output) -> Verdict {
    let answer = admin::ask(source, &json!({"cmd": "checkpoint"}), ANSWER_TIME)?;
    out.result("checkpoint started; free pages are given back only while nobody serves the folder", answer);
    Ok(0)
}

/// Nobody serves the folder: we do, until its journal is empty, and then nobody may.
fn alone(dir: &Path, conf_file: Option<&Path>, out: &Output) -> Verdict {
    let failed = |error: &dyn std::error::Error| Problem::failed(dir.display(), chain(error));
    let server = place::open_unheard(dir, &conf::read(conf_file)?)?;
    server.stop().map_err(|error| failed(&error))?;
    drop(server);
    let folder = Folder::open(dir).map_err(|error| place::explain(&error))?;
    let meta = folder.open_meta().map_err(|error| place::explain(&error))?;
    let mut given_back = 0;
    for index in 0..meta.environments() {
        given_back += meta.compact(index).map_err(|error| failed(&error))?;
    }
    let text = format!("{} given back", bytes(given_back));
    out.result(&text, json!({"given_back_bytes": given_back}));
    Ok(0)
}
