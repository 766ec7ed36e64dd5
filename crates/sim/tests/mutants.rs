//! The list of seeded defects, the code and the tests that switch them on agree.

use sim::mutants::{ELSEWHERE, MUTANTS};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The source files of a crate and the module that each of them is.
fn sources(package: &str) -> Vec<(String, String)> {
    // Cargo runs a test in its crate's folder.
    let root = Path::new("..").join(package).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("readable source");
        let place = file.strip_prefix(&root).expect("it is in there").with_extension("");
        let steps = place.iter().map(|step| step.to_str().expect("a plain name"));
        (steps.filter(|step| *step != "mod").collect::<Vec<_>>().join("::"), text)
    };
    files.into_iter().map(read).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the crate's sources are here");
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// A test function of a file's own level, or of the module `tests` in it: its attributes and its text.
fn function<'a>(text: &'a str, indent: &str, name: &str) -> Option<(&'a str, &'a str)> {
    let start = text.find(&format!("\n{indent}fn {name}() {{\n"))?;
    let end = start + text[start..].find(&format!("\n{indent}}}\n"))?;
    let above = text[..start].rfind("\n\n").unwrap_or_default();
    Some((&text[above..start], &text[start..end]))
}

#[test]
fn every_seeded_defect_of_the_simulated_crates_is_in_the_list_once() {
    let mut found = BTreeSet::new();
    for package in ["mds", "client", "store"] {
        for (_, text) in sources(package) {
            for piece in text.split("mutant!(\"").skip(1) {
                let name = piece.split('"').next().expect("split gives one piece").to_owned();
                found.insert((name, package.to_owned()));
            }
        }
    }
    let simulated = MUTANTS.iter().map(|(name, package, _)| (name, package));
    let elsewhere = ELSEWHERE.iter().map(|(name, package, _)| (name, package));
    let listed: BTreeSet<_> = simulated
        .chain(elsewhere)
        .map(|(name, package)| ((*name).to_owned(), (*package).to_owned()))
        .collect();
    assert_eq!(listed.len(), MUTANTS.len() + ELSEWHERE.len());
    assert_eq!(found, listed);
}

/// Eight defects of the list named a test that nobody ran with the defect on.
#[test]
fn what_the_simulator_does_not_show_is_switched_on_by_the_test_that_the_list_names() {
    for package in ["mds", "client", "store"] {
        let files = sources(package);
        for (defect, _, test) in ELSEWHERE.iter().filter(|(_, of, _)| *of == package) {
            let (module, name) = test.rsplit_once("::").expect("a test is in a module");
            let inner = module.strip_suffix("::tests");
            let at = |(file, text): &'_ (String, String)| {
                let indent = match file {
                    file if file == module => "",
                    file if Some(file.as_str()) == inner => "    ",
                    _ => return None,
                };
                function(text, indent, name).map(|(above, body)| (above.to_owned(), body.to_owned()))
            };
            let (above, body) =
                files.iter().find_map(at).unwrap_or_else(|| panic!("{package} has no test {test}"));
            assert!(above.contains("#[test]"), "{test} is no test");
            assert!(above.contains("#[cfg(feature = \"mutants\")]"), "{test} is there without defects");
            assert!(body.contains("mutant::activate(Some("), "{test} switches nothing on");
            assert!(body.contains(&format!("\"{defect}\"")), "{test} does not switch {defect} on");
        }
    }
}
