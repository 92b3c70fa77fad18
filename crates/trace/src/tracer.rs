//! The tracer at work: the programs in the kernel, and reading what they hand out.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use aya::Ebpf;
use aya::maps::Map;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::Row;
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};

use crate::close::{monotonic, sleep_until};
use crate::decode::{Decoder, EDGES};
use crate::error::TraceError;
use crate::flight::Tables;
use crate::follow::FirstStates;
use crate::load::{Loaded, Sizes, TraceSettings, load};
use crate::names::Names;
use crate::nudge::nudge;
use crate::object::map;
use crate::record::{
    CpuControl, CpuState, MAX_CPUS, OPENING, RingEntry, RuleHistogram, SpanRecord, SumRecord,
    ThreadName, run,
};
use crate::sys::{self, Shared, SharedArray};

/// From the decision to begin or to stop until that is, on all CPUs at once: time enough to tell each.
pub(crate) const AHEAD: Nanos = Nanos::from_millis(1);

/// By so much the rows of one CPU may be handed out before those of another, however late whoever drains comes.
const MERGED: Nanos = Nanos::from_millis(50);

/// The prefix of the names of the tool's probes' threads.
pub const PROBE_PREFIX: &str = "ttx-";

/// The programs in the kernel, watching. They leave it when this is dropped, or when the process
/// dies: nothing is pinned.
pub struct Tracer {
    // Field order is drop order: no mapping outlives the programs that write it.
    pub(crate) programs: Ebpf,
    pub(crate) spans: SharedArray<SpanRecord>,
    /// The flight recorder's ring.
    pub(crate) entries: SharedArray<RingEntry>,
    pub(crate) thread_names: SharedArray<ThreadName>,
    pub(crate) sums: SharedArray<SumRecord>,
    pub(crate) rests: SharedArray<SumRecord>,
    /// What the flight recorder's rules are about, where they count it.
    pub(crate) rule_lengths: SharedArray<RuleHistogram>,
    pub(crate) states: SharedArray<CpuState>,
    pub(crate) controls: SharedArray<CpuControl>,
    pub(crate) sizes: Sizes,
    /// Whether all words of a record are mixed into its mark.
    pub(crate) sealed: bool,
    pub(crate) decoder: Decoder,
    pub(crate) first_states: FirstStates,
    pub(crate) tails: Vec<u64>,
    /// Of the flight recorder.
    pub(crate) tables: Tables,
    /// The sums, and behind them the rests, as they were handed out last.
    pub(crate) window: Vec<Option<SumRecord>>,
    /// Which of the sums had grown when they were handed out last.
    pub(crate) grew: Vec<bool>,
    /// Where [`Tracer::recycle`] goes on.
    pub(crate) recycled: usize,
    pub(crate) window_begin: Nanos,
    /// When recording began.
    pub(crate) since: Nanos,
    /// Until when all that was recorded has been handed out.
    drained: Nanos,
    /// When recording ends, or ended, where that is decided.
    pub(crate) until: Option<Nanos>,
    /// How often sums are handed out.
    window_length: Nanos,
    is_before_5_12: bool,
    attached: Vec<Hook>,
    limitations: Vec<Limitation>,
    every_entry_watched: bool,
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
            is_before_5_12,
            attached,
            mut limitations,
            every_entry_watched,
        } = load(settings, sizes)?;
        let names = Names::read(Path::new("/proc"), Path::new("/sys"));
        // The kernel's description of its types has some tens of MiB while it is read.
        sys::give_back_memory();
        if !names.knows_functions() {
            limitations.push(Limitation::FunctionNamesHidden);
        }
        let (sums, rests) = (
            sizes.all_sum_entries() as usize,
            sizes.rest_entries() as usize,
        );
        // The flight recorder empties one table while the other is filled.
        let windowed = if sizes.summing && !sizes.flight {
            sums + rests
        } else {
            0
        };
        Ok(Self {
            spans: shared(&mut programs, map::SPANS, sizes.span_entries())?,
            entries: shared(&mut programs, map::RING_ENTRIES, sizes.ring_entries())?,
            thread_names: shared(&mut programs, map::THREAD_NAMES, sizes.name_entries())?,
            sums: shared(&mut programs, map::SUMS, sums)?,
            rests: shared(&mut programs, map::RESTS, rests)?,
            rule_lengths: shared(&mut programs, map::RULE_LENGTHS, sizes.rule_entries())?,
            states: shared(&mut programs, map::STATES, MAX_CPUS)?,
            controls: shared(&mut programs, map::CONTROLS, MAX_CPUS)?,
            programs,
            sizes,
            sealed: !settings.stores_in_order,
            decoder: Decoder::new(names, std::process::id(), PROBE_PREFIX),
            first_states: FirstStates::default(),
            tails: vec![0; sizes.cpus],
            tables: Tables::default(),
            window: vec![None; windowed],
            grew: vec![false; windowed],
            recycled: 0,
            window_begin: Nanos::ZERO,
            since: Nanos::ZERO,
            drained: Nanos::ZERO,
            until: None,
            window_length: settings.window,
            is_before_5_12,
            attached,
            limitations,
            every_entry_watched,
        })
    }

    /// Whether the programs are those for kernels before Linux 5.12.
    pub fn is_before_5_12(&self) -> bool {
        self.is_before_5_12
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

    /// Context switches that were reported so far, on all CPUs, those after the end of recording included.
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

    /// Opens the books of the CPUs in `watched`, at one moment that has come when this returns: from then on the
    /// programs record there. Returns those of `online` whose books open later, at their first switch, because
    /// nothing could make them switch now.
    pub fn start(&mut self, watched: &CpuList, online: &CpuList) -> CpuList {
        let cpus = watched.iter().map(Cpu::index);
        let cpus: Vec<usize> = cpus.filter(|&cpu| cpu < self.sizes.cpus).collect();
        let follow = u64::from(self.sizes.following) * run::FOLLOW;
        for &cpu in &cpus {
            self.controls.set_since(cpu, u64::MAX);
            self.controls.set_until(cpu, u64::MAX);
            self.controls.set_running(cpu, run::RECORD | follow);
        }
        let late = nudge(online);
        let since = monotonic() + AHEAD;
        for &cpu in &cpus {
            self.controls.set_since(cpu, since.0.cast_unsigned());
        }
        (self.since, self.window_begin, self.drained) = (since, since, since);
        self.until = None;
        sleep_until(since);
        late
    }

    /// When the last of the books of these CPUs were opened; `None` where none are open.
    pub fn opened(&self, cpus: &CpuList) -> Option<Nanos> {
        let cpus = cpus
            .iter()
            .map(Cpu::index)
            .filter(|&cpu| cpu < self.sizes.cpus);
        let opened = cpus.map(|cpu| self.states.read(cpu).opened);
        let last = opened.filter(|&opened| opened > 0).max()?;
        // Where nothing has happened since, they open with what happens next.
        Some(if last == OPENING as u64 {
            self.since
        } else {
            Nanos(last.cast_signed()).max(self.since)
        })
    }

    /// Ends recording on all CPUs at `time`, on `CLOCK_MONOTONIC`, however late [`Tracer::close`] is called. What
    /// happens from then on is in no row, and what is going on then ends at that time. Switches are still
    /// counted ([`Tracer::switches`]).
    pub fn end_at(&mut self, time: Nanos) {
        self.until = Some(time);
        for cpu in 0..self.sizes.cpus {
            self.controls.set_until(cpu, time.0.cast_unsigned());
        }
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

    /// Passes every record that is ready to `sink`, in the order in which each CPU's ended, those of different
    /// CPUs merged to within 50 ms. When summing, these are the long ones, and once in [`TraceSettings::window`] the sums of what was added
    /// since, as the window that ends `now`. The flight recorder has other ways: [`Tracer::capture`] and
    /// [`Tracer::take_sums`]; nothing comes from it here.
    pub fn drain(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        self.drain_rings(monotonic(), sources, sink);
        if self.sizes.summing && now - self.window_begin >= self.window_length {
            self.drain_sums(now, sources, sink);
        }
    }

    /// Passes on what ended until `now`. Whoever drains may come seconds late, and would find seconds of one
    /// CPU before those of the next: so it is done by turns.
    pub(crate) fn drain_rings(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        while self.drained < now {
            self.drained = now.min(self.drained + MERGED);
            let until = self.drained.0.cast_unsigned();
            for cpu in 0..self.sizes.cpus {
                self.drain_ring(cpu, until, sources, sink);
            }
        }
    }

    /// Passes on what ended `until` then on `cpu`.
    pub(crate) fn drain_ring(
        &mut self,
        cpu: usize,
        until: u64,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        if self.sizes.flight {
            return;
        }
        let len = self.sizes.ring_len();
        let first = self.tails[cpu];
        let mut tail = first;
        // At most a ringful: a CPU that writes faster than this reads must not keep the others,
        // or the end, waiting.
        while tail - first < len as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
            let (place, seq) = (tail as usize & (len - 1), (tail as u32).wrapping_add(1));
            let record = self.spans.take(cpu * len + place, seq, self.sealed);
            let Some(record) = record.filter(|record| end_of(record) <= until) else {
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

    pub(crate) fn drain_sums(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        // Whoever drains may come after the end.
        let now = self.until.map_or(now, |until| now.min(until));
        let now = now.max(self.window_begin);
        let window = (self.window_begin, now);
        let sums = self.sizes.sum_entries as usize;
        let entries = self.window.iter_mut().zip(&mut self.grew);
        for (index, (before, grew)) in entries.enumerate() {
            let (table, index) = match index.checked_sub(sums) {
                None => (&self.sums, index),
                Some(rest) => (&self.rests, rest),
            };
            // Most entries are free, or of threads that did not run. The kernel counts before it adds the
            // time, so what was read in between is known by its time.
            let read = before.as_ref();
            *grew = table.sum(index) != read.map_or((0, 0), |sum| (sum.count, sum.self_ns));
            if !*grew {
                continue;
            }
            let after = table.read(index);
            if let Some(row) = self.decoder.sum(sources, before.as_ref(), &after, window) {
                sink(sources, &row);
            }
            *before = Some(after);
        }
        self.window_begin = now;
    }
}

/// When a span ended; an edge is a moment.
fn end_of(record: &SpanRecord) -> u64 {
    if record.flags & EDGES == 0 {
        record.start.saturating_add(record.dur)
    } else {
        record.start
    }
}

/// The count in the description of a program's descriptor under `/proc/self/fdinfo`.
fn skipped_in(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("recursion_misses:"))?;
    count.trim().parse().ok()
}

pub(crate) fn shared<T: Shared>(
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
    use super::{end_of, skipped_in};
    use crate::record::{SpanRecord, flag};

    #[test]
    fn an_edge_ends_when_it_begins() {
        let span = SpanRecord {
            start: 1_000,
            dur: 300,
            ..SpanRecord::default()
        };
        assert_eq!(end_of(&span), 1_300);
        let flags = flag::WOKE | flag::KERNEL_THREAD;
        assert_eq!(end_of(&SpanRecord { flags, ..span }), 1_000);
    }

    #[test]
    fn skipped_runs_are_read_from_the_programs_descriptor() {
        let text = "prog_type:\t26\nrun_cnt:\t0\nrecursion_misses:\t3\n";
        assert_eq!(skipped_in(text), Some(3));
        assert_eq!(skipped_in("prog_type:\t26\n"), None);
    }
}
