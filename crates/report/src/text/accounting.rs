//! The section that compares the kernel's CPU accounting with the traced time.

use ticktax_model::Nanos;
use ticktax_model::accounting::{
    AccountingStatement, Bias, BiasKind, Counting, CpuCheck, Method, ProgramCheck, SpareTime,
    SpareTimeSource,
};
use ticktax_model::statement::Statement;

use super::block::Columns;
use super::numbers::{OUTSIDE, counted, cpu_names, percent};
use super::page::{Page, Tone, tied};

/// Maximum number of CPUs with their own line. The CPUs with the largest errors come first.
const CPUS: usize = 8;
/// Maximum number of programs with their own line.
const PROGRAMS: usize = 5;
/// Maximum number of causes listed per CPU. The first one is the net difference, and the others
/// contribute to it.
const CAUSES: usize = 4;

/// Writes the section. Writes nothing if `/proc/stat` was not read.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(check) = &statement.accounting else {
        return;
    };
    page.section("Accuracy of the kernel's CPU accounting");
    page.paragraph(Tone::Faint, "", &how(&check.config));
    cpus(page, &check.cpus);
    programs(page, check);
}

/// Describes how the kernel on the recorded machine counts CPU time.
fn how(counting: &Counting) -> String {
    let mut text = match (counting.method, counting.tick) {
        (None, _) => {
            return "The accounting method is unknown: the kernel's configuration cannot be read."
                .to_owned();
        }
        (Some(Method::Sampled), Some(tick)) => format!(
            "This kernel samples: every {}, it charges the whole tick to the task running at that \
             moment (TICK_CPU_ACCOUNTING).",
            tied(tick)
        ),
        (Some(Method::Sampled), None) => {
            "This kernel samples: it charges the whole tick to the task running at that moment \
             (TICK_CPU_ACCOUNTING)."
                .to_owned()
        }
        (Some(Method::MeasuredWithoutTick), _) => {
            "This kernel samples at the tick, except on nohz_full CPUs, where it measures \
             (VIRT_CPU_ACCOUNTING_GEN)."
                .to_owned()
        }
        (Some(Method::Measured), _) => "This kernel measures at each kernel entry and exit \
             (VIRT_CPU_ACCOUNTING_NATIVE)."
            .to_owned(),
    };
    text.push_str(match counting.interrupts_measured {
        Some(true) => " Interrupts are measured (IRQ_TIME_ACCOUNTING).",
        Some(false) => {
            " Interrupts are not measured (IRQ_TIME_ACCOUNTING is off): their time is charged to \
             the task that they interrupt."
        }
        None => "",
    });
    text
}

fn cpus(page: &mut Page, cpus: &[CpuCheck]) {
    page.headings(
        Tone::Faint,
        "",
        &cells(["shown", "traced", "error", "unaccounted", "spare"].map(str::to_owned)),
    );
    let error = |cpu: &CpuCheck| cpu.off().unwrap_or_default().abs();
    let mut shown: Vec<&CpuCheck> = cpus.iter().collect();
    shown.sort_by(|a, b| error(b).total_cmp(&error(a)).then(a.cpu.cmp(&b.cpu)));
    let others = shown.split_off(shown.len().min(CPUS));
    shown.sort_by_key(|cpu| cpu.cpu);
    for cpu in shown {
        page.row(Tone::Plain, 2, &format!("CPU {}", cpu.cpu), &cpu_cells(cpu));
        for cause in cpu.causes.iter().take(CAUSES) {
            page.paragraph(Tone::Faint, "      ", &cause_text(cause, cpu));
        }
    }
    if !others.is_empty() {
        let names = cpu_names(others.iter().map(|cpu| cpu.cpu));
        page.paragraph(Tone::Faint, "  ", &format!("{names} have smaller errors"));
    }
    let mut legend =
        "shown: busy share in /proc/stat, as `top` shows it. traced: busy share of the \
        elapsed time, as measured here. error: shown minus traced, in percentage points (pp). \
        unaccounted: share of the elapsed time that is missing in /proc/stat; negative if some \
        time is counted twice."
            .to_owned();
    let witness = cpus.iter().find_map(|cpu| cpu.spare);
    legend.push_str(match witness.map(|left| left.measured_by) {
        Some(SpareTimeSource::Soaker) => {
            " spare: CPU time that the soak probe got, computed from the work it did. It counts \
             as busy in \
             neither share."
        }
        Some(SpareTimeSource::Spin) => {
            " spare: CPU time that the spin probe got. It counts as busy in neither share."
        }
        None => "",
    });
    page.legend(&legend);
}

fn cpu_cells(cpu: &CpuCheck) -> Columns {
    let left = |left: SpareTime| percent(left.time.share_of(left.watched));
    cells([
        percent(cpu.shown_share),
        cpu.busy_share.map_or_else(|| "?".to_owned(), percent),
        cpu.off().map_or_else(String::new, points),
        signed(cpu.uncounted.share_of(cpu.stat_elapsed)),
        cpu.spare.map_or_else(String::new, left),
    ])
}

