//! Computes the CPU time that each virtual machine cost the host.
//!
//! The tracer sums the time of each vCPU's thread by activity, in the kernel. The rows contain the
//! time of all threads. Both are compared for each thread, from the run with the first event of its
//! vCPU on. Before that run, the activity is unknown.
//!
//! # Memory
//! A sum and up to [`FIRST`] rows are kept for each source of a thread's rows.

use std::collections::BTreeMap;

use ticktax_model::guests::{
    ExitSet, ExitSum, GuestExits, GuestMachine, GuestName, GuestStatement, GuestSums, GuestVcpu,
    GuestWaits, Halts, InterruptEnds, VcpuSums,
};
use ticktax_model::recording::Header;
use ticktax_model::{Nanos, SourceId, SourceTable};

use crate::ledger::tally::Tally;
use crate::timeline::{Event, EventKind, Occupant, Role};

mod ticks;

/// Maximum number of rows kept per source. If a vCPU has its first event later, its sums cannot be
/// compared with the rows.
const FIRST: usize = 64;

/// Prefixes of the names of kernel threads that work for one machine. The ID of one of the
/// machine's threads follows.
const SERVANTS: [&str; 2] = ["vhost-", "kvm-pit/"];

/// Collects the time that each thread ran.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// The rows in which a thread ran, by source.
    rows: Vec<Ran>,
    /// Waits for a CPU by thread ID. `None` if they are unknown.
    waits: Option<BTreeMap<i32, Tally>>,
}

/// Time of one source's rows.
#[derive(Clone, Debug, Default)]
struct Ran {
    time: Nanos,
    /// Start and self time of the first rows.
    first: Vec<(Nanos, Nanos)>,
    /// Whether there were more rows.
    has_more: bool,
    /// End of the last row.
    end: Nanos,
}

/// Time of a thread's rows.
#[derive(Clone, Debug, Default)]
struct ThreadTime {
    pid: i32,
    name: String,
    time: Nanos,
    sources: Vec<Ran>,
}

impl Ran {
    /// Returns the time of the rows that start before `since`, or `None` if that is unknown.
    fn before(&self, since: Nanos) -> Option<Nanos> {
        let is_early = |row: &&(Nanos, Nanos)| row.0 < since;
        if self.has_more && self.first.iter().all(|row| is_early(&row)) {
            return None;
        }
        Some(self.first.iter().filter(is_early).map(|row| row.1).sum())
    }
}

impl ThreadTime {
    /// Returns the time from the start of the first row to the end of the last one.
    fn seen(&self) -> Nanos {
        let first_rows = self.sources.iter().filter_map(|ran| ran.first.first());
        let begin = first_rows.map(|&(start, _)| start).min();
        let end = self.sources.iter().map(|ran| ran.end).max();
        begin
            .zip(end)
            .map_or(Nanos::ZERO, |(begin, end)| end - begin)
    }

    /// Returns the time of the rows that start at `since` or later, or `None` if that is unknown.
    fn since(&self, since: Nanos) -> Option<Nanos> {
        let before = self.sources.iter().map(|ran| ran.before(since));
        let before: Nanos = before.sum::<Option<Nanos>>()?;
        Some(self.time - before)
    }
}

impl Guests {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let span = event.span;
        let is_row = match event.kind() {
            EventKind::OnCpu(Occupant::Thread(on), _) if on.thread.is_some() => true,
            EventKind::Sum(Role::OnCpu(Occupant::Thread(on)), _) if on.thread.is_some() => false,
            _ => return,
        };
        let place = span.source.0 as usize;
        if place >= self.rows.len() {
            self.rows.resize_with(place + 1, Ran::default);
        }
        let ran = &mut self.rows[place];
        ran.time += span.self_time;
        ran.end = span.end();
        if is_row && ran.first.len() < FIRST {
            ran.first.push((span.start, span.self_time));
        } else {
            ran.has_more = true;
        }
    }

    /// Sets the waits for a CPU by thread ID.
    pub(crate) fn waited(&mut self, waits: Option<BTreeMap<i32, Tally>>) {
        self.waits = waits;
    }

    /// Returns the statement, or `None` if no virtual machine was seen.
    pub(crate) fn finish(self, header: &Header, sources: &SourceTable) -> Option<GuestStatement> {
        let sums = header.guests.as_ref()?;
        // The sums cover the entire recording.
        let begin = header.begin().filter(|_| header.part.is_none())?;
        let elapsed = header.end() - begin;
        let threads = threads(self.rows, sources);
        let waits = self.waits.as_ref();
        let mut by_pid: BTreeMap<i32, Vec<&VcpuSums>> = BTreeMap::new();
        for vcpu in &sums.vcpus {
            by_pid.entry(vcpu.pid).or_default().push(vcpu);
        }
        let mut machines = Vec::new();
        for (pid, vcpus) in by_pid {
            let costs = Costs {
                pid,
                vcpus,
                sums,
                threads: &threads,
                waits,
                elapsed,
            };
            machines.push(costs.machine());
        }
        machines.sort_by(|a, b| b.time.cmp(&a.time).then(a.pid.cmp(&b.pid)));
        let ticks = machines.iter().filter_map(|machine| machine.ticks.as_ref());
        Some(GuestStatement {
            exit_set: sums.exit_set,
            elapsed,
            ticks: ticks::all(ticks, elapsed),
            machines,
        })
    }
}

