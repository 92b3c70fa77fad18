//! The running parts of a session, and the order in which they start, are drained and end.

use std::collections::BTreeSet;
use std::time::Duration;

use ticktax_host::{ConsoleWatch, Proc, breaks, own_thread_cpu_time};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{Counters, Machine, RunQueue};
use ticktax_model::recording::{CpuInterval, EndedEarly, Header, Level, Row, ToolCost};
use ticktax_model::victim::ThreadPolicy;
use ticktax_model::{CpuList, Nanos, SourceTable};
use ticktax_probes::ProbeError;
use ticktax_probes::clock::now;
use ticktax_trace::{Counted, TraceError, Tracer};

use crate::autogroups::Autogroups;
use crate::cgroups::Cgroups;
use crate::collector::Collector;
use crate::command::Audited;
use crate::error::ObserveError;
use crate::event::{Progress, Started};
use crate::guests::Guests;
use crate::head_start::HeadStart;
use crate::header::End;
use crate::memory::MemoryGuard;
use crate::plan::{Plan, ProbeChoice, Program, Settings};
use crate::probe::Probe;
use crate::session::unix_time;
use crate::victim::Watched;
use crate::witness::SwitchReading;

/// A difference between the observed and the requested length is reported if it exceeds this.
const LENGTH_TOLERANCE: Nanos = Nanos::from_millis(20);

/// The parts of a running session.
pub(crate) struct Running {
    proc: Proc,
    settings: Settings,
    machine: Machine,
    tracer: Result<Tracer, TraceError>,
    load: Nanos,
    probe: Probe,
    victim: Option<Watched>,
    command: Option<Audited>,
    began_unix: i64,
    /// CPU time of this thread before the session started.
    pub(crate) cpu_before: Nanos,
    before: Counters,
    late: CpuList,
    /// Context switches counted before accounting started.
    switches: Option<SwitchReading>,
    unprobed: CpuList,
    collector: Collector,
    /// Why this thread cannot get a real-time priority.
    refusal: Option<&'static str>,
    policies: Vec<ThreadPolicy>,
    /// Counts kernel messages on serial consoles. `None` without such a console or a readable log.
    console: Option<ConsoleWatch>,
    autogroups: Autogroups,
    cgroups: Cgroups,
    guests: Guests,
    run_queue: RunQueue,
    /// When watching started.
    begin: Nanos,
    /// Whether the buffers have been read at least once.
    looked: bool,
    /// Whether the last read left records in the buffers.
    is_behind: bool,
    /// When the session last checked whether the command or the victim has exited.
    end_checked: Nanos,
    /// Whether [`Running::stop`] was called.
    stopped: bool,
    /// Signal that requested the stop, or `None` if no signal did.
    signal: Option<i32>,
    ended_early: Option<EndedEarly>,
    memory: Option<MemoryGuard>,
    /// Memory limit, in bytes, that made the session end.
    memory_limit: Option<u64>,
}

impl Running {
    pub(crate) fn start(
        proc: Proc,
        settings: Settings,
        machine: Machine,
        mut tracer: Result<Tracer, TraceError>,
        load: Nanos,
        mut head_start: HeadStart,
    ) -> Result<Self, ObserveError> {
        let mut victim = Watched::find(&settings, &proc, tracer.as_mut().ok());
        // Start the probes' threads early, because they must calibrate themselves first.
        let (mut probe, unprobed) = prepare_probe(&settings)?;
        let policies = proc.special_policies();
        let mut autogroups = Autogroups::at_begin(&proc);
        let mut cgroups = Cgroups::at_begin(&proc, tracer.as_ref().ok());
        let began_unix = unix_time();
        let cpu_before = own_thread_cpu_time();
        let console = ConsoleWatch::new(&proc);
        let mut before = read_counters(&proc, victim.as_ref(), &cgroups);
        let late = match &mut tracer {
            Ok(tracer) => tracer.start(&settings.watched, &settings.online),
            Err(_) => CpuList::default(),
        };
        // From here on, everything is watched for exactly the session's length. Accounting, threads
        // and probes will end on time even if this thread isn't running then.
        let opened = tracer.as_ref().ok();
        let opened = opened.and_then(|tracer| tracer.opened(&settings.online));
        let begin = opened.unwrap_or_else(now);
        // While this thread has a head start, thousands of timer interrupts occur per second.
        proc.recount_interrupts(&mut before);
        let end = settings.plan.length.map(|length| begin + length);
        if let (Ok(tracer), Some(end)) = (&mut tracer, end) {
            tracer.end_at(end);
        }
        let switches = read_switches(tracer.as_ref().ok(), &proc, &settings);
        probe.begin(end);
        if let Some(victim) = &mut victim {
            victim.begin(tracer.as_mut().ok(), begin);
        }
        let command = start_command(&settings.plan, &mut head_start)?;
        if let Some(victim) = &mut victim {
            victim.started(command.as_ref(), tracer.as_mut().ok());
        }
        if let Some(command) = &command {
            // Don't take a new head start any earlier. Up to here, the tracer follows every child
            // of this thread as part of the command, and a governor is such a child.
            head_start = HeadStart::take();
            autogroups.started(&proc, command.pid());
            cgroups.started(&proc, command.pid());
        }
        // Restrict this thread's CPUs only after the command has started, because the command would
        // inherit the affinity.
        let refusal = head_start.refusal();
        let emptied = tracer.as_mut().ok().filter(|_| !settings.plan.drops_rights);
        let governor = head_start.for_buffers(emptied, end);
        let collector = Collector::beside(governor, victim.as_mut());
        Ok(Self {
            memory: MemoryGuard::new(&proc),
            memory_limit: None,
            proc,
            settings,
            machine,
            tracer,
            load,
            probe,
            victim,
            command,
            began_unix,
            cpu_before,
            before,
            late,
            switches,
            unprobed,
            collector,
            refusal,
            policies,
            autogroups,
            cgroups,
            guests: Guests::default(),
            console,
            run_queue: RunQueue::default(),
            begin,
            looked: false,
            is_behind: false,
            end_checked: begin,
            stopped: false,
            signal: None,
            ended_early: None,
        })
    }

