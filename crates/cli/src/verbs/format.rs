//! `pando format`: makes an empty folder a file system.
//!
//! Absent: overwriting anything; a folder that holds something is refused.

use crate::args::Format_;
use crate::output::Output;
use crate::place;
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::verbs::mount::created_line;
use store::data::SMALL_FILE_BYTES_MAX;
use store::folder::FormatOptions;

/// Runs the verb.
///
/// # Errors
/// The folder's refusals.
pub fn run(args: &Format_, out: &Output) -> Verdict {
    let small_file_bytes = u32::try_from(args.small_file)
        .ok()
        .filter(|bytes| *bytes <= SMALL_FILE_BYTES_MAX)
        .ok_or_else(|| Problem::new(Exit::Usage, "--small-file: at most 64K"))?;
    let options = FormatOptions {
        name: args.name.clone(),
        meta_dir: args.meta_dir.clone(),
        journal_dir: args.journal_dir.clone(),
        data_dir: args.data_dir.clone(),
        small_file_bytes,
        ..place::format_options()
    };
    let (name, fsid) = place::format(&args.dir, &options)?;
    let json = place::created_json(&name, &fsid, &args.dir);
    out.result(&created_line(&json, &Source::Folder(args.dir.clone())), json);
    Ok(0)
}
