//! Golden texts: each file in tests/golden is a session with the real binary, word for word.
//!
//! A line `$ pando ...` is run in an empty folder; the lines below are what it printed, stderr marked with
//! `! `, and its exit code unless 0. `## ` is a comment. `$ mkdir`, `$ write FILE TEXT` prepare. The folder's path reads `DIR`.
//! `UPDATE_GOLDEN=1 cargo test -p cli --test golden` writes what is printed now; read the difference.
//!
//! Absent: anything that mounts; that is in tests-system/.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn pando(args: &str, folder: &Path) -> String {
    let words: Vec<&str> = args.split_whitespace().collect();
    let output = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(&words)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("PATH", "/usr/bin:/bin")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        text.push_str(format!("! {line}").trim_end());
        text.push('\n');
    }
    match output.status.code() {
        Some(0) => {}
        Some(code) => text.push_str(&format!("exit {code}\n")),
        None => text.push_str("killed\n"),
    }
    let folder = folder.canonicalize().expect("the folder stays");
    let text = without_id(&text.replace(&folder.display().to_string(), "DIR"));
    text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// File systems get random ids: eight digits behind the name read `ID`, a whole id reads `WHOLE-ID`.
fn without_id(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n', '"']);
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    words
        .map(|word| {
            let bare = word.trim_end_matches([' ', '\n', '"']);
            let parts: Vec<&str> = bare.split('-').collect();
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            match lengths.as_slice() {
                [8] if is_hex(bare) => word.replace(bare, "ID"),
                [8, 4, 4, 4, 12] if parts.iter().all(|part| is_hex(part)) => word.replace(bare, "WHOLE-ID"),
                _ => word.into(),
            }
        })
        .collect()
}

/// `\n` and `\xNN` in a line of a transcript.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let taken = match rest.as_bytes() {
            [b'n', ..] => {
                bytes.push(b'\n');
                1
            }
            [b'x', _, _, ..] => {
                bytes.push(u8::from_str_radix(&rest[1..3], 16).expect("two hex digits"));
                3
            }
            _ => panic!("unknown escape in {text}"),
        };
        rest = &rest[taken..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

fn run(line: &str, folder: &Path) -> String {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "pando" => pando(rest, folder),
        "mkdir" => fs::create_dir_all(folder.join(rest)).map(|()| String::new()).expect("a folder"),
        "write" => {
            let (file, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let path = folder.join(file);
            fs::write(path, unescape(text)).map(|()| String::new()).expect("a file")
        }
        "cat" => fs::read_to_string(folder.join(rest)).expect("a file"),
        _ => panic!("unknown golden command {word}"),
    }
}

/// Runs the commands of one transcript; what it should read.
fn replay(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut now = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            now.push_str(&format!("{line}\n{}", run(command, folder.path())));
        } else if line.starts_with("## ") {
            now.push_str(&format!("{line}\n"));
        }
    }
    now
}

#[test]
fn every_transcript_reads_as_written() {
    // Cargo runs a test in its crate's folder.
    let folder = fs::canonicalize("tests/golden").expect("tests/golden is there");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut seen = 0;
    let mut different = Vec::new();
    for entry in fs::read_dir(&folder).expect("tests/golden is there") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a text");
        let now = replay(&text);
        seen += 1;
        if update {
            fs::write(&path, &now).expect("written");
        } else if text.lines().filter(|l| !l.is_empty()).ne(now.lines().filter(|l| !l.is_empty())) {
            different.push(format!("--- {}\n{now}", path.display()));
        }
    }
    assert!(seen > 0, "no transcripts in {}", folder.display());
    assert!(different.is_empty(), "these sessions now read:\n{}", different.join("\n"));
}
