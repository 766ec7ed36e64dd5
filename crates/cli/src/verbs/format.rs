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

/// What a record's name may have (docs/FORMAT.md).
const NAME_BYTES_MAX: usize = 4096;

/// Runs the verb.
///
/// # Errors
/// The folder's refusals; exit 2 for a name or size that cannot be.
pub fn run(args: &Format_, out: &Output) -> Verdict {
    let small_file_bytes = u32::try_from(args.small_file)
        .ok()
        .filter(|bytes| *bytes <= SMALL_FILE_BYTES_MAX)
        .ok_or_else(|| Problem::new(Exit::Usage, "--small-file: at most 64K"))?;
    check_name(&args.name).map_err(|why| Problem::new(Exit::Usage, why))?;
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

/// A name stands in the middle of lines that people and scripts read.
fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("--name: empty".into()),
        _ if name.len() > NAME_BYTES_MAX => Err(format!("--name: at most {NAME_BYTES_MAX} bytes")),
        _ if name.contains(|c: char| c.is_control() || c == '/') => {
            Err(format!("--name: {name:?}: a control character or / cannot be in a name"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_into_a_line() {
        for name in ["pandofs", "x y", "für alle", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "a\nb", "a\u{7}", "a/b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        let why = "--name: \"a\\nb\": a control character or / cannot be in a name";
        assert_eq!(check_name("a\nb"), Err(why.into()));
    }
}
