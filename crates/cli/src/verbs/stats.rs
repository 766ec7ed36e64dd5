//! `pando stats MNT`: what one mount does, line by line; `vmstat` for a mount.
//!
//! The numbers are the mount's own (`pando.stats` of its root): whoever mounted is told, whatever server it has.
//! Absent: what the server knows of this client (`pando client info`), and of all (`pando top`).

use crate::args::Stats;
use crate::output::{Format, Output, bytes, grouped};
use crate::problem::{Exit, Problem, Verdict};
use crate::{mount_status, mounts};
use serde_json::{Value, json};
use std::time::Duration;

/// The header comes again after so many lines.
const HEADER_EVERY: u64 = 20;

/// The columns, with their width.
const COLUMNS: [(&str, usize); 14] = [
    ("REQ/s", 9),
    ("MEAN", 9),
    ("ASKED/s", 9),
    ("ALONE/s", 9),
    ("PERFORM/s", 9),
    ("KEPT", 6),
    ("WAITING", 7),
    ("NODES", 10),
    ("CAPS", 10),
    ("RECALLS/s", 9),
    ("CACHED", 9),
    ("RD/s", 10),
    ("WR/s", 10),
    ("ERRORS", 6),
];

/// Runs the verb: until it is interrupted or has printed as many lines as it should.
///
/// # Errors
/// No mount there, somebody else's, or one that ended.
pub fn run(args: &Stats, out: &Output) -> Verdict {
    if args.raw {
        return mount_status::tell_raw(&args.mountpoint);
    }
    let place = args.mountpoint.display().to_string();
    let Some(mount) = mounts::containing(&args.mountpoint) else {
        let what = format!("{place}: not in a PandoFS mount");
        return Err(Problem::new(Exit::State, what).do_this("`pando mount SOURCE MNT`"));
    };
    let mut before = mount_status::look(&mount.path, &place)?;
    let mut lines = 0;
    while args.count.is_none_or(|count| lines < count) {
        std::thread::sleep(Duration::from_millis(args.interval));
        let now = mount_status::look(&mount.path, &place)?;
        let line = between(&before, &now);
        let header = lines % HEADER_EVERY == 0 && !out.quiet && out.format == Format::Plain;
        let text = if header { format!("{}{}", header_of(&now), shown(&line)) } else { shown(&line) };
        if !out.another(&text, line) {
            break;
        }
        if let Some(problem) = mount_status::ended(&now, &place) {
            return Err(problem);
        }
        before = now;
        lines += 1;
    }
    Ok(0)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// What happened between two looks. If the daemon is another one by now, since it began.
fn between(before: &Value, now: &Value) -> Value {
    let none = json!({});
    let before = if number(before, "ms") <= number(now, "ms") { before } else { &none };
    let ms = number(now, "ms").saturating_sub(number(before, "ms")).max(1);
    let more = |key: &str| number(now, key).saturating_sub(number(before, key));
    let rate = |count: u64| (u128::from(count) * 1000 / u128::from(ms)) as u64;
    let (requests, asked, performed) = (more("requests"), more("asked"), more("performed"));
    let mut line = json!({
        "interval_ms": ms,
        "transport": now["transport"],
        "requests_per_s": rate(requests),
        "request_mean_us": more("request_ns").checked_div(requests).unwrap_or(0) as f64 / 1000.0,
        "asked_per_s": rate(asked),
        "performed_per_s": rate(performed),
        "alone_per_s": rate(requests.saturating_sub(asked).saturating_sub(performed)),
        "recalls_per_s": rate(more("recalls")),
        "read_bytes_per_s": rate(more("read_bytes")),
        "written_bytes_per_s": rate(more("written_bytes")),
        "failed_per_s": rate(more("failed")),
        "errors": more("errors") + more("late"),
        "losses": more("losses"),
    });
    for key in ["kept", "waiting", "delegated", "nodes", "caps", "open_files", "cached_files"] {
        line[key] = number(now, key).into();
    }
    line
}

fn header_of(now: &Value) -> String {
    let names: Vec<String> = COLUMNS.iter().map(|(name, width)| format!("{name:>width$}")).collect();
    format!("{}  {}\n", names.join(" "), now["transport"].as_str().unwrap_or("").to_uppercase())
}

fn shown(line: &Value) -> String {
    let count = |key: &str| grouped(number(line, key));
    let cells = [
        count("requests_per_s"),
        format!("{:.0} us", line["request_mean_us"].as_f64().unwrap_or(0.0)),
        count("asked_per_s"),
        count("alone_per_s"),
        count("performed_per_s"),
        count("kept"),
        count("waiting"),
        count("nodes"),
        count("caps"),
        count("recalls_per_s"),
        count("cached_files"),
        bytes(number(line, "read_bytes_per_s")),
        bytes(number(line, "written_bytes_per_s")),
        count("errors"),
    ];
    let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    format!("{}\n", cells.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_happened_between_two_looks() {
        let before =
            json!({"ms": 1000, "requests": 10, "request_ns": 1_000, "asked": 4, "errors": 1, "nodes": 7});
        let now = json!({
            "ms": 3000, "transport": "io_uring", "requests": 4_010, "request_ns": 48_001_000, "asked": 1_004,
            "performed": 1_000, "errors": 2, "late": 1, "nodes": 9, "caps": 8, "read_bytes": 4096, "kept": 3
        });
        let line = between(&before, &now);
        let numbers = ["requests_per_s", "asked_per_s", "performed_per_s", "alone_per_s", "errors", "nodes"];
        assert_eq!(numbers.map(|key| number(&line, key)), [2000, 500, 500, 1000, 2, 9]);
        assert_eq!(line["request_mean_us"], 12.0);
        let text = format!("{}{}", header_of(&now), shown(&line));
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let header = lines.next().unwrap_or_default();
        assert_eq!(header.len(), COLUMNS.len() + 1);
        assert_eq!(header.last(), Some(&"IO_URING"));
        let cells = ["2,000", "12", "us", "500", "1,000", "500", "3", "0", "9", "8", "0", "0", "2.0"];
        assert_eq!(lines.next().unwrap_or_default()[..13], cells);
    }

    #[test]
    fn another_daemon_has_counted_from_its_beginning() {
        let line = between(&json!({"ms": 9000, "requests": 500}), &json!({"ms": 1000, "requests": 100}));
        assert_eq!(number(&line, "requests_per_s"), 100);
    }
}
