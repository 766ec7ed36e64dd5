//! Results on stdout, plain or JSON; messages on stderr unless `-q`.
//!
//! Absent: the form of errors (`problem.rs`).

use serde_json::{Value, json};
use std::io::Write;

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Plain,
    Json,
}

/// Where a verb writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    pub format: Format,
    pub quiet: bool,
    pub verbose: u8,
}

impl Output {
    #[must_use]
    pub const fn new(format: Format, quiet: bool, verbose: u8) -> Self {
        Self { format, quiet, verbose }
    }

    /// A result: the plain text, or the JSON object with `"schema":1` first.
    pub fn result(&self, plain: &str, json: Value) {
        let _reader_or_not = self.another(plain, json);
    }

    /// One of many results. Whether somebody reads them still.
    pub fn another(&self, plain: &str, json: Value) -> bool {
        match self.format {
            Format::Plain => written(plain),
            Format::Json => written(&with_schema(json).to_string()),
        }
    }

    /// A message for a person on stderr.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            write_err(text);
        }
    }

    /// A message only with `-v`.
    pub fn detail(&self, text: &str) {
        if self.verbose > 0 {
            write_err(text);
        }
    }
}

/// Adds `"schema":1`; a value that is not an object becomes `result`.
fn with_schema(json: Value) -> Value {
    match json {
        Value::Object(mut object) => {
            object.insert("schema".into(), json!(1));
            Value::Object(object)
        }
        other => json!({"schema": 1, "result": other}),
    }
}

/// Writes text and a line end to stdout. A reader that went away (`pando x | head`) is no error.
pub fn write_out(text: &str) {
    let _gone = written(text);
}

fn written(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let line_end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    write!(out, "{text}{line_end}").and_then(|()| out.flush()).is_ok()
}

/// The same to stderr.
pub fn write_err(text: &str) {
    let mut err = std::io::stderr().lock();
    let _gone = write!(err, "{text}{}", if text.ends_with('\n') || text.is_empty() { "" } else { "\n" });
}

/// Columns, two spaces apart; the last one is not padded. The first row is the header.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Bytes in the unit a person reads: `1.5 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value} B"),
        _ => format!("{scaled:.1} {}", units[unit]),
    }
}

/// Digits in groups: `20,000`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_always_carries_the_schema() {
        assert_eq!(with_schema(json!({"a": 1})), json!({"schema": 1, "a": 1}));
        assert_eq!(with_schema(json!([1])), json!({"schema": 1, "result": [1]}));
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["ID".into(), "HOST".into()], vec!["1234".into(), "a".into()]];
        assert_eq!(table(&rows), "ID    HOST\n1234  a\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (grouped(7), grouped(20_000), grouped(1_234_567)),
            ("7".into(), "20,000".into(), "1,234,567".into())
        );
        assert_eq!((bytes(512), bytes(1_610_612_736)), ("512 B".into(), "1.5 GiB".into()));
    }
}
