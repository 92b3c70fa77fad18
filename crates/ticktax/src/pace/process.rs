//! Somebody else's loop: following a process, and finding its frames.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use ticktax_analysis::pace::{PaceWatch, Watched};
use ticktax_host::Proc;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Counters;
use ticktax_model::pace::{
    CpuClock, CpuReading, CpuStatement, PACE_VERSION, PaceStatement, ProcessReport, Subject,
};
use ticktax_model::recording::RowSink;
use ticktax_model::victim::FollowedThread;
use ticktax_model::victim::Usage;
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Closing, TraceSettings, Tracer};

use super::{LIVE, sampled_at_tick, tick, unix_time};
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// How often the tracer's buffers are emptied.
const INTERVAL: Duration = Duration::from_millis(50);
/// Without other wishes.
const LENGTH: Nanos = Nanos::from_secs(10);
/// How often the threads are listed anew until all are followed: one that is not yet may start
/// another in between.
const ROUNDS: usize = 20;
/// Somebody who looks on is told by the second for this long; looking takes longer with time.
const LIVE_UNTIL: Nanos = Nanos::from_secs(60);
const LIVE_LATER: Nanos = Nanos::from_secs(10);

/// CPU times by thread, at one moment.
struct Uses {
    at: Nanos,
    by_thread: BTreeMap<i32, Usage>,
}

impl Uses {
    fn read(proc: &Proc, pid: i32) -> Self {
        let threads = proc.threads_of(pid).into_iter();
        let usage = |thread: FollowedThread| {
            let usage = proc.thread_usage(pid, thread.tid)?;
            Some((thread.tid, usage))
        };
        Self {
            at: now(),
            by_thread: threads.filter_map(usage).collect(),
        }
    }
}

/// What was read while a process was followed.
struct Followed {
    watch: PaceWatch,
    begin: Nanos,
    end: Nanos,
    counters: (Counters, Counters),
    uses: (Uses, Uses),
    exited: bool,
    interrupted: bool,
    limitations: Vec<Limitation>,
}