    pub(crate) fn started(&self) -> Started {
        let tracer = self.tracer.as_ref();
        Started {
            machine: self.machine.clone(),
            cpus: self.settings.online.clone(),
            length: self.settings.plan.length,
            command: self.command.is_some(),
            level: match tracer {
                Ok(_) => Level::Kernel,
                Err(_) => Level::Proc,
            },
            no_tracer: tracer.err().map(ToString::to_string),
            limitations: tracer.map_or_else(|_| Vec::new(), |tracer| tracer.limitations().to_vec()),
            process: match self.settings.plan.program {
                Some(Program::Process(pid)) => Some(pid),
                Some(Program::Thread(tid)) => self.proc.process_of(tid),
                _ => None,
            },
            victim_begin: self.victim.as_ref().map(Watched::first_moment),
        }
    }

    /// Waits for the next interval and empties the buffers. If the time is up, the command or the
    /// victim has exited, or a stop was requested, returns `true` without emptying them. Emptying
    /// can take seconds and uses this thread's CPU time, so [`Running::finish`] must be able to
    /// read the counters first.
    pub(crate) fn turn(&mut self, sources: &mut SourceTable, rows: &mut Vec<Row>) -> bool {
        let goes_on = std::mem::take(&mut self.is_behind) && !self.stopped;
        if goes_on {
            self.collector.pause();
        } else if self.looked && !self.stopped {
            let left = self.left(now()).and_then(|left| u64::try_from(left.0).ok());
            let interval = self.settings.plan.interval;
            let time = left.map_or(interval, Duration::from_nanos).min(interval);
            self.collector.sleep(time);
        }
        // Check this even if records are left. On the program's CPU, this thread can be behind all
        // the time.
        if let Some(victim) = &mut self.victim {
            if self.collector.is_due() {
                self.collector.keep_off(&victim.busiest_cpus());
            }
            self.collector.make_way(victim.busiest_thread_cpu());
        }
        breaks::take_break_if_due();
        self.looked = true;
        let time = now();
        // A reader that never catches up must still notice the end.
        let interval = self.settings.plan.interval.as_nanos();
        let is_due = !goes_on || u128::from((time - self.end_checked).0.unsigned_abs()) >= interval;
        if is_due {
            self.end_checked = time;
        }
        let over = if self.left(time).is_some_and(|left| left <= Nanos::ZERO) {
            true
        } else if self.stopped {
            self.ended_early = Some(EndedEarly::Interrupted);
            true
        } else if is_due && self.has_no_memory() {
            self.ended_early = Some(EndedEarly::MemoryLimit);
            true
        } else if is_due && self.ended(time) {
            // A session without a length is meant to end when its program exits.
            let early = self.settings.plan.length.is_some();
            self.ended_early = early.then_some(EndedEarly::ProgramExited);
            true
        } else {
            false
        };
        if over {
            return true;
        }
        breaks::take_break_if_due();
        if let Ok(tracer) = &mut self.tracer {
            let most = self.collector.bite();
            let mut take = |_: &SourceTable, row: &Row| rows.push(row.clone());
            self.is_behind = tracer.drain_some(time, most, sources, &mut take);
            self.cgroups.watch(tracer.take_group_events());
            if is_due {
                self.guests.look(&self.proc, tracer);
            }
        }
        self.collector.drained(rows.len());
        self.probe.drain(sources, rows);
        false
    }

