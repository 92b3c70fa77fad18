//! Files that list words with the active one in brackets, as in `always [madvise] never`. The file
//! for the preemption model uses parentheses instead, as in `none voluntary (full)`.

use crate::error::Trouble;
use crate::system::System;

const BRACKETS: [char; 4] = ['[', ']', '(', ')'];

pub(super) fn read(system: &System, path: &str) -> Result<String, Trouble> {
    let text = super::file::read(system, path)?;
    let mut words = text.split_ascii_whitespace();
    let chosen = words.find(|word| word.starts_with(BRACKETS));
    // The kernel omits the brackets if the file lists only one word.
    let chosen = chosen.or_else(|| (text.split_ascii_whitespace().count() == 1).then_some(&text));
    chosen
        .map(|word| word.trim_matches(BRACKETS).to_owned())
        .ok_or_else(|| Trouble::new(format!("/{path} does not mark the word in effect")))
}

pub(super) fn offered(system: &System, path: &str) -> Vec<String> {
    let text = system.text(path).unwrap_or_default();
    let words = text.split_ascii_whitespace();
    words
        .map(|word| word.trim_matches(BRACKETS).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{offered, read};
    use crate::fixture::Machine;

    #[test]
    fn the_word_in_brackets_is_active() {
        let machine = Machine::new();
        for (text, chosen, words) in [
            ("always [madvise] never\n", Some("madvise"), 3),
            ("none voluntary (full)\n", Some("full"), 3),
            ("[none]\n", Some("none"), 1),
            ("none\n", Some("none"), 1),
            ("none mq-deadline\n", None, 2),
            ("\n", None, 0),
        ] {
            machine.put("sys/choice", text);
            let value = read(&machine.system(), "sys/choice").ok();
            assert_eq!(value.as_deref(), chosen, "{text}");
            assert_eq!(offered(&machine.system(), "sys/choice").len(), words);
        }
    }
}