/// Watches process `pid` and says what became of its frames.
pub(super) fn watch(
    pid: i32,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<PaceStatement, Failure> {
    let proc = Proc::default();
    let found = proc.process_of(pid).filter(|&pid| proc.is_alive(pid));
    let pid = found.ok_or_else(|| Failure::Victim(format!("there is no process {pid}")))?;
    let name = proc.program(pid).unwrap_or_default();
    let machine = proc.machine();
    let (tick, unknown_tick) = tick(&machine);
    let began_unix = unix_time();
    let length = typed.length.map_or(LENGTH, |length| length.0);
    let followed = follow(pid, length, tick, &proc, terminal)?;
    let watched = followed.watch.judge(followed.begin, followed.end, tick);
    let ended_early = match (followed.exited, followed.interrupted) {
        (true, _) => Some(format!("process {pid} ended")),
        (false, true) => Some("it was interrupted".to_owned()),
        (false, false) => None,
    };
    let mut limitations: Vec<Limitation> = unknown_tick.into_iter().collect();
    if let Some(full_at) = watched.full_at {
        limitations.push(Limitation::FollowingCutShort {
            after: full_at - followed.begin,
        });
    }
    let readings = readings(&followed, &watched);
    limitations.extend(followed.limitations);
    Ok(PaceStatement {
        world: ticktax_host::world(&machine).0,
        pace_version: PACE_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix,
        elapsed: followed.end - followed.begin,
        figures: watched.figures,
        cpu: CpuStatement {
            readings,
            cpus: watched.cpus,
            sampled_at_tick: sampled_at_tick(&machine),
            // Nobody knows to the ns when a stranger's frames are due.
            alias: None,
        },
        wakeups: watched.wakeups,
        limitations,
        ended_early,
        machine,
        subject: Subject::Process(ProcessReport {
            pid,
            name,
            chosen: watched.chosen,
            threads: watched.threads,
        }),
    })
}

/// Follows the process until time is up, it ends, or somebody interrupts.
fn follow(
    pid: i32,
    length: Nanos,
    tick: Nanos,
    proc: &Proc,
    terminal: &Terminal,
) -> Result<Followed, Failure> {
    let interrupt = Interrupt::listen()?;
    let settings = TraceSettings {
        following: true,
        ..TraceSettings::default()
    };
    let mut tracer = Tracer::load(&settings, proc.room_for_cpus()).map_err(|error| {
        let why = error.to_string();
        Failure::Watch { pid, why }
    })?;
    let online = proc.online().unwrap_or_default();
    let possible = proc.possible().unwrap_or_else(|| online.clone());
    let without_room = follow_all(&mut tracer, proc, pid);
    let late = tracer.start(&possible, &online, now());
    let begin = now();
    tracer.begin_lives(begin, &proc.threads_of(pid));
    Tracer::raise_own_priority();
    let mut followed = Followed {
        watch: PaceWatch::new(pid),
        begin,
        end: begin,
        counters: (proc.counters(begin), Counters::default()),
        uses: (Uses::read(proc, pid), Uses::read(proc, pid)),
        exited: false,
        interrupted: false,
        limitations: Vec::new(),
    };
    let mut sources = SourceTable::default();
    let line = ticktax_report::pace_line(None, 0, 0);
    let progress = terminal.progress(Some(length), line, false);
    let mut shown = begin;
    loop {
        let time = now();
        followed.exited = !proc.is_alive(pid);
        followed.interrupted = interrupt.signal().is_some();
        tracer.drain(time, &mut sources, &mut |sources, row| {
            followed.watch.row(sources, row);
        });
        if followed.exited || followed.interrupted || time - begin >= length {
            break;
        }
        let often = if time - begin < LIVE_UNTIL {
            LIVE
        } else {
            LIVE_LATER
        };
        if time - shown >= often {
            // Now and then, for the case that it ends: nothing else tells what it used then.
            followed.uses.1 = Uses::read(proc, pid);
            if terminal.is_watched() {
                let so_far = followed.watch.judge(begin, time, tick);
                let figures = so_far.figures.as_ref();
                let (dropped, overshot) = figures.map_or((0, 0), |f| (f.dropped, f.overshot));
                progress.tell(ticktax_report::pace_line(
                    so_far.last_second,
                    dropped,
                    overshot,
                ));
                progress.at(time - begin);
            }
            shown = time;
        }
        let left = u64::try_from((begin + length - time).0).unwrap_or(0);
        thread::sleep(Duration::from_nanos(left).min(INTERVAL));
    }
    progress.done();
    let uses = Uses::read(proc, pid);
    if !uses.by_thread.is_empty() {
        followed.uses.1 = uses;
    }
    followed.end = now();
    followed.counters.1 = proc.counters(followed.end);
    let still_online = proc.online().unwrap_or(online);
    let closing = tracer.close(&still_online, now(), &mut sources, &mut |sources, row| {
        followed.watch.row(sources, row);
    });
    followed.limitations = limitations(&closing, &late, without_room);
    Ok(followed)
}

/// Has the tracer follow all threads; returns for how many there was no room.
fn follow_all(tracer: &mut Tracer, proc: &Proc, pid: i32) -> u64 {
    let mut known: Vec<i32> = Vec::new();
    let mut without_room = 0;
    for _ in 0..ROUNDS {
        let mut new = proc.threads_of(pid);
        new.retain(|thread| !known.contains(&thread.tid));
        if new.is_empty() {
            break;
        }
        known.extend(new.iter().map(|thread| thread.tid));
        let missing = new.len() - tracer.follow(&new);
        without_room += missing as u64;
    }
    without_room
}

fn limitations(closing: &Closing, late: &CpuList, without_room: u64) -> Vec<Limitation> {
    let mut limitations = Vec::new();
    let events: u64 = closing.lost.iter().map(|loss| loss.events).sum();
    if events > 0 {
        limitations.push(Limitation::FrameEventsLost { events });
    }
    let threads = without_room + closing.unfollowed;
    if threads > 0 {
        limitations.push(Limitation::ThreadsNotFollowed { threads });
    }
    if !late.is_empty() {
        let cpus = late.clone();
        limitations.push(Limitation::BooksBeganLate { cpus });
    }
    let count = closing.missed;
    if count > 0 {
        limitations.push(Limitation::SwitchesMissed { count });
    }
    limitations
}

/// The CPU time of the chosen thread by every clock.
fn readings(followed: &Followed, watched: &Watched) -> Vec<CpuReading> {
    let Some(thread) = watched
        .chosen
        .and_then(|chosen| watched.threads.get(chosen))
    else {
        return Vec::new();
    };
    let mut readings = vec![CpuReading {
        clock: CpuClock::Runs,
        time: thread.cpu,
        elapsed: followed.end - followed.begin,
    }];
    let (before, after) = &followed.uses;
    let used = before.by_thread.get(&thread.tid);
    let used = used.zip(after.by_thread.get(&thread.tid));
    if let Some((from, to)) = used {
        let used = to.since(from);
        let elapsed = after.at - before.at;
        let add = |clock, time| CpuReading {
            clock,
            time,
            elapsed,
        };
        readings.extend(used.on_cpu.map(|time| add(CpuClock::Schedstat, time)));
        readings.push(add(CpuClock::Stat, used.user + used.system));
    }
    let (before, after) = &followed.counters;
    let cpu_time = |number: u32| {
        let (from, to) = (
            before.cpu_times.get(&number)?,
            after.cpu_times.get(&number)?,
        );
        Some(to.since(from).busy())
    };
    let times: Option<Vec<Nanos>> = watched.cpus.iter().map(|cpu| cpu_time(cpu.0)).collect();
    if let Some(times) = times.filter(|times| !times.is_empty()) {
        let cpus = i64::try_from(times.len()).unwrap_or(1);
        readings.push(CpuReading {
            clock: CpuClock::Machine,
            time: times.iter().sum(),
            elapsed: Nanos((after.at - before.at).0 * cpus),
        });
    }
    readings
}
