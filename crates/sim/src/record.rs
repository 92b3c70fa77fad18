//! Converts the engine's events into rows of a recording.

use std::sync::Arc;

use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::kernel_words::{LOCAL_TIMER, SLEEP_FUNCTION, TICK_FUNCTIONS};
use ticktax_model::machine::{
    Counters, CpuTimes, InterruptRow, Machine as Facts, ProgramTime, TickMode,
};
use ticktax_model::pace::Frame;
use ticktax_model::recording::{
    Coverage, CpuInterval, Edge, Effect, Header, Level, PacedFrame, Row, RowSink, World,
};
use ticktax_model::victim::{OffCpuReason, Target, VictimHeader};
use ticktax_model::{
    Cpu, CpuList, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
};

use crate::engine::Work;
use crate::report::{CpuReport, Mode, Report};
use crate::settings;
use crate::setup::Setup;
use crate::task::{TaskId, TaskReport, TaskSpec};
use crate::timer::TimerRule;

pub(crate) struct Recorder<'s> {
    sources: SourceTable,
    sink: &'s mut dyn RowSink,
    pub(crate) ids: Ids,
    /// The followed task, whose waits and frames are also emitted.
    followed: Option<Followed>,
}

struct Followed {
    name: Arc<str>,
    owner: Owner,
    thread: Thread,
}

/// Ids of the sources in a simulation's recording. Each vector is in the order of the setup's
/// interrupt sources or tasks.
pub(crate) struct Ids {
    pub(crate) idle: SourceId,
    pub(crate) tick: SourceId,
    pub(crate) timer: SourceId,
    /// The interrupt that encloses the tick and timer functions; `None` if timers are not
    /// high-resolution, because the tick is then a complete interrupt.
    frame: Option<SourceId>,
    pub(crate) irqs: Vec<SourceId>,
    pub(crate) softirqs: Vec<SourceId>,
    pub(crate) tasks: Vec<SourceId>,
    pub(crate) throttled: Vec<SourceId>,
}

/// Adds a source of `kind` for each task, and returns the sources' ids. Each task is a separate
/// process.
fn threads(setup: &Setup, sources: &mut SourceTable, kind: Kind, detail: &str) -> Vec<SourceId> {
    let tasks = (1..).zip(&setup.tasks);
    let ids = tasks.map(|(pid, task)| {
        let name: Arc<str> = task.name.as_str().into();
        sources.intern(Source {
            kind,
            owner: if task.kernel {
                Owner::Kernel
            } else {
                Owner::Program
            },
            name: name.clone(),
            detail: detail.into(),
            thread: Some(Thread {
                pid,
                tid: pid,
                program: name,
            }),
        })
    });
    ids.collect()
}

impl Ids {
    /// Returns the source for rows about the handler `work`.
    pub(crate) fn of_work(&self, work: Work) -> SourceId {
        match work {
            Work::Tick => self.tick,
            Work::Timers => self.timer,
            Work::Irq(source) => self.irqs[source],
            Work::Softirq(source) => self.softirqs[source],
        }
    }
}

impl<'s> Recorder<'s> {
    /// Creates a recorder that passes rows to `sink`. If `followed` is given, the rows include that
    /// task's waits and frames.
    pub(crate) fn new(setup: &Setup, sink: &'s mut dyn RowSink, followed: Option<TaskId>) -> Self {
        let mut sources = SourceTable::default();
        let named = |sources: &mut SourceTable, kind| {
            let names = setup.sources.iter();
            let ids = names.map(|source| sources.intern(Source::kernel(kind, &source.name, "")));
            ids.collect()
        };
        // Use the names that appear in a real kernel's trace. If timers are high-resolution, the
        // tick is one of the functions that the timer interrupt calls.
        let high_resolution = setup.machine.timers == TimerRule::HighResolution;
        let frame = sources.intern(Source::kernel(Kind::Irq, LOCAL_TIMER, ""));
        let mut timer = |function| sources.intern(Source::kernel(Kind::Irq, LOCAL_TIMER, function));
        let ids = Ids {
            tick: if high_resolution {
                timer(TICK_FUNCTIONS[0])
            } else {
                frame
            },
            timer: timer(SLEEP_FUNCTION),
            frame: high_resolution.then_some(frame),
            idle: sources.intern(Source::idle()),
            irqs: named(&mut sources, Kind::Irq),
            softirqs: named(&mut sources, Kind::Softirq),
            tasks: threads(setup, &mut sources, Kind::Task, ""),
            throttled: threads(
                setup,
                &mut sources,
                Kind::Wait,
                OffCpuReason::Throttled.name(),
            ),
        };
        let followed = followed.and_then(|task| {
            let source = sources.get(*ids.tasks.get(task.index())?);
            Some(Followed {
                name: source.name.clone(),
                owner: source.owner,
                thread: source.thread.clone()?,
            })
        });
        Self {
            sources,
            sink,
            ids,
            followed,
        }
    }

