//! The tracer at work: reading what the programs hand out, and closing the books.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::Map;
use nix::time::{ClockId, clock_gettime};
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Books, Loss, Row};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};

use crate::decode::Decoder;
use crate::error::TraceError;
use crate::follow::FirstStates;
use crate::load::{Loaded, Sizes, TraceSettings, load};
use crate::names::Names;
use crate::nudge::nudge;
use crate::record::{
    CpuControl, CpuState, MAX_CPUS, SpanRecord, SumRecord, detail, kind, map, run,
};
use crate::sys::{self, Shared, SharedArray};

/// The prefix of the names of the tool's probes' threads.
pub const PROBE_PREFIX: &str = "ttx-";

/// From the decision to stop until recording stops, on all CPUs at once: time enough to tell each.
const AHEAD: Nanos = Nanos::from_millis(1);

/// A program that was entered just before recording was stopped ends within this time, unless the
/// hypervisor stopped its CPU in the middle of it.
const GRACE: Duration = Duration::from_millis(6);

/// How many times that a record which is being written may take. One that is not there then would
/// be missing from the books, and they would say so.
const TURNS: u32 = 200;

/// How often sums are handed out: fine enough to see when something changed.
const WINDOW: Nanos = Nanos::from_secs(1);

/// The programs in the kernel, watching. They leave it when this is dropped, or when the process
/// dies: nothing is pinned.
pub struct Tracer {
    // Field order is drop order: no mapping outlives the programs that write it.
    pub(crate) programs: Ebpf,
    spans: SharedArray<SpanRecord>,
    sums: SharedArray<SumRecord>,
    rests: SharedArray<SumRecord>,
    states: SharedArray<CpuState>,
    controls: SharedArray<CpuControl>,
    sizes: Sizes,
    pub(crate) decoder: Decoder,
    pub(crate) first_states: FirstStates,
    tails: Vec<u64>,
    /// The sums, and behind them the rests, as they were handed out last.
    window: Vec<Option<SumRecord>>,
    window_begin: Nanos,
    attached: Vec<Hook>,
    limitations: Vec<Limitation>,
    every_entry_watched: bool,
}

/// How a tracer's run ended.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// The interval of each CPU that switched threads at all.
    pub books: Vec<Books>,
    /// What was lost, by CPU.
    pub lost: Vec<Loss>,
    /// Tracepoint hits.
    pub events: u64,
    /// Exits without their entry and entries too deep: 0 unless softirqs are preemptible.
    pub mismatched: u64,
    /// Intervals of sources that the table of sums had no room for: they are summed as `others`.
    pub folded: u64,
    /// Threads that would have been followed, had there been room for them.
    pub unfollowed: u64,
    /// Times that a thread was found which no reported switch had put there.
    pub missed: u64,
    /// Interrupts and softirqs that were in progress at a switch: 0 unless softirqs are
    /// preemptible.
    pub cut: u64,
    /// How often the kernel stopped the tick, by CPU number.
    pub ticks_stopped: BTreeMap<u32, u64>,
    /// CPU time inside the programs, where the kernel keeps statistics of them.
    pub in_programs: Option<Nanos>,
}

impl Tracer {
    /// Loads the programs and attaches them; nothing is recorded before [`Tracer::start`].
    ///
    /// `possible` is the number of CPUs that the machine may ever have, plugged in or not:
    /// `ticktax_host::Proc::room_for_cpus`.
    ///
    /// # Errors
    /// When the kernel, the caller's rights or the machine's memory do not allow it.
    pub fn load(settings: &TraceSettings, possible: usize) -> Result<Self, TraceError> {
        let sizes = Sizes::of(settings, possible);
        let Loaded {
            mut programs,
            attached,
            mut limitations,
            every_entry_watched,
        } = load(settings, sizes)?;
        let names = Names::read(Path::new("/proc"));
        if !names.knows_functions() {
            limitations.push(Limitation::FunctionNamesHidden);
        }
        let (sums, rests) = (sizes.sum_entries as usize, sizes.rest_entries() as usize);
        let windowed = if sizes.summing { sums + rests } else { 0 };
        let ring = sizes.ring_len() * sizes.cpus;
        Ok(Self {
            spans: shared(&mut programs, map::SPANS, ring)?,
            sums: shared(&mut programs, map::SUMS, sums)?,
            rests: shared(&mut programs, map::RESTS, rests)?,
            states: shared(&mut programs, map::STATES, MAX_CPUS)?,
            controls: shared(&mut programs, map::CONTROLS, MAX_CPUS)?,
            programs,
            sizes,
            decoder: Decoder::new(names, std::process::id(), PROBE_PREFIX),
            first_states: FirstStates::default(),
            tails: vec![0; sizes.cpus],
            window: vec![None; windowed],
            window_begin: Nanos::ZERO,
            attached,
            limitations,
            every_entry_watched,
        })
    }

