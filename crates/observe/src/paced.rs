//! Runs one of ticktax's own paced loops, and reads every clock that shows how much CPU time it
//! costs.

use std::thread;
use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{Counters, Machine};
use ticktax_model::pace::{
    CpuClock, CpuReading, EndedIdle, Frame, LoopReport, LoopRun, LoopSpec, Wakeups, frame_source,
};
use ticktax_model::recording::{Coverage, EndedEarly, Header, Level, Paced, PacedFrame, Row};
use ticktax_model::victim::Usage;
use ticktax_model::{Cpu, Nanos, SourceId, SourceTable};
use ticktax_probes::clock::now;
use ticktax_probes::pace::{PaceProbe, PaceReport, PaceSettings};
use ticktax_probes::{ProbeError, SchedulingPolicy};

use crate::collector::Collector;
use crate::error::ObserveError;
use crate::event::{Event, Observation, Progress};
use crate::running::length_not_kept;
use crate::session::unix_time;

/// Interval at which frames are read. A loop with 1,000 frames per second produces 50 in this time.
const INTERVAL: Duration = Duration::from_millis(50);

/// Interval between checks of a loop that is starting or about to end.
const SETTLING: Duration = Duration::from_millis(1);

/// Longest wait for a loop's last frames before the loop is stopped: the longest period plus a
/// margin.
const LATEST: Nanos = Nanos::from_secs(2);

/// A paced loop, and the conditions under which it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    /// Specification of the loop.
    pub spec: LoopSpec,
    /// CPU on which the loop runs. `None` means the last CPU that this process may use, because the
    /// last one tends to have the fewest interrupts and daemons.
    pub cpu: Option<Cpu>,
    /// Requested scheduling policy.
    pub policy: SchedulingPolicy,
    /// Requested length of the loop.
    pub length: Nanos,
    /// A frame's step counts as overshot if its delay exceeds this. `None` if overshot steps are
    /// not counted.
    pub overshot_from: Option<Nanos>,
}

impl LoopPlan {
    /// Rejects a loop that cannot work within the requested length. Does not start anything.
    ///
    /// # Errors
    /// Returns an error if the length is too short for a frame, or if the work takes longer than
    /// the period.
    pub fn check(&self) -> Result<(), ObserveError> {
        let Self { length, spec, .. } = *self;
        let LoopSpec { period, work, .. } = spec;
        if length <= period {
            return Err(ObserveError::NoFrame { length, period });
        }
        if work >= period {
            return Err(ProbeError::Work { work, period }.into());
        }
        Ok(())
    }

    fn settings(&self) -> Result<PaceSettings, ObserveError> {
        Ok(PaceSettings {
            cpu: self.cpu.map_or_else(last_cpu, Ok)?,
            policy: self.policy,
            period: self.spec.period,
            work: self.spec.work,
            sleep: self.spec.sleep,
            rule: self.spec.rule,
            ring_capacity: ring_capacity(self.spec.period),
        })
    }
}

/// Returns the last CPU that this process may use.
fn last_cpu() -> Result<Cpu, ObserveError> {
    let online = ticktax_probes::online_cpus()?;
    let allowed = ticktax_probes::allowed_cpus();
    let last = online.iter().filter(|&cpu| allowed.contains(cpu)).last();
    let last = last.or_else(|| online.iter().last());
    Ok(last.ok_or(ProbeError::NoCpu { online })?)
}

/// Returns the number of frames in two seconds, because on a busy machine the reader can be up to
/// two seconds late.
fn ring_capacity(period: Nanos) -> usize {
    let frames = 2_000_000_000 / period.0.max(1);
    usize::try_from(frames).unwrap_or(0).clamp(1 << 8, 1 << 18)
}

