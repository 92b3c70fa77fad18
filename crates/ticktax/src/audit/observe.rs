//! The watching itself: tracer and probes side by side, their rows handed on as they come.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ticktax_model::machine::{Counters, Machine, RunQueue};
use ticktax_model::recording::{
    Blind, Books, Coverage, Header, Level, Row, SCHEMA_VERSION, ToolCost, World,
};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};
use ticktax_probes::ProbeError;
use ticktax_probes::clock::now;
use ticktax_trace::proc::{Proc, own_peak_memory, own_thread_cpu_time, untraced_interrupts};
use ticktax_trace::{Closing, TraceError, TraceSettings, Tracer};

use super::command::Audited;
use super::interrupt::Interrupt;
use super::probe::{Probe, ProbeResults};
use super::settings::Settings;
use super::victim::Watched;
use crate::arguments::ProbeChoice;
use crate::failure::Failure;
use crate::terminal::{Progress, Terminal};

/// How often buffers are emptied. Ten times the interval fits into them at 500,000 events a second,
/// and a process that wakes up twenty times a second is hardly a disturbance.
const INTERVAL: Duration = Duration::from_millis(50);

type Sink<'a> = &'a mut dyn FnMut(&SourceTable, &Row);

/// How often somebody who watches is told what is new. Looking takes some hundredths of a second.
const NEWS: Nanos = Nanos::from_secs(10);

/// Lines about what was found since the last call.
type News<'a> = &'a mut dyn FnMut() -> Vec<String>;

/// What an audit saw, but for the rows.
pub(crate) struct Observed {
    pub(crate) header: Header,
    /// The signal that ended it early.
    pub(crate) signal: Option<i32>,
}

/// Watches as `settings` say; every row goes to `sink`, and on a terminal `news` is asked now and
/// then. Returns everything else there is to know.
/// Before the first row, `victim_since` says from when on there is a victim, where there is one.
pub(crate) fn observe(
    settings: &Settings,
    terminal: &Terminal,
    victim_since: &Cell<Option<Nanos>>,
    sources: &mut SourceTable,
    sink: Sink<'_>,
    news: News<'_>,
) -> Result<Observed, Failure> {
    let interrupt = Interrupt::listen()?;
    let proc = Proc::default();
    let machine = proc.machine();
    let loading = now();
    let mut tracer = Tracer::load(
        &TraceSettings {
            output: settings.output,
            following: settings.victim.is_some(),
            ..TraceSettings::default()
        },
        proc.room_for_cpus(),
    );
    let load = now() - loading;
    if let Err(why) = &tracer {
        terminal.complain(&format_args!("level proc only: {why}"));
    }

    let mut victim = Watched::find(settings, &proc, tracer.as_mut().ok());
    let began_unix = unix_time();
    let cpu_before = own_thread_cpu_time();
    let mut before = proc.counters(now());
    before.throttling = victim.as_ref().and_then(Watched::throttling);
    let late = match &mut tracer {
        Ok(tracer) => tracer.start(&settings.watched, &settings.online, now()),
        Err(_) => CpuList::default(),
    };
    let (mut probe, unprobed) = start_probe(settings)?;
    if let Some(victim) = &mut victim {
        victim.begin(tracer.as_mut().ok(), now());
        victim_since.set(Some(victim.first_moment()));
    }
    let mut command = Audited::start(&settings.command)?;
    if let Some(victim) = &mut victim {
        victim.started(command.as_ref(), tracer.as_mut().ok());
    }
    let mut tracer = tracer;
    if tracer.is_ok() {
        // After the command has been started, which would inherit it.
        Tracer::raise_own_priority();
    }
    let mut run_queue = RunQueue::default();
    let mut ended = || {
        sample(&mut run_queue, &proc, settings);
        command.as_mut().is_some_and(Audited::ended) || victim.as_mut().is_some_and(Watched::ended)
    };
    let mut empty = |now| {
        if let Ok(tracer) = &mut tracer {
            tracer.drain(now, sources, sink);
        }
        probe.drain(sources, sink);
    };
    watch(settings, terminal, &interrupt, &mut ended, &mut empty, news);
    let results = probe.stop(sources, sink);
    // Before the tracer leaves the kernel: that sends interrupts of its own.
    let mut after = proc.counters(now());
    after.throttling = victim.as_ref().and_then(Watched::throttling);
    after.run_queue = (run_queue.samples > 0).then_some(run_queue);
    let end = End {
        proc: &proc,
        settings,
        machine,
        before,
        after,
        victim,
        late,
        unprobed,
        results,
    };
    let signal = interrupt.signal();
    if let (Some(command), Some(signal)) = (&mut command, signal) {
        command.interrupt(signal);
    }
    let command = command.as_mut().map(Audited::report);
    let cost = ToolCost {
        load: if tracer.is_ok() { load } else { Nanos::ZERO },
        ..ToolCost::default()
    };
    let mut header = match tracer {
        Ok(tracer) => end.at_level_kernel(tracer, sources, sink, cost),
        Err(why) => end.at_level_proc(&why, cost),
    };
    header.began_unix = began_unix;
    header.command = command;
    header.cost.cpu = own_thread_cpu_time() - cpu_before;
    header.cost.memory_bytes += own_peak_memory();
    Ok(Observed { header, signal })
}

