//! Rust text as the checks see it: comments and literals blanked out, test modules cut off. A small
//! lexer, not a parser: enough to find words that stand in code.
//!
//! Absent: macros' expansions, types.

/// The text with every comment, string and character literal replaced by blanks; line ends stay.
#[must_use]
pub fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let len = skipped(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        match len {
            0 => {
                out.push(bytes[at]);
                at += 1;
            }
            _ => {
                let end = (at + len).min(bytes.len());
                out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
                at = end;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the comment or literal that starts here; 0 for none.
fn skipped(rest: &[u8], before: Option<u8>) -> usize {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, 1),
        [b'b' | b'c', b'"', ..] if !in_word => quoted(rest, 2),
        [b'r', ..] if !in_word => raw(rest, 1),
        [b'b' | b'c', b'r', ..] if !in_word => raw(rest, 2),
        [b'\'', b'\\', ..] => rest.iter().skip(3).position(|byte| *byte == b'\'').map_or(0, |n| n + 4),
        // A lifetime has no closing quote right behind its first letter.
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw(rest: &[u8], start: usize) -> usize {
    let hashes = rest[start..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(start + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = start + hashes + 1;
    rest[body..]
        .windows(end.len())
        .position(|window| window == end)
        .map_or(rest.len(), |n| body + n + end.len())
}

/// The text before its test module.
#[must_use]
pub fn without_tests(text: &str) -> &str {
    let at = text.find("\n#[cfg(test)]\nmod ").or_else(|| text.find("\n#[cfg(test)]\npub(crate) mod "));
    // A declaration `mod tests;` in the middle of a file is not the end of the code.
    match at {
        Some(at) if text[at..].lines().nth(2).is_some_and(|line| line.ends_with('{')) => &text[..at],
        _ => text,
    }
}

/// Places (line numbers) where the word stands in code with no letter, digit or `_` around it.
#[must_use]
pub fn places(code: &str, word: &str) -> Vec<usize> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let here = line.match_indices(word).any(|(at, _)| {
            let (head, tail) = (&line[..at], &line[at + word.len()..]);
            let open = |edge: Option<char>, side: Option<char>| {
                !(edge.is_some_and(is_name) && side.is_some_and(is_name))
            };
            open(word.chars().next(), head.chars().next_back())
                && open(word.chars().next_back(), tail.chars().next())
        });
        if here {
            found.push(number + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_do_not_count() {
        let text =
            "let a = \"unsafe\"; // unsafe\n/* unsafe /* */ */ unsafe {}\nlet r = r#\"un\"safe\"#; 'x'";
        assert_eq!(places(&code(text), "unsafe"), vec![2]);
    }

    #[test]
    fn lifetimes_and_quotes_are_told_apart() {
        let text = "fn f<'a>(x: &'a str) -> char { '\\'' } fn g() -> char { '\"' } unsafe {}";
        assert_eq!(places(&code(text), "unsafe"), vec![1]);
        assert_eq!(places(&code(text), "str"), vec![1]);
    }

    #[test]
    fn a_word_is_whole() {
        assert_eq!(places("unsafe_op(); dbg!(x)", "unsafe"), Vec::<usize>::new());
        assert_eq!(places("unsafe_op(); dbg!(x)", "dbg!"), vec![1]);
        assert_eq!(places("use std::collections::HashMap;", "std::collections::HashMap"), vec![1]);
    }

    #[test]
    fn test_modules_are_cut_off_and_declarations_are_not() {
        assert_eq!(without_tests("a\n\n#[cfg(test)]\nmod tests {\nb\n}\n"), "a\n");
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), "a\n#[cfg(test)]\nmod tests;\nb\n");
    }
}