/// A running paced loop, and the kernel's clocks that measure it. The rows are the loop's frames,
/// in order. The header contains the requested settings, the settings in effect, and the CPU time
/// that the loop cost ([`Header::paced_loop`]).
pub struct PacedLoop {
    plan: LoopPlan,
    cpu: Cpu,
    proc: Proc,
    machine: Machine,
    /// The probe that runs the loop, or `None` after the loop has ended.
    probe: Option<PaceProbe>,
    /// Affinity and priority of this thread, which avoids the loop's CPU if it can.
    collector: Collector,
    tid: i32,
    began_unix: i64,
    before: Snapshot,
    begin: Nanos,
    /// Whether frames have been read at least once.
    looked: bool,
    stopped: bool,
    sources: SourceTable,
    source: SourceId,
    /// Frames read since the last batch.
    rows: Vec<Row>,
    progress: Option<Progress>,
    ended: Option<Header>,
}

impl PacedLoop {
    /// Starts the loop. Returns once the loop is waiting for its first frame.
    ///
    /// # Errors
    /// Returns an error if [`LoopPlan::check`] fails, or if the loop does not start, for example
    /// because its CPU is offline or not allowed, or because its priority is out of range.
    pub fn start(plan: LoopPlan) -> Result<Self, ObserveError> {
        plan.check()?;
        let settings = plan.settings()?;
        let proc = Proc::default();
        let machine = proc.machine();
        let began_unix = unix_time();
        let mut probe = PaceProbe::prepare(&settings)?;
        while !probe.is_ready() && probe.is_running() {
            thread::sleep(SETTLING);
        }
        let mut collector = Collector::new();
        collector.keep_off(&[settings.cpu]);
        let tid = probe.tid().unwrap_or_default();
        // Reading the kernel's counters takes milliseconds. Read them now: if this thread shares
        // the loop's CPU, a later reading would delay the first frames.
        let before = Snapshot::take(&proc, settings.cpu, tid);
        probe.end_after(plan.length);
        probe.begin();
        let mut sources = SourceTable::default();
        let source = sources.intern(frame_source(None));
        Ok(Self {
            plan,
            cpu: settings.cpu,
            proc,
            machine,
            probe: Some(probe),
            collector,
            tid,
            began_unix,
            before,
            begin: now(),
            looked: false,
            stopped: false,
            sources,
            source,
            rows: Vec::new(),
            progress: None,
            ended: None,
        })
    }

    /// Returns the state of the machine before the loop started.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Waits for the next interval, reads the frames, and closes the loop if it has ended. The
    /// loop's own thread ends it on time even if this function runs late.
    fn turn(&mut self) -> Result<(), ObserveError> {
        let left = || self.begin + self.plan.length - now();
        if self.looked && !self.stopped {
            let left = Duration::from_nanos(u64::try_from(left().0).unwrap_or(0));
            self.collector.sleep(left.clamp(SETTLING, INTERVAL));
        }
        self.looked = true;
        self.rows.clear();
        let over = self.stopped || left() <= -LATEST;
        match self.probe.take() {
            Some(mut probe) if !over && probe.is_running() => {
                let row = row(self.cpu, self.source);
                probe.drain(|frame| self.rows.push(row(frame)));
                self.probe = Some(probe);
            }
            Some(probe) => self.end(probe)?,
            None => {}
        }
        self.progress = Some(Progress {
            begin: self.begin,
            elapsed: now() - self.begin,
        });
        Ok(())
    }

