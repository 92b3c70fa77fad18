//! The help of `ticktax` itself: all verbs, grouped by purpose.
//!
//! clap cannot group subcommands, so the listing is a help template. Names come from [`GROUPS`],
//! descriptions from the verbs. A test checks that every verb is in exactly one group.

use std::fmt::Write;

use clap::builder::{StyledStr, Styles};
use clap::{Command, Subcommand};

use super::{EXIT_CODES, Verb};

/// The groups of verbs, in the order in which they are used in a typical investigation.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    ("Observe", &["audit", "agent"]),
    ("Explain", &["report", "beats", "compare"]),
    ("Record", &["record", "incidents", "mark"]),
    ("Prove", &["try", "undo", "knob"]),
    ("Predict", &["sim", "sweep", "case"]),
    (
        "Measure",
        &["pace", "net", "storage", "mem", "clock", "lab"],
    ),
    ("Other", &["schema", "man", "completions"]),
];

/// Verbs that share the line of the verb before them in [`GROUPS`], with the line's description.
/// The overview has to fit on a screen.
const SHARED: &[(&str, &str)] = &[(
    "clock",
    "Measure memory latency; show what changes the clocks",
)];

const EXAMPLES: &str = "\
Examples:
  sudo ticktax audit                      show where the CPU time of this machine goes
  sudo ticktax audit --pid 4121           show why a program stalls, and what to do
  sudo ticktax audit --save lag.parquet   save a recording for `report` and `beats`
  sudo ticktax record --trigger 'wait>5ms'
                                          save the seconds around each rare delay
  sudo ticktax try vm.swappiness=60,10 -- make -j8
                                          measure which of two values is faster
  ticktax sim --load lag.parquet --vary hz=100,1000
                                          predict the effect of other tick rates";

pub(super) fn template() -> StyledStr {
    let header = *Styles::styled().get_header();
    let literal = *Styles::styled().get_literal();
    let verbs = Verb::augment_subcommands(Command::default());
    let mut text = String::from(
        "{about}. {usage-heading} {usage}\n\
         `ticktax VERB -h` lists the main options of a verb; `--help` explains them all.",
    );
    for (group, names) in GROUPS {
        for (index, name) in names.iter().enumerate() {
            let shared = |name: &str| SHARED.iter().find(|(second, _)| *second == name);
            if shared(name).is_some() {
                continue;
            }
            let group = if index == 0 { group } else { "" };
            let next = names.get(index + 1).and_then(|next| shared(next));
            let (label, about) = if let Some((second, about)) = next {
                (format!("{name}, {second}"), StyledStr::from(*about))
            } else {
                let verb = verbs.find_subcommand(name);
                let about = verb.and_then(Command::get_about).cloned();
                ((*name).to_owned(), about.unwrap_or_default())
            };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n{header}{group}{header:#}{:1$}",
                "",
                9 - group.len()
            );
            let _ = write!(
                text,
                "{literal}{label}{literal:#}{:1$}{about}",
                "",
                13 - label.len()
            );
        }
    }
    text.push_str("{after-help}");
    text.into()
}

pub(super) fn details() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}
