//! The registry of all settings, with one row per setting.
//!
//! `ticktax knob`, the journal and the list in docs/reference/knobs.md all use [`all`]. To add a
//! setting, add a row.

mod boot;
mod cpu;
mod io;
mod memory;
mod net;
mod program;
mod scheduler;

use crate::error::KnobError;
use crate::knob::Knob;

static ALL: [&[Knob]; 7] = [
    &scheduler::KNOBS,
    &cpu::KNOBS,
    &memory::KNOBS,
    &io::KNOBS,
    &net::KNOBS,
    &program::KNOBS,
    &boot::KNOBS,
];

/// A name is suggested for an unknown one only if the two are at least this similar (0 to 1).
const ALIKE: f64 = 0.75;
/// Maximum number of suggestions.
const OFFERED: usize = 3;

/// Iterates over all settings, in the order in which they are documented.
pub fn all() -> impl Iterator<Item = &'static Knob> + Clone {
    ALL.iter().copied().flatten()
}

/// Finds the setting called `id`.
///
/// # Errors
/// Returns [`KnobError::Unknown`], which suggests similar names, if there is none.
pub fn find(id: &str) -> Result<&'static Knob, KnobError> {
    known(id).ok_or_else(|| KnobError::Unknown {
        id: id.to_owned(),
        hint: hint(id),
    })
}

/// Same as [`find`], but returns `None` if the setting does not exist, without looking for similar
/// names.
pub(crate) fn known(id: &str) -> Option<&'static Knob> {
    all().find(|knob| knob.id == id)
}

/// Returns the settings with `word` in their name, their kind of target or their description.
pub fn matching(word: &str) -> impl Iterator<Item = &'static Knob> + use<> {
    let word = word.to_lowercase();
    all().filter(move |knob| {
        let texts = [knob.id, knob.scope.name(), knob.about, knob.trades];
        texts.iter().any(|text| text.to_lowercase().contains(&word))
    })
}

/// Returns a hint that suggests names similar to `id`. If none is similar, the hint names the
/// command that lists all settings.
fn hint(id: &str) -> String {
    let typed = id.trim().to_lowercase().replace('/', ".");
    let likeness = |knob: &Knob| {
        let name = knob.id;
        let last = name.rsplit('.').next().unwrap_or(name);
        // Also compare just the last part of the name with what the user typed, because the prefix
        // may be wrong or missing.
        let parts = [name, last].map(|name| strsim::jaro_winkler(&typed, name));
        let is_part = typed.len() > 2 && (name.contains(&typed) || typed.contains(last));
        parts[0].max(parts[1]).max(if is_part { 0.9 } else { 0.0 })
    };
    let alike = all().map(|knob| (likeness(knob), knob.id));
    let mut alike: Vec<(f64, &str)> = alike.filter(|(likeness, _)| *likeness > ALIKE).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names: Vec<&str> = alike.into_iter().map(|(_, id)| id).take(OFFERED).collect();
    match &*names {
        [] => "list all with `ticktax knob list`".to_owned(),
        names => format!("did you mean {}?", names.join(", ")),
    }
}

