//! `dodge`: a program that works in only one part of every tick period. The kernel samples at the
//! tick, so it finds the program running either always or never.
//!
//! The kernel's list of timers shows when the tick is due. If the list is not readable, a spinning
//! thread detects the tick as an interruption that recurs at the same phase. In a guest, the host's
//! own tick can interrupt the thread in the same way and be mistaken for the guest's.

use std::fs;

use ticktax_model::kernel_words::TICK_FUNCTIONS;
use ticktax_model::{Cpu, Nanos};

use crate::clock;
use crate::control::{Control, Walk};
use crate::error::InjectError;
use crate::place;
use crate::plan::{Plan, Window};
use crate::spinner::{Gap, Spinner};
use crate::truth::{Event, EventLog, Measured, Truth};

use super::{thread, truth_of};

/// Time that the spinning thread takes to search for the tick.
const LOOKING: Nanos = Nanos::from_millis(400);
/// Maximum number of gaps recorded during the search.
const ROOM: usize = 1 << 14;
/// Number of parts into which the search divides a tick period.
const PARTS: usize = 200;
/// The tick counts as found if, for at least this share of ticks, there is a gap in the same part
/// of the period.
const SEEN: f64 = 0.5;

pub(super) fn run(plan: &Plan, window: Window, control: &Control) -> Result<Truth, InjectError> {
    let tick = plan.schedule.period;
    place::pin(place::SELF, plan.cpu)?;
    // The tick is not stopped at this point, because this thread is running.
    let timers = fs::read_to_string("/proc/timer_list").unwrap_or_default();
    let phase = match next_tick(&timers, plan.cpu) {
        Some(next) => Nanos(next.0.rem_euclid(tick.0)),
        None => seen(plan, control)?,
    };
    let walk = walk(plan, window, phase, control)?;
    let (cpu, passed) = (walk.log.cpu_time, walk.log.length);
    let account = thread(plan.disturbance.comm());
    let mut truth = truth_of(plan, walk, account, &["local_timer"]);
    truth.injected = Some(Measured::new(
        cpu,
        "CLOCK_THREAD_CPUTIME_ID around each window",
    ));
    truth
        .measured
        .push(Measured::new(passed, "CLOCK_MONOTONIC around each window"));
    Ok(truth)
}

/// Returns when the tick on `cpu` is next due, according to the contents of `/proc/timer_list`.
/// Returns `None` if the tick is not listed or not armed.
fn next_tick(timers: &str, cpu: Cpu) -> Option<Nanos> {
    let begin = format!("cpu: {cpu}");
    let mine = timers.lines().skip_while(|line| *line != begin).skip(1);
    let mut mine = mine.take_while(|line| !line.starts_with("cpu: "));
    mine.find(|line| TICK_FUNCTIONS.iter().any(|name| line.contains(name)))?;
    let due = mine.next()?.trim_start().strip_prefix("# expires at ")?;
    let (due, _) = due.split_once('-')?;
    due.parse().ok().map(Nanos)
}

/// Returns the phase of the tick as detected by a spinning thread.
fn seen(plan: &Plan, control: &Control) -> Result<Nanos, InjectError> {
    let tick = plan.schedule.period;
    let spinner = Spinner::start(plan.cpu, ROOM)?;
    let looked = control.sleep_until(clock::now() + LOOKING);
    let gaps = spinner.finish()?.kept;
    looked?;
    phase(&gaps, tick, LOOKING).ok_or_else(|| InjectError::Refused {
        kind: "dodge",
        why: format!("sees no tick every {tick}: give the kernel's own period as --period"),
    })
}

/// Works in the part `window` of each tick period, and sleeps for the rest of it.
fn walk(plan: &Plan, window: Window, phase: Nanos, control: &Control) -> Result<Walk, InjectError> {
    let tick = plan.schedule.period;
    let count = usize::try_from(plan.duration.0 / tick.0).unwrap_or(usize::MAX);
    let mut log = EventLog::new(count.min(Truth::MAX_LOGGED));
    let before = clock::thread_cpu();
    let start = control.begin();
    let end = start + Truth::LEAD + plan.duration;
    // Start at the first tick that is at least [`Truth::LEAD`] after the start.
    let first = start + Truth::LEAD;
    let mut next = first + Nanos((phase - first).0.rem_euclid(tick.0));
    let mut planned = 0;
    while next + tick <= end {
        let (from, to) = (next + window.begin(tick), next + window.end(tick));
        planned += 1;
        if !control.sleep_until(from)? {
            break;
        }
        let began = clock::now();
        // Skip a window if it has already ended.
        if began < to {
            // Read the CPU clock only while the thread is running. That leaves out the time that
            // the scheduler charges for the wake-up before the thread runs.
            let cpu_before = clock::thread_cpu();
            let ended = clock::spin(began, to - began);
            let cpu_time = Some(clock::thread_cpu() - cpu_before);
            log.push(Event {
                due: from,
                start: began,
                length: ended - began,
                cpu_time,
            });
        }
        next += tick;
    }
    Ok(Walk {
        start,
        end: clock::now(),
        stopped: control.stopped(),
        planned,
        log,
        thread_cpu: clock::thread_cpu() - before,
    })
}

