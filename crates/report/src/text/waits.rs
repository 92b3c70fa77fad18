//! Who waited for a CPU behind whom, of all programs.

use ticktax_model::statement::Statement;
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};

use super::cells::Cells;
use super::numbers::{counted, rate};
use super::page::{Page, Tone, tied};
use super::wall;

/// Writes the section, where it is known.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let told = |waits: &&WaitStatement| waits.count > 0 || !waits.real_time.is_empty();
    let Some(waits) = statement.waits.as_ref().filter(told) else {
        return;
    };
    page.section("Who waited for a CPU, and behind whom");
    let headings = Cells {
        share: String::new(),
        median: String::new(),
        p99: String::new(),
        ..Cells::headings()
    };
    page.headings(Tone::Faint, "", &headings.columns());
    for program in &waits.programs {
        let cells = Cells {
            time: program.time.to_string(),
            rate: rate(program.count, wall(statement)),
            max: program.max.to_string(),
            ..Cells::default()
        };
        page.place(program);
        page.row(
            Tone::Plain,
            2,
            &named(&program.name, &program.pids),
            &cells.columns(),
        );
        page.paragraph(Tone::Faint, "    ", &behind(program));
    }
    if waits.programs_left_out > 0 {
        let left = format!("and {}", counted(waits.programs_left_out, "other program"));
        page.paragraph(Tone::Faint, "  ", &left);
    }
    super::victim::real_time(page, &waits.real_time);
    let mut legend =
        "time: from a wake-up, or from losing its CPU, until a thread had a CPU, of all \
        threads added up. behind: who ran meanwhile on that CPU."
            .to_owned();
    if !waits.preempted {
        legend += " Events were lost: waits of threads that lost their CPU are left out.";
    }
    page.legend(&legend);
}

/// Who had the CPU while a program waited, and when it waited longest.
fn behind(program: &WaitingProgram) -> String {
    let parts = program.behind.iter();
    let parts =
        parts.map(|it: &WaitedFor| tied(format!("{} {}", named(&it.name, &it.pids), it.time)));
    let parts: Vec<String> = parts.collect();
    let at = format!("{:.3} s", program.max_at.as_secs_f64());
    format!("behind {}; longest at {}", parts.join(", "), tied(at))
}

/// A program, and which process or how many that is.
fn named(name: &str, pids: &[i32]) -> String {
    match pids {
        [] => name.to_owned(),
        [pid] => format!("{name} ({pid})"),
        pids => format!("{name} x{}", pids.len()),
    }
}
