//! Files that list features, as in `PLACE_LAG NO_HRTICK`. The names of features that are off start
//! with `NO_`. Writing a single word turns that feature on or off.
//!
//! Because most features are on, a value lists those that are off (`off:HRTICK+LB_MIN`). Users can
//! also give only the features to change (`NO_RUN_TO_PARITY`).

use crate::error::Trouble;
use crate::system::System;

/// Prefix of a word that turns a feature off.
const NO: &str = "NO_";
/// Prefix of a value that lists all features that are off.
const OFF: &str = "off:";
/// Separator between the features in a value. It is not a comma, because commas separate the values
/// of a trial.
const SEPARATOR: char = '+';
/// Stands in for the list if all features are on.
const NONE: &str = "none";

pub(super) fn read(system: &System, path: &str) -> Result<String, Trouble> {
    let text = super::file::read(system, path)?;
    Ok(value(text.split_ascii_whitespace()))
}

/// Turns each feature in the file on or off so that reading returns `value`.
pub(super) fn write(system: &System, path: &str, value: &str) -> Result<(), Trouble> {
    for wanted in changes(&offered(system, path), value) {
        super::file::write(system, path, &wanted)?;
    }
    Ok(())
}

/// Returns the words to write so that reading returns `value`. `current` lists all features as in
/// the file.
fn changes(current: &[String], value: &str) -> Vec<String> {
    let off: Vec<&str> = listed(value).collect();
    let wanted = current.iter().map(|word| {
        let name = name_of(word);
        if off.contains(&name) {
            format!("{NO}{name}")
        } else {
            name.to_owned()
        }
    });
    let pairs = current.iter().zip(wanted);
    let changed = pairs.filter(|(word, wanted)| *word != wanted);
    changed.map(|(_, wanted)| wanted).collect()
}

pub(super) fn offered(system: &System, path: &str) -> Vec<String> {
    let text = system.text(path).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Converts a value typed by a user to the form in which reading returns it. `current` lists all
/// features as in the file. Returns `None` if the value names an unknown feature.
pub(crate) fn parse(text: &str, current: &[String]) -> Option<String> {
    let is_known = |name: &str| current.iter().any(|word| name_of(word) == name);
    if text.starts_with(OFF) {
        let off: Vec<&str> = listed(text).collect();
        let all_known = off.iter().all(|name| is_known(name));
        let words = current.iter().map(|word| name_of(word));
        return all_known.then(|| value_of(words.filter(|name| off.contains(name))));
    }
    let mut words = current.to_vec();
    for toggle in text.split(SEPARATOR) {
        let mut same = words.iter_mut();
        let word = same.find(|word| name_of(word) == name_of(toggle))?;
        toggle.clone_into(word);
    }
    Some(value(words.iter().map(String::as_str)))
}

/// Returns the names in a value that lists the features that are off.
fn listed(value: &str) -> impl Iterator<Item = &str> {
    let list = value.strip_prefix(OFF).unwrap_or(value);
    list.split(SEPARATOR).filter(|name| *name != NONE)
}

fn name_of(word: &str) -> &str {
    word.strip_prefix(NO).unwrap_or(word)
}

fn value<'w>(words: impl Iterator<Item = &'w str>) -> String {
    value_of(words.filter_map(|word| word.strip_prefix(NO)))
}

fn value_of<'w>(off: impl Iterator<Item = &'w str>) -> String {
    let off: Vec<&str> = off.collect();
    if off.is_empty() {
        return format!("{OFF}{NONE}");
    }
    format!("{OFF}{}", off.join(&SEPARATOR.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{changes, offered, parse, read};
    use crate::fixture::Machine;

    const PATH: &str = "sys/kernel/debug/sched/features";

    #[test]
    fn features_are_turned_on_and_off() {
        let machine = Machine::new();
        machine.put(PATH, "PLACE_LAG NO_HRTICK RUN_TO_PARITY NO_LB_MIN\n");
        let system = machine.system();
        let original = read(&system, PATH).unwrap();
        assert_eq!(original, "off:HRTICK+LB_MIN");
        let current = offered(&system, PATH);
        for (text, value) in [
            (&*original, Some(&*original)),
            ("off:LB_MIN+HRTICK", Some(&*original)),
            ("off:none", Some("off:none")),
            ("NO_RUN_TO_PARITY", Some("off:HRTICK+RUN_TO_PARITY+LB_MIN")),
            ("HRTICK", Some("off:LB_MIN")),
            ("HRTICK+LB_MIN", Some("off:none")),
            ("NO_SUCH_FEATURE", None),
            ("off:SUCH_FEATURE", None),
            ("off:", None),
            ("", None),
        ] {
            assert_eq!(parse(text, &current).as_deref(), value, "{text}");
        }
        assert_eq!(parse("HRTICK", &[]), None);
    }

    /// The kernel accepts one word at a time.
    #[test]
    fn only_features_that_change_are_written() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let changed = words("PLACE_LAG HRTICK NO_RUN_TO_PARITY NO_LB_MIN");
        let original = "off:HRTICK+LB_MIN";
        assert_eq!(changes(&changed, original), ["NO_HRTICK", "RUN_TO_PARITY"]);
        let restored = words("PLACE_LAG NO_HRTICK RUN_TO_PARITY NO_LB_MIN");
        assert_eq!(changes(&restored, original), [""; 0]);
        assert_eq!(changes(&restored, "off:none"), ["HRTICK", "LB_MIN"]);
    }
}
