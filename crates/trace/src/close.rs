//! Ends the accounting: closes the intervals that are still open on each CPU, and counts lost
//! events.
//!
//! Accounting ends when recording ends, not at the last event before that. A later event would have
//! been recorded, so the CPU's state after the last event is known. All CPUs therefore end at the
//! same time, and a CPU that was idle for the last few seconds is credited with those seconds.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use ticktax_model::guests::GuestSums;
use ticktax_model::recording::{CpuInterval, Loss, Row};
use ticktax_model::victim::ShortCalls;
use ticktax_model::{Cpu, CpuList, Interval, Nanos, SourceTable};

use crate::calls::split_open_call;
use crate::code_files::CodeFiles;
use crate::guests::open_vcpu;
use crate::nudge::nudge;
use crate::object::map;
use crate::record::{CpuState, OPENING, SpanRecord, ThrottledWait, detail, flag, kind};
use crate::tracer::{AHEAD, Tracer};

/// Maximum time that a BPF program takes to finish if it was entered just before recording stopped.
/// It takes longer only if the hypervisor stops its CPU in the meantime.
const GRACE: Duration = Duration::from_millis(6);

/// Maximum number of [`GRACE`] periods to wait for a record that is still being written. If writing
/// takes even longer, the accounts have a gap, which the balance check reports.
const GRACE_PERIODS: u32 = 200;

/// Accounts and counters of a tracer when it is closed.
#[derive(Debug, Default)]
pub struct Closing {
    /// Accounting interval of each CPU that had at least one context switch.
    pub books: Vec<CpuInterval>,
    /// Number of events lost on each CPU, and the self time lost with them.
    pub lost: Vec<Loss>,
    /// Number of tracepoint hits on all CPUs.
    pub events: u64,
    /// Number of interrupts, softirqs and functions whose end was seen but not their start, or that
    /// were nested too deeply. Always 0 unless softirqs are preemptible.
    pub mismatched: u64,
    /// Number of intervals whose source did not fit into the table of sums. Their time is added to
    /// `others`.
    pub folded: u64,
    /// Number of threads that should have been followed but did not fit into the map of followed
    /// threads.
    pub unfollowed: u64,
    /// Times that a CPU was found running a thread that no reported switch had put there.
    pub missed: u64,
    /// Number of interrupts and softirqs that were in progress at a context switch. Always 0 unless
    /// softirqs are preemptible.
    pub cut: u64,
    /// Number of samples without a stack, because there was no room for it.
    pub stacks_lost: u64,
    /// Files whose code was sampled in user mode. [`CodeFiles::named`] finds the functions.
    pub code_files: CodeFiles,
    /// Number of tick stops, by CPU number.
    pub ticks_stopped: BTreeMap<u32, u64>,
    /// CPU time used by the BPF programs, or `None` if the kernel keeps no statistics on them.
    pub in_programs: Option<Nanos>,
    /// Time that each followed thread spent in system calls too short for separate rows, or
    /// `None` if system calls were not watched until the end.
    pub short_calls: Option<Vec<ShortCalls>>,
    /// Sums of the vCPUs' threads, without the machines' names. `None` if no vCPU was seen.
    pub guests: Option<GuestSums>,
    /// Number of events of vCPUs whose threads did not fit into the table of sums.
    pub vcpus_unfit: u64,
}

impl Closing {
    fn add(&mut self, cpu: Cpu, state: &CpuState) {
        self.books.push(CpuInterval {
            cpu,
            begin: Nanos(state.opened.cast_signed()),
            end: Nanos(state.last.cast_signed()),
        });
        let loss = Loss {
            cpu,
            events: state.lost,
            self_time: Nanos(state.lost_self),
            gaps: 0,
        };
        if loss != Loss::none(cpu) {
            self.lost.push(loss);
        }
        self.events += state.events;
        self.mismatched += state.mismatched;
        self.folded += state.folded;
        self.unfollowed += state.unfollowed;
        self.missed += state.missed;
        self.cut += state.cut;
        self.stacks_lost += state.stacks_lost;
        self.vcpus_unfit += u64::from(state.vcpus_unfit);
        self.ticks_stopped.insert(cpu.0, state.ticks_stopped);
    }
}

/// A CPU whose last thread is uncertain because the kernel did not report a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// ID of the thread that the last reported switch put on the CPU.
    pub(crate) known: u32,
    /// ID of the thread that was found on the CPU after recording had ended.
    pub(crate) found: u32,
    /// When the known thread was last seen, in ns.
    pub(crate) since: u64,
}