/// Returns the times by process and thread ID. The kernel may give a thread's ID to another thread
/// later.
fn threads(rows: Vec<Ran>, sources: &SourceTable) -> BTreeMap<(i32, i32), ThreadTime> {
    let mut threads: BTreeMap<(i32, i32), ThreadTime> = BTreeMap::new();
    for (id, ran) in (0..).map(SourceId).zip(rows) {
        if ran.first.is_empty() && !ran.has_more {
            continue;
        }
        let source = sources.get(id);
        let Some(thread) = &source.thread else {
            continue;
        };
        let sum = threads.entry((thread.pid, thread.tid)).or_default();
        sum.pid = thread.pid;
        sum.name = source.name.to_string();
        sum.time += ran.time;
        sum.sources.push(ran);
    }
    threads
}

/// One virtual machine's data.
struct Costs<'a> {
    pid: i32,
    vcpus: Vec<&'a VcpuSums>,
    sums: &'a GuestSums,
    threads: &'a BTreeMap<(i32, i32), ThreadTime>,
    waits: Option<&'a BTreeMap<i32, Tally>>,
    elapsed: Nanos,
}

impl Costs<'_> {
    fn machine(&self) -> GuestMachine {
        let name = self.sums.machines.iter().find(|name| name.pid == self.pid);
        let mut machine = GuestMachine {
            pid: self.pid,
            name: self.name(name),
            named_by: name.map(|name| name.named_by),
            waits: self.waits.map(|waits| self.waited(waits)),
            ..GuestMachine::default()
        };
        self.add_vcpus(&mut machine);
        self.add_others(&mut machine);
        let timers = machine.vcpus.iter().filter_map(|vcpu| vcpu.timer.as_ref());
        machine.ticks = ticks::machine(&timers.collect::<Vec<_>>(), &self.vcpus, self.elapsed);
        machine.reasons = reasons(&self.vcpus, self.sums.exit_set);
        let halts = machine.reasons.iter();
        let halts = halts.filter(|exits| self.sums.exit_set.is_halt(exits.sum.code));
        machine.halting = halts.map(|exits| exits.sum.kvm).sum();
        machine.exits_per_s = machine.exits as f64 / self.elapsed.as_secs_f64().max(1e-9);
        machine
    }

    /// Returns the machine's name. If the process exited before it could be read, that of one of
    /// its threads.
    fn name(&self, name: Option<&GuestName>) -> String {
        let main = || {
            self.threads
                .get(&(self.pid, self.pid))
                .map(|thread| thread.name.clone())
        };
        let vcpu = || self.vcpus.first().map(|vcpu| vcpu.name.clone());
        let name = name.map(|name| name.name.clone());
        name.or_else(main).or_else(vcpu).unwrap_or_default()
    }

    fn waited(&self, waits: &BTreeMap<i32, Tally>) -> GuestWaits {
        let mut sum = Tally::default();
        let own = self.vcpus.iter().filter_map(|vcpu| waits.get(&vcpu.tid));
        own.for_each(|tally| sum.merge(tally));
        GuestWaits {
            time: sum.time,
            count: sum.count,
            max: sum.longest,
        }
    }

    /// Adds the time of the vCPUs' threads by activity, and compares it with the threads' rows.
    fn add_vcpus(&self, machine: &mut GuestMachine) {
        let timer = |vcpu: &VcpuSums, thread: Option<&ThreadTime>| {
            let sums = vcpu.timer.as_ref()?;
            let seen = thread.map_or(Nanos::ZERO, ThreadTime::seen);
            Some(ticks::timer(sums, vcpu.halts.as_ref(), seen, self.elapsed))
        };
        for vcpu in &self.vcpus {
            let thread = self.threads.get(&(vcpu.pid, vcpu.tid));
            let time = thread.map_or(Nanos::ZERO, |thread| thread.time);
            let kvm: Nanos = vcpu.exits.iter().map(|exits| exits.kvm).sum();
            let vmm: Nanos = vcpu.exits.iter().map(|exits| exits.vmm).sum();
            let known = vcpu.guest + kvm + vmm + vcpu.unknown;
            let since = thread.map_or(Some(Nanos::ZERO), |thread| thread.since(vcpu.since));
            let mismatch = since.map(|since| since - known);
            // Where the two cannot be compared, the rest of the time counts as unknown.
            let unclassified = mismatch.unwrap_or_default();
            let exits = vcpu.exits.iter().map(|exits| exits.count).sum();
            machine.time += time;
            machine.guest += vcpu.guest;
            machine.kvm += kvm;
            machine.vmm += vmm;
            machine.unknown += time - vcpu.guest - kvm - vmm - unclassified;
            machine.unclassified += unclassified;
            machine.exits += exits;
            add(&mut machine.injected, vcpu.injected, |sum, count| {
                *sum += count;
            });
            let ends = vcpu.interrupt_ends;
            add(&mut machine.interrupt_ends, ends, |sum, ends| {
                InterruptEnds::add(sum, &ends);
            });
            add(&mut machine.halts, vcpu.halts, |sum, halts| {
                Halts::add(sum, &halts);
            });
            machine.vcpus.push(GuestVcpu {
                tid: vcpu.tid,
                name: vcpu.name.clone(),
                time,
                guest: vcpu.guest,
                exits,
                mismatch,
                timer: timer(vcpu, thread),
            });
        }
    }

    /// Adds the time of the machine's other threads.
    fn add_others(&self, machine: &mut GuestMachine) {
        let is_vcpu = |tid: &i32| self.vcpus.iter().any(|vcpu| vcpu.tid == *tid);
        for (&(_, tid), thread) in self.threads {
            let is_own = thread.pid == self.pid;
            if is_own && is_vcpu(&tid) {
                continue;
            }
            if self.is_served_by(&thread.name) {
                machine.kernel_threads += thread.time;
                machine.time += thread.time;
            } else if is_own {
                machine.other_threads += thread.time;
                machine.time += thread.time;
            }
        }
    }

    /// Returns whether a kernel thread with this name works for the machine only.
    fn is_served_by(&self, name: &str) -> bool {
        let owner = |prefix| name.strip_prefix(prefix)?.parse::<i32>().ok();
        let Some(owner) = SERVANTS.into_iter().find_map(owner) else {
            return false;
        };
        owner == self.pid || self.threads.contains_key(&(self.pid, owner))
    }
}