    /// Returns the tracer's counters so far, or `None` if the session has no tracer.
    pub(crate) fn counted(&self) -> Option<Counted> {
        self.tracer.as_ref().ok().map(Tracer::counted)
    }

    /// Forgets all source IDs, so that later rows use a new table of sources.
    pub(crate) fn forget_sources(&mut self) {
        if let Ok(tracer) = &mut self.tracer {
            tracer.forget_sources();
        }
    }

    /// Frees the tracer's entries for threads that have exited, if many entries are in use.
    pub(crate) fn recycle(&mut self) {
        if let Ok(tracer) = &mut self.tracer {
            tracer.recycle();
        }
    }

    /// Makes the next turn the last one. `signal` will be forwarded to the command.
    pub(crate) fn stop(&mut self, signal: Option<i32>) {
        self.stopped = true;
        self.signal = self.signal.or(signal);
    }

    fn left(&self, time: Nanos) -> Option<Nanos> {
        let length = self.settings.plan.length?;
        Some(self.begin + length - time)
    }

    fn is_over(&self) -> bool {
        self.left(now()).is_some_and(|left| left <= Nanos::ZERO)
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            begin: self.begin,
            elapsed: now() - self.begin,
        }
    }

    /// Returns whether this process comes too close to its memory limit.
    fn has_no_memory(&mut self) -> bool {
        let buffers = self.tracer.as_ref().map_or(0, Tracer::buffer_bytes);
        let guard = self.memory.as_ref();
        self.memory_limit = guard.and_then(|guard| guard.exceeded(buffers));
        self.memory_limit.is_some()
    }

    /// Returns whether the command or the victim has exited.
    fn ended(&mut self, time: Nanos) -> bool {
        self.sample();
        let command = self.command.as_mut().is_some_and(Audited::ended);
        let victim = self.victim.as_mut();
        command || victim.is_some_and(|victim| victim.ended(time))
    }

    /// Samples how many threads are running or waiting for a CPU, not counting this thread and the
    /// spinning probes.
    fn sample(&mut self) {
        let probes = match self.settings.plan.probe {
            ProbeChoice::Spin | ProbeChoice::Soak => self.settings.online.len() as u64,
            ProbeChoice::Sleep | ProbeChoice::None => 0,
        };
        if let Some(threads) = self.proc.runnable_threads() {
            self.run_queue.sample(threads.saturating_sub(1 + probes));
        }
    }

    /// Stops the probes, reads the counters again, forwards a signal to the command, and ends the
    /// accounting. Also returns the CPU time of this session's other threads. The governor ends
    /// here, because the remaining work can wait for a CPU.
    pub(crate) fn finish(
        mut self,
        sources: &mut SourceTable,
        rows: &mut Vec<Row>,
    ) -> (Header, Nanos) {
        let raised = self.collector.raised_time();
        let governor = self.collector.take_governor();
        // If accounting has already ended, read the counters immediately, because they include all
        // time up to the reading. If it has yet to end, it must also cover the time needed to stop
        // the probes.
        let over = self.is_over();
        let mut probe = Some(std::mem::replace(&mut self.probe, Probe::None));
        let mut stop = |probe: Option<Probe>| probe.map(|probe| probe.stop(sources, rows));
        let mut results = if over { None } else { stop(probe.take()) };
        if let Some(victim) = &mut self.victim {
            victim.take_breaks(false);
            victim.look_at_end(now());
        }
        // Read the number of switches before unloading the tracer, because unloading it sends
        // interrupts.
        let switches = read_switches(self.tracer.as_ref().ok(), &self.proc, &self.settings);
        let switches = switches.zip(self.switches);
        let mut after = self.counters_at_end();
        after.keep_what_ran(&mut self.before);
        after.run_queue = (self.run_queue.samples > 0).then_some(self.run_queue);
        if let (Some(command), Some(signal)) = (&mut self.command, self.signal) {
            command.interrupt(signal);
        }
        let command = self.command.as_mut().map(Audited::report);
        results = results.or_else(|| stop(probe.take()));
        if !over {
            self.proc.recount_interrupts(&mut after);
        }
        let asked = self.settings.plan.length;
        let end = End {
            proc: &self.proc,
            settings: &self.settings,
            machine: self.machine,
            before: self.before,
            after,
            victim: self.victim,
            late: self.late,
            unprobed: self.unprobed,
            results: results.unwrap_or_default(),
            switches: switches.map(|(end, begin)| end.since(begin)),
        };
        let cost = ToolCost {
            load: self.load,
            nice: self.collector.nice(),
            avoided_program_cpus: self.collector.is_apart(),
            raised,
            ..ToolCost::default()
        };
        let mut lost_groups = 0;
        if let Ok(tracer) = &mut self.tracer {
            self.cgroups.watch(tracer.take_group_events());
            self.guests.look(&self.proc, tracer);
            lost_groups = tracer.group_events_lost();
        }
        let mut header = match self.tracer {
            Ok(tracer) => end.at_level_kernel(tracer, sources, rows, cost),
            Err(why) => end.at_level_proc(&why, cost),
        };
        header.began_unix = self.began_unix;
        header.command = command;
        header.policies = with_new(self.policies, Proc::default().special_policies());
        header.autogroups = self.autogroups.at_end(&Proc::default());
        let named = self
            .cgroups
            .at_end(&Proc::default(), &mut header, lost_groups);
        self.guests.finish(&Proc::default(), &mut header);
        header.ended_early = self.ended_early;
        if let (Some(asked), None) = (asked, self.ended_early) {
            let watched = header.cpus.iter().map(CpuInterval::elapsed).max();
            let not_kept = watched.and_then(|watched| length_not_kept(asked, watched));
            header.coverage.limitations.extend(not_kept);
        }
        let at_limit = self.memory_limit;
        let at_limit = at_limit.map(|limit_bytes| Limitation::EndedAtMemoryLimit { limit_bytes });
        header.coverage.limitations.extend(at_limit);
        let came_late = self.collector.came_late() || header.coverage.events_lost() > 0;
        let refused = self.refusal.filter(|_| came_late);
        let refused = refused.map(|reason| Limitation::PriorityRefused {
            reason: reason.to_owned(),
        });
        header.coverage.limitations.extend(refused);
        let governed = governor.map_or(Nanos::ZERO, |governor| governor.cpu_time());
        (header, governed + named)
    }

    /// Reads the counters at the end. The console's log takes long to read, so it comes last.
    fn counters_at_end(&mut self) -> Counters {
        let mut counters = read_counters(&self.proc, self.victim.as_ref(), &self.cgroups);
        let console = self.console.take();
        counters.console = console.and_then(|console| console.finish(&self.proc));
        counters
    }
}

