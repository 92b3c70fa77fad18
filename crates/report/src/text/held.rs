//! The section about throttled programs.

use ticktax_model::statement::Statement;
use ticktax_model::victim::OffCpuReason;

use super::cells::{Cells, Scale, by_name};
use super::numbers::counted;
use super::page::{Page, Tone};
use super::wall;

/// Maximum number of programs shown by name.
const SHOWN: usize = 8;

/// Title of the section.
pub(super) const TITLE: &str = "Throttled programs";

/// Writes the section. Writes nothing if no program was throttled.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let all = &statement.throttled;
    if all.is_empty() {
        return;
    }
    let scale = Scale {
        whole: statement.balance.elapsed,
        wall: wall(statement),
    };
    page.section(TITLE);
    page.headings(Tone::Faint, "", &without_share(Cells::headings()).columns());
    let (shown, others) = all.split_at(by_name(all.len(), SHOWN));
    for program in shown {
        let pid = program
            .pid
            .map_or_else(String::new, |pid| format!(" ({pid})"));
        let name = format!("{}{pid} {}", program.name, program.reason.name());
        let cells = scale.cells(program.time, &program.intervals);
        page.row(Tone::Warning, 2, &name, &without_share(cells).columns());
    }
    if !others.is_empty() {
        let cells = scale.others(others.iter().map(|program| {
            let intervals = &program.intervals;
            (program.time, intervals.count, intervals.max)
        }));
        let name = counted(others.len() as u64, "other");
        page.row(Tone::Warning, 2, &name, &without_share(cells).columns());
    }
    let mut legend = "time: from when a thread was throttled until it ran again, including its \
        wait for a CPU after the quota was refilled, summed over all threads. No CPU spent this \
        time, so it is in no CPU-time account."
        .to_owned();
    if all
        .iter()
        .any(|program| program.reason == OffCpuReason::Throttled)
    {
        legend += " throttled: its cgroup used up its CPU quota. Raise cpu.max there \
            (cpu.cfs_quota_us in cgroup version 1), or \
            let the program use fewer threads at once.";
    }
    page.legend(&legend);
}

/// Clears the share, because a time summed over threads is not a share of anything.
fn without_share(cells: Cells) -> Cells {
    Cells {
        share: String::new(),
        ..cells
    }
}
