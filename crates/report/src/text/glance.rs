//! What somebody is shown who watches while a recording goes on.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::glance::{Glance, ProgramGlance};
use ticktax_model::statement::{Account, Class, Holder};

use super::TextStyle;
use super::numbers::percent;
use super::page::{TIE, clean, elide};

/// Names in a line.
const NAMES: usize = 4;

/// What is known so far in two lines, each no wider than the page: how the CPUs' time was shared out and
/// which programs had most of it; or how long a program waited, and behind whom.
pub fn glance(glance: &Glance, style: &TextStyle) -> String {
    let lines = match &glance.program {
        Some(program) => of_program(program),
        None => of_machine(&glance.accounts),
    };
    let width = style.width.clamp(40, 200);
    let fitted = |line: String| elide(&clean(&line.replace(TIE, " ")), width);
    lines.map(fitted).join("\n")
}

fn of_program(program: &ProgramGlance) -> [String; 2] {
    let ProgramGlance {
        wanted,
        waited,
        longest,
        behind,
    } = program;
    let share = percent(waited.share_of(*wanted));
    let first = format!("Wanted the CPU {wanted}, WAITED {waited} ({share}), worst {longest}");
    let names = behind.iter().map(|(name, time)| (&**name, *time));
    [first, format!("Behind: {}", listed(names))]
}

fn of_machine(accounts: &[Account]) -> [String; 2] {
    let whole: Nanos = accounts.iter().map(|account| account.time).sum();
    let time = |is_it: &dyn Fn(Class) -> bool| {
        let of_class = accounts.iter().filter(|account| is_it(account.class));
        let time: Nanos = of_class.map(|account| account.time).sum();
        percent(time.share_of(whole))
    };
    let first = format!(
        "Programs {}, kernel and hypervisor {}, idle {}",
        time(&|class| class == Class::Program),
        time(&Class::is_taken),
        time(&|class| class.holder() == Holder::Nothing),
    );
    let mut programs: BTreeMap<&str, Nanos> = BTreeMap::new();
    for account in accounts.iter().filter(|it| it.class == Class::Program) {
        *programs.entry(&account.name).or_default() += account.time;
    }
    let mut programs: Vec<(&str, Nanos)> = programs.into_iter().collect();
    programs.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    [first, format!("Most: {}", listed(programs.into_iter()))]
}

/// The first few with their times.
fn listed<'a>(all: impl Iterator<Item = (&'a str, Nanos)>) -> String {
    let told: Vec<String> = all
        .take(NAMES)
        .map(|(name, time)| format!("{name} {time}"))
        .collect();
    if told.is_empty() {
        return "nobody so far".to_owned();
    }
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::glance::{Glance, ProgramGlance};

    use super::glance;
    use crate::TextStyle;
    use crate::text::tests::samples::kernel_level;

    #[test]
    fn two_lines_say_who_had_the_time() {
        let machine = Glance {
            accounts: kernel_level().accounts,
            program: None,
        };
        let lines = glance(&machine, &TextStyle::default());
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(
            lines.starts_with("Programs ") && lines.contains("Most: "),
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
            lines.starts_with("Wanted the CPU 4.00 s, WAITED 1.00 s (25.0 %)"),
            "{lines}"
        );
        assert!(
            lines.lines().all(|line| line.chars().count() <= 80),
            "{lines}"
        );
        assert!(!lines.contains('\u{1b}'), "{lines}");
        let nothing = glance(&Glance::default(), &TextStyle::default());
        assert!(nothing.contains("nobody so far"), "{nothing}");
    }
}
