//! The mount options as `pando mount --help` and the man pages show them, from the parser's own table.
//!
//! Absent: what they do (crate `fuse`).

use fuse::adapter::{OPTION_LINES, OptionLine};

/// Where the explanations stand in help.
const COLUMN: usize = 28;

fn shown() -> impl Iterator<Item = &'static OptionLine> {
    OPTION_LINES.iter().filter(|line| !line.help.is_empty())
}

/// For help.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Mount options:\n");
    for line in shown() {
        if line.shown.len() < COLUMN - 1 {
            text.push_str(&format!("  {:COLUMN$}{}\n", line.shown, line.help));
        } else {
            text.push_str(&format!("  {}\n  {:COLUMN$}{}\n", line.shown, "", line.help));
        }
    }
    text.push_str("Later ones win. What is not here: `unknown mount option NAME`.");
    text
}

/// A section of a man page.
#[must_use]
pub fn roff() -> String {
    let safe = |text: &str| text.replace('-', "\\-");
    let entry = |line: &OptionLine| format!(".TP\n.B {}\n{}\n", safe(line.shown), safe(line.help));
    format!(".SH MOUNT OPTIONS\n{}", shown().map(entry).collect::<String>())
}
