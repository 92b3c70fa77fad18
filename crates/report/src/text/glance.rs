//! The two status lines shown while a recording is in progress.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::glance::{Glance, ProgramGlance};
use ticktax_model::statement::{Account, Class, Holder};

use super::TextStyle;
use super::numbers::percent;
use super::page::{TIE, clean, columns, elide};

/// Maximum number of names per line.
const NAMES: usize = 4;
/// Minimum page width for the longer wording.
const ROOMY: usize = 60;

/// Summarizes the recording so far in two lines that fit the page's width. For a machine, they show
/// how CPU time was divided and which programs used most of it. For a program, they show how long
/// it waited, and behind which other programs. Items that do not fit are left out.
pub fn glance(glance: &Glance, style: &TextStyle) -> String {
    let width = style.width.clamp(40, 200);
    let lines = match &glance.program {
        Some(program) => program_lines(program, width),
        None => machine_lines(&glance.accounts, width),
    };
    lines.join("\n")
}

fn program_lines(program: &ProgramGlance, width: usize) -> [String; 2] {
    let ProgramGlance {
        wanted,
        waited,
        longest,
        behind,
    } = program;
    let share = percent(waited.share_of(*wanted));
    let worst = format!("max {longest}");
    let first = if width >= ROOMY {
        let waited = format!("WAITED {waited} ({share})");
        fitting(
            "",
            [format!("Needed the CPU for {wanted}"), waited, worst],
            width,
        )
    } else {
        fitting(
            "",
            [format!("WAITED {waited} of {wanted} ({share})"), worst],
            width,
        )
    };
    let names = behind.iter().map(|(name, time)| (&**name, *time));
    [first, listed("Behind: ", names, width)]
}

fn machine_lines(accounts: &[Account], width: usize) -> [String; 2] {
    let whole: Nanos = accounts.iter().map(|account| account.time).sum();
    let time = |includes: &dyn Fn(Class) -> bool| {
        let of_class = accounts.iter().filter(|account| includes(account.class));
        let time: Nanos = of_class.map(|account| account.time).sum();
        percent(time.share_of(whole))
    };
    let taken = if width >= ROOMY {
        "kernel and hypervisor"
    } else {
        "taken"
    };
    let parts = [
        format!("{} programs", time(&|class| class == Class::Program)),
        format!("{} {taken}", time(&Class::is_taken)),
        format!("{} idle", time(&|class| class.holder() == Holder::Nothing)),
    ];
    let first = fitting("", parts, width);
    let mut programs: BTreeMap<&str, Nanos> = BTreeMap::new();
    for account in accounts
        .iter()
        .filter(|account| account.class == Class::Program)
    {
        *programs.entry(&account.name).or_default() += account.time;
    }
    let mut programs: Vec<(&str, Nanos)> = programs.into_iter().collect();
    programs.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    [first, listed("Most: ", programs.into_iter(), width)]
}

/// Appends to `label` as many of `parts` as fit into the width.
fn fitting(label: &str, parts: impl IntoIterator<Item = String>, width: usize) -> String {
    let mut line = label.to_owned();
    for part in parts {
        let part = clean(&part.replace(TIE, " "));
        let separator = if line == label { "" } else { ", " };
        if columns(&line) + separator.len() + columns(&part) > width {
            break;
        }
        line = format!("{line}{separator}{part}");
    }
    line
}

/// Lists the first [`NAMES`] names with their times. The first name is shortened if it does not
/// fit.
fn listed<'a>(label: &str, all: impl Iterator<Item = (&'a str, Nanos)>, width: usize) -> String {
    let items = all.take(NAMES).enumerate().map(|(nth, (name, time))| {
        let time = time.to_string();
        let room = width.saturating_sub(columns(label) + columns(&time) + 1);
        let name = clean(name);
        let name = if nth == 0 { elide(&name, room) } else { name };
        format!("{name} {time}")
    });
    let mut items = items.peekable();
    if items.peek().is_none() {
        return format!("{label}nothing so far");
    }
    fitting(label, items, width)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::glance::{Glance, ProgramGlance};
    use ticktax_model::statement::Account;

    use super::glance;
    use crate::TextStyle;
    use crate::text::tests::samples::kernel_level;

    #[test]
    fn two_lines_show_who_used_the_cpu_or_who_was_waited_for() {
        let machine = Glance {
            accounts: kernel_level().accounts,
            program: None,
        };
        let lines = glance(&machine, &TextStyle::default());
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(
            lines.contains(" % programs, ") && lines.contains("Most: "),
            "{lines}"
        );
        let program = Glance {
            program: Some(ProgramGlance {
                wanted: Nanos::from_secs(4),
                waited: Nanos::from_secs(1),
                longest: Nanos::from_millis(148),
                behind: vec![("ru\u{1b}stc".repeat(40), Nanos::from_millis(900))],
            }),
            ..machine
        };
        let lines = glance(&program, &TextStyle::default());
        assert!(
            lines.starts_with("Needed the CPU for 4.00 s, WAITED 1.00 s (25.0 %)"),
            "{lines}"
        );
        assert!(
            lines.lines().all(|line| line.chars().count() <= 80),
            "{lines}"
        );
        assert!(!lines.contains('\u{1b}'), "{lines}");
        assert!(lines.ends_with(" 900 ms"), "{lines}");
        let nothing = glance(&Glance::default(), &TextStyle::default());
        assert!(nothing.contains("nothing so far"), "{nothing}");
    }

    /// Names can be shortened, but numbers cannot. If an item's number does not fit, the item is
    /// left out.
    #[test]
    fn numbers_are_never_cut_at_any_width() {
        let account = |name: &str, ms| Account {
            time: Nanos::from_millis(ms),
            name: name.to_owned(),
            ..kernel_level().accounts[0].clone()
        };
        let machine = Glance {
            accounts: vec![
                account("qemu-system-x86", 66_123),
                account("stress-ng-cpu", 1_400),
            ],
            program: None,
        };
        let at = |width| {
            let style = TextStyle {
                width,
                ..TextStyle::default()
            };
            glance(&machine, &style)
        };
        assert!(
            at(80).ends_with("Most: qemu-system-x86 66.1 s, stress-ng-cpu 1.40 s"),
            "{}",
            at(80)
        );
        assert!(
            at(40).ends_with("Most: qemu-system-x86 66.1 s"),
            "{}",
            at(40)
        );
        assert!(
            at(40).starts_with("100.0 % programs, 0 % taken, 0 % idle"),
            "{}",
            at(40)
        );
    }
}
