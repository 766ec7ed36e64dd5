//! Style as tests: size, header, banned words, `unsafe`, purity, links, citations, and that nothing of the
//! place where this was written is in it.
//!
//! Absent: formatting (rustfmt) and lints (clippy).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use tidy::documents::{anchors, citations, links, sections};
use tidy::{repo, rules, source};

fn report(rule: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

/// Rust files of the crates with their text; fixtures are not ours to judge.
fn rust() -> Vec<(std::path::PathBuf, String)> {
    let files = repo::files_ending(".rs").into_iter();
    files.filter_map(|path| repo::text(&path).map(|text| (path, text))).collect()
}

#[test]
fn files_stay_small() {
    let (mut long, mut too_long) = (Vec::new(), Vec::new());
    for (path, text) in rust() {
        let lines = source::without_tests(&text).lines().count();
        let line = format!("{}: {lines} lines", path.display());
        if lines > rules::LINES_MAX {
            too_long.push(line);
        } else if lines > rules::LINES_WANTED {
            long.push(line);
        }
    }
    if !long.is_empty() {
        println!("over {} lines, think of splitting:\n{}", rules::LINES_WANTED, long.join("\n"));
    }
    report(&format!("files over {} lines", rules::LINES_MAX), &too_long);
}

#[test]
fn every_file_opens_with_its_duty_and_what_is_absent() {
    let mut wrong = Vec::new();
    for (path, text) in rust() {
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let words = header.join(" ");
        let sentence = words.trim_start_matches("//!").trim().split(' ').count() >= 3;
        // Modules of tests say their duty; what is absent is said by the module they test.
        let is_test = path.file_name().is_some_and(|name| name.to_string_lossy().contains("tests"))
            || path.components().any(|part| part.as_os_str() == "tests");
        if !sentence || !(words.contains("Absent") || is_test) {
            wrong.push(path.display().to_string());
        }
    }
    report("no `//!` header with a sentence and \"Absent\"", &wrong);
}

#[test]
fn banned_words_are_not_used() {
    // Spelled in parts, so that this file is not its own finding.
    let markers = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX:"), concat!("HA", "CK:")];
    let everywhere = ["dbg!", "unimplemented!", "todo!"];
    let pure = ["println!", "eprintln!", "print!", "eprint!"];
    let tests = ["#[ignore", "thread::sleep"];
    let mut wrong = Vec::new();
    for (path, text) in rust() {
        let code = source::code(&text);
        let package = repo::crate_of(&path).unwrap_or_default();
        let row = rules::of(&package);
        let mut find = |code: &str, words: &[&str]| {
            for word in words {
                let places = source::places(code, word);
                wrong.extend(places.iter().map(|line| format!("{}:{line}: {word}", path.display())));
            }
        };
        find(&text, &markers);
        find(&code, &everywhere);
        // A pure crate's binary may print; its library may not.
        let is_binary =
            path.ends_with("src/main.rs") || path.components().any(|part| part.as_os_str() == "bin");
        if row.is_some_and(|row| row.pure) && !is_binary {
            find(source::without_tests(&code), &pure);
        }
        let shipped = source::without_tests(&code).len();
        let in_tests =
            path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        find(if in_tests { &code } else { &code[shipped..] }, &tests[1..]);
        find(&code, &tests[..1]);
    }
    report("banned words", &wrong);
}

/// Lines of a shell script on which it sleeps for a time that it names, and looks at nothing meanwhile: outside of a loop, and not what
/// `let_pass` does. Of words in quotes nothing is known.
fn sleeps(script: &str) -> Vec<usize> {
    let (mut loops, mut found) = (0_usize, Vec::new());
    for (number, line) in script.lines().enumerate().filter(|(_, line)| !line.starts_with("let_pass()")) {
        let (mut bare, mut quote) = (String::new(), None);
        for letter in line.chars() {
            match (quote, letter) {
                (None, '"' | '\'') => {
                    quote = Some(letter);
                    bare.push('$');
                }
                (Some(open), _) if open == letter => quote = None,
                (Some(_), _) => {}
                (None, _) => bare.push(letter),
            }
        }
        let bare =
            bare.split(" #").next().filter(|code| !code.trim_start().starts_with('#')).unwrap_or_default();
        let words: Vec<&str> =
            bare.split([' ', ';', '(', ')', '|']).filter(|word| !word.is_empty()).collect();
        for (at, word) in words.iter().enumerate() {
            match *word {
                "do" => loops += 1,
                "done" => loops = loops.saturating_sub(1),
                // What goes on in the background is waited for by nobody.
                "sleep" if loops == 0 && words.last() != Some(&"&") => {
                    let next = words.get(at + 1).and_then(|next| next.chars().next());
                    found.extend(next.filter(|c| *c == '$' || c.is_ascii_digit()).map(|_| number + 1));
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn sleeps_are_told_from_waits() {
    let waits = "until grep -q x out; do sleep 0.1; done\nfor n in 1 2; do\n  sleep \"$n\"\ndone\nsleep 1000 <a &\n# sleep 1\n";
    assert_eq!(sleeps(waits), Vec::<usize>::new());
    assert_eq!(
        sleeps("let_pass() { sleep \"$1\"; }\necho done; sleep 1\nx='to do'\nsleep $Y # why\n"),
        vec![2, 4]
    );
}

#[test]
fn system_tests_wait_for_a_state() {
    let mut wrong = Vec::new();
    for path in repo::files_ending(".sh").into_iter().filter(|path| path.starts_with("tests-system")) {
        let text = repo::text(&path).unwrap_or_default();
        wrong.extend(sleeps(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    report("tests that sleep (wait for a state, or `let_pass SECONDS WHY`)", &wrong);
}

#[test]
fn unsafe_stays_in_the_crates_that_may() {
    let mut wrong = Vec::new();
    for (path, text) in rust() {
        let may =
            repo::crate_of(&path).and_then(|package| rules::of(&package)).is_some_and(|row| row.may_unsafe);
        let lines: Vec<&str> = text.lines().collect();
        for place in source::places(&source::code(&text), "unsafe") {
            if !may {
                wrong.push(format!("{}:{place}: this crate has no unsafe code", path.display()));
            }
            let line = lines.get(place - 1).copied().unwrap_or_default();
            let is_block = line.contains("unsafe {");
            let proved = lines[place.saturating_sub(12)..place].iter().any(|line| line.contains("SAFETY:"));
            if is_block && !proved {
                wrong.push(format!("{}:{place}: no SAFETY comment", path.display()));
            }
        }
    }
    report("unsafe", &wrong);
}

/// What the shipped code of a pure crate never names; clippy sees the types, this sees the words.
const IMPURE: &[&str] = &[
    "HashMap",
    "HashSet",
    "RandomState",
    "DefaultHasher",
    "Instant",
    "SystemTime",
    "std::thread",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "Mutex",
    "RwLock",
    "Condvar",
    "std::io",
    "rand::",
];

#[test]
fn pure_crates_are_pure() {
    let mut wrong = Vec::new();
    for package in rules::CRATES.iter().filter(|package| package.pure) {
        let folder = Path::new("crates").join(package.name).join("src");
        for (path, text) in rust() {
            let is_binary =
                path.ends_with("src/main.rs") || path.components().any(|part| part.as_os_str() == "bin");
            if !path.starts_with(&folder) || path.ends_with("tests.rs") || is_binary {
                continue;
            }
            let code = source::code(source::without_tests(&text));
            for word in IMPURE {
                let places = source::places(&code, word);
                wrong.extend(places.iter().map(|line| format!("{}:{line}: {word}", path.display())));
            }
        }
    }
    report("pure crates have no clock, thread, file, environment or hash order", &wrong);
}

#[test]
fn pure_crates_have_the_same_bans() {
    let mut wanted_text = None;
    for package in rules::CRATES.iter().filter(|package| package.pure) {
        let path = Path::new("crates").join(package.name).join("clippy.toml");
        let text = repo::text(&path).unwrap_or_default();
        assert_eq!(&text, wanted_text.get_or_insert_with(|| text.clone()), "{}", path.display());
        let table: toml::Table = text.parse().expect("clippy.toml is TOML");
        for (key, wanted) in
            [("disallowed-types", "std::collections::HashMap"), ("disallowed-methods", "std::thread::spawn")]
        {
            let list = table.get(key).and_then(|list| list.as_array()).cloned().unwrap_or_default();
            let found =
                list.iter().any(|item| item.get("path").and_then(|path| path.as_str()) == Some(wanted));
            assert!(found, "{}: {key} must ban {wanted}", path.display());
        }
        assert_eq!(
            table.get("too-many-lines-threshold").and_then(toml::Value::as_integer),
            Some(70),
            "{}",
            package.name
        );
    }
}

/// Documents by their path, with their text.
fn documents() -> BTreeMap<PathBuf, String> {
    let read = |path: PathBuf| repo::text(&path).map(|text| (path, text));
    repo::files_ending(".md").into_iter().filter_map(read).collect()
}

/// Links of a document that lead to no file, or to no heading of one that is a document.
fn dead_links(path: &Path, text: &str, documents: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_dead = |link: &String| {
        if ["http://", "https://", "mailto:"].iter().any(|start| link.starts_with(start)) {
            return false;
        }
        let (target, anchor) = link.split_once('#').map_or((link.as_str(), None), |(to, at)| (to, Some(at)));
        let to = if target.is_empty() { path.to_path_buf() } else { plain(&folder.join(target)) };
        let known = documents.get(&to);
        let is_there = known.is_some() || repo::root().join(&to).exists();
        !is_there || anchor.is_some_and(|at| known.is_some_and(|text| !anchors(text).contains(at)))
    };
    links(text).into_iter().filter(is_dead).map(|link| format!("{}: {link}", path.display())).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut to, part| {
        match part {
            Component::ParentDir => drop(to.pop()),
            Component::CurDir => {}
            _ => to.push(part),
        }
        to
    })
}

/// Sections that a file cites and that no document of that name has.
fn dead_citations(path: &Path, text: &str, documents: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let is_dead = |(document, section): &(String, String)| {
        let mut named = documents.iter().filter(|(path, _)| path.file_name() == Some(document.as_ref()));
        !named.any(|(_, text)| sections(text).contains(section))
    };
    let dead = citations(text).into_iter().filter(is_dead);
    dead.map(|(document, section)| format!("{}: {document}: {section}", path.display())).collect()
}

#[test]
fn links_in_documents_lead_somewhere() {
    let all = documents();
    let wrong: Vec<String> = all.iter().flat_map(|(path, text)| dead_links(path, text, &all)).collect();
    report("links that lead nowhere", &wrong);
}

#[test]
fn sections_that_are_cited_are_there() {
    let (all, mut wrong, mut cited) = (documents(), Vec::new(), 0);
    for path in repo::files() {
        let Some(text) = repo::text(&path) else { continue };
        cited += citations(&text).len();
        wrong.extend(dead_citations(&path, &text, &all));
    }
    report("sections that are cited and not there", &wrong);
    // As many as there are, about: a citation that is not seen is not judged either.
    assert!(cited > 50, "{cited} citations were found");
}

#[test]
fn links_are_found_outside_fences() {
    let text = "[a](b.md) and [c](d#e)\n```\n[x](y)\n```\n";
    assert_eq!(links(text), vec!["b.md", "d#e"]);
}

#[test]
fn links_to_what_is_not_there_are_found() {
    let read = |text: &str| text.to_owned();
    let of = "# One, `two`\n## Same\n```\n# No heading\n```\n## Same\n";
    let text = "# Here\n[a](../d/of.md#one-two) [b](of.md#same-1) [c](#here) [d](of.md) [e](https://x/#y)\n\
                [f](of.md#one) [g](#there) [h](of.md#no-heading) [i](of.md#same-2) [j](no.md#here)\n";
    let all = BTreeMap::from([("d/of.md".into(), read(of)), ("d/from.md".into(), read(text))]);
    let wrong = ["of.md#one", "#there", "of.md#no-heading", "of.md#same-2", "no.md#here"];
    assert_eq!(
        dead_links(Path::new("d/from.md"), text, &all),
        wrong.map(|link| format!("d/from.md: {link}"))
    );
}

#[test]
fn sections_that_are_not_there_are_found() {
    let of = "## A heading of `two`\n- *A lead-in.* And text.\n1. **Bold** (`x.rs`).\nNo *middle* one.\n";
    let all = BTreeMap::from([(PathBuf::from("docs/OF.md"), of.to_owned())]);
    // Spelled in parts, so that this file is not its own finding.
    let text = [
        "//! docs/OF.",
        "md, \"A heading of\n//! two\", \"A lead-in\" and \"Bold\"; [OF.",
        "md](../OF.",
        "md), \"middle\".\n/// (OF.",
        "md, \"A heading\"), NO.",
        "md, \"Bold\"",
    ];
    let text = text.concat();
    let known = ["A heading of two", "A lead-in", "Bold", "middle", "A heading"];
    let cited: Vec<String> = citations(&text).into_iter().map(|(_, section)| section).collect();
    assert_eq!(cited, [&known[..], &["Bold"]].concat());
    let wrong = ["OF.md: middle", "OF.md: A heading", "NO.md: Bold"];
    assert_eq!(dead_citations(Path::new("a.rs"), &text, &all), wrong.map(|wrong| format!("a.rs: {wrong}")));
}

#[test]
fn nothing_of_a_workplace_is_in_the_repository() {
    // Paths and hosts of whoever writes; spelled in parts, so that this file is not its own finding.
    let words = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
    // Paths a reader is shown, and what stands for anybody's folder.
    let fine = [concat!("/ho", "me/a/mnt"), concat!("/ho", "me/a"), concat!("HOME", "/")];
    let mut wrong = Vec::new();
    for path in repo::files() {
        let Some(text) = repo::text(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let line = fine.iter().fold(line.to_string(), |line, word| line.replace(word, ""));
            let found = words.iter().find(|word| line.contains(*word));
            wrong.extend(found.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    report("paths of a workplace", &wrong);
}

#[test]
fn no_document_is_cited_that_is_not_here() {
    // What was designed before it was written is no part of the repository. Spelled in parts, as above.
    let word = concat!("DES", "IGN");
    let mut wrong = Vec::new();
    for path in repo::files() {
        let Some(text) = repo::text(&path) else { continue };
        let lines = text.lines().enumerate().filter(|(_, line)| line.contains(word));
        wrong.extend(lines.map(|(number, _)| format!("{}:{}: {word}", path.display(), number + 1)));
    }
    report("citations of a document that is not in the repository", &wrong);
}

#[test]
fn formats_have_no_byte_order_of_the_host() {
    // They are little-endian, and keys, whose bytes are compared, big-endian: which of the two is not looked at here.
    let mut wrong = Vec::new();
    for (path, text) in rust() {
        let code = source::code(source::without_tests(&text));
        let package = repo::crate_of(&path).unwrap_or_default();
        if ["proto", "store"].contains(&package.as_str()) {
            for word in ["to_ne_bytes", "from_ne_bytes"] {
                let places = source::places(&code, word);
                wrong.extend(places.iter().map(|line| format!("{}:{line}: {word}", path.display())));
            }
        }
    }
    report("host byte order in a format", &wrong);
}
