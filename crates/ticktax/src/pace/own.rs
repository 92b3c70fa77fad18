//! A loop of our own: running it, and reading every clock that tells what it cost.

use std::thread;
use std::time::Duration;

use ticktax_analysis::accounting::counting;
use ticktax_analysis::pace::{Accounts, FrameStats, Terms, tick_alias};
use ticktax_host::Proc;
use ticktax_model::machine::{CpuTimes, Machine};
use ticktax_model::pace::{
    CpuClock, CpuReading, CpuStatement, Distribution, EndedIdle, Figures, LoopReport, PACE_VERSION,
    PaceRule, PaceStatement, Subject, TickAlias, Wakeups,
};
use ticktax_model::victim::Usage;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;
use ticktax_probes::pace::{PaceProbe, PaceReport, PaceSettings};

use super::{LIVE, cpu, require_possible, sampled_at_tick, tick, unix_time};
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::{Progress, Terminal};

/// How often frames are read. A loop of a thousand frames a second has 50 by then.
const INTERVAL: Duration = Duration::from_millis(50);

/// How often a loop that gets ready is looked at.
const SETTLING: Duration = Duration::from_millis(1);

/// Without other wishes.
const LENGTH: Nanos = Nanos::from_secs(10);

/// What was typed, as settings of a loop.
pub(super) fn settings(typed: &PaceArguments, length: Nanos) -> Result<PaceSettings, Failure> {
    let period = typed.rate.period();
    let settings = PaceSettings {
        cpu: cpu(typed)?,
        policy: typed.policy.0,
        period,
        work: typed.work.0,
        sleep: typed.sleep,
        rule: typed.rule,
        ring_capacity: ring_capacity(period),
    };
    require_possible(&settings, length)?;
    Ok(settings)
}

/// Room for two seconds of frames: the reader may be late by that much on a busy machine.
pub(super) fn ring_capacity(period: Nanos) -> usize {
    let frames = 2_000_000_000 / period.0.max(1);
    usize::try_from(frames).unwrap_or(0).clamp(1 << 8, 1 << 18)
}

/// Runs one loop and says what became of it.
pub(super) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<PaceStatement, Failure> {
    let length = typed.length.map_or(LENGTH, |length| length.0);
    let settings = settings(typed, length)?;
    let proc = Proc::default();
    let machine = proc.machine();
    let (tick, unknown_tick) = tick(&machine);
    let interrupt = Interrupt::listen()?;
    let began_unix = unix_time();
    let progress = terminal.progress(Some(length), ticktax_report::pace_line(None, 0, 0), false);
    let ran = run_loop(
        &settings,
        length,
        tick,
        &proc,
        &interrupt,
        &mut |book, elapsed| {
            show(book, elapsed, &progress);
        },
    )?;
    progress.done();
    let report = &ran.report;
    let figures = ran.accounts.figures();
    let ended_early = report
        .error
        .as_ref()
        .map(ToString::to_string)
        .or_else(|| interrupt.signal().map(|_| "it was interrupted".to_owned()));
    let alias = alias(&settings, report.margin, &machine, figures.as_ref());
    let (world, hidden) = ticktax_host::world(&machine);
    Ok(PaceStatement {
        world,
        pace_version: PACE_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix,
        elapsed: report.elapsed,
        figures,
        cpu: CpuStatement {
            readings: ran.readings,
            cpus: [report.cpu].into_iter().collect(),
            sampled_at_tick: sampled_at_tick(&machine),
            alias,
        },
        wakeups: ran.wakeups,
        limitations: unknown_tick.into_iter().chain(hidden).collect(),
        ended_early,
        machine,
        subject: Subject::Loop(LoopReport {
            rate: typed.rate.0,
            period: settings.period,
            work: settings.work,
            sleep: settings.sleep,
            rule: settings.rule,
            cpu: report.cpu,
            policy: report.policy.clone(),
            timer_slack: report.timer_slack,
            margin: report.margin,
            frames_lost: report.frames_lost,
        }),
    })
}

/// What the loop's rhythm makes of samples: only frames on a grid keep to phases of the tick, and
/// only while the loop sleeps between them.
fn alias(
    settings: &PaceSettings,
    margin: Option<Nanos>,
    machine: &Machine,
    figures: Option<&Figures>,
) -> Option<TickAlias> {
    let grid = settings.rule == PaceRule::Deadline && settings.sleep.sleeps();
    if !grid || sampled_at_tick(machine) != Some(true) {
        return None;
    }
    // Where sleeps end on the tick, so does every frame's wait: there is one phase.
    if machine.high_resolution == Some(false) {
        return None;
    }
    let tick = counting(machine).tick?;
    let busy = margin.unwrap_or_default() + settings.work;
    let figures = figures?;
    let alias = tick_alias(settings.period, busy, tick, figures.frames)?;
    keeps_to_phases(&alias, settings.work, figures).then_some(alias)
}

