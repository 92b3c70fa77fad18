//! Packets over loopback to a thread that a disturbance of known size keeps from its CPU.

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
use ticktax_model::packet_path::{NotFollowed, PacketDelay, PacketHolder, PacketPaths, Step};
use ticktax_model::recording::{Effect, Row};
use ticktax_model::{Cpu, Intervals, Kind, Nanos};
use ticktax_store::recording::RecordingReader;

use super::fixture::{Place, check, statement, ticktax};

/// A thread that reads packets on one CPU, and one that sends it some from the others; both end with this.
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
        let (tell, told) = std::sync::mpsc::channel();
        let until = stop.clone();
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        let receiver = thread::spawn(move || {
            let pinned = sched_setaffinity(Pid::from_raw(0), &only);
            let _ = tell.send(pinned.map(|()| gettid().as_raw()));
            let mut bytes = [0; 64];
            while !until.load(Ordering::Relaxed) && socket.recv(&mut bytes).is_ok() {}
        });
        let until = stop.clone();
        // What takes the receiver's CPU would keep the sender from sending there.
        let mut others = sched_getaffinity(Pid::from_raw(0))?;
        others.unset(cpu.index())?;
        let sender = thread::spawn(move || {
            // Where there is no other CPU it sends from that one.
            let _ = sched_setaffinity(Pid::from_raw(0), &others);
            while !until.load(Ordering::Relaxed) {
                let _ = to.send(b"frame");
                thread::sleep(pause);
            }
            // The last wakes the receiver, which ends.
            let _ = to.send(b"end");
        });
        Ok(Self {
            receiver: told.recv()??,
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

/// The packets of a statement in JSON, and only of one thread.
fn told(output: &std::process::Output) -> Result<PacketPaths, Failed> {
    Ok(statement(output)?
        .packets
        .ok_or("no packet woke a thread")?)
}

/// What the rows say of a thread and of those that this process disturbs with, all of them in memory.
#[derive(Default)]
struct ByHand {
    /// When the recording began.
    begin: Nanos,
    /// When it was woken, and whether by a packet.
    wakes: Vec<(Nanos, bool)>,
    /// When it ran.
    runs: Vec<(Nanos, Nanos)>,
    /// When another thread of this process ran, by CPU.
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
                    Some(of) if source.kind == Kind::Task && of.tid == tid => {
                        rows.runs.push((span.start, span.end()));
                    }
                    Some(of) if source.kind == Kind::Task && of.pid == pid => {
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

    /// For each packet that woke the thread how long it was until that ran, and how many there are of which the rows do
    /// not say it: where it was woken again and had not run in between, as a kernel may leave out the event of a switch.
    fn delays(&self) -> (Vec<Nanos>, u64) {
        let mut unknown = 0;
        let mut delays = Vec::new();
        for (place, &(at, _)) in self.wakes.iter().enumerate().filter(|(_, wake)| wake.1) {
            let next = self.wakes.get(place + 1).map(|wake| wake.0);
            let until_next = |from: Nanos| next.is_none_or(|next| from <= next);
            // One that it was woken in goes on. Where that is about to end, the thread slept and ran again, unless it was
            // woken once more before it did.
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

    /// How long other threads of this process had a CPU meanwhile, with the interrupts in it; of times since the begin.
    fn others_on(&self, cpu: Cpu, (from, to): (Nanos, Nanos)) -> Nanos {
        let (from, to) = (self.begin + from, self.begin + to);
        let on = self.others.iter().filter(|run| run.0 == cpu);
        on.map(|run| (run.2.min(to) - run.1.max(from)).max(Nanos::ZERO))
            .sum()
    }
}

/// How long after it was raised each `NET_RX` began in which the thread was woken, from the rows alone: what raised it first
/// since the one before had begun, on its CPU.
fn raised_by_hand(recording: &Path, tid: i32) -> Result<Vec<Nanos>, Failed> {
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
        let of = cpus.entry(span.cpu).or_default();
        match row {
            Row::Edge(edge) => match &edge.effect {
                Effect::Raised(name) if &**name == "NET_RX" => of.raises.push(span.start),
                Effect::Woke(woken) if *woken == tid && is_receiving => of.wakes.push(span.start),
                _ => {}
            },
            Row::Span(_) if is_receiving => of.runs.push((span.start, span.end())),
            _ => {}
        }
    })?;
    let mut delays = Vec::new();
    for of in cpus.values_mut() {
        of.runs.sort_unstable();
        of.raises.sort_unstable();
        for wake in &of.wakes {
            let place = of.runs.partition_point(|run| run.0 <= *wake);
            let Some(place) = place.checked_sub(1) else {
                continue;
            };
            let (began, before) = (
                of.runs[place].0,
                place.checked_sub(1).map(|it| of.runs[it].0),
            );
            let mut raises = of
                .raises
                .iter()
                .filter(|at| before.is_none_or(|it| **at > it));
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

/// The step from woken to ran is what the rows say, and those are missing of which they do not.
fn is_delayed_as_by_hand(
    all: &Intervals,
    rows: &ByHand,
    missing: &NotFollowed,
) -> Result<(), Failed> {
    let (delays, unknown) = rows.delays();
    let why = || {
        let (count, longest) = (delays.len(), delays.last());
        format!("{count} by hand, {unknown} of {missing:?} missing: {longest:?}; {all:?}")
    };
    // Those of other threads are among the missing.
    let not_told = (delays.len() as u64).checked_sub(all.count);
    let is_whole = not_told.is_some_and(|it| it <= missing.no_softirq);
    check(is_whole && unknown <= missing.not_run, why)?;
    check(all.max == delays.last().copied(), why)?;
    for (told, share) in [(all.median, 50), (all.p99, 99)] {
        let exact = delays[(delays.len() * share).div_ceil(100) - 1];
        let told = told.ok_or_else(why)?;
        // A quarter of an octave, and from its middle.
        let off = (told - exact).0.abs();
        check(off * 100 <= exact.0 * 13 + 200, || {
            format!("{share}: {told} for {exact}")
        })?;
    }
    Ok(())
}

/// The step from raised to began is what the rows say, where all but so many were followed.
fn is_raised_as_by_hand(
    raised: &Intervals,
    recording: &Path,
    (tid, missing): (i32, u64),
) -> Result<(), Failed> {
    let delays = raised_by_hand(recording, tid)?;
    let why = || format!("{} by hand: {:?}; {raised:?}", delays.len(), delays.last());
    check(raised.count.abs_diff(delays.len() as u64) <= missing, why)?;
    let longest = raised.max.ok_or_else(why)?;
    check(delays.contains(&longest), why)?;
    let exact = delays[(delays.len() * 50).div_ceil(100) - 1];
    let median = raised.median.ok_or_else(why)?;
    // A quarter of an octave, and from its middle.
    check((median - exact).0.abs() * 100 <= exact.0 * 13 + 200, || {
        format!("{median} for {exact}")
    })
}

/// How often a real-time thread has the receiver's CPU.
const PERIOD: Nanos = Nanos::from_millis(50);

/// A real-time thread has the receiver's CPU for 5 ms of every 50: packets that come meanwhile wait for that.
pub(crate) fn packets_wait_behind_a_fifo_thread() -> Result<(), Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let schedule = Schedule::every(PERIOD, Nanos::from_millis(5));
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(3600));
    let traffic = Traffic::start(cpu, Duration::from_millis(1))?;
    let running = ticktax_inject::spawn(&plan)?;
    let place = Place::new();
    let recording = place.file("recording.parquet");
    let output = ticktax(&[
        "audit", "--probe", "none", "--net", "--format", "json", "--for", "2s", "--save",
    ])
    .arg(&recording)
    .output()?;
    let truth = running.stop()?;
    let packets = told(&output)?;
    let why = || format!("{packets:#?}");
    let tid = traffic.receiver;
    let receiver = packets
        .threads
        .iter()
        .find(|it| it.tid == tid)
        .ok_or_else(why)?;
    let of = |step| receiver.steps.iter().find(|it| it.step == step);
    let woken = of(Step::Woken)
        .ok_or_else(why)?
        .length
        .lengths()
        .ok_or_else(why)?;
    // Packets come every ms, or somewhat less often.
    check(
        woken.max >= Nanos::from_millis(3) && receiver.delay.count > 500,
        why,
    )?;
    check(
        of(Step::Raised).is_some() && of(Step::Interrupt).is_none(),
        why,
    )?;
    // The disturbance is a thread of this process. Where others want the CPU as well, packets may wait longer for them.
    let own = i32::try_from(std::process::id())?;
    let is_own = |it: &&PacketHolder| it.pid == Some(own);
    let all = packets.steps.iter().find(|it| it.step == Step::Woken);
    let held = all.and_then(|step| step.by.iter().find(is_own));
    let held = held.ok_or_else(why)?.time;
    let injected: Nanos = truth.log.iter().map(|event| event.length).sum();
    check(Nanos::from_millis(3) <= held && held <= injected, why)?;
    let rows = ByHand::read(&recording, tid)?;
    let is_held = |it: &&PacketDelay| it.tid == tid && it.longest == Step::Woken;
    check(packets.longest.iter().any(|it| is_held(&it)), why)?;
    for way in packets.longest.iter().filter(is_held) {
        // All of its longest step is of somebody.
        let woken = way.steps.iter().find(|it| it.step == Step::Woken);
        let window = (
            way.at + way.length - woken.ok_or_else(why)?.time,
            way.at + way.length,
        );
        let (own, rest): (Vec<_>, Vec<_>) = way.by.iter().partition(is_own);
        let held: Nanos = own.iter().map(|by| by.time).sum();
        let rest: Nanos = rest.iter().map(|by| by.time).sum();
        let row = rows.others_on(way.ran_on, window);
        check(held <= row && row <= held + rest, || {
            format!("{way:?}: {row}")
        })?;
    }

    let all = of(Step::Woken).ok_or_else(why)?.length;
    is_delayed_as_by_hand(&all, &rows, &packets.not_followed)?;
    let raised = of(Step::Raised).ok_or_else(why)?.length;
    is_raised_as_by_hand(&raised, &recording, (tid, packets.not_followed.not_run))?;

    let again = ticktax(&["report", "--format", "json"])
        .arg(&recording)
        .output()?;
    check(told(&again)? == packets, || {
        "report tells something else".to_owned()
    })
}
