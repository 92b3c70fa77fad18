//! The books of each CPU, side by side.

use ticktax_model::Nanos;
use ticktax_model::statement::{CpuBooks, Statement};

use super::Group;
use super::block::Columns;
use super::numbers::{counted, percent};
use super::page::{Page, Tone};

/// CPUs that get a line of their own before the rest is summed up.
const SHOWN: usize = 16;

/// Writes the section. A machine with one CPU has said all of it above.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    if statement.cpus.len() < 2 {
        return;
    }
    page.section("CPU by CPU, as shares of elapsed time");
    let headings = Group::ALL.map(|group| group.word().to_owned());
    page.headings(Tone::Faint, "", &cells("elapsed", &headings));
    let (named, others) = most_taken_first(&statement.cpus);
    for books in named {
        page.row(Tone::Plain, 2, &format!("CPU {}", books.cpu), &of(&[books]));
    }
    if !others.is_empty() {
        let name = format!("{}, less taken", counted(others.len() as u64, "other"));
        page.row(Tone::Plain, 2, &name, &of(&others));
    }
}

/// The CPUs to show by number, ascending, and the rest: where there are too many, those with the
/// most time taken from programs are shown.
fn most_taken_first(cpus: &[CpuBooks]) -> (Vec<&CpuBooks>, Vec<&CpuBooks>) {
    let taken = |books: &&CpuBooks| -> Nanos {
        let parts = books.classes.iter().filter(|part| part.class.is_taken());
        parts.map(|part| part.time).sum()
    };
    let mut all: Vec<&CpuBooks> = cpus.iter().collect();
    if all.len() <= SHOWN {
        return (all, Vec::new());
    }
    all.sort_by_key(|books| std::cmp::Reverse(taken(books)));
    let others = all.split_off(SHOWN - 1);
    all.sort_by_key(|books| books.cpu);
    (all, others)
}

/// The cells for some CPUs together.
fn of(cpus: &[&CpuBooks]) -> Columns {
    let elapsed: Nanos = cpus.iter().map(|books| books.elapsed).sum();
    let shares = Group::ALL.map(|group| {
        let parts = cpus.iter().flat_map(|books| &books.classes);
        let time: Nanos = parts
            .filter(|part| Group::of(part.class) == group)
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
