//! `ticktax audit`: watches this machine and prints a statement about it.

use std::process::ExitCode;

use ticktax_analysis::Auditor;
use ticktax_host::Proc;
use ticktax_model::recording::{EndedEarly, Header, Level};
use ticktax_model::statement::Statement;
use ticktax_model::tick::TickBill;
use ticktax_model::{Nanos, SourceTable};
use ticktax_observe::{HeadStart, Keep, Plan, ProbeChoice, Program, Session, Started};
use ticktax_probes::SchedulingPolicy;
use ticktax_report::{RowsEnded, Section};

use crate::arguments::{AuditArguments, ProcessId};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Extent, Progress as Bar};
use crate::terminal::Terminal;
use crate::watch::watch;

/// Default length of an audit without a command.
const LENGTH: Nanos = Nanos::from_secs(20);

/// Maximum length of an audit that keeps individual spans by default. Longer audits keep sums,
/// because spans would fill the disk or take minutes to read back.
const MOST_OF_SPANS: Nanos = Nanos::from_secs(10 * 60);

/// Amount of memory, in bytes, below which an audit keeps sums by default. With spans, an audit at
/// 200,000 events/s takes 110 MiB within 6 s.
const LITTLE_MEMORY: u64 = 192 << 20;

/// Interval between updates of the live figures. An update takes a few tenths of a millisecond.
const GLANCE: Nanos = Nanos::from_millis(500);

/// Interval between searches for new periodic activity, which is announced on the terminal. A
/// search takes a few hundredths of a second.
const NEWS: Nanos = Nanos::from_secs(10);

