//! What a Markdown document can be linked and cited by, and what links and cites it.
//!
//! Absent: where the documents are (`repo.rs`); judgement.

use std::collections::BTreeSet;

/// Targets of `[text](target)` outside fenced blocks.
#[must_use]
pub fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in unfenced(text) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].trim().to_string());
            }
        }
    }
    found
}

/// What stands behind `#` in a link to each heading, as GitHub makes it.
#[must_use]
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in unfenced(text).filter_map(heading) {
        let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let lower = heading.to_lowercase();
        let anchor: String = lower.chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect();
        // The second of a name is told from the first by a number.
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// Names of sections: headings, and what is bold or italic at the beginning of a line or an item, without its full stop.
#[must_use]
pub fn sections(text: &str) -> BTreeSet<String> {
    let name = |line| heading(line).or_else(|| lead_in(line).map(|name| name.trim_end_matches(['.', ':'])));
    unfenced(text).filter_map(name).map(|name| name.replace('`', "")).collect()
}

/// Sections that a text cites, each with the name of the document's file: that name, a comma, and the section in quotes; behind a comma, "and" or
/// "or" more of the same. They may go on on the next line of a comment.
#[must_use]
pub fn citations(text: &str) -> Vec<(String, String)> {
    let bare = |line| str::trim_start_matches(str::trim(line), ['/', '!', '#']).trim();
    let text = text.lines().map(bare).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (at, end) in text.match_indices(".md") {
        let is_name = |c: &char| c.is_ascii_alphanumeric() || ['_', '-', '.'].contains(c);
        let start = at - text[..at].chars().rev().take_while(is_name).count();
        let mut rest = after_link(&text[at + end.len()..]);
        if start == at {
            continue;
        }
        while let Some((section, behind)) = quoted(rest) {
            found.push((text[start..at + end.len()].to_owned(), section.replace('`', "")));
            let and = [", and", ", or", " and", " or"].iter().find_map(|word| behind.strip_prefix(word));
            rest = and.unwrap_or(behind);
        }
    }
    found
}

/// Lines outside fenced blocks.
fn unfenced(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

fn heading(line: &str) -> Option<&str> {
    let name = line.trim_start_matches('#');
    let name = name.strip_prefix(' ').filter(|_| name.len() < line.len())?;
    Some(name.trim())
}

fn lead_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(". ");
    let line = line.strip_prefix("- ").unwrap_or(line);
    let mark = ["**", "*"].into_iter().find(|mark| line.starts_with(mark))?;
    let line = &line[mark.len()..];
    line.find(mark).map(|end| &line[..end])
}

/// What follows a document's name, behind its backquote or the end of the link that leads to it.
fn after_link(rest: &str) -> &str {
    rest.strip_prefix(['`', ')']).unwrap_or(rest)
}

/// A name in quotes right there, and what follows it.
fn quoted(rest: &str) -> Option<(&str, &str)> {
    let rest = rest.strip_prefix(',').unwrap_or(rest);
    let rest = rest.strip_prefix(" (").or_else(|| rest.strip_prefix(' '))?.strip_prefix('"')?;
    rest.split_once('"')
}
