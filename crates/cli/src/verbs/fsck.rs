//! `pando fsck`: what the independent checker (room `fsck`) finds in a folder that nobody serves, and
//! fsck(8)'s exit codes.
//!
//! Absent: checking and repairing.

use crate::args::Fsck;
use crate::output::{Output, grouped, write_err};
use crate::place;
use crate::problem::{Problem, Verdict, chain, words};
use fsck::{Finding, FsckError, Kind, RepairOptions, Report};
use serde_json::json;
use std::io::ErrorKind;

/// fsck(8)'s bits.
const CORRECTED: u8 = 1;
const LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;

/// Runs the verb.
///
/// # Errors
/// The folder cannot be examined at all (exit 8).
pub fn run(args: &Fsck, out: &Output) -> Verdict {
    // The exit codes here are fsck(8)'s.
    place::expect_existing(&args.dir, "fsck DIR")
        .map_err(|problem| Problem { code: OPERATIONAL, ..problem })?;
    let report = match args.repair {
        // Never the options that give something up: who wants that must know more than a flag says.
        true => fsck::repair(&args.dir, &RepairOptions::default()),
        false => fsck::check(&args.dir),
    };
    let report = report.map_err(|error| explain(args, &error))?;
    for finding in &report.fixed {
        write_err(&line(finding, "corrected: ", out.verbose > 0));
    }
    for finding in &report.findings {
        write_err(&line(finding, "", out.verbose > 0));
    }
    for note in &report.notes {
        out.detail(&line(note, "note: ", true));
    }
    let unshown = report.more + report.more_fixed;
    if unshown > 0 {
        write_err(&format!("pando fsck: {} more findings\n", grouped(unshown)));
    }
    if report.findings.iter().any(|finding| finding.kind == Kind::EnvironmentUnreadable) {
        write_err(&format!("  do: {}\n", restore(args)));
    }
    if !out.quiet || out.format == crate::output::Format::Json {
        out.result(&summary(&report), json(&report));
    }
    let left = if report.findings.is_empty() { 0 } else { LEFT };
    let corrected = if report.fixed.is_empty() { 0 } else { CORRECTED };
    Ok(left | corrected)
}

/// `pando fsck: journal/00000012 at 0x3f010: checksum mismatch (2 operations after seq 88123 unreadable)`
fn line(finding: &Finding, done: &str, with_code: bool) -> String {
    let code = if with_code { format!("{} ", finding.kind.code()) } else { String::new() };
    let detail =
        if finding.detail.is_empty() { String::new() } else { format!(" ({})", words(&finding.detail)) };
    format!("pando fsck: {done}{code}{}: {}{detail}\n", finding.place, finding.kind.text())
}

fn summary(report: &Report) -> String {
    let findings = report.findings.len() as u64 + report.more;
    let fixed = report.fixed.len() as u64 + report.more_fixed;
    let state = match (findings, fixed) {
        (0, 0) => "clean".into(),
        (0, _) => format!("{} errors corrected", grouped(fixed)),
        (_, 0) => format!("{} errors", grouped(findings)),
        _ => format!("{} errors left, {} corrected", grouped(findings), grouped(fixed)),
    };
    let tidied = match report.tidied {
        0 => String::new(),
        count => format!(", {} leftovers of a crash removed", grouped(count)),
    };
    format!(
        "{state}{tidied}: {} directories, {} files, {} operations in the journal",
        grouped(report.directories),
        grouped(report.files),
        grouped(report.journal_operations)
    )
}

fn json(report: &Report) -> serde_json::Value {
    let list = |findings: &[Finding]| -> Vec<serde_json::Value> {
        let one = |f: &Finding| json!({"code": f.kind.code(), "place": f.place, "what": f.kind.text(), "detail": f.detail});
        findings.iter().map(one).collect()
    };
    json!({
        "clean": report.findings.is_empty(),
        "findings": list(&report.findings),
        "more": report.more,
        "notes": list(&report.notes),
        "more_notes": report.more_notes,
        "tidied": report.tidied,
        "fixed": list(&report.fixed),
        "more_fixed": report.more_fixed,
        "directories": report.directories,
        "files": report.files,
        "data_objects": report.data_objects,
        "journal_operations": report.journal_operations,
    })
}

/// What only a backup can bring back: the record and whole environments have no second copy.
fn restore(args: &Fsck) -> String {
    format!("restore {} from a backup", args.dir.display())
}

fn explain(args: &Fsck, error: &FsckError) -> Problem {
    let problem = Problem { code: OPERATIONAL, what: chain(error), step: None };
    match error {
        FsckError::JournalDamaged { .. } => {
            problem.do_this("restore the folder from a backup; what is behind the damage would be lost")
        }
        FsckError::PartForeign { .. } => {
            problem.do_this("is the disk mounted? else restore it from a backup")
        }
        FsckError::InUse { .. } => problem.do_this("unmount it, or stop its server, first"),
        FsckError::HalfRestored(dir) => {
            problem.do_this(format!("restore again: `pando backup restore FILE {}`", dir.display()))
        }
        FsckError::NoFileSystem(dir) => {
            problem.do_this(format!("is the disk mounted? else `pando format {}`", dir.display()))
        }
        lost if lost.wants_backup() => problem.do_this(restore(args)),
        FsckError::Io { source, .. } if source.kind() == ErrorKind::NotADirectory => {
            problem.do_this("name a folder")
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_told_and_is_no_error() {
        let mut report = Report { tidied: 1_111, ..Report::default() };
        let counts = "0 directories, 0 files, 0 operations in the journal";
        assert_eq!(summary(&report), format!("clean, 1,111 leftovers of a crash removed: {counts}"));
        report.more_fixed = 2;
        assert_eq!(
            summary(&report),
            format!("2 errors corrected, 1,111 leftovers of a crash removed: {counts}")
        );
    }
}
