//! The table of CPU time, by CPU and group of accounts.

use ticktax_model::Nanos;
use ticktax_model::statement::{CpuAccounts, Statement};

use super::Group;
use super::block::Columns;
use super::numbers::{counted, percent};
use super::page::{Page, Tone};

/// Maximum number of CPUs with their own line.
const SHOWN: usize = 16;

/// Writes the section. Writes nothing if there is only one CPU, which the table of accounts already
/// covers.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    if statement.cpus.len() < 2 {
        return;
    }
    page.section("CPU time by CPU (share of elapsed time)");
    let headings = Group::ALL.map(|group| group.word().to_owned());
    page.headings(Tone::Faint, "", &cells("elapsed", &headings));
    let (named, others) = most_taken_first(&statement.cpus);
    for cpu in named {
        page.row(
            Tone::Plain,
            2,
            &format!("CPU {}", cpu.cpu),
            &cells_of(&[cpu]),
        );
    }
    if !others.is_empty() {
        let name = counted(others.len() as u64, "other");
        page.row(Tone::Plain, 2, &name, &cells_of(&others));
    }
}

/// Splits the CPUs into those with their own line, in ascending order, and the rest. If there are
/// too many CPUs, those that lost the most time get a line.
fn most_taken_first(cpus: &[CpuAccounts]) -> (Vec<&CpuAccounts>, Vec<&CpuAccounts>) {
    let taken = |cpu: &&CpuAccounts| -> Nanos {
        let parts = cpu.classes.iter().filter(|part| part.class.is_taken());
        parts.map(|part| part.time).sum()
    };
    let mut all: Vec<&CpuAccounts> = cpus.iter().collect();
    if all.len() <= SHOWN {
        return (all, Vec::new());
    }
    all.sort_by_key(|cpu| std::cmp::Reverse(taken(cpu)));
    let others = all.split_off(SHOWN - 1);
    all.sort_by_key(|cpu| cpu.cpu);
    (all, others)
}

/// Creates the table cells for one CPU, or for several CPUs together.
fn cells_of(cpus: &[&CpuAccounts]) -> Columns {
    let elapsed: Nanos = cpus.iter().map(|cpu| cpu.elapsed).sum();
    let shares = Group::ALL.map(|group| {
        let parts = cpus.iter().flat_map(|cpu| &cpu.classes);
        let time: Nanos = parts
            .filter(|part| Group::from_class(part.class) == group)
            .map(|part| part.time)
            .sum();
        percent(time.share_of(elapsed))
    });
    cells(&elapsed.to_string(), &shares)
}

fn cells(elapsed: &str, shares: &[String; 5]) -> Columns {
    let elapsed = Columns::right([(8, elapsed)]);
    let one_more = |line: Columns, share| line.and_right(1, 9, share);
    shares.iter().fold(elapsed, one_more)
}
