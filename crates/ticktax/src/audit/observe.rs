//! The watching itself: tracer and probes side by side, their rows handed on as they come.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ticktax_model::machine::{Counters, RunQueue};
use ticktax_model::recording::{
    Blind, Books, Coverage, Header, Level, Loss, Row, SCHEMA_VERSION, ToolCost, World,
};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};
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

/// Watches as `settings` say; every row goes to `sink`. Returns everything else there is to know.
/// Before the first row, `victim_since` says from when on there is a victim, where there is one.
pub(crate) fn observe(
    settings: &Settings,
    terminal: &Terminal,
    victim_since: &Cell<Option<Nanos>>,
    sources: &mut SourceTable,
    sink: Sink<'_>,
) -> Result<Header, Failure> {
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
    let mut probe = Probe::start(settings.probe, settings.policy, &settings.online)?;
    if let Some(victim) = &mut victim {
        victim.begin(tracer.as_mut().ok(), now());
        victim_since.set(Some(victim.first_moment()));
    }
    let mut command = Audited::start(&settings.command)?;
    if let Some(victim) = &mut victim {
        victim.started(command.as_ref(), tracer.as_mut().ok());
    }
    let mut tracer = tracer;
    let mut run_queue = RunQueue::default();
    let mut ended = || {
        sample(&mut run_queue, &proc, settings);
        command.as_mut().is_some_and(Audited::ended) || victim.as_mut().is_some_and(Watched::ended)
    };
    watch(settings, terminal, &interrupt, &mut ended, &mut |now| {
        if let Ok(tracer) = &mut tracer {
            tracer.drain(now, sources, sink);
        }
        probe.drain(sources, sink);
    });
    let results = probe.stop(sources, sink);
    // Before the tracer leaves the kernel: that sends interrupts of its own.
    let mut after = proc.counters(now());
    after.throttling = victim.as_ref().and_then(Watched::throttling);
    after.run_queue = (run_queue.samples > 0).then_some(run_queue);
    let end = End {
        proc: &proc,
        settings,
        before,
        after,
        victim,
        late,
        results,
    };
    let command = command.as_mut().map(Audited::report);
    let cost = ToolCost {
        load,
        ..ToolCost::default()
    };
    let mut header = match tracer {
        Ok(tracer) => end.at_level_kernel(tracer, sources, sink, cost),
        Err(why) => end.at_level_proc(&why, cost),
    };
    header.machine = machine;
    header.began_unix = began_unix;
    header.command = command;
    header.cost.cpu = own_thread_cpu_time() - cpu_before;
    header.cost.memory_bytes = own_peak_memory();
    Ok(header)
}

/// Waits until time is up, the command or the victim has ended or somebody interrupts, and empties the buffers
/// meanwhile.
fn watch(
    settings: &Settings,
    terminal: &Terminal,
    interrupt: &Interrupt,
    ended: &mut dyn FnMut() -> bool,
    empty: &mut dyn FnMut(Nanos),
) {
    let begin = now();
    let progress = terminal.progress(
        settings.length,
        format!("Watching CPUs {}", settings.online),
    );
    let mut shown = begin;
    loop {
        let time = now();
        let left = settings.length.map(|length| begin + length - time);
        let over = left.is_some_and(|left| left <= Nanos::ZERO) || ended() || interrupt.came();
        empty(time);
        if over {
            break;
        }
        if time - shown >= Progress::INTERVAL {
            progress.at(time - begin);
            shown = time;
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
    before: Counters,
    after: Counters,
    victim: Option<Watched<'a>>,
    late: CpuList,
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
        let closing = tracer.close(&self.present(&still_online), now(), sources, sink);
        let cost = ToolCost {
            events: closing.events,
            tracer: closing.in_programs,
            ..cost
        };
        let mut header = self.header(Level::Kernel, coverage, cost, &closing);
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
            what: "who ran, by name: the kernel's and programs' spans".to_owned(),
            why: why.to_string(),
        };
        let coverage = Coverage {
            blind: vec![blind],
            ..Coverage::default()
        };
        let cpus: Vec<Cpu> = self.settings.online.iter().collect();
        let mut header = self.header(Level::Proc, coverage, cost, &Closing::default());
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
        closing: &Closing,
    ) -> Header {
        let online = self.proc.online().unwrap_or_default();
        coverage.blind.extend(self.blind_spots(&online));
        coverage.lost.extend(self.results.lost.iter().copied());
        let unseen = self.unseen(closing);
        Header {
            schema: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            world: World::Live,
            level,
            machine: ticktax_model::machine::Machine::default(),
            began_unix: 0,
            books: Vec::new(),
            coverage,
            clock: self.results.clock,
            probes: self.results.reports,
            before: self.before,
            after: self.after,
            cost,
            command: None,
            victim: self.victim.map(|victim| victim.header(unseen)),
        }
    }

    /// Why a part of a victim's time may not have been seen.
    fn unseen(&self, closing: &Closing) -> Option<String> {
        let unwatched = |cpu: &Cpu| !self.settings.watched.contains(*cpu);
        let online = self.proc.online().unwrap_or_default();
        let unwatched: CpuList = online.iter().filter(unwatched).collect();
        if !unwatched.is_empty() {
            return Some(format!("CPUs {unwatched} were not watched"));
        }
        if closing.unfollowed > 0 {
            let threads = closing.unfollowed;
            return Some(format!("there was no room for {threads} of its threads"));
        }
        (closing.missed > 0).then(|| format!("{} switches were not told", closing.missed))
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
        for refused in &self.results.refused {
            blind.push(Blind {
                what: "the probe as asked for".to_owned(),
                why: refused.clone(),
            });
        }
        let early = self
            .results
            .reports
            .iter()
            .filter_map(|probe| probe.ended_early.as_ref());
        blind.extend(early.map(|why| Blind {
            what: "gaps after a probe ended".to_owned(),
            why: why.clone(),
        }));
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
                why: "no tracepoint shows them: each is in a gap called outside".to_owned(),
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
            what: format!("{} ends of interrupts or softirqs", closing.mismatched),
            why: "their beginning was not seen: their time is counted with what they interrupted"
                .to_owned(),
        });
    }
    if closing.missed > 0 {
        blind.push(Blind {
            what: format!("{} context switches", closing.missed),
            why: "the kernel told no tracer of them: the thread that left next has the time of \
                  the one before it too"
                .to_owned(),
        });
    }
    let gaps: u64 = header
        .coverage
        .lost
        .iter()
        .map(|Loss { gaps, .. }| gaps)
        .sum();
    if gaps > 0 {
        blind.push(Blind {
            what: format!("{gaps} gaps of the probe"),
            why: "they came faster than they were read: their time counts as the probe's"
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