/// Returns the table of all settings in docs/reference/knobs.md, as Markdown.
pub fn markdown() -> String {
    let row = |knob: &Knob| {
        let sheet = knob.sheet();
        let unit = sheet
            .unit
            .map_or_else(String::new, |unit| format!(", {unit}"));
        let reason = sheet
            .risk_reason
            .map_or_else(String::new, |reason| format!(": {reason}"));
        format!(
            "| `{}` | {} | {}{unit} | {} | {}{reason} | {} |\n",
            sheet.id,
            sheet.scope.name(),
            sheet.values.replace('|', "\\|"),
            sheet.description,
            sheet.risk.name(),
            sheet.kernels,
        )
    };
    let rows: String = all().map(row).collect();
    format!(
        "| knob | of | values | what it sets | risk | kernels |\n|---|---|---|---|---|---|\n{rows}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use ticktax_model::knob::{KnobProposal, KnobRisk, KnobScope};

    use super::{all, find, known, markdown, matching};
    use crate::mechanism::Mechanism;

    #[test]
    fn names_are_unique_and_start_with_their_scope() {
        let ids: BTreeSet<&str> = all().map(|knob| knob.id).collect();
        assert_eq!(ids.len(), all().count());
        for knob in all() {
            let prefix = knob.id.split('.').next().unwrap();
            let expected: &[&str] = match knob.scope {
                KnobScope::Cpu => &["cpu"],
                KnobScope::Irq => &["irq"],
                KnobScope::Disk => &["disk"],
                KnobScope::Task => &["proc"],
                KnobScope::Cgroup => &["cgroup"],
                KnobScope::Net => &["net"],
                KnobScope::Machine => continue,
            };
            assert!(expected.contains(&prefix), "{knob:?}");
        }
    }

    /// Reports propose these settings without checking whether the machine has them. The registry
    /// must therefore contain each of them as a writable setting, and the dangerous ones must be
    /// marked as such. Every writable `kernel.*` sysctl must be among them.
    #[test]
    fn proposed_knobs_can_be_tried() {
        for (id, dangerous) in KnobProposal::KNOBS {
            let knob = known(id).unwrap_or_else(|| panic!("{id}"));
            assert_ne!(knob.risk, KnobRisk::ReadOnly, "{id}");
            assert_eq!(knob.risk == KnobRisk::Dangerous, dangerous, "{id}");
        }
        let proposed: BTreeSet<&str> = KnobProposal::KNOBS
            .iter()
            .map(|proposal| proposal.0)
            .collect();
        let sysctls =
            all().filter(|knob| knob.id.starts_with("kernel.") && knob.risk != KnobRisk::ReadOnly);
        for knob in sysctls {
            assert!(proposed.contains(knob.id), "{knob:?}");
        }
    }

    #[test]
    fn every_knob_has_all_its_words() {
        for knob in all() {
            for (what, words) in [
                ("what it sets", knob.about),
                ("what it trades", knob.trades),
                ("its kernels", knob.kernels),
                ("its source", knob.source),
            ] {
                assert!(words.len() > 2, "{knob:?} lacks {what}");
                assert!(!words.contains(['|', '\n']), "{knob:?}: {words}");
            }
            let says_why = matches!(knob.risk, KnobRisk::Careful | KnobRisk::Dangerous);
            assert_eq!(says_why, !knob.risk_reason.is_empty(), "{knob:?}");
            let sentences = [knob.trades, knob.risk_reason];
            for text in sentences.iter().filter(|text| !text.is_empty()) {
                assert!(text.ends_with('.'), "{knob:?}: {text}");
            }
            assert!(!knob.about.ends_with('.'), "{knob:?}: a line, no sentence");
        }
    }

    #[test]
    fn companions_are_knobs_of_the_same_scope() {
        for knob in all() {
            for id in knob.also {
                let other = known(id).unwrap_or_else(|| panic!("{knob:?}: {id}"));
                assert_eq!(other.scope, knob.scope, "{knob:?}: {id}");
                assert!(!other.is_held(), "{knob:?}: {id}");
            }
        }
    }

    #[test]
    fn no_two_knobs_share_a_place() {
        let mut places: BTreeMap<String, &str> = BTreeMap::new();
        for knob in all() {
            let shared = matches!(knob.mechanism, Mechanism::Slice | Mechanism::Policy);
            let before = places.insert(knob.mechanism.place(), knob.id);
            assert!(shared || before.is_none(), "{knob:?} and {before:?}");
        }
    }

    #[test]
    fn paths_contain_the_target() {
        for knob in all() {
            let place = format!("{:?}", knob.mechanism);
            let is_path = place.contains("File") || place.contains("Choice");
            let named = place.contains("{}");
            let needs = is_path && knob.scope != KnobScope::Machine;
            assert_eq!(named, needs, "{knob:?}: {place}");
        }
    }

    #[test]
    fn similar_names_are_suggested() {
        for (typed, offered) in [
            ("vm.swapiness", "vm.swappiness"),
            ("swappiness", "vm.swappiness"),
            ("vm/swappiness", "vm.swappiness"),
            ("cpu.govenor", "cpu.governor"),
            ("nice", "proc.nice"),
            ("THP.enabled", "thp.enabled"),
        ] {
            let hint = find(typed).unwrap_err().to_string();
            assert!(hint.contains(offered), "{hint}");
        }
        let hint = find("zzz").unwrap_err().to_string();
        assert!(hint.contains("knob list"), "{hint}");
        assert!(find("vm.swappiness").is_ok());
    }

    #[test]
    fn knobs_are_found_by_words_of_their_description() {
        assert!(matching("HUGE").any(|knob| knob.id == "thp.enabled"));
        assert_eq!(matching("proc.affinity").count(), 1);
        assert_eq!(matching("no such word").count(), 0);
    }

    #[test]
    fn the_documentation_lists_the_knobs_as_they_are() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/knobs.md");
        ticktax_fixture::assert_documented(file, "<!-- knobs -->\n", &markdown());
    }
}
