//! Programs that wanted to run and were not allowed to.

use ticktax_model::Nanos;
use ticktax_model::statement::{Statement, ThrottledProgram};
use ticktax_model::victim::OffCpuReason;

use super::accounts::Cells;
use super::numbers::{counted, rate, rough_or_blank, time_or_blank};
use super::page::{Page, Tone};
use super::wall;

/// Programs that are shown by name.
const SHOWN: usize = 8;

/// Writes the section, where a program was held back.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let all = &statement.throttled;
    if all.is_empty() {
        return;
    }
    let wall = wall(statement);
    page.section("Throttled: runnable programs that were not allowed to run");
    let headings = Cells {
        share: String::new(),
        ..Cells::headings()
    };
    page.row(Tone::Faint, 0, "", &headings.text());
    let shown = if all.len() <= SHOWN + 1 {
        all.len()
    } else {
        SHOWN
    };
    for held in &all[..shown] {
        let pid = held.pid.map_or_else(String::new, |pid| format!(" ({pid})"));
        let name = format!("{}{pid} {}", held.name, held.why.name());
        page.row(Tone::Warning, 2, &name, &cells(held, wall).text());
    }
    let others = &all[shown..];
    if !others.is_empty() {
        let time: Nanos = others.iter().map(|held| held.time).sum();
        let cells = Cells {
            time: time.to_string(),
            rate: rate(others.iter().map(|held| held.count).sum(), wall),
            max: time_or_blank(others.iter().filter_map(|held| held.max).max()),
            ..Cells::default()
        };
        let name = counted(others.len() as u64, "other");
        page.row(Tone::Warning, 2, &name, &cells.text());
    }
    let mut legend =
        "time: summed over its threads; part of no account, because no CPU spent it.".to_owned();
    if all.iter().any(|held| held.why == OffCpuReason::Throttled) {
        legend += " throttled: the CPU quota of its cgroup was used up; raise cpu.max there \
            (cpu.cfs_quota_us in a cgroup of version 1), or \
            let the program use fewer threads at once.";
    }
    page.legend(&legend);
}

fn cells(held: &ThrottledProgram, wall: Nanos) -> Cells {
    Cells {
        time: held.time.to_string(),
        share: String::new(),
        rate: rate(held.count, wall),
        median: rough_or_blank(held.median),
        p99: rough_or_blank(held.p99),
        max: time_or_blank(held.max),
    }
}
