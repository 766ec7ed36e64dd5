//! `pando fsck`: what the independent checker (room `fsck`) finds in a folder that nobody serves, and
//! fsck(8)'s exit codes.
//!
//! Absent: checking; repair, until the checker can.

use crate::args::Fsck;
use crate::output::{Output, grouped, write_err};
use crate::problem::{Problem, Verdict, chain};
use fsck::{Finding, FsckError, Report};
use serde_json::json;

/// fsck(8)'s bits.
const LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;

/// Runs the verb.
///
/// # Errors
/// The folder cannot be examined at all (exit 8).
pub fn run(args: &Fsck, out: &Output) -> Verdict {
    let report = fsck::check(&args.dir).map_err(|error| explain(args, &error))?;
    for finding in &report.findings {
        write_err(&line(finding, out.verbose > 0));
    }
    if report.more > 0 {
        write_err(&format!("pando fsck: {} more findings\n", grouped(report.more)));
    }
    if !out.quiet || out.format == crate::output::Format::Json {
        out.result(&summary(&report), json(&report));
    }
    Ok(if report.is_clean() { 0 } else { LEFT })
}

/// `pando fsck: journal/00000012 at 0x3f010: checksum mismatch (2 operations after seq 88123 unreadable)`
fn line(finding: &Finding, with_code: bool) -> String {
    let code = if with_code { format!("{} ", finding.kind.code()) } else { String::new() };
    let detail = if finding.detail.is_empty() { String::new() } else { format!(" ({})", finding.detail) };
    format!("pando fsck: {code}{}: {}{detail}\n", finding.place, finding.kind.text())
}

fn summary(report: &Report) -> String {
    let findings = report.findings.len() as u64 + report.more;
    let state = if findings == 0 { "clean".into() } else { format!("{} errors", grouped(findings)) };
    format!(
        "{state}: {} directories, {} files, {} operations in the journal",
        grouped(report.directories),
        grouped(report.files),
        grouped(report.journal_operations)
    )
}

fn json(report: &Report) -> serde_json::Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|f| json!({"code": f.kind.code(), "place": f.place, "what": f.kind.text(), "detail": f.detail}))
        .collect();
    json!({
        "clean": report.is_clean(),
        "findings": findings,
        "more": report.more,
        "directories": report.directories,
        "files": report.files,
        "journal_operations": report.journal_operations,
    })
}

fn explain(args: &Fsck, error: &FsckError) -> Problem {
    let problem = Problem { code: OPERATIONAL, what: chain(error), step: None };
    match error {
        FsckError::InUse { .. } => problem.do_this("unmount it, or stop its server, first"),
        FsckError::RecordDamaged(_) => {
            problem.do_this(format!("restore {} from a backup", args.dir.display()))
        }
        _ => problem,
    }
}