/// Starts the probe wherever this process may run. Where it was told on which CPUs, it is these or
/// none. Returns the CPUs that are left without a probe as well.
fn start_probe(settings: &Settings) -> Result<(Probe, CpuList), Failure> {
    let start = |cpus: &CpuList| Probe::start(settings.probe, settings.policy, cpus);
    match start(&settings.online) {
        Err(Failure::Probe(ProbeError::NotAllowed { allowed, .. })) if !settings.named => {
            let online = &settings.online;
            let possible: CpuList = online.iter().filter(|&cpu| allowed.contains(cpu)).collect();
            let unprobed = online
                .iter()
                .filter(|&cpu| !allowed.contains(cpu))
                .collect();
            Ok((start(&possible)?, unprobed))
        }
        started => Ok((started?, CpuList::default())),
    }
}

/// Waits until time is up, the command or the victim has ended or somebody interrupts, and empties the buffers
/// meanwhile.
fn watch(
    settings: &Settings,
    terminal: &Terminal,
    interrupt: &Interrupt,
    ended: &mut dyn FnMut() -> bool,
    empty: &mut dyn FnMut(Nanos),
    news: News<'_>,
) {
    let begin = now();
    let mut told = begin;
    let what = format!("Watching CPUs {}", settings.online);
    let progress = terminal.progress(settings.length, what, !settings.command.is_empty());
    let mut shown = begin;
    loop {
        let time = now();
        let left = settings.length.map(|length| begin + length - time);
        let over =
            left.is_some_and(|left| left <= Nanos::ZERO) || ended() || interrupt.signal().is_some();
        empty(time);
        if over {
            break;
        }
        if time - shown >= Progress::INTERVAL {
            progress.at(time - begin);
            shown = time;
        }
        if terminal.is_watched() && time - told >= NEWS {
            for line in news() {
                progress.say(&line);
            }
            told = time;
        }
        let left = left
            .and_then(|left| u64::try_from(left.0).ok())
            .map(Duration::from_nanos);
        thread::sleep(left.unwrap_or(INTERVAL).min(INTERVAL));
    }
    progress.done();
}

/// What is at hand when the watching ends.
struct End<'a> {
    proc: &'a Proc,
    settings: &'a Settings,
    machine: Machine,
    before: Counters,
    after: Counters,
    victim: Option<Watched<'a>>,
    late: CpuList,
    unprobed: CpuList,
    results: ProbeResults,
}

