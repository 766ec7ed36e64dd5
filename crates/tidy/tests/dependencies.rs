//! Which crate uses which: rules::CRATES against every Cargo.toml, the sources and ARCHITECTURE.md, and the
//! licences and features of everything that is linked.
//!
//! Absent: what the crates do with each other.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidy::{repo, rules, source};
use toml::Table;

fn manifest(package: &str) -> Table {
    let path = repo::root().join("crates").join(package).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).expect("a crate has a manifest");
    text.parse().expect("a manifest is TOML")
}

fn names(manifest: &Table, section: &str) -> BTreeSet<String> {
    let table = manifest.get(section).and_then(|value| value.as_table());
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

fn set<'a>(names: impl IntoIterator<Item = &'a &'a str>) -> BTreeSet<String> {
    names.into_iter().map(|name| (*name).to_string()).collect()
}

/// What one of two lists of the same has and the other has not.
fn difference(what: &str, [left, right]: [&str; 2], sets: [&BTreeSet<String>; 2]) -> Vec<String> {
    let only = |side: &str, names: Vec<&String>| {
        names.into_iter().map(|name| format!("{what}: {name} is only in {side}")).collect::<Vec<_>>()
    };
    let mut found = only(left, sets[0].difference(sets[1]).collect());
    found.extend(only(right, sets[1].difference(sets[0]).collect()));
    found
}

#[test]
fn every_crate_has_a_row_and_every_row_a_crate() {
    let crates: BTreeSet<String> = repo::crates().into_iter().collect();
    let rows: BTreeSet<String> = rules::CRATES.iter().map(|package| package.name.to_string()).collect();
    assert_eq!(crates, rows);
}

#[test]
fn rows_go_downwards() {
    for (index, package) in rules::CRATES.iter().enumerate() {
        for below in package.uses {
            let place = rules::CRATES.iter().position(|row| row.name == *below);
            let allowed = place.is_some_and(|place| place < index);
            // Pure crates may only stand on pure crates and on the store's pure half.
            let kept = !package.pure || rules::of(below).is_some_and(|row| row.pure || row.name == "store");
            assert!(allowed && kept, "{} -> {below}", package.name);
        }
        // Tests may reach sideways, except that nothing reaches out of the pure half.
        for reached in package.tests_use.iter().filter(|_| package.pure) {
            let kept = rules::of(reached).is_some_and(|row| row.pure);
            assert!(kept, "tests of {} -> {reached}", package.name);
        }
    }
}

