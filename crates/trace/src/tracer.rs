//! The tracer, which manages the BPF programs and reads the records that they write.

use std::cell::Cell;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Map, StackTraceMap};
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::Row;
use ticktax_model::{Cpu, CpuList, Interval, Nanos, SourceTable};

use crate::calls::Calls;
use crate::close::{monotonic, sleep_until};
use crate::decode::{Decoder, EDGES};
use crate::error::TraceError;
use crate::flight::Tables;
use crate::follow::FirstStates;
use crate::groups::{GroupEvent, GroupWatch};
use crate::hooks::HOOKS;
use crate::load::{Loaded, Sizes, TraceSettings, load, withdraw};
use crate::names::Names;
use crate::nudge::nudge;
use crate::object::map;
use crate::places::{Places, Stacks};
use crate::record::{
    CpuControl, CpuState, MAX_CPUS, OPENING, RingEntry, RuleHistogram, SpanRecord, StackNote,
    SumRecord, ThreadName, VcpuRecord,
};
use crate::sys::{self, Shared, SharedArray};
use crate::waited::{WaitRing, wait_ring};

/// Lead time with which a start or stop time is set. All CPUs must learn of the time in advance, so
/// that they start or stop together.
pub(crate) const AHEAD: Nanos = Nanos::from_millis(1);

/// Length of the intervals in which rows are merged. Within an interval, the rows of one CPU are
/// emitted before those of the next CPU. Rows from different CPUs can therefore be out of order by
/// up to this much, even if the reader is late.
const MERGED: Nanos = Nanos::from_millis(50);

/// Name prefix of ticktax's probe threads.
pub const PROBE_PREFIX: &str = "ttx-";

/// The loaded BPF programs and their buffers. Nothing is pinned, so the kernel unloads the programs
/// when this value is dropped or the process dies.
pub struct Tracer {
    // Fields are dropped in this order. The programs must come first, so that no mapping is removed
    // before the programs that write to it.
    pub(crate) programs: Ebpf,
    pub(crate) spans: SharedArray<SpanRecord>,
    /// Rings of the flight recorder.
    pub(crate) entries: SharedArray<RingEntry>,
    pub(crate) thread_names: SharedArray<ThreadName>,
    pub(crate) stack_notes: SharedArray<StackNote>,
    /// User code of waits, if it is recorded.
    pub(crate) wait_codes: Option<WaitRing>,
    pub(crate) sums: SharedArray<SumRecord>,
    pub(crate) rests: SharedArray<SumRecord>,
    /// Histograms of the delays that the flight recorder's rules have counted.
    pub(crate) rule_lengths: SharedArray<RuleHistogram>,
    /// Sums of the threads that run vCPUs.
    pub(crate) vcpus: SharedArray<VcpuRecord>,
    pub(crate) states: SharedArray<CpuState>,
    pub(crate) controls: SharedArray<CpuControl>,
    pub(crate) sizes: Sizes,
    /// Whether all words of a record are mixed into its mark (see [`seal`](crate::seal)).
    pub(crate) sealed: bool,
    pub(crate) decoder: Decoder,
    pub(crate) first_states: FirstStates,
    pub(crate) calls: Calls,
    pub(crate) tails: Vec<u64>,
    /// State of the flight recorder's two tables of sums.
    pub(crate) tables: Tables,
    /// Sums as they were when last emitted. The entries for sources that did not fit into the table
    /// come last.
    pub(crate) window: Vec<Option<SumRecord>>,
    /// For each entry in `window`, whether it had grown by the time sums were last emitted.
    pub(crate) grew: Vec<bool>,
    /// Index at which [`Tracer::recycle`] continues.
    pub(crate) recycled: usize,
    pub(crate) window_begin: Nanos,
    /// When recording started.
    pub(crate) since: Nanos,
    /// All records that ended before this time have been emitted.
    drained: Nanos,
    /// Length of the next slice of time whose records are emitted.
    slice: Nanos,
    /// When recording ends or ended, once that is decided.
    pub(crate) until: Option<Nanos>,
    /// Interval at which sums are emitted.
    window_length: Nanos,
    is_before_5_12: bool,
    attached: Vec<Hook>,
    limitations: Vec<Limitation>,
    every_entry_watched: bool,
    /// Watch on cgroups, or why it failed.
    groups: Option<Result<GroupWatch, TraceError>>,
}

