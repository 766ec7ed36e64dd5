//! `pando fsck`: what the independent checker (crate `fsck`) finds in a folder that nobody serves, and
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
    let report =
        if args.repair { fsck::repair(&args.dir, &RepairOptions::default()) } else { fsck::check(&args.dir) };
    match report {
        Ok(report) => {
            let unreadable =
                report.findings.iter().any(|finding| finding.kind == Kind::EnvironmentUnreadable);
            Ok(show(&report, unreadable.then(|| restore(args)), out))
        }
        Err(error) => match refused(args, &error) {
            Some((report, step)) => {
                // Only a part of it was judged.
                let open = if matches!(error, FsckError::Undecided { .. }) { OPERATIONAL } else { 0 };
                Ok(show(report, Some(step), out) | open)
            }
            None => Err(explain(args, &error)),
        },
    }
}

/// A repair that did not begin, because it would lose what can be had back, or that a server has to go on with: what a check finds is
/// left, and the step.
fn refused<'a>(args: &Fsck, error: &'a FsckError) -> Option<(&'a Report, String)> {
    let (report, what) = match error {
        FsckError::JournalDamaged { report, .. } => {
            (report, "a damaged journal, what is behind the damage would be lost")
        }
        FsckError::EnvironmentUnreadable { report, .. } => {
            (report, "a folder without one of its environments")
        }
        FsckError::Undecided { report, count, .. } if !report.is_clean() || report.is_changed() => {
            return Some((report, serve_once(args, *count)));
        }
        _ => return None,
    };
    Some((report, format!("{}; `--repair` does not touch {what}", restore(args))))
}

/// What ends transactions of several ranks, where more is to be said than that they are under way.
fn serve_once(args: &Fsck, count: usize) -> String {
    let (dir, restore) = (args.dir.display(), restore(args));
    let (first, again) = match args.repair {
        true => (String::new(), "repair again"),
        false => (
            format!("`pando fsck --repair {dir}` for what keeps a server from starting, then "),
            "check again",
        ),
    };
    format!(
        "{first}serve {dir} once, which ends transactions of several ranks ({}), stop it and {again}; if it does not start, {restore}",
        grouped(count as u64)
    )
}

/// Tells a report, and what to do about what only a backup can bring back. The exit code.
fn show(report: &Report, step: Option<String>, out: &Output) -> u8 {
    for finding in &report.fixed {
        write_err(&line(finding, "corrected: ", out.verbose > 0));
    }
    let (shown, following) = told(report, out.verbose > 0);
    for finding in shown {
        write_err(&line(finding, "", out.verbose > 0));
    }
    if following > 0 {
        let following = grouped(following as u64);
        write_err(&format!(
            "pando fsck: {following} more findings that may follow from it (`-v` lists them)\n"
        ));
    }
    for note in &report.notes {
        out.detail(&line(note, "note: ", true));
    }
    let unshown = report.more + report.more_fixed;
    if unshown > 0 {
        write_err(&format!("pando fsck: {} more findings\n", grouped(unshown)));
    }
    if let Some(step) = step {
        write_err(&format!("  do: {step}\n"));
    }
    if !out.quiet || out.format == crate::output::Format::Json {
        out.result(&summary(report), json(report));
    }
    let left = if report.findings.is_empty() { 0 } else { LEFT };
    let corrected = if report.fixed.is_empty() { 0 } else { CORRECTED };
    left | corrected
}

/// The findings that are listed, and how many are not: where records could not be read, those that miss them are legion.
fn told(report: &Report, all: bool) -> (Vec<&Finding>, usize) {
    let hidden = !all && report.findings.iter().any(|finding| finding.kind.hides_records());
    let (following, shown): (Vec<&Finding>, Vec<&Finding>) =
        report.findings.iter().partition(|finding| hidden && finding.kind.may_follow());
    (shown, following.len())
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
        // It keeps servers out by a lock, and LMDB opens its files for writing.
        FsckError::Io { source, .. } if source.kind() == ErrorKind::ReadOnlyFilesystem => {
            problem.do_this("remount its disk writable, or check a copy")
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_that_is_refused_leaves_what_a_check_finds() {
        let args = Fsck { dir: "./d".into(), repair: true };
        let finding = Finding {
            kind: Kind::JournalEntryDamaged,
            place: "journal/00000012 at 0x3f010".into(),
            detail: "2 operations after seq 88123 unreadable".into(),
        };
        let text = "pando fsck: journal/00000012 at 0x3f010: checksum mismatch (2 operations after seq 88123 unreadable)\n";
        assert_eq!(line(&finding, "", false), text);
        let report = Report { findings: vec![finding], ..Report::default() };
        let error =
            FsckError::JournalDamaged { dir: "./d".into(), what: String::new(), report: report.into() };
        let (report, step) = refused(&args, &error).expect("refused");
        let expected = "restore ./d from a backup; `--repair` does not touch a damaged journal, \
            what is behind the damage would be lost";
        assert_eq!(step, expected);
        assert_eq!(show(report, Some(step), &Output { quiet: true, ..Output::default() }), LEFT);
        // A disk that is away is no damage.
        let away = FsckError::PartForeign { dir: "./d".into(), part: "data".into() };
        assert!(refused(&args, &away).is_none());
        assert_eq!(explain(&args, &away).code, OPERATIONAL);
    }

    /// A server ended no transaction of a folder that it did not open, and a check said nothing but that a server has to end them.
    #[test]
    fn damage_is_told_beside_transactions_that_are_not_over() {
        let mut args = Fsck { dir: "./d".into(), repair: false };
        let undecided =
            |report: Report| FsckError::Undecided { dir: "./d".into(), count: 2, report: report.into() };
        let quiet = undecided(Report::default());
        assert!(refused(&args, &quiet).is_none());
        assert_eq!(explain(&args, &quiet).code, OPERATIONAL);
        let finding = Finding { kind: Kind::IncarnationDamaged, place: "p".into(), detail: String::new() };
        let damaged = undecided(Report { findings: vec![finding.clone()], ..Report::default() });
        let (_, step) = refused(&args, &damaged).expect("told");
        assert!(step.starts_with("`pando fsck --repair ./d` for"), "{step}");
        args.repair = true;
        let mended = undecided(Report { fixed: vec![finding], ..Report::default() });
        let (_, step) = refused(&args, &mended).expect("told");
        let expected = "serve ./d once, which ends transactions of several ranks (2), stop it and repair again; \
            if it does not start, restore ./d from a backup";
        assert_eq!(step, expected);
    }

    /// What broke: one damaged entry of the journal, in 929 lines.
    #[test]
    fn what_may_follow_from_damage_does_not_bury_it() {
        let finding = |kind| Finding { kind, place: "p".into(), detail: String::new() };
        let findings = [Kind::DataLeaked, Kind::ValueDamaged, Kind::DataLeaked].map(finding).into();
        let mut report = Report { findings, ..Report::default() };
        assert_eq!(told(&report, false).0.len(), 3, "nothing that it could follow from");
        report.findings.push(finding(Kind::JournalEntryDamaged));
        let (shown, following) = told(&report, false);
        let kinds: Vec<Kind> = shown.iter().map(|finding| finding.kind).collect();
        assert_eq!((kinds, following), (vec![Kind::ValueDamaged, Kind::JournalEntryDamaged], 2));
        assert_eq!(told(&report, true).1, 0);
    }

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