/// An arrow that nobody uses is a door left open: the next one to walk through it asks nobody.
#[test]
fn rows_and_manifests_say_the_same() {
    let mut wrong = Vec::new();
    for package in rules::CRATES {
        let manifest = manifest(package.name);
        let sections = [
            ("dependencies", set(package.uses.iter().chain(package.others))),
            ("dev-dependencies", set(package.tests_use)),
            ("build-dependencies", BTreeSet::new()),
        ];
        for (section, row) in sections {
            let what = format!("{} [{section}]", package.name);
            wrong.extend(difference(&what, ["Cargo.toml", "rules.rs"], [&names(&manifest, section), &row]));
        }
        assert!(
            manifest.get("target").is_none(),
            "{}: dependencies by target are not looked at",
            package.name
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_manifest_asks_for_is_named_in_the_sources() {
    let files: Vec<(PathBuf, String)> = repo::files_ending(".rs")
        .into_iter()
        .filter_map(|path| repo::text(&path).map(|text| (path, source::code(&text))))
        .collect();
    let mut idle = Vec::new();
    for package in rules::CRATES {
        let folder = Path::new("crates").join(package.name);
        let named = |folder: &Path, name: &str| {
            let word = format!("{}::", name.replace('-', "_"));
            let mut inside = files.iter().filter(|(path, _)| path.starts_with(folder));
            inside.any(|(_, code)| !source::places(code, &word).is_empty())
        };
        let shipped =
            package.uses.iter().chain(package.others).filter(|name| !named(&folder.join("src"), name));
        let tests = package.tests_use.iter().filter(|name| !named(&folder, name));
        idle.extend(shipped.chain(tests).map(|name| format!("{}: {name}", package.name)));
    }
    assert!(idle.is_empty(), "in Cargo.toml, but no source names it:\n{}", idle.join("\n"));
}

/// The words between backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).map(str::to_string).collect()
}

#[test]
fn the_architecture_page_says_what_the_rows_say() {
    let page = repo::text("ARCHITECTURE.md".as_ref()).expect("a page");
    let table = page.split("\n## Crates\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let table = table.expect("a section about crates");
    let mut wrong = Vec::new();
    for package in rules::CRATES {
        let start = format!("| `{}` |", package.name);
        let said =
            table.lines().find(|line| line.starts_with(&start)).and_then(|line| line.split('|').nth(3));
        match said {
            Some(said) => {
                let sides = ["ARCHITECTURE.md", "rules.rs"];
                wrong.extend(difference(package.name, sides, [&quoted(said), &set(package.uses)]));
            }
            None => wrong.push(format!("{}: no row in ARCHITECTURE.md", package.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let rows = table.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, rules::CRATES.len(), "rows of crates that do not exist");
    let pure: Vec<&str> =
        rules::CRATES.iter().filter(|package| package.pure).map(|package| package.name).collect();
    for (name, said) in [("ARCHITECTURE.md", "are pure"), ("CONTRIBUTING.md", "have no clock")] {
        let page = repo::text(name.as_ref()).expect("a page");
        let before = page.split_once(&format!("` {said}")).map(|(before, _)| before);
        let list = before.and_then(|before| before.rsplit('`').next()).expect("a list of pure crates");
        let list: BTreeSet<String> = list.split_whitespace().map(str::to_string).collect();
        assert_eq!(list, set(&pure), "{name}: the pure crates");
    }
}

#[test]
fn the_simulator_takes_only_the_pure_half_of_the_store() {
    let manifest = manifest("sim");
    let store =
        manifest.get("dependencies").and_then(|all| all.get("store")).and_then(|store| store.as_table());
    if let Some(store) = store {
        let features = store.get("features").and_then(|list| list.as_array()).cloned().unwrap_or_default();
        let embedded = features.iter().any(|feature| feature.as_str() == Some("embedded"));
        assert!(!embedded && store.get("default-features").and_then(toml::Value::as_bool) != Some(true));
    }
    let root: Table = repo::text("Cargo.toml".as_ref()).expect("a manifest").parse().expect("TOML");
    let store = &root["workspace"]["dependencies"]["store"];
    assert_eq!(
        store["default-features"].as_bool(),
        Some(false),
        "the workspace's store must be the pure half"
    );
}

#[test]
fn third_party_versions_are_said_once_with_a_reason() {
    let text = repo::text("Cargo.toml".as_ref()).expect("a manifest");
    let section = text.split("[workspace.dependencies]").nth(1).expect("a section");
    let section = section.split("\n[").next().unwrap_or(section);
    // A block of lines without an empty line between them shares the comment above it.
    let (mut explained, mut bare) = (false, Vec::new());
    for line in section.lines().map(str::trim) {
        if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if !line.contains("path =") && !explained {
            bare.push(line.to_string());
        }
    }
    assert!(bare.is_empty(), "a new dependency needs a sentence: {bare:?}");
    for package in repo::crates() {
        let manifest = manifest(&package);
        for section in ["dependencies", "dev-dependencies"] {
            for (name, value) in manifest.get(section).and_then(|v| v.as_table()).into_iter().flatten() {
                let inherited = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                assert!(inherited, "crates/{package}: {name} must come from the workspace");
            }
        }
    }
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(repo::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// Whether an SPDX expression can be satisfied with allowed licences. `/` is the old form of OR.
fn allowed(expression: &str) -> bool {
    let or = expression.replace('/', " OR ");
    let alternatives = split_top(&or, " OR ");
    alternatives.iter().any(|choice| {
        split_top(choice, " AND ").iter().all(|part| {
            let part = part.trim();
            match part.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
                Some(inner) => allowed(inner),
                None => rules::LICENCES.contains(&part),
            }
        })
    })
}

/// Splits outside parentheses.
fn split_top(text: &str, word: &str) -> Vec<String> {
    let (mut depth, mut parts, mut start) = (0, Vec::new(), 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && text[at..].starts_with(word) => {
                parts.push(text[start..at].to_string());
                start = at + word.len();
            }
            _ => {}
        }
    }
    parts.push(text[start..].to_string());
    parts
}

#[test]
fn licence_expressions_are_read() {
    for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(allowed(good), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-2.0 OR AGPL-3.0) AND MIT"] {
        assert!(!allowed(bad), "{bad}");
    }
}

#[test]
fn deny_toml_allows_the_same_licences() {
    let deny: Table = repo::text("deny.toml".as_ref()).expect("a file").parse().expect("TOML");
    let said = deny["licenses"]["allow"].as_array().expect("a list").iter().filter_map(|name| name.as_str());
    let said: BTreeSet<String> = said.map(str::to_string).collect();
    let wrong = difference("licence", ["deny.toml", "rules.rs"], [&said, &set(rules::LICENCES)]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn licences_of_all_packages_are_allowed() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let (name, licence) = (package["name"].as_str(), package["license"].as_str().unwrap_or("none"));
        let ours = package["source"].is_null();
        if !ours && !allowed(licence) {
            wrong.push(format!("{name:?}: {licence}"));
        }
        if ours {
            assert_eq!(licence, "Apache-2.0", "{name:?}");
        }
    }
    assert!(wrong.is_empty(), "licences not in rules::LICENCES: {wrong:?}");
}

#[test]
fn no_crate_of_ours_depends_on_hashbrown() {
    // The order of its maps is random where any crate of a build switches its default hasher on: clippy does not see that.
    let metadata = metadata();
    let ours: BTreeSet<&str> =
        metadata["workspace_members"].as_array().expect("members").iter().filter_map(Value::as_str).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    for node in nodes.iter().filter(|node| node["id"].as_str().is_some_and(|id| ours.contains(id))) {
        let hashbrown = node["deps"].as_array().into_iter().flatten().find(|dep| dep["name"] == "hashbrown");
        assert!(hashbrown.is_none(), "{}: uses hashbrown directly", node["id"]);
    }
}