impl Tracer {
    /// Loads and attaches the BPF programs. Recording starts with [`Tracer::start`].
    ///
    /// `possible` is the number of CPUs that the machine can ever have, including those that are
    /// not plugged in yet (see `ticktax_host::Proc::room_for_cpus`).
    ///
    /// # Errors
    /// Returns an error if the kernel, the caller's rights or the available memory do not allow it.
    pub fn load(settings: &TraceSettings, possible: usize) -> Result<Self, TraceError> {
        let sizes = Sizes::new(settings, possible);
        let Loaded {
            mut programs,
            is_before_5_12,
            attached,
            mut limitations,
            every_entry_watched,
            groups,
        } = load(settings, sizes)?;
        let names = Names::read(Path::new("/proc"), Path::new("/sys"));
        // Reading the kernel's BTF took tens of MiB.
        sys::give_back_memory();
        if !names.knows_functions() {
            limitations.push(Limitation::FunctionNamesHidden);
        }
        let (sums, rests) = (
            sizes.all_sum_entries() as usize,
            sizes.rest_entries() as usize,
        );
        // The flight recorder does not need earlier values: it empties one table completely while
        // the other is being filled.
        let windowed = if sizes.summing && !sizes.flight {
            sums + rests
        } else {
            0
        };
        let mut stacks = |name| {
            let stacks = programs.take_map(name).filter(|_| sizes.takes_stacks());
            stacks.and_then(|stacks| StackTraceMap::try_from(stacks).ok())
        };
        let stacks = Stacks {
            first: stacks(map::STACKS),
            more: stacks(map::MORE_STACKS),
        };
        let mut decoder = Decoder::new(names, std::process::id(), PROBE_PREFIX);
        decoder.set_places(Places::new(stacks));
        Ok(Self {
            spans: shared(&mut programs, map::SPANS, sizes.span_entries())?,
            entries: shared(&mut programs, map::RING_ENTRIES, sizes.ring_entries())?,
            thread_names: shared(&mut programs, map::THREAD_NAMES, sizes.name_entries())?,
            stack_notes: shared(&mut programs, map::STACK_NOTES, sizes.note_entries())?,
            wait_codes: wait_ring(&mut programs, sizes),
            sums: shared(&mut programs, map::SUMS, sums)?,
            rests: shared(&mut programs, map::RESTS, rests)?,
            rule_lengths: shared(&mut programs, map::RULE_LENGTHS, sizes.rule_entries())?,
            vcpus: shared(&mut programs, map::VCPUS, sizes.vcpu_entries())?,
            states: shared(&mut programs, map::STATES, MAX_CPUS)?,
            controls: shared(&mut programs, map::CONTROLS, MAX_CPUS)?,
            programs,
            sizes,
            sealed: !settings.stores_in_order,
            decoder,
            first_states: FirstStates::default(),
            calls: Calls::new(attached.contains(&Hook::SystemCalls)),
            tails: vec![0; sizes.cpus],
            tables: Tables::default(),
            window: vec![None; windowed],
            grew: vec![false; windowed],
            recycled: 0,
            window_begin: Nanos::ZERO,
            since: Nanos::ZERO,
            drained: Nanos::ZERO,
            slice: MERGED,
            until: None,
            window_length: settings.window,
            is_before_5_12,
            attached,
            limitations,
            every_entry_watched,
            groups,
        })
    }

