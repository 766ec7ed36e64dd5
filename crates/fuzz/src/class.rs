//! A short name of what an input reached: the type and variant names of a value, without its numbers and texts.
//!
//! Absent: any use but steering; two inputs of one class may still differ in what they execute.

use std::fmt::{self, Debug, Write};

/// Names kept of one value.
const WORDS_MAX: usize = 12;

/// The class of a value under a heading.
#[must_use]
pub fn class(heading: &str, value: &impl Debug) -> String {
    let mut words = Words { text: heading.to_owned(), count: 0, inside: Inside::Code };
    // It stops formatting when it has enough words.
    let _full = write!(words, "{value:?}");
    words.text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    /// A word that started with a capital.
    Word,
    /// A word that did not.
    Other,
    Quotes,
    Escape,
}

struct Words {
    text: String,
    count: usize,
    inside: Inside,
}

impl Write for Words {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        for letter in piece.chars() {
            self.inside = match (self.inside, letter) {
                (Inside::Escape, _) => Inside::Quotes,
                (Inside::Quotes, '\\') => Inside::Escape,
                (Inside::Quotes, '"') => Inside::Code,
                (Inside::Quotes, _) => Inside::Quotes,
                (_, '"') => Inside::Quotes,
                (Inside::Word, letter) if letter.is_ascii_alphanumeric() => {
                    self.text.push(letter);
                    Inside::Word
                }
                (Inside::Other, letter) if letter.is_ascii_alphanumeric() || letter == '_' => Inside::Other,
                (_, letter) if letter.is_ascii_uppercase() => {
                    if self.count == WORDS_MAX {
                        return Err(fmt::Error);
                    }
                    self.count += 1;
                    self.text.push(' ');
                    self.text.push(letter);
                    Inside::Word
                }
                (_, letter) if letter.is_ascii_alphanumeric() || letter == '_' => Inside::Other,
                _ => Inside::Code,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_numbers_and_texts_go() {
        assert_eq!(class("read", &Some((7, "A \"B\" C"))), "read Some");
        assert_eq!(class("read", &Err::<(), _>(fmt::Error)), "read Err Error");
        assert_eq!(class("x", &vec![Some(1); 50]).split(' ').count(), 1 + WORDS_MAX);
    }
}
