//! A run's metrics: the command's run time, its CPU time, and figures from an audit.

use ticktax_analysis::Auditor;
use ticktax_host::ChildrenUsage;
use ticktax_model::Nanos;
use ticktax_model::comparison::{Better, Measure, Metric, Unit};
use ticktax_model::recording::{Header, Level, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::victim::ThreadState;
use ticktax_observe::{Event, ObserveError, Plan, Program, Session};

use super::Subject;
use crate::measures;

/// Metrics by which arms are compared, named as in `--metric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialMetric {
    /// Run time of the command.
    Time,
    /// CPU time of the command and its children.
    Cpu,
    /// Time taken by interrupts, as a share of the time that the program needed a CPU.
    Noise,
    /// Time that the program waited for a CPU, as a share of the time that it needed one.
    Wait,
    /// Time that the cgroup's quota throttled the program, as a share of the time that the program
    /// needed a CPU.
    Throttled,
    /// 99th percentile of wake-up latency.
    P99,
    /// Frames per second of the program's loop.
    Fps,
    /// Number of frames that the program's loop skipped per minute.
    Lost,
    /// CPU time of the command and its children in user mode.
    User,
    /// CPU time of the command and its children in the kernel.
    System,
    /// Page faults of the command and its children.
    Faults,
    /// Voluntary context switches of the command and its children.
    Sleeps,
    /// Involuntary context switches of the command and its children.
    Preemptions,
    /// Time that threads waited for a CPU.
    WaitTime,
    /// Time that threads were throttled by a quota.
    ThrottledTime,
    /// Time that threads waited for a disk.
    DiskTime,
    /// Time that threads waited for a lock in the kernel.
    LockTime,
}

impl TrialMetric {
    /// All metrics.
    pub const ALL: [Self; 17] = [
        Self::Time,
        Self::Cpu,
        Self::Noise,
        Self::Wait,
        Self::Throttled,
        Self::P99,
        Self::Fps,
        Self::Lost,
        Self::User,
        Self::System,
        Self::Faults,
        Self::Sleeps,
        Self::Preemptions,
        Self::WaitTime,
        Self::ThrottledTime,
        Self::DiskTime,
        Self::LockTime,
    ];
    /// Metrics that can explain why one command takes longer than another. The kernel counts them
    /// for every process.
    pub const COUNTED: [Self; 5] = [
        Self::User,
        Self::System,
        Self::Faults,
        Self::Sleeps,
        Self::Preemptions,
    ];
    /// More metrics that can explain why one command takes longer, if its runs are audited.
    pub const AUDITED: [Self; 4] = [
        Self::WaitTime,
        Self::ThrottledTime,
        Self::DiskTime,
        Self::LockTime,
    ];