    /// Returns the changes to cgroups since the last call, in order.
    pub fn take_group_events(&mut self) -> Vec<GroupEvent> {
        match &mut self.groups {
            Some(Ok(groups)) => groups.take(),
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Returns how many changes to cgroups were lost because the buffer was full.
    pub fn group_events_lost(&self) -> u64 {
        match &self.groups {
            Some(Ok(groups)) => groups.lost(),
            Some(Err(_)) | None => 0,
        }
    }

    /// Returns why cgroups are not watched even though this was requested.
    pub fn groups_refused(&self) -> Option<&TraceError> {
        self.groups.as_ref()?.as_ref().err()
    }

    /// Returns whether the BPF programs for kernels before Linux 5.12 are in use.
    pub fn is_before_5_12(&self) -> bool {
        self.is_before_5_12
    }

    /// Returns the hooks that are attached.
    pub fn attached(&self) -> &[Hook] {
        &self.attached
    }

    /// Returns the blind spots that the tracer has on this kernel.
    pub fn limitations(&self) -> &[Limitation] {
        &self.limitations
    }

    /// Adds a blind spot that became known during the recording.
    pub(crate) fn limit(&mut self, limitation: Limitation) {
        self.limitations.push(limitation);
    }

    /// Detaches the programs of a hook.
    pub(crate) fn detach(&mut self, hook: Hook) {
        let programs = HOOKS.iter().filter(|programs| programs.hook == hook);
        programs.for_each(|programs| withdraw(&mut self.programs, programs));
        self.attached.retain(|&attached| attached != hook);
    }

    /// Returns whether every entry into the kernel is watched.
    pub fn every_entry_watched(&self) -> bool {
        self.every_entry_watched
    }

    /// Returns the size of the buffers that are shared with the kernel, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// Returns the number of context switches reported so far on all CPUs, including those after
    /// the end of recording.
    pub fn switches(&self) -> u64 {
        let cpus = 0..self.sizes.cpus;
        cpus.map(|cpu| self.states.read(cpu).switches).sum()
    }

    /// Returns how often the kernel skipped a BPF program because that program was already running
    /// on the same CPU. Returns `None` if the kernel does not count this (before Linux 5.12).
    pub fn programs_skipped(&self) -> Option<u64> {
        let programs = self.programs.programs();
        let skipped = programs.filter_map(|(_, program)| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            skipped_in(&text)
        });
        skipped.fold(None, |sum, skipped| Some(sum.unwrap_or(0) + skipped))
    }

    /// Starts accounting on all CPUs in `watched` at the same time. That time has passed when the
    /// function returns. Returns the CPUs in `online` that could not be made to switch threads.
    /// Their accounting starts later, at their first switch.
    pub fn start(&mut self, watched: &CpuList, online: &CpuList) -> CpuList {
        let cpus = watched.iter().map(Cpu::index);
        let cpus: Vec<usize> = cpus.filter(|&cpu| cpu < self.sizes.cpus).collect();
        for &cpu in &cpus {
            self.controls.set_since(cpu, u64::MAX);
            self.controls.set_until(cpu, u64::MAX);
            self.controls.set_running(cpu, self.actions());
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

    /// Returns when the last of `cpus` started its accounting, or `None` if none of them has
    /// started.
    pub fn opened(&self, cpus: &CpuList) -> Option<Nanos> {
        let cpus = cpus
            .iter()
            .map(Cpu::index)
            .filter(|&cpu| cpu < self.sizes.cpus);
        let opened = cpus.map(|cpu| self.states.read(cpu).opened);
        let last = opened.filter(|&opened| opened > 0).max()?;
        // If a CPU has had no event since the planned start, its accounting will start
        // retroactively at that time.
        Some(if last == OPENING as u64 {
            self.since
        } else {
            Nanos(last.cast_signed()).max(self.since)
        })
    }

    /// Ends recording on all CPUs at `time` on `CLOCK_MONOTONIC`, even if [`Tracer::close`] is
    /// called later. Later events do not produce rows, and intervals that are still open end at
    /// `time`. Switches are still counted ([`Tracer::switches`]).
    pub fn end_at(&mut self, time: Nanos) {
        self.until = Some(time);
        for cpu in 0..self.sizes.cpus {
            self.controls.set_until(cpu, time.0.cast_unsigned());
        }
    }

    /// For tests: makes the BPF programs ignore everything on `cpu` until [`Tracer::resume`] is
    /// called. This simulates a kernel that does not report the CPU's switches.
    #[doc(hidden)]
    pub fn pause(&mut self, cpu: Cpu) {
        self.controls.set_running(cpu.index(), 0);
    }

    /// Resumes recording on `cpu` after [`Tracer::pause`]. For tests only.
    #[doc(hidden)]
    pub fn resume(&mut self, cpu: Cpu) {
        self.controls.set_running(cpu.index(), self.actions());
    }

    /// Returns the calling thread's nice value, from -20 to 19.
    pub fn own_nice() -> i32 {
        sys::own_nice()
    }

    /// Sets the calling thread's nice value, from -20 to 19. Returns whether the kernel allowed it.
    /// On a busy machine, a reader at nice 0 would run too late and lose events. Threads and
    /// processes that this thread starts later inherit the value.
    pub fn set_own_nice(nice: i32) -> bool {
        sys::set_own_nice(nice)
    }

    /// Passes every finished record to `sink`. The records of one CPU are in order of end time.
    /// Records from different CPUs may be out of order by up to 50 ms.
    ///
    /// With [`Output::Sums`](crate::Output::Sums), only long intervals have records. The sums of
    /// everything else follow once per [`TraceSettings::window`], for the window that ends at
    /// `now`. Do not call this function for the flight recorder, which uses [`Tracer::capture`] and
    /// [`Tracer::take_sums`] instead.
    pub fn drain(
        &mut self,
        now: Nanos,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) {
        while self.drain_some(now, usize::MAX, sources, sink) {}
    }

    /// Does the same as [`Tracer::drain`], but stops after about `most` rows, so that the caller
    /// can pause. Returns whether any finished records are left.
    pub fn drain_some(
        &mut self,
        now: Nanos,
        most: usize,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> bool {
        self.check_cost_of_calls(now);
        let is_behind = self.drain_rings(monotonic(), most, sources, sink);
        if self.sizes.summing && now - self.window_begin >= self.window_length {
            self.drain_sums(now, sources, sink);
        }
        is_behind
    }

    /// Emits the records that ended before `now`, one slice of time after another, with all CPUs in
    /// each slice. Otherwise, a reader that is seconds late would emit seconds of one CPU's records
    /// before those of the next. Stops after the slice in which it has emitted `most` rows. Returns
    /// whether it stopped early.
    pub(crate) fn drain_rings(
        &mut self,
        now: Nanos,
        most: usize,
        sources: &mut SourceTable,
        sink: &mut dyn FnMut(&SourceTable, &Row),
    ) -> bool {
        let rows = Cell::new(0_usize);
        let mut count = |sources: &SourceTable, row: &Row| {
            rows.set(rows.get() + 1);
            sink(sources, row);
        };
        while self.drained < now {
            let before = rows.get();
            self.drained = now.min(self.drained + self.slice);
            let until = self.drained.0.cast_unsigned();
            for cpu in 0..self.sizes.cpus {
                self.drain_ring(cpu, until, sources, &mut count);
            }
            // A wait's own row comes first.
            self.drain_wait_codes(self.drained, sources, &mut count);
            self.slice = next_slice(self.slice, rows.get() - before, most);
            if rows.get() >= most {
                return self.drained < now;
            }
        }
        false
    }

    /// Emits the records of `cpu` that ended by `until`.
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
        // Read at most as many records as the ring can hold. If the CPU writes records faster than
        // they are read, the loop would otherwise delay the other CPUs and the end of recording.
        while tail - first < len as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
            let (place, seq) = (tail as usize & (len - 1), (tail as u32).wrapping_add(1));
            let record = self.spans.take(cpu * len + place, seq, self.sealed);
            let Some(record) = record.filter(|record| end_of(record) <= until) else {
                break;
            };
            if !self.calls.take(&record)
                && let Some(record) = self.first_states.complete(record)
            {
                let row = self.decoder.row(sources, &record);
                sink(sources, &row);
            }
            tail += 1;
            // Free a quarter of the ring at a time. Freeing every single record would make the
            // cache line bounce between the reader and the writer.
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
        // Recording may have ended by the time the reader gets here.
        let now = self.until.map_or(now, |until| now.min(until));
        let now = now.max(self.window_begin);
        let window = Interval::new(self.window_begin, now);
        let sums = self.sizes.sum_entries as usize;
        let entries = self.window.iter_mut().zip(&mut self.grew);
        for (index, (before, grew)) in entries.enumerate() {
            let (table, index) = match index.checked_sub(sums) {
                None => (&self.sums, index),
                Some(rest) => (&self.rests, rest),
            };
            // Most entries are free, or belong to threads that did not run. The kernel increments
            // the count before it adds the time. If an entry was read between these two steps,
            // comparing both values detects this at the next read.
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

/// Returns the length of the slice after one of length `slice` that had `rows` rows, chosen so that
/// the next slice has about half of `most`. It is at most [`MERGED`] and at least 10 µs.
fn next_slice(slice: Nanos, rows: usize, most: usize) -> Nanos {
    let next = if rows > most / 2 {
        slice.0 / 2
    } else if rows < most / 8 {
        slice.0 * 2
    } else {
        slice.0
    };
    Nanos(next.clamp(10_000, MERGED.0))
}

/// When a record's span ended. An edge has no length.
fn end_of(record: &SpanRecord) -> u64 {
    if record.flags & EDGES == 0 {
        record.start.saturating_add(record.dur)
    } else {
        record.start
    }
}

/// Extracts the number of skipped runs from the file of a BPF program in `/proc/self/fdinfo`.
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
            .map_err(|error| refused(format!("cannot map {name}: {}", error.desc()))),
        _ => Err(refused(format!(
            "map {name} is missing from the BPF object"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{MERGED, end_of, next_slice, skipped_in};
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
    fn a_slice_fits_the_number_of_rows() {
        // 200 rows per ms, with 400 rows at a time.
        let mut slice = MERGED;
        for _ in 0..40 {
            let rows = usize::try_from(slice.0 / 5_000).unwrap();
            slice = next_slice(slice, rows, 400);
        }
        assert!((250_000..=1_000_000).contains(&slice.0), "{slice}");
        // On a quiet machine, slices become as long as they are allowed to be.
        for _ in 0..40 {
            slice = next_slice(slice, 0, 400);
        }
        assert_eq!(slice, MERGED);
        // A reader that takes everything has no reason to shorten the slices.
        assert_eq!(next_slice(MERGED, 1_000_000, usize::MAX), MERGED);
        assert_eq!(next_slice(Nanos(10_000), 1_000, 10), Nanos(10_000));
    }

    #[test]
    fn skipped_runs_are_read_from_the_fdinfo_file() {
        let text = "prog_type:\t26\nrun_cnt:\t0\nrecursion_misses:\t3\n";
        assert_eq!(skipped_in(text), Some(3));
        assert_eq!(skipped_in("prog_type:\t26\n"), None);
    }
}