pub(crate) fn run(
    typed: &AuditArguments,
    head_start: HeadStart,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let plan = plan(typed)?;
    plan.check()?;
    let view = &typed.statement.print.view;
    let terminal = &if typed.net {
        terminal.grouping(&view.clone().with(Section::Net))
    } else {
        terminal.grouping(view)
    };
    let wanted = typed
        .files
        .and_profile(typed.profile.waits.profile_out.as_deref());
    let mut files = output::begin(&wanted, typed.output.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let mut session = Session::start_with(plan, head_start)?;
    let mut auditor = auditor(session.started(), typed.no_report, terminal);
    if typed.profile.waits.while_waiting {
        auditor = auditor.profiling_waits();
    }
    let mut screen = Screen::new(session.started(), terminal);
    let header = watch(
        &mut session,
        &mut auditor,
        &mut files,
        &interrupt,
        &mut |auditor, sources, progress| screen.show(progress.elapsed, auditor, sources),
    )?;
    screen.bar.done();
    if header.ended_early == Some(EndedEarly::MemoryLimit) {
        terminal.complain(
            &"the audit ended early, because ticktax came close to the memory limit of \
                            its control group: use --keep sums, or raise the limit",
        );
    }
    let mut statement = auditor.finish(&header, session.sources(), crate::beats::threads());
    extrapolate(statement.tick.as_mut(), typed.statement.fleet_of, terminal);
    check_watched(&statement, &header)?;
    let balances = statement.balances();
    let ended = RowsEnded {
        header: &header,
        sources: session.sources(),
        document: &statement.into(),
    };
    if typed.no_report {
        output::finish_files(&ended, files, terminal)?;
    } else {
        let output = Output::new(typed.statement.print.format, typed.output.as_deref());
        output::finish(&ended, files, output, terminal)?;
    }
    Ok(exit_code(balances, &header, interrupt.signal()))
}

fn plan(typed: &AuditArguments) -> Result<Plan, Failure> {
    let program = program(typed)?;
    let length = match typed.length {
        Some(length) => Some(length.0),
        None if typed.command.is_empty() => Some(LENGTH),
        None => None,
    };
    let profile_hz = typed.profile.hz();
    let keep = typed.keep.unwrap_or(match length {
        // Spans are needed to follow a program and to reconstruct packets' paths.
        _ if program.is_some() || typed.net || profile_hz.is_some() => Keep::Spans,
        Some(length) if length > MOST_OF_SPANS => Keep::Sums,
        _ if memory_is_short() => Keep::Sums,
        _ => Keep::Spans,
    });
    if profile_hz.is_some() && keep == Keep::Sums {
        return Err(Failure::Arguments(
            "a profile needs individual spans, but --keep sums does not record them: omit \
             --keep sums"
                .to_owned(),
        ));
    }
    if typed.profile.waits.while_waiting && program.is_none() {
        return Err(Failure::Arguments(NO_WAITER.to_owned()));
    }
    if typed.net && keep == Keep::Sums {
        return Err(Failure::Arguments(
            "--net needs individual spans, but --keep sums does not record them: omit \
             --keep sums"
                .to_owned(),
        ));
    }
    // A probe disturbs what it measures, so it runs only on request.
    let probe = typed.probe.unwrap_or(match typed.probe_policy {
        Some(_) => ProbeChoice::Spin,
        None => ProbeChoice::None,
    });
    if probe == ProbeChoice::Soak && typed.probe_policy.is_some() {
        return Err(Failure::Arguments(
            "the soak probe measures unused CPU time, so it must run at the lowest priority: omit \
             --probe-policy, or use --probe spin"
                .to_owned(),
        ));
    }
    let real_time = typed.probe_policy.and_then(SchedulingPolicy::real_time);
    if real_time.is_some() && typed.cpus.is_none() {
        return Err(Failure::Arguments(
            "a real-time probe blocks other programs on its CPUs: choose the CPUs with --cpus"
                .to_owned(),
        ));
    }
    Ok(Plan {
        cpus: typed.cpus.clone(),
        length,
        keep,
        probe,
        policy: typed.probe_policy,
        program,
        profile_hz,
        ..Plan::default()
    })
}

/// Error for a profile of the waits of nobody.
pub(crate) const NO_WAITER: &str = "--while-waiting needs a program whose waits to profile: choose \
                                    one, for example with --pid";

fn memory_is_short() -> bool {
    let limit = Proc::default().memory_limit();
    limit.is_some_and(|limit| limit < LITTLE_MEMORY)
}

fn program(typed: &AuditArguments) -> Result<Option<Program>, Failure> {
    if let Some(name) = typed.group.name() {
        let folder = Proc::default().group_folder(&name)?;
        return Ok(Some(Program::Cgroup(folder)));
    }
    Ok(
        match (&*typed.pid, &typed.comm, &typed.cgroup, &*typed.command) {
            ([ProcessId(pid)], ..) => Some(Program::Process(*pid)),
            ([], None, None, []) => None,
            ([], None, None, command) => Some(Program::Command(command.to_vec())),
            ([], None, Some(folder), _) => Some(Program::Cgroup(folder.clone())),
            ([], Some(name), ..) => Some(named(name)),
            (pids, ..) => Some(Program::Processes(pids.iter().map(|pid| pid.0).collect())),
        },
    )
}

/// Selects the processes with this name. If there is exactly one, the audit watches it as if its
/// PID had been given, and so also finds its frames.
fn named(name: &str) -> Program {
    match *Proc::default().processes_named(name) {
        [pid] => Program::Process(pid),
        _ => Program::Named(name.to_owned()),
    }
}

/// Creates the analysis. If the tracer could not be loaded, warns now, while the user can still
/// act. Even without a report, the accounts are needed to check that they balance, and the
/// program's threads to check that it had any.
fn auditor(started: &Started, no_report: bool, terminal: &Terminal) -> Auditor {
    if let Some(why) = &started.no_tracer {
        terminal.complain(&format_args!("running at level `proc`: {why}"));
    }
    let auditor = if no_report {
        Auditor::books()
    } else {
        Auditor::new(&started.machine)
    };
    match started.victim_begin {
        Some(begin) => auditor.following(begin, started.process.filter(|_| !no_report)),
        None => auditor,
    }
}

/// Live output on the terminal, and when each part was last updated.
struct Screen<'a> {
    terminal: &'a Terminal,
    bar: Bar,
    label: String,
    shown: Nanos,
    glanced: Nanos,
    announced: Nanos,
}

impl<'a> Screen<'a> {
    fn new(started: &Started, terminal: &'a Terminal) -> Self {
        let label = format!("Watching {}", started.cpus.named());
        Self {
            terminal,
            // An audited command writes to the same terminal as ticktax, so there must not be a
            // progress bar.
            bar: match started.length.filter(|_| !started.command) {
                Some(length) => terminal.progress(Extent::Time(length), label.clone()),
                None => Bar::hidden(),
            },
            label,
            shown: Nanos::ZERO,
            glanced: Nanos::ZERO,
            announced: Nanos::ZERO,
        }
    }