    /// The hooks that watch.
    pub fn attached(&self) -> &[Hook] {
        &self.attached
    }

    /// What cannot be seen on this kernel.
    pub fn limitations(&self) -> &[Limitation] {
        &self.limitations
    }

    /// Whether every way into the kernel is watched.
    pub fn every_entry_watched(&self) -> bool {
        self.every_entry_watched
    }

    /// The memory of the buffers that the kernel and this process share, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// Context switches that were reported so far, on all CPUs.
    pub fn switches(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).switches).sum()
    }

    /// Runs of the programs that the kernel skipped so far, because the program was running on that
    /// CPU already; `None` where it does not say (before 5.12).
    pub fn programs_skipped(&self) -> Option<u64> {
        let programs = self.programs.programs();
        let skipped = programs.filter_map(|(_, program)| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            skipped_in(&text)
        });
        skipped.fold(None, |sum, skipped| Some(sum.unwrap_or(0) + skipped))
    }

    /// Opens the books of the CPUs in `watched`: from here on the programs record there. Returns
    /// those of `online` whose books open later, at their first switch, because nothing could make
    /// them switch now.
    pub fn start(&mut self, watched: &CpuList, online: &CpuList, now: Nanos) -> CpuList {
        self.window_begin = now;
        for cpu in watched.iter().filter(|cpu| cpu.index() < self.sizes.cpus) {
            let follow = u64::from(self.sizes.following) * run::FOLLOW;
            self.controls.set_until(cpu.index(), u64::MAX);
            self.controls.set_running(cpu.index(), run::RECORD | follow);
        }
        nudge(online)
    }

    /// For tests: has the programs miss everything on `cpu` until [`Tracer::resume`], as a kernel
    /// does that does not report its switches.
    #[doc(hidden)]
    pub fn pause(&mut self, cpu: Cpu) {
        self.controls.set_running(cpu.index(), 0);
    }

    /// For tests: goes on after [`Tracer::pause`].
    #[doc(hidden)]
    pub fn resume(&mut self, cpu: Cpu) {
        let follow = u64::from(self.sizes.following) * run::FOLLOW;
        self.controls.set_running(cpu.index(), run::RECORD | follow);
    }

    /// The nice value of the calling thread, -20 to 19.
    pub fn own_nice() -> i32 {
        sys::own_nice()
    }

    /// Gives the calling thread this nice value, -20 to 19: where programs are many, whoever drains would
    /// come round too late, and events would be lost. Threads and processes that it starts from now on
    /// inherit that. Returns whether it is allowed.
    pub fn set_own_nice(nice: i32) -> bool {
        sys::set_own_nice(nice)
    }

    /// Passes every record that is ready to `sink`, in the order in which each CPU's ended. When
    /// summing, these are the long ones, and once a second the sums of what was added since, as the
    /// window that ends `now`.
    pub fn drain(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        for cpu in 0..self.sizes.cpus {
            self.drain_ring(cpu, sources, sink);
        }
        if self.sizes.summing && now - self.window_begin >= WINDOW {
            self.drain_sums(now, sources, sink);
        }
    }

    fn drain_ring(
        &mut self,
        cpu: usize,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        let len = self.sizes.ring_len();
        let first = self.tails[cpu];
        let mut tail = first;
        // At most a ringful: a CPU that writes faster than this reads must not keep the others,
        // or the end, waiting.
        while tail - first < len as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
            let (place, seq) = (tail as usize & (len - 1), (tail as u32).wrapping_add(1));
            let Some(record) = self.spans.take(cpu * len + place, seq) else {
                break;
            };
            if let Some(record) = self.first_states.complete(record) {
                let row = self.decoder.row(sources, &record);
                sink(sources, &row);
            }
            tail += 1;
            // Room is given back in quarters, so that the writer's line is not pulled to and fro.
            if tail & (len as u64 / 4 - 1) == 0 {
                self.controls.set_tail(cpu, tail);
            }
        }
        if tail != first {
            self.tails[cpu] = tail;
            self.controls.set_tail(cpu, tail);
        }
    }

    /// Reads every ring to its end. A record that was claimed and is not written yet is waited
    /// for: the hypervisor may have stopped the CPU in the middle of it.
    fn drain_all(&mut self, sources: &mut SourceTable, sink: &mut dyn FnMut(&SourceTable, &Row)) {
        for cpu in 0..self.sizes.cpus {
            for _ in 0..TURNS {
                self.drain_ring(cpu, sources, sink);
                if self.tails[cpu] >= self.states.read(cpu).head {
                    break;
                }
                thread::sleep(GRACE);
            }
        }
    }

    fn drain_sums(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        let window = (self.window_begin, now);
        let sums = self.sizes.sum_entries as usize;
        for (index, before) in self.window.iter_mut().enumerate() {
            let after = match index.checked_sub(sums) {
                None => self.sums.read(index),
                Some(rest) => self.rests.read(rest),
            };
            if after.count == 0 {
                continue;
            }
            if let Some(row) = self.decoder.sum(sources, before.as_ref(), &after, window) {
                sink(sources, &row);
            }
            *before = Some(after);
        }
        self.window_begin = now;
    }

    /// Closes the books: stops recording, hands out what is left, and ends what each CPU is still
    /// in the middle of at the last time that it was seen.
    pub fn close(
        mut self,
        online: &CpuList,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Closing {
        nudge(online);
        let until = monotonic() + AHEAD;
        for cpu in 0..self.sizes.cpus {
            self.controls.set_until(cpu, until.0.cast_unsigned());
        }
        thread::sleep(Duration::from_nanos(AHEAD.0.cast_unsigned()));
        // A CPU that switches threads has left whatever program it was in, however long the
        // hypervisor kept it there. One that cannot be made to switch is given time.
        if !nudge(online).is_empty() {
            thread::sleep(GRACE);
        }
        for cpu in 0..self.sizes.cpus {
            self.controls.set_running(cpu, 0);
        }
        self.drain_all(sources, sink);
        if self.sizes.summing {
            self.drain_sums(now, sources, sink);
        }
        let mut closing = Closing {
            in_programs: self.time_in_programs(),
            ..Closing::default()
        };
        let mut closed = None;
        for number in 0..self.sizes.cpus {
            let state = self.states.read(number);
            if state.opened == 0 {
                continue;
            }
            let cpu = Cpu(u32::try_from(number).unwrap_or(u32::MAX));
            // A thread that was switched to at the very last moment has no time yet.
            for record in open_frames(&state, cpu)
                .into_iter()
                .filter(|record| record.dur > 0 || record.self_ns != 0)
            {
                let named = self.with_thread(record);
                let row = self.decoder.row(sources, &named);
                sink(sources, &row);
            }
            closed = closed.max(Some((Nanos(state.last.cast_signed()), cpu)));
            closing.books.push(Books {
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
                closing.lost.push(loss);
            }
            closing.events += state.events;
            closing.mismatched += state.mismatched;
            closing.folded += state.folded;
            closing.unfollowed += state.unfollowed;
            closing.missed += state.missed;
            closing.cut += state.cut;
            closing.ticks_stopped.insert(cpu.0, state.ticks_stopped);
        }
        if let Some((end, cpu)) = closed {
            for record in self.open_waits(end, cpu) {
                let row = self.decoder.row(sources, &record);
                sink(sources, &row);
            }
        }
        self.end_absences(until, sources, sink);
        closing
    }

    /// The waits that nobody has ended yet, as if all were `end`ed, on a `cpu` for want of one.
    fn open_waits(&mut self, end: Nanos, cpu: Cpu) -> Vec<SpanRecord> {
        let Some(map) = self.programs.map_mut(map::THROTTLED) else {
            return Vec::new();
        };
        let Ok(waits) = aya::maps::HashMap::<_, u32, u64>::try_from(map) else {
            return Vec::new();
        };
        let mut waits: Vec<(u32, u64)> = waits.iter().filter_map(Result::ok).collect();
        // Those of followed threads are among their absences.
        let followed: Vec<u32> = self.followed();
        waits.retain(|(tid, _)| !followed.contains(tid));
        let record = |(tid, since): (u32, u64)| {
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

    /// Completes the record of a thread that is still running with what `/proc` says of it.
    fn with_thread(&self, mut record: SpanRecord) -> SpanRecord {
        if matches!(record.kind, kind::TASK | kind::WAIT) {
            let names = self.decoder.names();
            let name = names
                .thread(record.tid)
                .unwrap_or_else(|| "(ended)".to_owned());
            let length = name.len().min(record.comm.len());
            record.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
            record.tgid = names.process(record.tid).unwrap_or(record.tid);
        }
        record
    }

    /// CPU time inside the programs so far; `None` unless the kernel keeps statistics
    /// (`kernel.bpf_stats_enabled`).
    fn time_in_programs(&self) -> Option<Nanos> {
        let infos = self
            .programs
            .programs()
            .filter_map(|(_, program)| program.info().ok());
        let total: u128 = infos.map(|info| info.run_time().as_nanos()).sum();
        (total > 0).then(|| Nanos(i64::try_from(total).unwrap_or(i64::MAX)))
    }
}

/// The count in the description of a program's descriptor under `/proc/self/fdinfo`.
fn skipped_in(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("recursion_misses:"))?;
    count.trim().parse().ok()
}

/// Now, on the clock that the programs read.
fn monotonic() -> Nanos {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Nanos::ZERO, |time| {
        Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    })
}

/// The spans that a CPU was in the middle of, innermost first, all ended at its last time.
///
/// An interrupt that came while a frame above these was being ended left its length there, for the
/// next frame of that slot to leave out (`pop_top` in `books.h`). No frame comes any more: the
/// innermost open one leaves it out.
fn open_frames(state: &CpuState, cpu: Cpu) -> Vec<SpanRecord> {
    let depth = usize::try_from(state.depth)
        .unwrap_or(0)
        .min(state.stack.len() - 1);
    let mut stack = state.stack;
    // Sums of times are exact modulo 2⁶⁴, also where a clock seemed to run back for an instant.
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

fn shared<T: Shared>(
    programs: &mut Ebpf,
    name: &str,
    len: usize,
) -> Result<SharedArray<T>, TraceError> {
    let refused = |why: String| TraceError::Refused { why };
    match programs.map(name) {
        Some(Map::Array(data)) => SharedArray::map(data.fd(), len)
            .map_err(|error| refused(format!("map {name} cannot be shared: {}", error.desc()))),
        _ => Err(refused(format!("map {name} is not in the tracer's object"))),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Cpu;

    use super::{open_frames, skipped_in};
    use crate::record::{CpuState, Frame, kind};

    #[test]
    fn skipped_runs_are_read_from_the_programs_descriptor() {
        let text = "prog_type:\t26\nrun_cnt:\t0\nrecursion_misses:\t3\n";
        assert_eq!(skipped_in(text), Some(3));
        assert_eq!(skipped_in("prog_type:\t26\n"), None);
    }

    #[test]
    fn what_is_open_at_the_end_sums_to_the_time_since_the_last_switch() {
        let mut state = CpuState {
            depth: 2,
            opened: 100,
            last: 1_000,
            ..CpuState::default()
        };
        state.stack[0] = Frame {
            start: 400,
            child: 50,
            kind: kind::TASK,
            ..Frame::default()
        };
        state.stack[1] = Frame {
            start: 700,
            child: 20,
            kind: kind::SOFTIRQ,
            ..Frame::default()
        };
        state.stack[2] = Frame {
            start: 900,
            child: 0,
            kind: kind::IRQ,
            ..Frame::default()
        };
        let ended = open_frames(&state, Cpu(0));
        assert_eq!(
            ended.iter().map(|span| span.kind).collect::<Vec<_>>(),
            [3, 2, 1]
        );
        // 50 and 20 were handed out before, as spans of their own.
        let own = |state: &CpuState| -> i64 {
            let ended = open_frames(state, Cpu(0));
            ended.iter().map(|span| span.self_ns).sum()
        };
        assert_eq!(own(&state), 600 - 50 - 20);
        // So was an interrupt during the end of a frame that was above these.
        state.stack[3].child = 30;
        assert_eq!(own(&state), 600 - 50 - 20 - 30);
    }
}