impl Tracer {
    /// Ends the accounting. Stops recording unless [`Tracer::end_at`] has already done so, emits
    /// all remaining records, and closes the intervals that are still open on each CPU. These
    /// intervals end when recording ends. If a CPU is not `online`, its intervals end at its last
    /// event.
    pub fn close(
        mut self,
        online: &CpuList,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Closing {
        let until = self.stop_recording(online);
        self.drain_all(sources, sink);
        if self.sizes.summing {
            self.drain_sums(now, sources, sink);
        }
        let (mut closing, unseen) = self.close_cpus(online, until, sources, sink);
        let last = closing.books.iter().map(|books| (books.end, books.cpu));
        if let Some((end, cpu)) = last.max() {
            for record in self.open_waits(end, cpu) {
                let row = self.decoder.row(sources, &record);
                sink(sources, &row);
            }
        }
        self.end_absences(until, &unseen, sources, sink);
        closing.code_files = self.decoder.take_code_files();
        closing
    }

    /// Does the same as [`Tracer::close`] for the flight recorder. Emits the sums in both tables
    /// and the intervals still open on each CPU. Returns the counters, and the window that the sums
    /// cover.
    pub fn close_flight(
        &mut self,
        online: &CpuList,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> (Interval, Closing) {
        let end = self.stop_recording(online);
        // Empty the inactive table first, unless that has already been done. Then empty the active
        // one.
        let left = self.take_sums(sources, &mut |sources, row| sink(sources, &row));
        self.leave_table(end);
        let filled = self.take_sums(sources, &mut |sources, row| sink(sources, &row));
        let begin = left.or(filled).map_or(end, |window| window.start);
        let closing = self.close_cpus(online, end, sources, sink).0;
        self.stop_programs();
        (Interval::new(begin, end), closing)
    }

    /// Closes and emits the frames that are still open on each CPU. They end at `until`, or at the
    /// CPU's last event if the CPU is not `online`. Returns the sums of the CPUs' counters, and the
    /// CPUs whose last thread is uncertain.
    fn close_cpus(
        &mut self,
        online: &CpuList,
        until: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> (Closing, Vec<Unseen>) {
        let mut closing = Closing {
            in_programs: self.time_in_programs(),
            ..Closing::default()
        };
        let mut all_unseen = Vec::new();
        let mut short_calls = Vec::new();
        let mut open_vcpus = Vec::new();
        for number in 0..self.sizes.cpus {
            let mut state = self.states.read(number);
            if state.opened == 0 {
                continue;
            }
            open_late(&mut state, self.since);
            let cpu = Cpu(u32::try_from(number).unwrap_or(u32::MAX));
            if online.contains(cpu) {
                // A BPF program that was interrupted may have read the clock again after recording
                // ended.
                state.last = state.last.max(until.0.cast_unsigned());
            }
            let mut open = open_frames(&state, cpu);
            let unseen = unseen(&state);
            if let Some(unseen) = unseen {
                split_unseen(&mut open, &state, unseen);
                state.missed += 1;
            } else if self.calls.are_watched {
                let last = split_open_call(&mut open, &state);
                let time = state.short_calls.wrapping_add(last.unwrap_or(0));
                let count = u64::from(state.short_count) + u64::from(last.is_some());
                short_calls.push((state.stack[0].id, time, count));
            }
            all_unseen.extend(unseen);
            open_vcpus.extend(open_vcpu(&state, &open));
            // A thread that was switched in at the very last moment has not used any CPU time yet.
            let open = open.into_iter();
            for record in open.filter(|record| record.dur > 0 || record.self_ns != 0) {
                let named = self.with_thread(named_at_end(record, &state));
                let row = self.decoder.row(sources, &named);
                sink(sources, &row);
            }
            closing.add(cpu, &state);
        }
        let threads = self.followed_entries();
        closing.short_calls = self.calls.sums(&threads, &short_calls);
        closing.guests = self.guest_sums(&open_vcpus);
        (closing, all_unseen)
    }

    /// Stops recording on all CPUs at the same time, and waits until every BPF program has
    /// finished. Returns when recording ended.
    fn stop_recording(&mut self, online: &CpuList) -> Nanos {
        let until = match self.until {
            Some(until) if until <= monotonic() + AHEAD => until,
            _ => {
                nudge(online);
                let until = monotonic() + AHEAD;
                self.end_at(until);
                until
            }
        };
        sleep_until(until);
        // Once a CPU has switched threads, any BPF program that ran there before has finished, even
        // if the hypervisor stopped the CPU for a long time. If a CPU cannot be made to switch,
        // wait a little.
        if !nudge(online).is_empty() {
            thread::sleep(GRACE);
        }
        until
    }

    /// Makes the BPF programs return immediately. Call this only after the throttled threads have
    /// been read, because the programs preserve the set of threads that were throttled at the end.
    fn stop_programs(&self) {
        for cpu in 0..self.sizes.cpus {
            self.controls.set_running(cpu, 0);
        }
    }

    /// Reads every ring to its end. Waits for records that have been claimed but not written yet:
    /// the hypervisor may have stopped a CPU before it could write the record.
    fn drain_all(&mut self, sources: &mut SourceTable, sink: &mut dyn FnMut(&SourceTable, &Row)) {
        if self.sizes.flight {
            return;
        }
        self.drain_rings(monotonic(), usize::MAX, sources, sink);
        for cpu in 0..self.sizes.cpus {
            for _ in 0..GRACE_PERIODS {
                self.drain_ring(cpu, u64::MAX, sources, sink);
                if self.tails[cpu] >= self.states.read(cpu).head {
                    break;
                }
                thread::sleep(GRACE);
            }
        }
    }

    /// Returns the waits of threads that were still throttled at `end`, cut off at that time. A
    /// wait does not belong to any CPU, so these are attributed to `cpu`.
    fn open_waits(&mut self, end: Nanos, cpu: Cpu) -> Vec<SpanRecord> {
        let Some(map) = self.programs.map_mut(map::THROTTLED) else {
            return Vec::new();
        };
        let Ok(waits) = aya::maps::HashMap::<_, u32, ThrottledWait>::try_from(map) else {
            return Vec::new();
        };
        let mut waits: Vec<(u32, ThrottledWait)> = waits.iter().filter_map(Result::ok).collect();
        // The waits of followed threads are reported by `end_absences`.
        let followed: Vec<u32> = self.followed();
        waits.retain(|(tid, _)| !followed.contains(tid));
        let begin = self.since.0.cast_unsigned();
        let record = |(tid, wait): (u32, ThrottledWait)| {
            let since = wait.since.max(begin);
            let dur = u64::try_from(end.0).unwrap_or(0).saturating_sub(since);
            self.with_thread(SpanRecord {
                start: since,
                dur,
                self_ns: dur.cast_signed(),
                detail: detail::THROTTLED,
                tid,
                kind: kind::WAIT,
                cpu: u16::try_from(cpu.0).unwrap_or(u16::MAX),
                ..SpanRecord::default()
            })
        };
        waits.into_iter().map(record).collect()
    }

    /// Adds the thread's name and process to a record that lacks them. They are read from `/proc`.
    /// If the thread has exited, they come from its earlier records.
    pub(crate) fn with_thread(&self, mut record: SpanRecord) -> SpanRecord {
        let unnamed = record.comm == [0; 16] && record.flags & flag::UNREPORTED == 0;
        if unnamed && matches!(record.kind, kind::TASK | kind::WAIT) {
            let names = self.decoder.names();
            let name = names.thread(record.tid);
            let before = self.decoder.thread_before(record.tid);
            if let (None, Some((tgid, comm))) = (&name, before) {
                (record.tgid, record.comm) = (tgid, comm);
                return record;
            }
            let name = name.unwrap_or_else(|| "(ended)".to_owned());
            let length = name.len().min(record.comm.len());
            record.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
            record.tgid = names.process(record.tid).unwrap_or(record.tid);
        }
        record
    }

    /// Returns the CPU time that the BPF programs have used so far, or `None` if the kernel keeps
    /// no statistics on them (`kernel.bpf_stats_enabled`).
    fn time_in_programs(&self) -> Option<Nanos> {
        let infos = self
            .programs
            .programs()
            .filter_map(|(_, program)| program.info().ok());
        let total: u128 = infos.map(|info| info.run_time().as_nanos()).sum();
        (total > 0).then(|| Nanos(i64::try_from(total).unwrap_or(i64::MAX)))
    }
}

/// Returns the current time on the clock that the BPF programs use.
pub(crate) fn monotonic() -> Nanos {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

/// Sleeps until [`monotonic`] reaches `time`.
pub(crate) fn sleep_until(time: Nanos) {
    let left = u64::try_from((time - monotonic()).0).unwrap_or(0);
    thread::sleep(Duration::from_nanos(left));
}

/// If a CPU has had no event since the planned start, starts its accounting at that time.
fn open_late(state: &mut CpuState, since: Nanos) {
    if state.opened != OPENING as u64 {
        return;
    }
    let since = since.0.cast_unsigned().max(state.last);
    for frame in &mut state.stack {
        (frame.start, frame.child) = (since, 0);
    }
    (state.opened, state.last) = (since, since);
    (state.seen, state.seen_child) = (since, 0);
    (state.missed, state.mismatched, state.cut) = (0, 0, 0);
    (state.ticks_stopped, state.vcpu_charged) = (0, 0);
}

/// Detects a switch that was not reported: after the end, the CPU was running a different thread
/// from the one that the last reported switch had put there. The switch may have happened before or
/// after the end.
fn unseen(state: &CpuState) -> Option<Unseen> {
    if state.ended == 0 || state.end_thread == state.thread {
        return None;
    }
    let base = &state.stack[0];
    let is_known = state.seen > base.start && state.seen <= state.last;
    Some(Unseen {
        known: base.id,
        found: state.end_tid,
        since: if is_known { state.seen } else { base.start },
    })
}

/// Splits the span of the known thread, which is the last one in `open`, at the time when the
/// thread was last seen. Any time after that does not belong to a known thread.
fn split_unseen(open: &mut Vec<SpanRecord>, state: &CpuState, unseen: Unseen) {
    let Some(known) = open.last_mut() else {
        return;
    };
    let seen = unseen.since;
    let child = if seen > known.start {
        state.seen_child
    } else {
        0
    };
    let own = (seen - known.start).wrapping_sub(child).cast_signed();
    let rest = SpanRecord {
        start: seen,
        dur: known.dur - (seen - known.start),
        self_ns: known.self_ns.wrapping_sub(own),
        kind: kind::TASK,
        flags: flag::UNREPORTED,
        cpu: known.cpu,
        ..SpanRecord::default()
    };
    (known.dur, known.self_ns) = (seen - known.start, own);
    open.push(rest);
}

/// Gives the thread that was running at the end the name it had then, which may differ from its
/// earlier name.
fn named_at_end(mut record: SpanRecord, state: &CpuState) -> SpanRecord {
    let known = state.ended > 0 && record.tid == state.end_tid;
    if known && record.kind == kind::TASK && record.flags & flag::UNREPORTED == 0 {
        (record.tgid, record.comm) = (state.end_tgid, state.end_comm);
    }
    record
}

/// Returns the spans that are still open on a CPU, innermost first. All of them end at the CPU's
/// latest event.
///
/// An interrupt may arrive while a higher frame is being closed. Its length then stays in that
/// frame's slot, and the next frame in the slot subtracts it (`end_top` in `books.h`). At the end
/// of recording, there is no such next frame, so the innermost open frame subtracts it.
pub(crate) fn open_frames(state: &CpuState, cpu: Cpu) -> Vec<SpanRecord> {
    let depth = usize::try_from(state.depth)
        .unwrap_or(0)
        .min(state.stack.len() - 1);
    let mut stack = state.stack;
    // Sums of times are exact modulo 2⁶⁴, even if the clock briefly seemed to run backwards.
    let above = stack[depth + 1..].iter();
    let left_over = above.fold(0u64, |sum, frame| sum.wrapping_add(frame.child));
    stack[depth].child = stack[depth].child.wrapping_add(left_over);
    let mut ended = Vec::new();
    for level in (0..=depth).rev() {
        let frame = stack[level];
        let passed = state.last.wrapping_sub(frame.start);
        if level > 0 {
            let below = &mut stack[level - 1].child;
            *below = below.wrapping_add(passed);
        }
        ended.push(SpanRecord {
            start: frame.start,
            dur: state.last.saturating_sub(frame.start),
            self_ns: passed.wrapping_sub(frame.child).cast_signed(),
            detail: frame.detail,
            tid: frame.id,
            kind: frame.kind,
            flags: frame.flags,
            cpu: u16::try_from(cpu.0).unwrap_or(u16::MAX),
            ..SpanRecord::default()
        });
    }
    ended
}

#[cfg(test)]
mod tests;