    fn end(&mut self, mut probe: PaceProbe) -> Result<(), ObserveError> {
        // Halt the loop before reading the counters, so that the reading doesn't delay any frame.
        // Don't end its thread yet, because that would remove the thread's files in `/proc`.
        probe.halt();
        let after = Snapshot::take(&self.proc, self.cpu, self.tid);
        let row = row(self.cpu, self.source);
        let report = probe.stop(|frame| self.rows.push(row(frame)))?;
        let mut readings = vec![CpuReading {
            clock: CpuClock::Thread,
            time: report.cpu_time,
            elapsed: report.elapsed,
        }];
        readings.extend(after.readings_since(&self.before, self.cpu, report.elapsed));
        let run = LoopRun {
            elapsed: report.elapsed,
            readings,
            wakeups: after.wakeups_since(&self.before, report.elapsed),
            error: report.error.as_ref().map(ProbeError::failure),
            report: self.report(report),
        };
        let (world, hidden) = ticktax_host::world(&self.machine);
        let mut limitations: Vec<Limitation> = hidden.into_iter().collect();
        if !self.stopped && run.error.is_none() {
            limitations.extend(length_not_kept(self.plan.length, run.elapsed));
        }
        let header = Header {
            machine: self.machine.clone(),
            began_unix: self.began_unix,
            coverage: Coverage {
                limitations,
                ..Coverage::default()
            },
            before: self.before.counters.clone(),
            after: after.counters,
            ended_early: self.stopped.then_some(EndedEarly::Interrupted),
            paced: Some(Paced::Loop(Box::new(run))),
            overshot_threshold: self.plan.overshot_from,
            ..Header::new(world, Level::Proc, env!("CARGO_PKG_VERSION"))
        };
        self.ended = Some(header);
        Ok(())
    }

    fn report(&self, report: PaceReport) -> LoopReport {
        LoopReport {
            spec: self.plan.spec,
            cpu: report.cpu,
            policy: report.policy,
            timer_slack: report.timer_slack,
            margin: report.margin,
            frames_lost: report.frames_lost,
        }
    }
}

impl Observation for PacedLoop {
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError> {
        loop {
            if let Some(progress) = self.progress.take() {
                return Ok(Event::Progress(progress));
            }
            if let Some(header) = &self.ended {
                return Ok(Event::Ended(Box::new(header.clone())));
            }
            self.turn()?;
            if !self.rows.is_empty() {
                break;
            }
        }
        Ok(Event::Rows {
            sources: &self.sources,
            rows: &self.rows,
        })
    }

    fn stop(&mut self, _: Option<i32>) {
        self.stopped = true;
    }

    fn sources(&self) -> &SourceTable {
        &self.sources
    }
}

/// Returns a function that converts a frame to a row.
fn row(cpu: Cpu, source: SourceId) -> impl Fn(Frame) -> Row {
    move |frame| Row::Frame(PacedFrame::new(&frame, cpu, source))
}

/// Readings of the kernel's clocks and counters at one moment.
struct Snapshot {
    counters: Counters,
    thread: Option<Usage>,
    idle_exits: Option<u64>,
}

impl Snapshot {
    fn take(proc: &Proc, cpu: Cpu, tid: i32) -> Self {
        let at = now();
        let own = nix::unistd::getpid().as_raw();
        Self {
            thread: proc.thread_usage(own, tid),
            counters: proc.counters(at),
            idle_exits: proc.idle_exits(cpu),
        }
    }

    /// Returns the loop's CPU time according to the clocks of its thread and of its CPU. The thread
    /// did nothing outside the loop. Its clocks therefore show exactly the time used during `ran`,
    /// even though they were read some time before the loop started and after it ended.
    fn readings_since(&self, before: &Self, cpu: Cpu, ran: Nanos) -> Vec<CpuReading> {
        let between = self.counters.at - before.counters.at;
        let mut readings = Vec::new();
        let mut add = |clock, time, elapsed| {
            readings.push(CpuReading {
                clock,
                time,
                elapsed,
            });
        };
        if let (Some(after), Some(before)) = (&self.thread, &before.thread) {
            let used = after.since(before);
            if let Some(time) = used.on_cpu {
                add(CpuClock::Schedstat, time, ran);
            }
            add(CpuClock::Stat, used.user + used.system, ran);
        }
        let times = |counters: &Counters| counters.cpu_times.get(&cpu.0).copied();
        if let (Some(after), Some(before)) = (times(&self.counters), times(&before.counters)) {
            add(CpuClock::Machine, after.since(&before).busy(), between);
        }
        readings
    }