    /// Emits a span from `start` to `end`. `nested` is the time taken by handlers that interrupted
    /// the span.
    pub(crate) fn span(
        &mut self,
        cpu: usize,
        source: SourceId,
        start: Nanos,
        end: Nanos,
        nested: Nanos,
    ) {
        let span = Span {
            cpu: number(cpu),
            start,
            dur: end - start,
            self_time: end - start - nested,
            source,
        };
        self.sink.row(&self.sources, &Row::Span(span));
        if let Some(frame) = self.ids.frame
            && (source == self.ids.tick || source == self.ids.timer)
        {
            // The model assigns the entire cost to the function, and none of it to the enclosing
            // interrupt.
            let around = Span {
                source: frame,
                self_time: Nanos::ZERO,
                ..span
            };
            self.sink.row(&self.sources, &Row::Span(around));
        }
    }

    pub(crate) fn edge(&mut self, cpu: usize, at: Nanos, source: SourceId, effect: Effect) {
        let edge = Edge::new(number(cpu), at, source, effect);
        self.sink.row(&self.sources, &Row::Edge(edge));
    }

    pub(crate) fn tid(&self, task: TaskId) -> Option<i32> {
        let source = self.sources.get(*self.ids.tasks.get(task.index())?);
        Some(source.thread.as_ref()?.tid)
    }

    pub(crate) fn softirq_name(&self, source: usize) -> Arc<str> {
        let id = self.ids.softirqs[source];
        Arc::clone(&self.sources.get(id).name)
    }

    /// Emits a wait of the followed task. `why` is the reason for the wait.
    pub(crate) fn wait(&mut self, cpu: usize, why: OffCpuReason, start: Nanos, end: Nanos) {
        if let Some(source) = self.of_followed(Kind::Wait, why.name()) {
            self.span(cpu, source, start, end, Nanos::ZERO);
        }
    }

    pub(crate) fn frame(&mut self, cpu: usize, frame: &Frame) {
        if let Some(source) = self.of_followed(Kind::Frame, "") {
            let row = PacedFrame::new(frame, number(cpu), source);
            self.sink.row(&self.sources, &Row::Frame(row));
        }
    }

    /// Returns the id of the followed task's source with this kind and detail, or `None` if no task
    /// is followed.
    fn of_followed(&mut self, kind: Kind, detail: &str) -> Option<SourceId> {
        let followed = self.followed.as_ref()?;
        Some(self.sources.intern(Source {
            kind,
            owner: followed.owner,
            name: followed.name.clone(),
            detail: detail.into(),
            thread: Some(followed.thread.clone()),
        }))
    }

    pub(crate) fn into_sources(self) -> SourceTable {
        self.sources
    }
}

fn number(cpu: usize) -> Cpu {
    Cpu(u32::try_from(cpu).unwrap_or(u32::MAX))
}

/// Builds the recording's header. If `followed` is given, that task is the audited program.
pub(crate) fn header(setup: &Setup, report: &Report, followed: Option<TaskId>) -> Header {
    let cpus = || (0_u32..).map(Cpu).take(setup.machine.cpus);
    Header {
        machine: facts(setup),
        cpus: cpus()
            .map(|cpu| CpuInterval {
                cpu,
                begin: Nanos::ZERO,
                end: report.elapsed,
            })
            .collect(),
        coverage: Coverage {
            every_entry_watched: true,
            ..Coverage::default()
        },
        before: counters(
            setup,
            Nanos::ZERO,
            &vec![CpuReport::default(); setup.machine.cpus],
            &[],
        ),
        after: counters(setup, report.elapsed, &report.cpus, &report.tasks),
        victim: followed.map(|task| VictimHeader {
            pid: i32::try_from(task.0).ok().map(|place| place + 1),
            ..VictimHeader::new(
                Target::Process,
                setup.tasks[task.index()].name.clone(),
                Nanos::ZERO,
            )
        }),
        autogroups: Some(autogroups(setup)),
        ..Header::new(World::Simulated, Level::Kernel, env!("CARGO_PKG_VERSION"))
    }
}

