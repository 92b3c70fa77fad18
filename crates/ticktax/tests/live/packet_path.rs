//! Tests with packets that are sent to a thread over loopback and delayed by a disturbance of known
//! size.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::packet_path::{NotFollowed, PacketDelay, PacketPaths, PacketRan, Step};
use ticktax_model::recording::{Effect, Row};
use ticktax_model::{Cpu, Interval, Intervals, Kind, Nanos};
use ticktax_store::recording::RecordingReader;

use super::fixture::{RecordingDir, check, statement, ticktax};

/// A thread that reads packets on one CPU, and a thread that sends them from the other CPUs. Both
/// stop when this is dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    receiver: i32,
}

impl Traffic {
    fn start(cpu: Cpu, pause: Duration) -> Result<Self, Failed> {
        let (socket, to) = (
            UdpSocket::bind("127.0.0.1:0")?,
            UdpSocket::bind("127.0.0.1:0")?,
        );
        to.connect(socket.local_addr()?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender_of_tid, receiver_of_tid) = std::sync::mpsc::channel();
        let until = stop.clone();
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        let receiver = thread::spawn(move || {
            let pinned = sched_setaffinity(Pid::from_raw(0), &only);
            let _ = sender_of_tid.send(pinned.map(|()| gettid().as_raw()));
            let mut bytes = [0; 64];
            while !until.load(Ordering::Relaxed) && socket.recv(&mut bytes).is_ok() {}
        });
        let until = stop.clone();
        // Keep the sender off the receiver's CPU, because the disturbance would stop it there, too.
        let mut others = sched_getaffinity(Pid::from_raw(0))?;
        others.unset(cpu.index())?;
        let sender = thread::spawn(move || {
            // Ignore errors: on a machine with one CPU, `others` is empty, and the sender runs on
            // the receiver's CPU.
            let _ = sched_setaffinity(Pid::from_raw(0), &others);
            while !until.load(Ordering::Relaxed) {
                let _ = to.send(b"frame");
                thread::sleep(pause);
            }
            // This last packet wakes the receiver, so that it exits.
            let _ = to.send(b"end");
        });
        Ok(Self {
            receiver: receiver_of_tid.recv()??,
            stop,
            threads: vec![receiver, sender],
        })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn parse_packets(output: &std::process::Output) -> Result<PacketPaths, Failed> {
    Ok(statement(output)?
        .packets
        .ok_or("no packet woke a thread")?)
}

/// The rows about one thread, and about the threads of this process that disturb it. They are
/// collected without the analysis, in order to check it.
#[derive(Default)]
struct ByHand {
    begin: Nanos,
    /// Time of each wake-up, and whether a packet caused it.
    wakes: Vec<(Nanos, bool)>,
    /// Start and end of the thread's on-CPU periods.
    runs: Vec<(Nanos, Nanos)>,
    /// On-CPU periods of this process's other threads, with their CPU.
    others: Vec<(Cpu, Nanos, Nanos)>,
}

impl ByHand {
    fn read(recording: &Path, tid: i32) -> Result<Self, Failed> {
        let pid = i32::try_from(std::process::id())?;
        let mut reader = RecordingReader::open(recording)?;
        let mut rows = Self {
            begin: reader.header().begin().ok_or("no begin")?,
            ..Self::default()
        };
        reader.replay(&mut |sources, row| match row {
            Row::Edge(edge) if edge.effect == Effect::Woke(tid) => {
                let by = sources.get(edge.span.source);
                let is_packet = by.kind == Kind::Softirq && &*by.name == "NET_RX";
                rows.wakes.push((edge.span.start, is_packet));
            }
            Row::Span(span) => {
                let source = sources.get(span.source);
                match &source.thread {
                    Some(thread) if source.kind == Kind::Task && thread.tid == tid => {
                        rows.runs.push((span.start, span.end()));
                    }
                    Some(thread) if source.kind == Kind::Task && thread.pid == pid => {
                        rows.others.push((span.cpu, span.start, span.end()));
                    }
                    _ => {}
                }
            }
            _ => {}
        })?;
        rows.wakes.sort_unstable();
        rows.runs.sort_unstable();
        Ok(rows)
    }

    /// Returns the delays between each wake-up by a packet and the thread's run, and the number of
    /// delays that the rows do not show. If the kernel does not report a switch, the thread is
    /// woken again even though it does not seem to have run in between.
    fn delays(&self) -> (Vec<Nanos>, u64) {
        let mut unknown = 0;
        let mut delays = Vec::new();
        for (place, &(at, _)) in self.wakes.iter().enumerate().filter(|(_, wake)| wake.1) {
            let next = self.wakes.get(place + 1).map(|wake| wake.0);
            let until_next = |from: Nanos| next.is_none_or(|next| from <= next);
            // If a thread is woken while it is on its CPU, it usually continues to run. But if this
            // on-CPU period is about to end, the thread was already going to sleep and ran again
            // later, unless it was woken once more before that.
            let during = self.runs.iter().find(|run| run.0 < at && at < run.1);
            let after = self.runs.iter().find(|run| run.0 >= at);
            let after = after.filter(|run| until_next(run.0));
            delays.extend(match (during, after) {
                (Some(during), _) if during.1 - at > Nanos::from_micros(100) => Some(Nanos::ZERO),
                (_, Some(after)) => Some(after.0 - at),
                (Some(_), None) => Some(Nanos::ZERO),
                (None, None) => {
                    unknown += 1;
                    None
                }
            });
        }
        delays.sort_unstable();
        (delays, unknown)
    }

    /// Returns the CPU time that the other threads of this process used on `cpu`, including
    /// interrupts. The interval is relative to the start of the recording.
    fn others_on(&self, cpu: Cpu, interval: Interval) -> Nanos {
        let interval = Interval::new(self.begin + interval.start, self.begin + interval.end);
        let on = self.others.iter().filter(|run| run.0 == cpu);
        on.map(|run| interval.overlap(Interval::new(run.1, run.2)))
            .sum()
    }
}

/// Computes from the rows alone how long each `NET_RX` softirq that woke the thread was pending,
/// that is, the time from when it was first raised until it started. Only raises after the start of
/// the previous `NET_RX` on the same CPU count.
fn raise_delays(recording: &Path, tid: i32) -> Result<Vec<Nanos>, Failed> {
    #[derive(Default)]
    struct OnCpu {
        runs: Vec<(Nanos, Nanos)>,
        raises: Vec<Nanos>,
        wakes: Vec<Nanos>,
    }
    let mut cpus: BTreeMap<Cpu, OnCpu> = BTreeMap::new();
    let mut reader = RecordingReader::open(recording)?;
    reader.replay(&mut |sources, row| {
        let span = row.span();
        let source = sources.get(span.source);
        let is_receiving = source.kind == Kind::Softirq && &*source.name == "NET_RX";
        let on_cpu = cpus.entry(span.cpu).or_default();
        match row {
            Row::Edge(edge) => match &edge.effect {
                Effect::Raised(name) if &**name == "NET_RX" => on_cpu.raises.push(span.start),
                Effect::Woke(woken) if *woken == tid && is_receiving => {
                    on_cpu.wakes.push(span.start);
                }
                _ => {}
            },
            Row::Span(_) if is_receiving => on_cpu.runs.push((span.start, span.end())),
            _ => {}
        }
    })?;
    let mut delays = Vec::new();
    for on_cpu in cpus.values_mut() {
        on_cpu.runs.sort_unstable();
        on_cpu.raises.sort_unstable();
        for wake in &on_cpu.wakes {
            let place = on_cpu.runs.partition_point(|run| run.0 <= *wake);
            let Some(place) = place.checked_sub(1) else {
                continue;
            };
            let (began, before) = (
                on_cpu.runs[place].0,
                place.checked_sub(1).map(|previous| on_cpu.runs[previous].0),
            );
            let mut raises = on_cpu
                .raises
                .iter()
                .filter(|at| before.is_none_or(|previous| **at > previous));
            delays.extend(
                raises
                    .next()
                    .filter(|at| **at <= began)
                    .map(|at| began - *at),
            );
        }
    }
    delays.sort_unstable();
    Ok(delays)
}

/// Compares the reported delays between the thread's wake-ups and its runs with the delays in the
/// rows. Delays that the rows do not show must be reported as missing.
fn check_delays(all: &Intervals, rows: &ByHand, missing: &NotFollowed) -> Result<(), Failed> {
    let (delays, unknown) = rows.delays();
    let why = || {
        let (count, longest) = (delays.len(), delays.last());
        format!("{count} by hand, {unknown} of {missing:?} missing: {longest:?}; {all:?}")
    };
    // The number of missing delays includes those of other threads.
    let not_reported = (delays.len() as u64).checked_sub(all.count);
    let is_complete = not_reported.is_some_and(|count| count <= missing.no_softirq);
    check(is_complete && unknown <= missing.not_run, why)?;
    check(all.max == delays.last().copied(), why)?;
    for (quantile, share) in [(all.median, 50), (all.p99, 99)] {
        let exact = delays[(delays.len() * share).div_ceil(100) - 1];
        let quantile = quantile.ok_or_else(why)?;
        // Quantiles have a resolution of a quarter of an octave, so they can be off by 13 %.
        let off = (quantile - exact).0.abs();
        check(off * 100 <= exact.0 * 13 + 200, || {
            format!("{share}: {quantile} for {exact}")
        })?;
    }
    Ok(())
}

/// Compares the reported delays between the raises and the starts of a softirq with the delays in
/// the rows. All packets except `missing` of them must have been followed.
fn check_raises(
    raised: &Intervals,
    recording: &Path,
    tid: i32,
    missing: u64,
) -> Result<(), Failed> {
    let delays = raise_delays(recording, tid)?;
    let why = || format!("{} by hand: {:?}; {raised:?}", delays.len(), delays.last());
    check(raised.count.abs_diff(delays.len() as u64) <= missing, why)?;
    let longest = raised.max.ok_or_else(why)?;
    check(delays.contains(&longest), why)?;
    let exact = delays[(delays.len() * 50).div_ceil(100) - 1];
    let median = raised.median.ok_or_else(why)?;
    // Quantiles have a resolution of a quarter of an octave, so they can be off by 13 %.
    check((median - exact).0.abs() * 100 <= exact.0 * 13 + 200, || {
        format!("{median} for {exact}")
    })
}

/// Period of the real-time thread that disturbs the receiver's CPU.
const PERIOD: Nanos = Nanos::from_millis(50);

/// Checks that packets wait behind a FIFO thread, which takes the receiver's CPU for 5 ms out of
/// every 50 ms. Packets that arrive in that time must wait behind it.
pub(crate) fn packets_wait_behind_a_fifo_thread() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let schedule = Schedule::every(PERIOD, Nanos::from_millis(5));
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3600));
    let traffic = Traffic::start(cpu, Duration::from_millis(1))?;
    let running = ticktax_inject::spawn(&plan)?;
    let dir = RecordingDir::new();
    let recording = dir.file("recording.parquet");
    let output = ticktax(&[
        "audit", "--probe", "none", "--net", "--format", "json", "--for", "2s", "--save",
    ])
    .arg(&recording)
    .output()?;
    let truth = running.stop()?;
    let packets = parse_packets(&output)?;
    let why = || format!("{packets:#?}");
    let tid = traffic.receiver;
    let receiver = packets
        .threads
        .iter()
        .find(|thread| thread.tid == tid)
        .ok_or_else(why)?;
    let step_of = |step| receiver.steps.iter().find(|found| found.step == step);
    let woken = step_of(Step::Woken)
        .ok_or_else(why)?
        .length
        .lengths()
        .ok_or_else(why)?;
    // About one packet arrives per millisecond, so some packet arrives soon enough to wait for most
    // of the 5 ms.
    check(
        woken.max >= Nanos::from_millis(3) && receiver.delay.count > 500,
        why,
    )?;
    check(
        step_of(Step::Raised).is_some() && step_of(Step::Interrupt).is_none(),
        why,
    )?;
    // The disturbance is a thread of this process, which must be named. On a busy machine, packets
    // can wait even longer behind other programs.
    let own = i32::try_from(std::process::id())?;
    let is_own = |holder: &&PacketRan| holder.pid == Some(own);
    let all = packets.steps.iter().find(|step| step.step == Step::Woken);
    let held = all.and_then(|step| step.ran.iter().find(is_own));
    let held = held.ok_or_else(why)?.time;
    let injected: Nanos = truth.log.iter().map(|event| event.length).sum();
    check(Nanos::from_millis(3) <= held && held <= injected, why)?;
    let rows = ByHand::read(&recording, tid)?;
    let is_held = |delay: &&PacketDelay| delay.tid == tid && delay.longest == Step::Woken;
    check(packets.longest.iter().any(|delay| is_held(&delay)), why)?;
    for way in packets.longest.iter().filter(is_held) {
        // The longest step must be attributed to threads in its entirety.
        let woken = way.steps.iter().find(|step| step.step == Step::Woken);
        let end = way.at + way.length;
        let window = Interval::new(end - woken.ok_or_else(why)?.time, end);
        let (own, rest): (Vec<_>, Vec<_>) = way.ran.iter().partition(is_own);
        let held: Nanos = own.iter().map(|by| by.time).sum();
        let rest: Nanos = rest.iter().map(|by| by.time).sum();
        let row = rows.others_on(way.ran_on, window);
        check(held <= row && row <= held + rest, || {
            format!("{way:?}: {row}")
        })?;
    }

    let all = step_of(Step::Woken).ok_or_else(why)?.length;
    check_delays(&all, &rows, &packets.not_followed)?;
    let raised = step_of(Step::Raised).ok_or_else(why)?.length;
    check_raises(&raised, &recording, tid, packets.not_followed.not_run)?;

    let again = ticktax(&["report", "--format", "json"])
        .arg(&recording)
        .output()?;
    check(parse_packets(&again)? == packets, || {
        "report prints something else".to_owned()
    })
}