    /// Returns how many times the loop woke up during `ran`, or `None` if the thread's resource
    /// usage could not be read.
    fn wakeups_since(&self, before: &Self, ran: Nanos) -> Option<Wakeups> {
        let used = self.thread.as_ref()?.since(before.thread.as_ref()?);
        let exits = self.idle_exits.zip(before.idle_exits);
        Some(Wakeups {
            elapsed: ran,
            // Every voluntary switch is followed by a wake-up, except for the switch after the last
            // frame.
            count: used.voluntary.saturating_sub(1),
            idle_exits: exits.map(|(after, before)| EndedIdle {
                count: after.saturating_sub(before),
                loop_only: false,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::limitation::Limitation;
    use ticktax_model::pace::{LoopSpec, PaceRule, SleepMethod};
    use ticktax_model::recording::Row;
    use ticktax_probes::SchedulingPolicy;

    use super::{Event, LoopPlan, Observation, PacedLoop, ring_capacity};

    fn plan(length: Nanos) -> LoopPlan {
        LoopPlan {
            spec: LoopSpec {
                rate: 200.0,
                period: Nanos::from_millis(5),
                work: Nanos::from_millis(1),
                sleep: SleepMethod::Nanosleep,
                rule: PaceRule::Deadline,
            },
            cpu: None,
            policy: SchedulingPolicy::Other,
            length,
            overshot_from: None,
        }
    }

    #[test]
    fn a_loop_emits_its_frames_and_then_its_cost() {
        let mut paced = PacedLoop::start(plan(Nanos::from_secs(1))).unwrap();
        let (mut due, mut looks) = (Vec::new(), 0);
        let header = loop {
            match paced.next_event().unwrap() {
                Event::Started(_) => {}
                Event::Rows { rows, .. } => due.extend(rows.iter().map(|row| match row {
                    Row::Frame(frame) => frame.due,
                    other => panic!("{other:?}"),
                })),
                Event::Progress(_) => looks += 1,
                Event::Ended(header) => break header,
            }
        };
        assert!(header.after.at > header.before.at);
        assert!(!due.is_empty() && looks > 1, "{looks}");
        assert!(due.is_sorted());
        let run = header.paced_loop().unwrap();
        // All frames are due within the requested length. If the last frame was so late that the
        // loop took longer than that, the report contains the actual length.
        let last = due.last().copied().unwrap_or_default();
        assert!(last - due[0] < Nanos::from_millis(995));
        let kept = Nanos((run.elapsed - Nanos::from_secs(1)).0.abs()) <= Nanos::from_millis(20);
        let mut limitations = header.coverage.limitations.iter();
        let reported =
            limitations.any(|limitation| matches!(limitation, Limitation::LengthDiffers { .. }));
        assert_ne!(kept, reported, "{}", run.elapsed);
        assert_eq!(run.report.frames_lost, 0);
        assert!(run.readings[0].time >= Nanos::from_millis(1));
        assert_eq!(run.error, None);
        assert!(matches!(paced.next_event(), Ok(Event::Ended(_))));
    }

    #[test]
    fn a_stopped_loop_ends_at_once() {
        let mut paced = PacedLoop::start(plan(Nanos::from_secs(3600))).unwrap();
        paced.stop(None);
        let header = loop {
            if let Event::Ended(header) = paced.next_event().unwrap() {
                break header;
            }
        };
        assert!(header.ended_early.is_some());
    }

    #[test]
    fn an_impossible_loop_is_rejected_before_it_starts() {
        let error = plan(Nanos::from_millis(5)).check().unwrap_err();
        assert!(error.to_string().contains("before the first frame is due"));
        let mut busy = plan(Nanos::from_secs(1));
        busy.spec.work = busy.spec.period;
        assert!(
            busy.check()
                .unwrap_err()
                .to_string()
                .contains("does not fit")
        );
    }

    #[test]
    fn the_ring_holds_two_seconds_within_bounds() {
        assert_eq!(ring_capacity(Nanos::from_millis(1)), 2000);
        assert_eq!(ring_capacity(Nanos::from_secs(1)), 1 << 8);
        assert_eq!(ring_capacity(Nanos::ZERO), 1 << 18);
    }
}
