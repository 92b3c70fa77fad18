//! Reports on a simulated paced loop in the form that `ticktax pace` uses for real loops.

use ticktax_model::pace::{
    CpuClock, CpuReading, Frame, LoopReport, LoopRun, LoopSpec, PaceRule, SleepMethod, Wakeups,
};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::Header;
use ticktax_model::{Cpu, Nanos};

use crate::report::Report;
use crate::setup::Setup;
use crate::task::{Class, Step, TaskId, TaskSpec};

/// How a paced task waits for its next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rhythm {
    rule: PaceRule,
    period: Nanos,
    sleep: SleepMethod,
    /// Time before the due time at which a hybrid loop stops sleeping and starts to spin; `None`
    /// for other loops.
    margin: Option<Nanos>,
}

impl TaskSpec {
    /// Returns the intended interval between frames, or `None` if the task is not a paced loop.
    pub fn period(&self) -> Option<Nanos> {
        self.rhythm().map(|rhythm| rhythm.period)
    }

    fn rhythm(&self) -> Option<Rhythm> {
        self.program.iter().find_map(|step| match *step {
            Step::Pace {
                rule,
                period,
                unit,
                spin,
            } => {
                let sleep = match spin {
                    spin if spin >= period => SleepMethod::Spin,
                    Nanos::ZERO => by_unit(unit),
                    _ => SleepMethod::Hybrid,
                };
                Some(Rhythm {
                    rule,
                    period,
                    sleep,
                    margin: (sleep == SleepMethod::Hybrid).then_some(spin),
                })
            }
            Step::SleepUntil(call, period) => Some(Rhythm {
                rule: PaceRule::Deadline,
                period,
                sleep: call.method(),
                margin: None,
            }),
            Step::SpinUntil(period) => Some(Rhythm {
                rule: PaceRule::Deadline,
                period,
                sleep: SleepMethod::Spin,
                margin: None,
            }),
            Step::SleepRest { call, time, .. } => Some(Rhythm {
                rule: PaceRule::Remaining,
                period: time,
                sleep: call.method(),
                margin: None,
            }),
            _ => None,
        })
    }
}

/// Returns the sleep method with the coarsest unit that does not exceed `unit`.
fn by_unit(unit: Nanos) -> SleepMethod {
    let units = SleepMethod::ALL
        .into_iter()
        .filter(|method| method.unit() <= unit);
    // Iterate in reverse, because `max_by_key` returns the last of several maxima and the first
    // method should win.
    units
        .rev()
        .max_by_key(|method| method.unit())
        .unwrap_or(SleepMethod::Nanosleep)
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameSums {
    /// Number of completed frames.
    pub(crate) count: i64,
    pub(crate) cpu_time: Nanos,
    /// CPU on which the last frame ended.
    pub(crate) last_cpu: usize,
}

impl FrameSums {
    pub(crate) fn add(&mut self, frame: &Frame, cpu: usize) {
        self.count += 1;
        self.cpu_time += frame.cpu;
        self.last_cpu = cpu;
    }
}

/// Builds the report on `task` in the form that `ticktax pace` uses for real loops; `None` if the
/// task is not a paced loop. The reported work per frame is the mean over all frames.
pub(crate) fn loop_run(
    setup: &Setup,
    report: &Report,
    header: &Header,
    task: TaskId,
    frames: &FrameSums,
) -> Option<LoopRun> {
    let spec = &setup.tasks[task.index()];
    let rhythm = spec.rhythm()?;
    if !spec.program.contains(&Step::Frame) {
        return None;
    }
    let policy = match spec.attributes.class {
        Class::Normal => SchedulingPolicy::Other,
        Class::Fifo(priority) => SchedulingPolicy::Fifo(priority),
        Class::RoundRobin(priority) => SchedulingPolicy::RoundRobin(priority),
    };
    let cpu = spec.attributes.cpu.unwrap_or(frames.last_cpu);
    let cpu = Cpu(u32::try_from(cpu).ok()?);
    let elapsed = report.elapsed;
    let task_report = &report.tasks[task.index()];
    let reading = |clock, time| CpuReading {
        clock,
        time,
        elapsed,
    };
    let mut readings = vec![reading(CpuClock::Thread, task_report.ran)];
    let pid = header.victim.as_ref().and_then(|victim| victim.pid);
    let shown = pid.and_then(|pid| header.after.programs.get(&pid));
    readings.extend(shown.map(|program| reading(CpuClock::Stat, program.time)));
    if spec.attributes.cpu.is_some() || setup.machine.cpus == 1 {
        let times = header.after.cpu_times.get(&cpu.0);
        readings.extend(times.map(|times| reading(CpuClock::Machine, times.busy())));
    }
    Some(LoopRun {
        report: LoopReport {
            spec: LoopSpec {
                rate: 1e9 / rhythm.period.0.max(1) as f64,
                period: rhythm.period,
                work: Nanos(frames.cpu_time.0 / frames.count.max(1)),
                sleep: rhythm.sleep,
                rule: rhythm.rule,
            },
            cpu,
            policy: PolicyGrant::full(policy),
            timer_slack: Some(setup.machine.slack),
            margin: rhythm.margin,
            frames_lost: 0,
        },
        elapsed,
        readings,
        wakeups: Some(Wakeups {
            elapsed,
            count: task_report.sleeps,
            idle_exits: None,
        }),
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{PaceRule, SleepMethod};

    use crate::task::{Step, TaskSpec};
    use crate::timer::Call;

    const MS: Nanos = Nanos::from_millis(1);

    #[test]
    fn waiting_steps_are_described_as_the_method_they_model() {
        let period = Nanos::from_millis(20);
        let pace = |unit, spin| Step::Pace {
            rule: PaceRule::Remaining,
            period,
            unit,
            spin,
        };
        for (step, sleep, margin) in [
            (pace(Nanos(1), Nanos::ZERO), SleepMethod::Nanosleep, None),
            (pace(Nanos(1000), Nanos::ZERO), SleepMethod::Usleep, None),
            (pace(MS, Nanos::ZERO), SleepMethod::Poll, None),
            (pace(Nanos(1), period), SleepMethod::Spin, None),
            (pace(Nanos(1), MS), SleepMethod::Hybrid, Some(MS)),
            (
                Step::SleepUntil(Call::Select, period),
                SleepMethod::Select,
                None,
            ),
        ] {
            let rhythm = TaskSpec::new("loop", vec![step, Step::Frame]).rhythm();
            let described = rhythm.map(|rhythm| (rhythm.period, rhythm.sleep, rhythm.margin));
            assert_eq!(described, Some((period, sleep, margin)), "{step:?}");
        }
        assert_eq!(TaskSpec::new("server", vec![Step::Frame]).period(), None);
    }
}
