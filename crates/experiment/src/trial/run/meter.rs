//! What is measured of a run: the command's own time, or an audit of it.

use ticktax_analysis::Auditor;
use ticktax_model::Nanos;
use ticktax_model::changes::ChangeMeasure;
use ticktax_model::recording::{Header, Level, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::trial::{Better, Metric, Origin, Unit};
use ticktax_model::victim::ThreadState;
use ticktax_observe::{Event, ObserveError, Plan, Program, Session};

use super::Subject;
use crate::measures;

/// What arms are compared by. The words are those of `--metric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialMetric {
    /// How long the command takes.
    Time,
    /// The CPU time that it and its children use.
    Cpu,
    /// The part of the time that it wanted for which its CPU ran interrupts.
    Noise,
    /// The part for which it waited for a CPU.
    Wait,
    /// The part for which its cgroup's quota held it.
    Throttled,
    /// What 99 of 100 waits from a wake-up until it ran stay below.
    P99,
    /// Frames a second of its loop.
    Fps,
    /// Slots of its loop without a frame, a minute.
    Lost,
}

impl TrialMetric {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Time,
        Self::Cpu,
        Self::Noise,
        Self::Wait,
        Self::Throttled,
        Self::P99,
        Self::Fps,
        Self::Lost,
    ];

    /// Its word.
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
        }
    }

    /// What it is, for help.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Time => "Run time of the command",
            Self::Cpu => "CPU time used, including child processes",
            Self::Noise => "Share of the needed CPU time that interrupts took",
            Self::Wait => "Share of the needed CPU time spent waiting for a CPU",
            Self::Throttled => "Share of the needed CPU time lost to CPU quotas",
            Self::P99 => "99th percentile of the wake-up latency",
            Self::Fps => "Frames per second of the program's loop",
            Self::Lost => "Frames per minute that the program's loop missed",
        }
    }

    /// What it is in a trial of `subject`.
    pub(super) fn of(self, subject: &Subject) -> Metric {
        let (unit, better) = match self {
            Self::Time | Self::Cpu | Self::P99 => (Unit::Ns, Better::Lower),
            Self::Noise | Self::Wait | Self::Throttled => (Unit::Share, Better::Lower),
            Self::Fps => (Unit::Hz, Better::Higher),
            Self::Lost => (Unit::PerMinute, Better::Lower),
        };
        Metric {
            id: self.name().to_owned(),
            unit,
            better,
            origin: if self.needs_audit(subject) {
                Origin::Audit
            } else {
                Origin::Command
            },
        }
    }

    /// Whether it takes an audit of each run.
    pub(super) const fn needs_audit(self, subject: &Subject) -> bool {
        match self {
            Self::Time => false,
            // Nobody is told what a process used that goes on.
            Self::Cpu => matches!(subject, Subject::Process { .. }),
            _ => true,
        }
    }

    /// Whether it asks for frames.
    const fn is_of_frames(self) -> bool {
        matches!(self, Self::Fps | Self::Lost)
    }

    /// Why a run may have none, and what to do.
    pub(super) const fn without(self) -> &'static str {
        match self {
            Self::Time | Self::Cpu => "no value was reported; leave this metric out",
            Self::Noise | Self::Wait | Self::Throttled => {
                "the audit could not follow the program; run `ticktax audit` to find out why"
            }
            Self::P99 => "a run needs at least 100 wake-ups; make each run longer",
            Self::Fps | Self::Lost => {
                "no thread wakes up periodically, or not often enough in one run; leave this \
                 metric out, or make each run longer"
            }
        }
    }

    /// What a statement says of it.
    fn of_statement(self, statement: &Statement) -> Option<f64> {
        let longest = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
        let wall = longest.unwrap_or_default();
        let of = |measure| measures::of_program(statement, wall, measure);
        match self {
            Self::Time => None,
            Self::Cpu => {
                let used = |state| {
                    matches!(
                        state,
                        ThreadState::Running | ThreadState::PageFault | ThreadState::Reclaim
                    )
                };
                let victim = statement.victim.as_ref()?;
                Some(measures::sum(victim, used)?.0 as f64)
            }
            Self::Noise => measures::share(statement.victim.as_ref()?, ThreadState::Interrupted),
            Self::Wait => of(ChangeMeasure::WaitedShare),
            Self::Throttled => of(ChangeMeasure::ThrottledShare),
            Self::P99 => of(ChangeMeasure::LatencyP99Ns),
            Self::Fps => of(ChangeMeasure::RateFps),
            Self::Lost => of(ChangeMeasure::DroppedPerMinute),
        }
    }
}

/// What was measured of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured<'a> {
    /// How long the command took.
    pub(super) time: Option<Nanos>,
    /// What it used.
    pub(super) cpu: Option<Nanos>,
    /// An audit of it.
    pub(super) statement: Option<&'a Statement>,
}

impl Measured<'_> {
    /// A metric of it.
    pub(super) fn value(&self, metric: TrialMetric) -> Option<f64> {
        match metric {
            TrialMetric::Time => Some(self.time?.0 as f64),
            TrialMetric::Cpu if self.cpu.is_some() => Some(self.cpu?.0 as f64),
            metric => metric.of_statement(self.statement?),
        }
    }
}

/// An audit of one run.
pub(super) struct Audit {
    session: Session,
    auditor: Auditor,
}

impl Audit {
    /// Begins to watch a process.
    pub(super) fn begin(
        pid: i32,
        length: Option<Nanos>,
        metrics: &[TrialMetric],
    ) -> Result<Self, ObserveError> {
        let session = Session::start(plan(pid, length))?;
        let started = session.started();
        let mut auditor = Auditor::new(&started.machine).without_beats();
        if let Some(begin) = started.victim_begin {
            auditor.victim_since(begin);
        }
        if let (Some(pid), true) = (started.process, metrics.iter().any(|it| it.is_of_frames())) {
            auditor.frames_of(pid);
        }
        Ok(Self { session, auditor })
    }

    /// Takes what there is; waits for it, some 50 ms at most. The header, once it has ended.
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

    /// What it says.
    pub(super) fn finish(self, header: &Header) -> Statement {
        self.auditor.finish(header, self.session.sources(), 1)
    }
}

/// How a process is watched. Without the tracer nothing of it is known.
pub(super) fn plan(pid: i32, length: Option<Nanos>) -> Plan {
    Plan {
        length,
        program: Some(Program::Process(pid)),
        needs: Level::Kernel,
        ..Plan::default()
    }
}
