//! Errors of the operating system in the words people know, for messages and logs.
//!
//! Absent: exit codes and advice (crate `cli`).

/// An operating-system error in the words people know, without "(os error N)".
#[must_use]
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// A text from below in which system errors stand by number: the words people know instead.
#[must_use]
pub fn words(text: &str) -> String {
    const MARK: &str = "os error ";
    let mut text = text.to_string();
    while let Some(at) = text.find(MARK) {
        let digits: String = text[at + MARK.len()..].chars().take_while(char::is_ascii_digit).collect();
        let Ok(number) = digits.parse() else { break };
        let error = std::io::Error::from_raw_os_error(number);
        let bracketed = format!(" ({MARK}{digits})");
        text = match text.contains(&error.to_string()) {
            true => text.replace(&error.to_string(), &plain(&error)),
            false if text.contains(&bracketed) => text.replace(&bracketed, ""),
            false => {
                let rest = &text[at + MARK.len() + digits.len()..];
                format!("{}{}{rest}", &text[..at], plain(&error))
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_words_and_other_text_stays() {
        assert_eq!(words("pando.ballast: os error 2"), "pando.ballast: no such file or directory");
        let error = std::io::Error::from_raw_os_error(28);
        assert_eq!(words(&format!("f: {error}")), "f: no space left on device");
        assert_eq!(words("os error unknown, nothing else"), "os error unknown, nothing else");
    }
}
