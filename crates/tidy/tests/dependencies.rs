//! Which room may use which: rules::ROOMS against every Cargo.toml, and the licences and features of
//! everything that is linked.
//!
//! Absent: what the rooms do with each other.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use tidy::{repo, rules};
use toml::Table;

fn manifest(room: &str) -> Table {
    let path = repo::root().join("crates").join(room).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).expect("a room has a manifest");
    text.parse().expect("a manifest is TOML")
}

fn names(manifest: &Table, section: &str) -> BTreeSet<String> {
    let table = manifest.get(section).and_then(|value| value.as_table());
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

/// Names in a manifest's section that its row does not allow.
fn beyond(found: &BTreeSet<String>, ours: &[&str], others: &[&str]) -> Vec<String> {
    found
        .iter()
        .filter(|name| !ours.contains(&name.as_str()) && !others.contains(&name.as_str()))
        .cloned()
        .collect()
}

#[test]
fn every_room_has_a_row_and_every_row_a_room() {
    let rooms: BTreeSet<String> = repo::rooms().into_iter().collect();
    let rows: BTreeSet<String> = rules::ROOMS.iter().map(|room| room.name.to_string()).collect();
    assert_eq!(rooms, rows);
}

#[test]
fn rows_go_downwards() {
    for (index, room) in rules::ROOMS.iter().enumerate() {
        for below in room.uses {
            let place = rules::ROOMS.iter().position(|row| row.name == *below);
            let allowed = place.is_some_and(|place| place < index);
            // Pure rooms may only stand on pure rooms and on the store's pure half.
            let kept = !room.pure || rules::of(below).is_some_and(|row| row.pure || row.name == "store");
            assert!(allowed && kept, "{} -> {below}", room.name);
        }
    }
}

#[test]
fn rooms_use_what_their_row_allows() {
    let mut wrong = Vec::new();
    for room in rules::ROOMS {
        let manifest = manifest(room.name);
        let mut check = |section: &str, ours: &[&str], others: &[&str]| {
            let extra = beyond(&names(&manifest, section), ours, others);
            wrong.extend(extra.into_iter().map(|name| format!("{} [{section}]: {name}", room.name)));
        };
        check("dependencies", room.uses, room.others);
        check("build-dependencies", &[], &[]);
        let every: Vec<&str> = room.others.iter().chain(room.test_others).copied().collect();
        // Tests may reach sideways, except that nothing reaches out of the pure half.
        let around: Vec<&str> =
            rules::ROOMS.iter().filter(|r| !room.pure || r.pure).map(|r| r.name).collect();
        let around: Vec<&str> = if room.name == "sim" { room.uses.to_vec() } else { around };
        check("dev-dependencies", &around, &every);
    }
    assert!(wrong.is_empty(), "not in the room's row of rules.rs:\n{}", wrong.join("\n"));
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
    for room in repo::rooms() {
        let manifest = manifest(&room);
        for section in ["dependencies", "dev-dependencies"] {
            for (name, value) in manifest.get(section).and_then(|v| v.as_table()).into_iter().flatten() {
                let inherited = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                assert!(inherited, "crates/{room}: {name} must come from the workspace");
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
fn licences_and_features_of_everything_linked_are_allowed() {
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
fn no_room_gets_a_randomly_seeded_map_through_hashbrown() {
    // Feature unification could switch it on for the pure rooms, too.
    let metadata = metadata();
    let ours: BTreeSet<&str> =
        metadata["workspace_members"].as_array().expect("members").iter().filter_map(Value::as_str).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    for node in nodes.iter().filter(|node| node["id"].as_str().is_some_and(|id| ours.contains(id))) {
        let hashbrown = node["deps"].as_array().into_iter().flatten().find(|dep| dep["name"] == "hashbrown");
        assert!(hashbrown.is_none(), "{}: uses hashbrown directly", node["id"]);
    }
}
