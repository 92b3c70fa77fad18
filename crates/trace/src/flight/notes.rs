//! Reads the flight recorder's notes: samples of the code that kept threads waiting, and the stacks
//! of threads that were blocked.
//!
//! Notes are read and named while a window is open, because the processes that they are about may
//! exit at any time.

use std::collections::HashMap;
use std::sync::Arc;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::victim::{OffCpuReason, WaitPlace};
use ticktax_model::{Cpu, Nanos, SourceTable};

use crate::flight::naming::Threads;
use crate::flight::packed::Common;
use crate::names::off_cpu;
use crate::places::Place;
use crate::record::{NOTES, StackNote, note};
use crate::tracer::Tracer;

/// Maximum number of samples, and also of waits, that a window keeps. Each takes about 100 bytes.
const MAX: usize = 1 << 13;

/// Number of notes to skip at the old end of a ring, because they may be overwritten soon.
const ABOUT_TO_GO: u64 = 8;

/// The notes that were read for a window.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Number of the next note to read, by CPU.
    next: Vec<u64>,
    samples: Vec<Sample>,
    waits: Waits,
}

/// A sample of code that a timer interrupted.
#[derive(Clone, Debug)]
struct Sample {
    cpu: Cpu,
    at: Nanos,
    common: Common,
    code: Arc<str>,
}

/// Where threads were blocked, by thread ID and by the time at which they were woken, in ns.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<(u32, u64), Noted>);

/// Contents of the stacks of a blocked thread and of its waker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Where the thread was blocked.
    pub(crate) place: Place,
    /// Where its lock was released, if it waited for a lock.
    pub(crate) release: Option<Place>,
}

impl Waits {
    /// Returns what is known about the wait of thread `tid` that ended at `woken`.
    pub(super) fn get(&self, tid: u32, woken: u64) -> Option<&Noted> {
        self.0.get(&(tid, woken))
    }

    fn entry(&mut self, note: &StackNote) -> Option<&mut Noted> {
        let key = (note.tid, note.time);
        let has_room = self.0.len() < MAX || self.0.contains_key(&key);
        has_room.then(|| self.0.entry(key).or_default())
    }
}

impl Notes {
    pub(super) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Returns where threads were blocked, by thread ID and by the time at which they were woken.
    pub(super) fn places(&self) -> HashMap<(i32, Nanos), WaitPlace> {
        let waits = self.waits.0.iter().filter_map(|(&(tid, woken), noted)| {
            let off = off_cpu(OffCpuReason::Lock, &noted.place, noted.release.as_ref());
            let key = (i32::try_from(tid).ok()?, Nanos(woken.cast_signed()));
            Some((key, WaitPlace::from_wait(&off)?))
        });
        waits.collect()
    }
}

impl Tracer {
    /// Reads the notes that were written since the last call, as far as they are from `begin` or
    /// later.
    pub(super) fn fill_notes(&mut self, notes: &mut Notes, begin: u64) {
        notes.next.resize(self.sizes.cpus, 0);
        // IDs of threads are reused, so their names are looked up again at each reading.
        let mut threads = Threads::default();
        for cpu in 0..self.sizes.cpus {
            let end = self.states.read(cpu).notes;
            let oldest = end.saturating_sub(NOTES as u64 - ABOUT_TO_GO);
            let number = Cpu(u32::try_from(cpu).unwrap_or(u32::MAX));
            for next in notes.next[cpu].max(oldest)..end {
                if let Some(note) = self.note(cpu, next)
                    && note.time >= begin
                {
                    self.add_note(notes, number, &note, &mut threads);
                }
            }
            notes.next[cpu] = end;
        }
    }

    fn note(&self, cpu: usize, number: u64) -> Option<StackNote> {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let (place, seal) = (number as usize % NOTES, (number as u32).wrapping_add(1));
        self.stack_notes.take(cpu * NOTES + place, seal)
    }

    fn add_note(&mut self, notes: &mut Notes, cpu: Cpu, note: &StackNote, threads: &mut Threads) {
        let length = note.length as usize / size_of::<u64>();
        let stack = note.frames.get(..length).unwrap_or_default();
        let names = self.decoder.names();
        match note.about {
            note::WAIT => {
                if let Some(noted) = notes.waits.entry(note) {
                    noted.place = names.blocked_at(stack);
                }
            }
            note::RELEASE => {
                if let Some(noted) = notes.waits.entry(note) {
                    noted.release = names.released_at(stack);
                }
            }
            note::SAMPLE if notes.samples.len() < MAX => {
                let sample = self.sample(cpu, note, stack, threads);
                notes.samples.push(sample);
            }
            _ => {}
        }
    }

    fn sample(
        &mut self,
        cpu: Cpu,
        note: &StackNote,
        stack: &[u64],
        threads: &mut Threads,
    ) -> Sample {
        let code = self.decoder.names().interrupted(stack, note.kind);
        let code = match code {
            Some(code) if code.is_empty() && note.address != 0 => {
                let thread = self.thread(note.tid, threads);
                let names = self.decoder.names_mut();
                names.user_code(thread.tgid, thread.comm, note.address)
            }
            code => code.unwrap_or_default(),
        };
        Sample {
            cpu,
            at: Nanos(note.time.cast_signed()),
            common: Common {
                #[expect(clippy::cast_possible_truncation, reason = "as in the ring of events")]
                detail: note.detail as u32,
                tid: note.tid,
                kind: note.kind,
                flags: note.flags,
                ..Common::default()
            },
            code: code.to_string().into(),
        }
    }

    /// Returns the samples as edges, sorted by CPU and time.
    pub(super) fn sampled(
        &mut self,
        notes: &Notes,
        threads: &mut Threads,
        sources: &mut SourceTable,
    ) -> Vec<Edge> {
        let samples = notes.samples.iter();
        let mut edges: Vec<Edge> = samples
            .map(|sample| {
                let meaning = self.meaning(sample.cpu, &sample.common, threads, sources);
                let effect = Effect::Sampled(Arc::clone(&sample.code));
                Edge::new(sample.cpu, sample.at, meaning.source, effect)
            })
            .collect();
        edges.sort_by_key(|edge| (edge.span.cpu, edge.span.start));
        edges
    }
}