/// Whether frames began and ended as nearly in time as their phases are apart: nine of ten within a
/// quarter of that.
fn keeps_to_phases(alias: &TickAlias, work: Nanos, figures: &Figures) -> bool {
    let max = Nanos(alias.tick.0 / i64::from(alias.frames.max(1)) / 4);
    let within = |times: &Option<Distribution>, min: Nanos| {
        let ninth = times.as_ref().and_then(|times| times.quantile(0.9));
        ninth.is_some_and(|time| time - min <= max)
    };
    let earliest = figures.wait.as_ref().map_or(Nanos::ZERO, |wait| wait.min);
    within(&figures.wait, earliest) && within(&figures.busy, work)
}

fn show(book: &FrameStats, elapsed: Nanos, progress: &Progress) {
    let (_, dropped, overshot) = book.so_far();
    let line = ticktax_report::pace_line(book.last_second(), dropped, overshot);
    progress.tell(line);
    progress.at(elapsed);
}

/// What one run of a loop brought.
pub(super) struct Ran {
    pub(super) report: PaceReport,
    pub(super) accounts: Accounts,
    pub(super) readings: Vec<CpuReading>,
    pub(super) wakeups: Option<Wakeups>,
}

/// Runs a loop for `length`, or until somebody interrupts; tells `live` once a second how it goes.
pub(super) fn run_loop(
    settings: &PaceSettings,
    length: Nanos,
    tick: Nanos,
    proc: &Proc,
    interrupt: &Interrupt,
    live: &mut dyn FnMut(&FrameStats, Nanos),
) -> Result<Ran, Failure> {
    let mut book = FrameStats::new(Terms {
        period: settings.period,
        overshot_from: tick,
        asked_for: true,
    });
    let mut probe = PaceProbe::start(settings)?;
    while !probe.has_begun() && probe.is_running() {
        thread::sleep(SETTLING);
    }
    let tid = probe.tid().unwrap_or_default();
    let before = Snapshot::take(proc, settings.cpu, tid);
    let begin = now();
    let mut shown = begin;
    while probe.is_running() && interrupt.signal().is_none() {
        let time = now();
        let left = begin + length - time;
        if left <= Nanos::ZERO {
            break;
        }
        probe.drain(|frame| book.frame(frame));
        if time - shown >= LIVE {
            live(&book, time - begin);
            shown = time;
        }
        let left = Duration::from_nanos(left.0.unsigned_abs());
        thread::sleep(left.min(INTERVAL));
    }
    // The thread's own files are gone once it has ended.
    let after = Snapshot::take(proc, settings.cpu, tid);
    let report = probe.stop(|frame| book.frame(frame))?;
    let mut readings = vec![CpuReading {
        clock: CpuClock::Thread,
        time: report.cpu_time,
        elapsed: report.elapsed,
    }];
    readings.extend(after.readings_since(&before));
    Ok(Ran {
        accounts: book.close(),
        readings,
        wakeups: after.wakeups_since(&before),
        report,
    })
}

/// What the kernel's clocks say at one moment.
struct Snapshot {
    at: Nanos,
    thread: Option<Usage>,
    cpu: Option<CpuTimes>,
    idle_exits: Option<u64>,
}

impl Snapshot {
    fn take(proc: &Proc, cpu: Cpu, tid: i32) -> Self {
        let at = now();
        let own = nix::unistd::getpid().as_raw();
        Self {
            at,
            thread: proc.thread_usage(own, tid),
            cpu: proc.counters(at).cpu_times.get(&cpu.0).copied(),
            idle_exits: proc.idle_exits(cpu),
        }
    }

    fn readings_since(&self, before: &Self) -> Vec<CpuReading> {
        let elapsed = self.at - before.at;
        let mut readings = Vec::new();
        let mut add = |clock, time| {
            readings.push(CpuReading {
                clock,
                time,
                elapsed,
            });
        };
        if let (Some(after), Some(before)) = (&self.thread, &before.thread) {
            let used = after.since(before);
            if let Some(time) = used.on_cpu {
                add(CpuClock::Schedstat, time);
            }
            add(CpuClock::Stat, used.user + used.system);
        }
        if let (Some(after), Some(before)) = (&self.cpu, &before.cpu) {
            add(CpuClock::Machine, after.since(before).busy());
        }
        readings
    }

    fn wakeups_since(&self, before: &Self) -> Option<Wakeups> {
        let used = self.thread.as_ref()?.since(before.thread.as_ref()?);
        let exits = self.idle_exits.zip(before.idle_exits);
        Some(Wakeups {
            elapsed: self.at - before.at,
            // It is woken as often as it gives its CPU away, give or take one.
            count: used.voluntary,
            ended_idle: exits.map(|(after, before)| EndedIdle {
                count: after.saturating_sub(before),
                own: false,
            }),
        })
    }
}
