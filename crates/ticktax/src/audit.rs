//! `ticktax audit`: watches this machine, keeps its books, prints its statement.

use std::process::ExitCode;

use ticktax_analysis::Auditor;
use ticktax_model::Nanos;
use ticktax_model::recording::{Header, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::victim::ThreadTimes;
use ticktax_observe::{Event, Plan, Program, Session};

use crate::arguments::{AuditArguments, Keep, ProbeChoice, ProcessId};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::saved::SavedAs;
use crate::terminal::{self, Progress, Terminal};
use crate::trace_file::TraceFile;

/// How long, without other wishes.
const LENGTH: Nanos = Nanos::from_secs(20);

/// Longer audits keep sums: spans would fill a disk, or take minutes to read again.
const MOST_OF_SPANS: Nanos = Nanos::from_secs(10 * 60);

/// How often somebody who watches is told what is new. Looking takes some hundredths of a second.
const NEWS: Nanos = Nanos::from_secs(10);

/// Runs the verb.
pub(crate) fn run(typed: &AuditArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let plan = plan(typed)?;
    plan.check()?;
    // Before anything is watched: a file that cannot be made should not cost a minute's wait.
    let mut file = typed.save.clone().map(SavedAs::create).transpose()?;
    let mut trace = typed
        .perfetto
        .as_deref()
        .map(TraceFile::create)
        .transpose()?;
    if let Some(output) = &typed.output {
        terminal::require_writable(output)?;
    }
    let interrupt = Interrupt::listen()?;
    let mut session = Session::start(plan)?;
    let (auditor, header) = watch(&mut session, (&mut file, &mut trace), &interrupt, terminal);
    let threads = crate::beats::threads();
    let mut statement = auditor.finish(&header, session.sources(), threads);
    extrapolate(&mut statement, typed.fleet_of, terminal);
    let traced = trace.map(|trace| trace.finish(session.sources(), &statement, terminal));
    let balances = balances(&statement);
    let printed = terminal.put(&statement.into(), typed.format, typed.output.as_deref());
    // A statement that nobody can read is no reason to lose the recording as well.
    if let Some(file) = file {
        file.finish(&header, terminal)?;
    }
    printed?;
    traced.transpose()?;
    Ok(exit_code(balances, &header, interrupt.signal()))
}

/// What the arguments mean.
fn plan(typed: &AuditArguments) -> Result<Plan, Failure> {
    let program = match (typed.pid, &typed.cgroup) {
        (Some(ProcessId(pid)), _) => Some(Program::Process(pid)),
        (None, Some(folder)) => Some(Program::Cgroup(folder.clone())),
        (None, None) => Some(&typed.command)
            .filter(|command| !command.is_empty())
            .map(|command| Program::Command(command.clone())),
    };
    let length = match typed.length {
        Some(length) => Some(length.0),
        None if typed.command.is_empty() => Some(LENGTH),
        None => None,
    };
    let keep = typed.keep.unwrap_or(match length {
        _ if program.is_some() => Keep::Spans,
        Some(length) if length > MOST_OF_SPANS => Keep::Sums,
        _ => Keep::Spans,
    });
    // Whoever names a program wants to know what happens to it, and not what a probe does to it.
    let probe = typed.probe.unwrap_or(match &program {
        Some(_) if typed.probe_policy.is_none() => ProbeChoice::None,
        _ => ProbeChoice::Spin,
    });
    if probe == ProbeChoice::Soak && typed.probe_policy.is_some() {
        return Err(Failure::Arguments(
            "a soaker measures unused CPU time and so runs at the lowest priority: leave out \
             --probe-policy, or use --probe spin"
                .to_owned(),
        ));
    }
    Ok(Plan {
        cpus: typed.cpus.clone(),
        length,
        keep: keep.into(),
        probe: probe.into(),
        policy: typed.probe_policy.map(|policy| policy.0),
        program,
        ..Plan::default()
    })
}

/// Takes the session's rows until it ends or somebody interrupts, and shows meanwhile how far it
/// has come.
fn watch(
    session: &mut Session,
    (file, trace): (&mut Option<SavedAs>, &mut Option<TraceFile>),
    interrupt: &Interrupt,
    terminal: &Terminal,
) -> (Auditor, Box<Header>) {
    let started = session.started();
    let mut auditor = Auditor::new(&started.machine);
    let what = format!("Watching CPUs {}", started.cpus);
    let mut screen = Screen {
        // A command writes to the same terminal.
        bar: terminal.progress(started.length, what, started.command),
        shown: Nanos::ZERO,
        told: Nanos::ZERO,
    };
    let header = loop {
        match session.next_event() {
            Event::Started(started) => {
                if let Some(why) = &started.no_tracer {
                    terminal.complain(&format_args!("level proc only: {why}"));
                }
                if let Some(begin) = started.victim_begin {
                    auditor.victim_since(begin);
                }
            }
            Event::Rows { sources, rows } => {
                for row in rows {
                    auditor.row(sources, row);
                    if let Some(file) = file {
                        file.row(sources, row);
                    }
                    if let Some(trace) = trace {
                        trace.row(sources, row);
                    }
                }
            }
            Event::Progress(progress) => screen.show(progress.elapsed, &mut auditor, terminal),
            Event::Ended(header) => break header,
        }
        if let Some(signal) = interrupt.signal() {
            session.stop(Some(signal));
        }
    };
    screen.bar.done();
    (auditor, header)
}

/// What somebody who watches is shown, and when that was last.
struct Screen {
    bar: Progress,
    shown: Nanos,
    told: Nanos,
}

impl Screen {
    fn show(&mut self, elapsed: Nanos, auditor: &mut Auditor, terminal: &Terminal) {
        if elapsed - self.shown >= Progress::INTERVAL {
            self.bar.at(elapsed);
            self.shown = elapsed;
        }
        if terminal.is_watched() && elapsed - self.told >= NEWS {
            for beat in auditor.news() {
                self.bar
                    .say(&ticktax_report::beat_news(&beat, &terminal.style()));
            }
            self.told = elapsed;
        }
    }
}

/// Adds what the ticks cost a host of so many guests, where that was asked for.
pub(crate) fn extrapolate(statement: &mut Statement, guests: Option<u32>, terminal: &Terminal) {
    let Some(guests) = guests else {
        return;
    };
    let bill = statement.tick.as_mut();
    let fleet = bill.and_then(|bill| {
        bill.fleet = ticktax_analysis::tick::fleet(bill, guests);
        bill.fleet
    });
    if fleet.is_none() {
        terminal.complain(
            &"--fleet-of: what a tick costs was not seen; record as root, for long enough to have \
              some",
        );
    }
}

/// Whether every nanosecond is where it belongs: the machine's, and the victim's.
pub(crate) fn balances(statement: &Statement) -> bool {
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    statement.balance.balances() && threads.is_none_or(ThreadTimes::balances)
}

/// The books' verdict comes first: a statement that is wrong must not pass for one that is right.
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