impl End<'_> {
    fn at_level_kernel(
        self,
        tracer: Tracer,
        sources: &mut SourceTable,
        sink: Sink<'_>,
        cost: ToolCost,
    ) -> Header {
        let coverage = Coverage {
            attached: tracer.attached().to_vec(),
            blind: tracer.blind().to_vec(),
            lost: Vec::new(),
            every_entry_watched: tracer.every_entry_watched(),
        };
        let still_online = self.proc.online().unwrap_or_default();
        let buffers = tracer.buffer_bytes();
        let closing = tracer.close(&self.present(&still_online), now(), sources, sink);
        let cost = ToolCost {
            memory_bytes: buffers,
            events: closing.events,
            tracer: closing.in_programs,
            ..cost
        };
        let mut header = self.header(Level::Kernel, coverage, cost, closing.unfollowed);
        header.books.clone_from(&closing.books);
        header.coverage.lost.extend(closing.lost.iter().copied());
        header
            .coverage
            .blind
            .extend(kernel_blind_spots(&closing, &header));
        header
    }

    fn at_level_proc(self, why: &TraceError, cost: ToolCost) -> Header {
        let blind = Blind {
            what: "which interrupt, softirq or thread took the time".to_owned(),
            why: why.to_string(),
        };
        let coverage = Coverage {
            blind: vec![blind],
            ..Coverage::default()
        };
        let cpus: Vec<Cpu> = self.settings.online.iter().collect();
        let mut header = self.header(Level::Proc, coverage, cost, 0);
        let (begin, end) = (header.before.at, header.after.at);
        // Without root the books are those that the kernel keeps itself.
        let counted = |cpu: &Cpu| {
            let counters = [&header.before, &header.after];
            counters
                .iter()
                .all(|counters| counters.cpu_times.contains_key(&cpu.0))
        };
        header.books = cpus
            .into_iter()
            .filter(counted)
            .map(|cpu| Books { cpu, begin, end })
            .collect();
        header
    }

    /// Those of the audited CPUs that are online still.
    fn present(&self, online: &CpuList) -> CpuList {
        self.settings
            .online
            .iter()
            .filter(|&cpu| online.contains(cpu))
            .collect()
    }

    /// The header but for what depends on the level.
    fn header(
        self,
        level: Level,
        mut coverage: Coverage,
        cost: ToolCost,
        unfollowed: u64,
    ) -> Header {
        let online = self.proc.online().unwrap_or_default();
        coverage.blind.extend(self.blind_spots(&online));
        coverage.lost.extend(self.results.lost.iter().copied());
        let unwatched = self.unwatched();
        Header {
            schema: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            world: World::Live,
            level,
            machine: self.machine,
            began_unix: 0,
            books: Vec::new(),
            coverage,
            clock: self.results.clock,
            probes: self.results.reports,
            before: self.before,
            after: self.after,
            cost,
            command: None,
            victim: self
                .victim
                .map(|victim| victim.header(unfollowed, unwatched)),
        }
    }

    /// Where a victim may have been without being seen.
    fn unwatched(&self) -> Option<String> {
        let unwatched = |cpu: &Cpu| !self.settings.watched.contains(*cpu);
        let online = self.proc.online().unwrap_or_default();
        let unwatched: CpuList = online.iter().filter(unwatched).collect();
        if !unwatched.is_empty() {
            return Some(format!("CPUs {unwatched} were not watched"));
        }
        (!self.late.is_empty()).then(|| format!("the books of CPUs {} began late", self.late))
    }

    /// What a reader should know at any level.
    fn blind_spots(&self, online: &CpuList) -> Vec<Blind> {
        let mut blind = Vec::new();
        for cpu in self
            .settings
            .online
            .iter()
            .filter(|&cpu| !online.contains(cpu))
        {
            blind.push(Blind {
                what: format!("the end of CPU {cpu}"),
                why: "it was taken offline: its books end with the last event seen on it"
                    .to_owned(),
            });
        }
        for cpu in self.late.iter() {
            blind.push(Blind {
                what: format!("the beginning of CPU {cpu}"),
                why: "a thread of high priority held it: its books begin with its first switch"
                    .to_owned(),
            });
        }
        if !self.unprobed.is_empty() {
            blind.push(Blind {
                what: format!("gaps on CPU {}", self.unprobed),
                why: "this process may not run there: its cpuset or container does not allow it"
                    .to_owned(),
            });
        }
        for refused in &self.results.refused {
            blind.push(Blind {
                what: "the probe as asked for".to_owned(),
                why: refused.clone(),
            });
        }
        if self.settings.probe == ProbeChoice::None {
            blind.push(Blind {
                what: "the hypervisor's time, and getting into and out of the kernel".to_owned(),
                why:
                    "no probe ran, so both are inside the programs' time; --probe spin tells them \
                      apart"
                        .to_owned(),
            });
        }
        blind
    }
}