/// Reads the counters of the machine, and then those of the watched program and of its groups.
fn read_counters(proc: &Proc, victim: Option<&Watched>, cgroups: &Cgroups) -> Counters {
    let mut counters = proc.counters(now());
    counters.throttling = victim.and_then(Watched::throttling);
    counters.quotas = cgroups.quotas(proc);
    counters.udp_sockets = victim.map_or_else(Vec::new, Watched::udp_sockets);
    counters
}

/// Adds the policies of threads that appear only in `after` to `before`.
fn with_new(mut before: Vec<ThreadPolicy>, after: Vec<ThreadPolicy>) -> Vec<ThreadPolicy> {
    let known: BTreeSet<i32> = before.iter().map(|thread| thread.tid).collect();
    let new = after.into_iter();
    before.extend(new.filter(|thread| !known.contains(&thread.tid)));
    before
}

/// Starts the command to watch, if the plan has one. Drops the head start first, because a child of
/// a governed thread can lose its nice value.
fn start_command(plan: &Plan, head_start: &mut HeadStart) -> Result<Option<Audited>, ObserveError> {
    let Some(Program::Command(argv)) = &plan.program else {
        return Ok(None);
    };
    drop(std::mem::take(head_start));
    Ok(Some(Audited::start(argv)?))
}

/// Returns the number of context switches so far. Returns `None` if some CPUs aren't watched, or if
/// the kernel doesn't count switches.
fn read_switches(
    tracer: Option<&Tracer>,
    proc: &Proc,
    settings: &Settings,
) -> Option<SwitchReading> {
    let online = proc.online()?;
    let watches_all = online.iter().all(|cpu| settings.watched.contains(cpu));
    SwitchReading::take(tracer.filter(|_| watches_all)?, proc)
}

/// Returns a limitation if the observed length differs from the requested one.
pub(crate) fn length_not_kept(asked: Nanos, watched: Nanos) -> Option<Limitation> {
    let off = Nanos((watched - asked).0.abs());
    (off > LENGTH_TOLERANCE).then_some(Limitation::LengthDiffers {
        requested: asked,
        watched,
    })
}

/// Prepares the probe on the CPUs that this process may use. Also returns the remaining CPUs. If
/// the user named the CPUs, fails unless this process may use all of them.
fn prepare_probe(settings: &Settings) -> Result<(Probe, CpuList), ObserveError> {
    let plan = &settings.plan;
    let start = |cpus: &CpuList| Probe::prepare(plan.probe, plan.policy, cpus);
    let online = &settings.online;
    match start(online) {
        Err(ProbeError::NotAllowed { allowed, .. }) if !settings.named() => {
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