fn cells(cells: [String; 5]) -> Columns {
    let [shown, traced, error, unaccounted, left] = cells;
    Columns::right([
        (9, shown),
        (9, traced),
        (9, error),
        (13, unaccounted),
        (9, left),
    ])
}

/// Formats a difference between two shares in percentage points.
fn points(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if tenths == 0.0 {
        return "0.0 pp".to_owned();
    }
    format!("{:+.1} pp", tenths / 10.0)
}

fn signed(share: f64) -> String {
    if share < 0.0 {
        format!("-{}", percent(-share))
    } else {
        percent(share)
    }
}

/// Describes the ticks that hit a program, given the time they stand for.
fn ticks(whose: &str, time: Nanos) -> String {
    match time {
        Nanos::ZERO => "no tick occurred during that time".to_owned(),
        time => format!("{whose} ticks add up to {}", tied(time)),
    }
}

/// Describes one cause of the error in a CPU's counters.
fn cause_text(cause: &Bias, cpu: &CpuCheck) -> String {
    let effect = tied(points(cause.time.share_of(cpu.elapsed)));
    match cause.kind {
        BiasKind::Sampling => format!(
            "{effect} from sampling: programs and kernel threads ran for {}, but {}",
            tied(cause.ran),
            ticks("their", cause.sampled)
        ),
        BiasKind::TicksLost => format!(
            "ticks were lost while the CPU was busy: {} unaccounted",
            tied(cause.ran)
        ),
        BiasKind::TicksLate => format!(
            "{} was charged {} too much: ticks that were due before it ran were held up, and hit it",
            program_of_cause(cause),
            tied(cause.time)
        ),
        BiasKind::TickPhase => {
            let way = if cause.time < Nanos::ZERO {
                "runs between ticks"
            } else {
                "runs at the ticks"
            };
            format!(
                "{} {way}: it ran for {}, but {}",
                program_of_cause(cause),
                tied(cause.ran),
                ticks("its", cause.sampled)
            )
        }
        BiasKind::SwitchesNotReported => format!(
            "{effect} from unexplained time: the CPU may have been busy for {} more",
            tied(cause.ran)
        ),
        BiasKind::InterruptsNotMeasured => {
            let all = format!(
                "unmeasured interrupts: they took {}, but /proc/stat shows {}",
                tied(cause.ran),
                tied(cause.sampled)
            );
            if effect == tied(points(0.0)) {
                return all;
            }
            let missing = tied(-cause.time);
            format!("{effect} from {all}; {missing} of them came while no program ran")
        }
        BiasKind::StealNotObserved => format!(
            "the steal column shows {}, of which {} were traced as {OUTSIDE}: the rest is in the \
             traced time of the running task, and in no busy column",
            tied(cause.sampled),
            tied(cause.ran)
        ),
        BiasKind::StealNotReported => format!(
            "{} in {OUTSIDE}, but the steal column shows {}: the rest is charged to the running \
             task",
            tied(cause.ran),
            tied(cause.sampled)
        ),
    }
}

/// Returns the name and the process ID of the program that causes an error.
fn program_of_cause(cause: &Bias) -> String {
    let name = cause.program.as_deref().unwrap_or("a program");
    let pid = cause.pid.map(|pid| format!(" ({pid})"));
    format!("{name}{}", pid.unwrap_or_default())
}

fn programs(page: &mut Page, check: &AccountingStatement) {
    if check.programs.is_empty() {
        return;
    }
    let heading = ["ran", "with interrupts", "/proc/PID", "by ticks"];
    page.headings(Tone::Faint, "", &program_cells(heading.map(str::to_owned)));
    for program in check.programs.iter().take(PROGRAMS) {
        let name = format!("{} ({})", program.name, program.pid);
        page.row(Tone::Plain, 2, &name, &program_of(program));
    }
    let others = check.programs.len().saturating_sub(PROGRAMS) as u64 + check.programs_left_out;
    if others > 0 {
        let text = format!("{} (--format json)", counted(others, "other program"));
        page.paragraph(Tone::Faint, "  ", &text);
    }
    page.legend(&format!(
        "ran: CPU time without interrupts. with interrupts: including those that hit \
             the program. /proc/PID: {}. by ticks: number of ticks that hit the program × length \
             of a tick, as in /proc/stat.",
        if check.unwatched_cpus.is_empty() {
            "user and system time in /proc/PID/stat, which `top` shows for a process".to_owned()
        } else {
            format!(
                "not shown: it covers all CPUs, and {} {} not watched",
                check.unwatched_cpus.named(),
                if check.unwatched_cpus.len() == 1 {
                    "was"
                } else {
                    "were"
                }
            )
        }
    ));
}

fn program_of(program: &ProgramCheck) -> Columns {
    let time = |time: Option<Nanos>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    program_cells([
        time(program.ran),
        time(program.on_cpu),
        time(program.shown),
        time(program.sampled),
    ])
}

fn program_cells(cells: [String; 4]) -> Columns {
    let [ran, on_cpu, shown, sampled] = cells;
    Columns::right([(10, ran), (16, on_cpu), (10, shown), (10, sampled)])
}
