//! The section about run-queue waits: which programs waited for a CPU, and what they waited behind.

use ticktax_model::statement::Statement;
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};

use super::cells::Cells;
use super::group_names::{GroupNames, NAME_WIDTH, with_group};
use super::numbers::{counted, displayed, rate};
use super::page::{Page, Tone, tied};
use super::wall;

/// Maximum number of programs, kernel threads and softirqs whose code is listed.
const CODE: usize = 10;

/// Title of the section.
pub(super) const TITLE: &str = "Run-queue waits";

/// Writes the section. Writes nothing if no waits are known.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let has_content = |waits: &&WaitStatement| waits.count > 0 || !waits.real_time.is_empty();
    let Some(waits) = statement.waits.as_ref().filter(has_content) else {
        return;
    };
    page.section(TITLE);
    let headings = Cells {
        share: String::new(),
        median: String::new(),
        p99: String::new(),
        ..Cells::headings()
    };
    page.headings(Tone::Faint, "", &headings.columns());
    let names = GroupNames::new(statement);
    for program in &waits.programs {
        let cells = Cells {
            time: program.time.to_string(),
            rate: rate(program.count, wall(statement)),
            max: program.max.to_string(),
            ..Cells::default()
        };
        page.place(program);
        let title = named(&program.name, &program.pids);
        let title = with_group(&title, names.shown(&program.pids), NAME_WIDTH);
        page.row(Tone::Plain, 2, &title, &cells.columns());
        page.paragraph(Tone::Faint, "    ", &behind(program));
    }
    if waits.programs_left_out > 0 {
        let left = counted(waits.programs_left_out, "other program");
        page.paragraph(Tone::Faint, "  ", &left);
    }
    if !statement.sampled.is_empty() {
        page.line(Tone::Strong, "Code that ran while others waited");
        super::sampled::of_machine(page, &statement.sampled, CODE);
    }
    super::victim::real_time(page, &waits.real_time);
    let mut legend =
        "time: from a wake-up or preemption until the thread ran, summed over all threads. \
        behind: the programs that ran on that CPU during the waits."
            .to_owned();
    if !waits.preempted {
        legend += " Events were lost, so waits after a preemption are missing.";
    }
    page.legend(&legend);
}

/// Lists the programs that ran while `program` waited, and when its longest wait started.
fn behind(program: &WaitingProgram) -> String {
    let parts = program.behind.iter();
    let parts = parts.map(|waited: &WaitedFor| {
        tied(format!(
            "{} {}",
            named(displayed(&waited.name), &waited.pids),
            waited.time
        ))
    });
    let parts: Vec<String> = parts.collect();
    let at = format!("{:.3} s", program.max_at.as_secs_f64());
    format!("behind {}; the longest at {}", parts.join(", "), tied(at))
}

/// Returns the name of a program with its pid or its number of processes.
fn named(name: &str, pids: &[i32]) -> String {
    match pids {
        [] => name.to_owned(),
        [pid] => format!("{name} ({pid})"),
        pids => format!("{name} x{}", pids.len()),
    }
}