    fn show(&mut self, elapsed: Nanos, auditor: &mut Auditor, sources: &SourceTable) {
        if self.bar.is_shown() && elapsed - self.glanced >= GLANCE {
            let style = self.terminal.watched_style();
            let lines = ticktax_report::glance(&auditor.glance(sources), &style);
            self.bar.tell(&format!("{lines}\n{}", self.label));
            self.glanced = elapsed;
        }
        if elapsed - self.shown >= Bar::INTERVAL {
            self.bar.at(elapsed);
            self.shown = elapsed;
        }
        if self.terminal.is_watched() && elapsed - self.announced >= NEWS {
            for beat in auditor.news() {
                let style = self.terminal.watched_style();
                self.bar.say(&ticktax_report::beat_news(&beat, &style));
            }
            self.announced = elapsed;
        }
    }
}

/// Rejects a statement about an existing process that exited before it could be watched, because it
/// would say nothing about the process.
fn check_watched(statement: &Statement, header: &Header) -> Result<(), Failure> {
    let (Some(victim), Some(about)) = (&statement.victim, &header.victim) else {
        return Ok(());
    };
    // If individual spans were not recorded, only counters can show that the process existed.
    let was_seen = match &victim.threads {
        Some(threads) => threads.threads > 0,
        None => about.before.is_some(),
    };
    if was_seen || !victim.exited || header.command.is_some() || header.level != Level::Kernel {
        return Ok(());
    }
    let pid = victim.pid.map_or_else(String::new, |pid| format!(" {pid}"));
    Err(Failure::NotWatched { pid })
}

/// Adds to `bill` an estimate of what the ticks would cost a host that runs `guests` guests like
/// this machine. Does nothing if `guests` is `None`.
pub(crate) fn extrapolate(bill: Option<&mut TickBill>, guests: Option<u32>, terminal: &Terminal) {
    let Some(guests) = guests else {
        return;
    };
    if !bill.is_some_and(|bill| ticktax_analysis::tick::add_fleet(bill, guests)) {
        terminal.complain(
            &"cannot apply --fleet-of: the cost of a tick was not measured; record as root for a \
              few seconds",
        );
    }
}

/// Returns the exit code. Unbalanced accounts take precedence over the exit code of the audited
/// command, because a wrong statement must not pass for a correct one.
fn exit_code(balances: bool, header: &Header, signal: Option<i32>) -> ExitCode {
    if !balances {
        return ExitCode::from(UNBALANCED);
    }
    let passed_on = match (&header.command, signal) {
        (None, _) => 0,
        (Some(command), signal) => command
            .exit
            .or_else(|| signal.map(|signal| 128 + signal))
            .unwrap_or(0),
    };
    ExitCode::from(u8::try_from(passed_on).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use ticktax_analysis::Auditor;
    use ticktax_model::recording::{EndedEarly, Header, Level, World};
    use ticktax_model::victim::{Target, Usage, VictimHeader};
    use ticktax_model::{Nanos, SourceTable};

    use super::check_watched;

    /// Returns the error for an audit of process 5 that recorded no rows. `before` is the process's
    /// CPU use when the audit started.
    fn error(ended: bool, followed: bool, before: Option<Usage>) -> Option<String> {
        let mut header = Header::new(World::Live, Level::Kernel, "0.1.0");
        header.ended_early = ended.then_some(EndedEarly::ProgramExited);
        header.victim = Some(VictimHeader {
            target: Target::Process,
            name: String::new(),
            pid: Some(5),
            begin: Nanos::ZERO,
            followed,
            incomplete: None,
            before,
            after: None,
            threads: None,
            only_thread: None,
            freezer: None,
            frozen_by: None,
            deadline: None,
            short_system_calls: None,
            group_settings: None,
            memory_limit: None,
        });
        let sources = SourceTable::default();
        let statement = Auditor::books().finish(&header, &sources, 1);
        let checked = check_watched(&statement, &header);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn a_process_that_exited_before_the_audit_began_is_an_error() {
        let gone = error(true, true, None).unwrap();
        assert!(
            gone.starts_with("process 5 exited before it could be watched: "),
            "{gone}"
        );
        // The process did not exit, but slept throughout the audit, so it left no rows. This is not
        // an error.
        assert_eq!(error(false, true, None), None);
        // An audit that keeps sums does not follow threads.
        assert_eq!(error(true, false, Some(Usage::default())), None);
    }
}