/// What a reader should know of a run of the tracer.
fn kernel_blind_spots(closing: &Closing, header: &Header) -> Vec<Blind> {
    let mut blind = Vec::new();
    for books in &header.books {
        let untraced = untraced_interrupts(&header.before, &header.after, books.cpu);
        for (interrupt, count) in untraced {
            blind.push(Blind {
                what: format!(
                    "{count} of CPU {}'s {}",
                    books.cpu,
                    interrupt.to_lowercase()
                ),
                why:
                    "no tracepoint shows them: their time is with what they interrupted, or outside"
                        .to_owned(),
            });
        }
        if !header.machine.online.is_empty() && !header.machine.online.contains(books.cpu) {
            blind.push(Blind {
                what: format!("CPU {} before it was plugged in", books.cpu),
                why: "its books begin with its first switch".to_owned(),
            });
        }
    }
    if closing.mismatched > 0 {
        blind.push(Blind {
            what: format!("{} borders of interrupts or functions", closing.mismatched),
            why: "the kernel left them out: their time is counted with what is around them"
                .to_owned(),
        });
    }
    if closing.folded > 0 {
        blind.push(Blind {
            what: format!("the sources of {} intervals", closing.folded),
            why: "there were more than the table of sums holds: they are counted as others"
                .to_owned(),
        });
    }
    blind
}

/// Notes how many threads run or wait just now, ticktax's own left out: the one that looks, and
/// the probes that spin.
fn sample(run_queue: &mut RunQueue, proc: &Proc, settings: &Settings) {
    let probes = match settings.probe {
        ProbeChoice::Spin => settings.online.len() as u64,
        ProbeChoice::Sleep | ProbeChoice::None => 0,
    };
    if let Some(threads) = proc.runnable_threads() {
        run_queue.sample(threads.saturating_sub(1 + probes));
    }
}

/// Seconds since 1970 on the wall clock.
fn unix_time() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ticktax_trace::Output;

    use super::*;

    fn settings(online: &str) -> Settings {
        let online: CpuList = online.parse().unwrap();
        Settings {
            length: None,
            watched: online.clone(),
            online,
            named: true,
            probe: ProbeChoice::Spin,
            policy: None,
            output: Output::Spans { per_cpu: 1 },
            command: Vec::new(),
            victim: None,
        }
    }

    #[test]
    fn a_cpu_that_leaves_or_cannot_be_made_to_switch_is_named() {
        let settings = settings("0-2");
        let end = End {
            proc: &Proc::at(Path::new("/nonexistent")),
            settings: &settings,
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            before: Counters::default(),
            after: Counters::default(),
            late: "1".parse().unwrap(),
            unprobed: CpuList::default(),
            victim: None,
            results: ProbeResults::default(),
        };
        let blind = end.blind_spots(&"0-1".parse().unwrap());
        let told: Vec<&str> = blind.iter().map(|blind| &*blind.what).collect();
        assert_eq!(told, ["the end of CPU 2", "the beginning of CPU 1"]);
        assert!(blind[0].why.contains("offline"));
    }

    #[test]
    fn a_cpu_that_is_plugged_in_is_named() {
        let mut header = End {
            proc: &Proc::at(Path::new("/nonexistent")),
            settings: &settings("0"),
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            before: Counters::default(),
            after: Counters::default(),
            late: CpuList::default(),
            unprobed: CpuList::default(),
            victim: None,
            results: ProbeResults::default(),
        }
        .header(Level::Kernel, Coverage::default(), ToolCost::default(), 0);
        header.books = vec![Books {
            cpu: Cpu(3),
            begin: Nanos(5),
            end: Nanos(9),
        }];
        let blind = kernel_blind_spots(&Closing::default(), &header);
        assert_eq!(blind[0].what, "CPU 3 before it was plugged in");
    }
}