    /// Returns the metric's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Cpu => "cpu",
            Self::Noise => "noise",
            Self::Wait => "wait",
            Self::Throttled => "throttled",
            Self::P99 => "p99",
            Self::Fps => "fps",
            Self::Lost => "lost",
            Self::User => "user",
            Self::System => "system",
            Self::Faults => "faults",
            Self::Sleeps => "sleeps",
            Self::Preemptions => "preemptions",
            Self::WaitTime => "wait-time",
            Self::ThrottledTime => "throttled-time",
            Self::DiskTime => "disk-time",
            Self::LockTime => "lock-time",
        }
    }

    /// Returns the description for the help text.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Time => "Run time of the command",
            Self::Cpu => "CPU time used, including child processes",
            Self::Noise => "Share of the needed CPU time taken by interrupts",
            Self::Wait => "Share of the needed CPU time spent waiting for a CPU",
            Self::Throttled => "Share of the needed CPU time lost to CPU quotas",
            Self::P99 => "99th percentile of the wake-up latency",
            Self::Fps => "Frames per second of the program's loop",
            Self::Lost => "Frames per minute that the program's loop lost",
            Self::User => "CPU time in user mode, including child processes",
            Self::System => "CPU time in the kernel, including child processes",
            Self::Faults => "Page faults, including child processes",
            Self::Sleeps => "Voluntary context switches, including child processes",
            Self::Preemptions => "Involuntary context switches, including child processes",
            Self::WaitTime => "Time spent waiting for a CPU, summed over all threads",
            Self::ThrottledTime => "Time lost to CPU quotas, summed over all threads",
            Self::DiskTime => "Time spent waiting for disks, summed over all threads",
            Self::LockTime => "Time spent waiting for kernel locks, summed over all threads",
        }
    }

    /// Describes the metric: its unit, and which direction is better.
    pub(super) fn to_metric(self) -> Metric {
        let (unit, better) = match self {
            Self::Time
            | Self::Cpu
            | Self::P99
            | Self::User
            | Self::System
            | Self::WaitTime
            | Self::ThrottledTime
            | Self::DiskTime
            | Self::LockTime => (Unit::Ns, Better::Lower),
            Self::Faults | Self::Sleeps | Self::Preemptions => (Unit::Count, Better::Lower),
            Self::Noise | Self::Wait | Self::Throttled => (Unit::Share, Better::Lower),
            Self::Fps => (Unit::Hz, Better::Higher),
            Self::Lost => (Unit::PerMinute, Better::Lower),
        };
        Metric::new(self.name(), unit, better)
    }

    /// Returns whether each run must be audited to measure the metric for `subject`.
    pub(super) const fn needs_audit(self, subject: &Subject) -> bool {
        match self {
            Self::Time
            | Self::User
            | Self::System
            | Self::Faults
            | Self::Sleeps
            | Self::Preemptions => false,
            // The CPU time of a process that ticktax did not start includes its children's only
            // after they have exited, so it needs an audit.
            Self::Cpu => matches!(subject, Subject::Process { .. }),
            _ => true,
        }
    }

    /// Returns whether the audit must detect frames in order to measure the metric.
    const fn needs_frames(self) -> bool {
        matches!(self, Self::Fps | Self::Lost)
    }

    /// Returns why a run may lack a value for this metric, and how to avoid that.
    pub(super) const fn without(self) -> &'static str {
        match self {
            Self::Time | Self::Cpu => "no value was reported; omit this metric",
            Self::User | Self::System | Self::Faults | Self::Sleeps | Self::Preemptions => {
                "it is counted only for a COMMAND; omit this metric"
            }
            Self::Noise
            | Self::Wait
            | Self::Throttled
            | Self::WaitTime
            | Self::ThrottledTime
            | Self::DiskTime
            | Self::LockTime => {
                "the audit could not follow the program; run `ticktax audit` to see why"
            }
            Self::P99 => "a run needs at least 100 wake-ups; make each run longer",
            Self::Fps | Self::Lost => {
                "no thread wakes up both periodically and often enough in one run; omit this \
                 metric, or make each run longer"
            }
        }
    }

    /// Extracts the metric's value from the statement of an audit. Returns `None` if the statement
    /// does not contain it.
    fn in_statement(self, statement: &Statement) -> Option<f64> {
        let longest = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
        let wall = longest.unwrap_or_default();
        let value = |measure| measures::of_program(statement, wall, measure);
        let time = |state| Some(measures::time(statement.victim.as_ref()?, state)?.0 as f64);
        match self {
            Self::Time
            | Self::User
            | Self::System
            | Self::Faults
            | Self::Sleeps
            | Self::Preemptions => None,
            Self::WaitTime => time(ThreadState::Waiting),
            Self::ThrottledTime => time(ThreadState::Throttled),
            Self::DiskTime => time(ThreadState::Disk),
            Self::LockTime => time(ThreadState::Lock),
            Self::Cpu => {
                let used = |state| {
                    matches!(
                        state,
                        ThreadState::Running
                            | ThreadState::SystemCall
                            | ThreadState::PageFault
                            | ThreadState::Reclaim
                    )
                };
                let victim = statement.victim.as_ref()?;
                Some(measures::sum(victim, used)?.0 as f64)
            }
            Self::Noise => measures::share(statement.victim.as_ref()?, ThreadState::Interrupted),
            Self::Wait => value(Measure::WaitedShare),
            Self::Throttled => value(Measure::ThrottledShare),
            Self::P99 => value(Measure::LatencyP99),
            Self::Fps => value(Measure::Fps),
            Self::Lost => value(Measure::Dropped),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured<'a> {
    /// The command's run time.
    pub(super) time: Option<Nanos>,
    /// The command's CPU time.
    pub(super) cpu: Option<Nanos>,
    /// Resources that the command used.
    pub(super) usage: Option<ChildrenUsage>,
    /// Statement of the audit, if there was one.
    pub(super) statement: Option<&'a Statement>,
}

impl Measured<'_> {
    /// Returns the value of `metric`, or `None` if it was not measured.
    pub(super) fn value(&self, metric: TrialMetric) -> Option<f64> {
        match metric {
            TrialMetric::Time => Some(self.time?.0 as f64),
            TrialMetric::User => Some(self.usage?.user.0 as f64),
            TrialMetric::System => Some(self.usage?.system.0 as f64),
            TrialMetric::Faults => Some(self.usage?.faults as f64),
            TrialMetric::Sleeps => Some(self.usage?.voluntary as f64),
            TrialMetric::Preemptions => Some(self.usage?.involuntary as f64),
            TrialMetric::Cpu if self.cpu.is_some() => Some(self.cpu?.0 as f64),
            metric => metric.in_statement(self.statement?),
        }
    }
}

/// An audit of one run.
pub(super) struct Audit {
    session: Session,
    auditor: Auditor,
}

impl Audit {
    /// Starts watching the process `pid`.
    pub(super) fn begin(
        pid: i32,
        length: Option<Nanos>,
        metrics: &[TrialMetric],
    ) -> Result<Self, ObserveError> {
        let session = Session::start(plan(pid, length))?;
        let started = session.started();
        let mut auditor = Auditor::new(&started.machine).without_beats();
        if let Some(begin) = started.victim_begin {
            let needs_frames = metrics.iter().any(|metric| metric.needs_frames());
            auditor = auditor.following(begin, started.process.filter(|_| needs_frames));
        }
        Ok(Self { session, auditor })
    }

    /// Processes the rows that have arrived, or waits about 50 ms for some. Returns the header once
    /// the audit is over, until then `None`.
    pub(super) fn step(&mut self) -> Option<Box<Header>> {
        match self.session.next_event() {
            Event::Rows { sources, rows } => {
                for row in rows {
                    self.auditor.row(sources, row);
                }
                None
            }
            Event::Ended(header) => Some(header),
            Event::Started(_) | Event::Progress(_) => None,
        }
    }

    /// Completes the audit.
    pub(super) fn finish(self, header: &Header) -> Statement {
        self.auditor.finish(header, self.session.sources(), 1)
    }
}

/// Returns the plan for watching the process `pid`. It requires the tracer, because /proc does not
/// provide the metrics for which runs are audited.
pub(super) fn plan(pid: i32, length: Option<Nanos>) -> Plan {
    Plan {
        length,
        program: Some(Program::Process(pid)),
        needs: Level::Kernel,
        ..Plan::default()
    }
}
