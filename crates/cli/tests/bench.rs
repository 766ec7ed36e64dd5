//! `pando bench` as programs use it: JSON alone on stdout, and errors in the form of every other verb's.
//!
//! Absent: figures; a text with rates cannot be golden.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn bench(words: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando"))
        .arg("bench")
        .args(words.split(' '))
        .current_dir(folder)
        .output()
        .expect("the binary runs")
}

#[test]
fn with_json_there_is_nothing_else_on_stdout() {
    let folder = tempfile::tempdir().expect("a folder");
    for words in [
        "survey ./a --files 10 --format json",
        "survey ./b --files 10 --json",
        "survey ./r --ranks 2 --threads 3 --dirs 6 --files 10 --json",
        "steady ./c --groups a,b --dirs 2 --seconds 1 --json",
        "steady ./c --groups a --to b --dirs 2 --seconds 1 --json",
        "steady ./c --groups a,b --dirs 2,1 --seconds 1 --calls calls --json",
        "list ./a --entries 10 --seconds 1 --listers 0 --json",
        "rm absent/x --files 2 --json",
        "step --files 10 --dirs 1 --json",
        "calls ./c --files 10 --threads 2 --json",
        "calls ./c --files 10 --depth 4 --prefix deep --json",
        "calls ./c --files 10 --paths --prefix paths --json",
        "crowd ./c --entries 10 --listers 1 --seconds 1 --json",
        "crowd --path . --entries 10 --listers 1 --seconds 1 --json",
    ] {
        let output = bench(words, folder.path());
        let value: Value = serde_json::from_slice(&output.stdout).expect(words);
        assert_eq!((value["schema"].as_u64(), output.status.code()), (Some(1), Some(0)), "{words}");
    }
}

/// What broke: names that a run before had left failed the creates of the next one.
#[test]
fn a_steady_load_writes_each_call_and_meets_no_names_of_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "steady ./c --groups a,b --dirs 2,1 --seconds 1 --calls calls --json";
    for _ in 0..2 {
        let value: Value = serde_json::from_slice(&bench(words, folder.path()).stdout).expect(words);
        let written = std::fs::read_to_string(folder.path().join("calls")).expect("the calls");
        for all in value["all"].as_array().expect("groups") {
            let of =
                |group: &str| written.lines().filter(|line| line.split(' ').nth(2) == Some(group)).count();
            let counted = of(all["group"].as_str().expect("a name")) as u64;
            assert!(counted > 0 && all["ops"] == counted && all["errors"] == 0, "{all}: {counted}");
        }
        assert!(written.lines().all(|line| line.split(' ').count() == 6 && line.ends_with(" ok")));
    }
}

/// What cannot be run is refused before anything is made.
#[test]
fn contradictions_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, expected) in [
        ("calls ./c --procs 2", "more than one process needs a server"),
        ("calls ./c --paths --depth 2", "--paths needs --depth 1"),
        ("proxy --listen /x --to unix:y", "not unix:PATH or HOST"),
        ("sessions unix:absent --watch-pid 1", "no server at unix:absent"),
        ("steady ./c --groups a,b,c --dirs 1,2", "--dirs: one number, or as many as --groups"),
        ("step --dirs 0", "--dirs must be between 1 and --files"),
    ] {
        let output = bench(words, folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{words}: {said}");
    }
}

#[test]
fn a_second_run_on_the_files_of_the_first_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "memory ./m --files 10 --dirs 1";
    assert_eq!(bench(words, folder.path()).status.code(), Some(0));
    let output = bench(words, folder.path());
    let expected = "pando bench: ./m: the files of an earlier run are there\n  \
        do: name another folder, or remove this one first\n";
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (expected, Some(5)));
}