/// Adds an optional figure to an optional sum.
fn add<T>(sum: &mut Option<T>, value: Option<T>, add: impl FnOnce(&mut T, T)) {
    match (sum.as_mut(), value) {
        (Some(sum), Some(value)) => add(sum, value),
        (None, value) => *sum = value,
        (Some(_), None) => {}
    }
}

/// Sums the exits of all vCPUs by reason, largest CPU time on the host first.
fn reasons(vcpus: &[&VcpuSums], set: ExitSet) -> Vec<GuestExits> {
    let mut sums: BTreeMap<u32, ExitSum> = BTreeMap::new();
    for exits in vcpus.iter().flat_map(|vcpu| &vcpu.exits) {
        let sum = sums.entry(exits.code).or_insert(ExitSum {
            code: exits.code,
            ..ExitSum::default()
        });
        sum.count += exits.count;
        sum.kvm += exits.kvm;
        sum.vmm += exits.vmm;
        sum.elapsed += exits.elapsed;
    }
    let named = |sum: ExitSum| GuestExits {
        reason: set.named(sum.code),
        sum,
    };
    let mut reasons: Vec<GuestExits> = sums.into_values().map(named).collect();
    let cost = |exits: &GuestExits| exits.sum.kvm + exits.sum.vmm;
    reasons.sort_by(|a, b| cost(b).cmp(&cost(a)).then(a.sum.code.cmp(&b.sum.code)));
    reasons
}

#[cfg(test)]
mod tests;