/// Returns the phase of the tick: the part of the period in which most gaps start. Returns `None`
/// if too few gaps start there.
fn phase(gaps: &[Gap], tick: Nanos, looked: Nanos) -> Option<Nanos> {
    let part = tick.0 / i64::try_from(PARTS).ok()?;
    let remainder = |gap: &Gap| gap.start.0.rem_euclid(tick.0);
    let place = |time: i64| usize::try_from(time / part).unwrap_or(0).min(PARTS - 1);
    let mut counts = [0_u32; PARTS];
    for gap in gaps {
        counts[place(remainder(gap))] += 1;
    }
    // If the phase is close to the boundary between two parts, the gaps are split between them, so
    // count adjacent parts in pairs.
    let pair = |i: usize| counts[i] + counts[(i + 1) % PARTS];
    let best = (0..PARTS).max_by_key(|&i| pair(i))?;
    let expected = looked.0 as f64 / tick.0 as f64;
    if f64::from(pair(best)) < SEEN * expected {
        return None;
    }
    let begin = i64::try_from(best).ok()? * part;
    let inside = |gap: &&Gap| (remainder(gap) - begin).rem_euclid(tick.0) < 2 * part;
    let mut times: Vec<i64> = gaps
        .iter()
        .filter(inside)
        .map(|gap| (remainder(gap) - begin).rem_euclid(tick.0))
        .collect();
    times.sort_unstable();
    Some(Nanos((begin + times[times.len() / 2]).rem_euclid(tick.0)))
}

#[cfg(test)]
mod tests {
    use super::{Cpu, Gap, Nanos, next_tick, phase};

    fn gaps(starts: impl Iterator<Item = i64>) -> Vec<Gap> {
        starts
            .map(|start| Gap {
                start: Nanos(start),
                end: Nanos(start + 5_000),
            })
            .collect()
    }

    #[test]
    fn the_tick_is_found_from_periodic_gaps() {
        let tick = Nanos::from_millis(4);
        for offset in [0, 3_999_990, 1_234_567] {
            let ticks = (0..100).map(|i| i * tick.0 + offset + (i % 7) * 300);
            let noise = (0..300).map(|i| i * 1_371_111);
            let found = phase(&gaps(ticks.chain(noise)), tick, Nanos::from_millis(400));
            let off = (found.unwrap().0 - offset).rem_euclid(tick.0);
            assert!(off < 3_000 || off > tick.0 - 3_000, "{offset}: {off}");
        }
    }

    #[test]
    fn the_next_tick_is_read_from_the_timer_list() {
        let cpu = |number: u32, timers: &str| {
            format!("cpu: {number}\n clock 0:\nactive timers:\n{timers} clock 1:\n")
        };
        let timer = |nth: u32, function: &str, due: i64| {
            format!(
                " #{nth}: <0>, {function}, S:01\n # expires at {due}-{due} nsecs [in 1 to 1 nsecs]\n"
            )
        };
        let other = timer(0, "hrtimer_wakeup", 7);
        let text = [
            "Timer List Version: v0.10\n\n".to_owned(),
            cpu(
                0,
                &(other.clone() + &timer(1, "tick_nohz_handler", 4_000_000)),
            ),
            cpu(1, &timer(0, "tick_sched_timer", 4_000_500)),
            cpu(11, &other),
            cpu(12, &timer(0, "tick_nohz_handler", 8)),
        ]
        .concat();
        assert_eq!(next_tick(&text, Cpu(0)), Some(Nanos(4_000_000)));
        assert_eq!(next_tick(&text, Cpu(1)), Some(Nanos(4_000_500)));
        assert_eq!(next_tick(&text, Cpu(11)), None);
        assert_eq!(next_tick(&text, Cpu(2)), None);
        assert_eq!(next_tick("", Cpu(0)), None);
    }

    #[test]
    fn without_a_tick_no_phase_is_found() {
        let tick = Nanos::from_millis(4);
        let noise = gaps((0..300).map(|i| i * 1_371_111));
        assert_eq!(phase(&noise, tick, Nanos::from_millis(400)), None);
        assert_eq!(phase(&[], tick, Nanos::from_millis(400)), None);
    }
}