fn autogroups(setup: &Setup) -> Vec<ProcessAutogroup> {
    let process_group = |(pid, task): (i32, &TaskSpec)| {
        let group = task.attributes.autogroup?;
        Some(ProcessAutogroup { pid, group })
    };
    (1..).zip(&setup.tasks).filter_map(process_group).collect()
}

/// Describes the machine in `setup`, for a recording's header.
pub fn facts(setup: &Setup) -> Facts {
    let machine = &setup.machine;
    let accounting = match machine.tick {
        TickMode::NohzFull { .. } => "VIRT_CPU_ACCOUNTING_GEN",
        _ => "TICK_CPU_ACCOUNTING",
    };
    let settings = settings::recorded(setup);
    let word = |name: &str| settings.get(name).map_or("", String::as_str);
    Facts {
        host: "model".to_owned(),
        kernel: format!("model of {}, {} timers", word("policy"), word("timers")),
        arch: "model".to_owned(),
        hz_configured: u32::try_from(machine.hz).ok(),
        tick_mode: Some(machine.tick.clone()),
        high_resolution: Some(machine.timers == TimerRule::HighResolution),
        clocksource: Some(format!("{:?}", machine.device)),
        online: CpuList::first(u32::try_from(machine.cpus).unwrap_or(u32::MAX)),
        accounting: vec![accounting.to_owned()],
        settings,
        ..Facts::default()
    }
}

/// Simulates `/proc/stat` and `/proc/interrupts` at time `at`. As in the kernel, the CPU times are
/// counted in sampled ticks.
fn counters(setup: &Setup, at: Nanos, cpus: &[CpuReport], tasks: &[TaskReport]) -> Counters {
    let hz = i64::try_from(setup.machine.hz).unwrap_or(i64::MAX).max(1);
    let time = |ticks: u64| {
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        Nanos(crate::fixed::scale(ticks, 1_000_000_000, hz))
    };
    let time_in = |report: &CpuReport, mode: Mode| time(report.samples[mode as usize]);
    let lines = (0_u32..).zip(cpus).map(|(cpu, report)| {
        let times = CpuTimes {
            user: time_in(report, Mode::User),
            system: time_in(report, Mode::Kernel),
            // When a CPU leaves tickless idle, the kernel adds the skipped ticks to its idle time.
            idle: time_in(report, Mode::Idle) + time(report.stopped),
            irq: time_in(report, Mode::Irq),
            softirq: time_in(report, Mode::Softirq),
            ..CpuTimes::default()
        };
        (cpu, times)
    });
    let ticks = InterruptRow {
        description: "Local timer interrupts".to_owned(),
        counts: (0_u32..).zip(cpus.iter().map(CpuReport::sampled)).collect(),
    };
    Counters {
        at,
        cpu_times: lines.collect(),
        interrupts: [("LOC".to_owned(), ticks)].into(),
        programs: programs(setup, tasks),
        ..Counters::default()
    }
}

/// Simulates the times in `/proc/PID/stat`, in units of 10 ms (`USER_HZ`).
///
/// Up to 2.6.22, these times count the ticks at which the task was running. Later kernels scale the
/// sampled user and system times so that their sum is the scheduler's exact run time (`task_utime`,
/// `fs/proc/array.c`; later `cputime_adjust`).
fn programs(setup: &Setup, tasks: &[TaskReport]) -> std::collections::BTreeMap<i32, ProgramTime> {
    const STEP: Nanos = Nanos::from_millis(10);
    let is_scaled = setup.machine.policy.scales_times();
    let hz = i64::try_from(setup.machine.hz).unwrap_or(i64::MAX).max(1);
    let shown_time = |report: &TaskReport| {
        if is_scaled {
            return report.ran;
        }
        let ticks = i64::try_from(report.sampled).unwrap_or(i64::MAX);
        Nanos(crate::fixed::scale(ticks, 1_000_000_000, hz))
    };
    (1..)
        .zip(setup.tasks.iter().zip(tasks))
        .map(|(pid, (task, report))| {
            let time = ProgramTime {
                name: task.name.clone(),
                time: Nanos(shown_time(report).0 / STEP.0 * STEP.0),
                ticktax_or_kernel: task.kernel,
                nice: task.attributes.nice > 0,
                children: Nanos::ZERO,
                on_cpu: None,
            };
            (pid, time)
        })
        .collect()
}
