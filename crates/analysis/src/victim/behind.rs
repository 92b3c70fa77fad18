//! The sources behind which the victim waited, and the samples taken during its waits.

use std::collections::{BTreeMap, VecDeque};

use ticktax_model::profile::ProfiledAccount;
use ticktax_model::statement::Class;
use ticktax_model::victim::{ThreadState, VictimHeader};
use ticktax_model::{Cpu, Nanos, Source, SourceId, SourceTable, Span};

use super::Victim;
use super::life::Life;
use super::times::Times;
use crate::ledger::account_name;
use crate::ledger::tally::Tally;
use crate::profile::{ByCode, Code, Codes, Counts, Key, Profiled, Whole, key_of};
use crate::sampled::FunctionNames;
use crate::timeline::{Event, EventKind, Piece, ThreadId, Timeline};

/// The waits that one source caused.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitsBehind {
    pub(super) sum: Tally,
    pub(super) times: Times,
}

/// Samples of a profile during the victim's waits. Each counts once for every thread that waited.
///
/// # Memory
/// A sample takes 24 bytes. At most [`WaitSamples::RECENT`] of a CPU are kept.
#[derive(Debug, Default)]
pub(super) struct WaitSamples {
    codes: Codes,
    /// Recent samples by CPU slot, in order of time.
    recent: Vec<VecDeque<WaitSample>>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct WaitSample {
    at: Nanos,
    source: SourceId,
    code: Code,
}

impl WaitSamples {
    /// Maximum number of samples of a CPU that are kept until a wait ends. At 99 Hz, these are the
    /// samples of 165 seconds.
    const RECENT: usize = 1 << 14;

    fn note(&mut self, event: &Event<'_>) {
        let EventKind::Profiled(code) = event.kind() else {
            return;
        };
        let code = self.codes.number(code);
        if event.slot >= self.recent.len() {
            self.recent.resize_with(event.slot + 1, VecDeque::new);
        }
        let recent = &mut self.recent[event.slot];
        if recent.len() >= Self::RECENT {
            recent.pop_front();
        }
        let sample = WaitSample {
            at: event.span.start,
            source: event.span.source,
            code,
        };
        recent.push_back(sample);
    }

    /// Counts the samples of `piece`, which ran on one of `cpus`. If there are two, only samples of
    /// the piece's own source show on which of them it ran.
    fn count(&mut self, piece: &Piece, cpus: &[Cpu]) {
        for cpu in cpus {
            let Some(recent) = self.recent.get(cpu.index()) else {
                continue;
            };
            let first = recent.partition_point(|sample| sample.at < piece.start);
            let samples = recent.range(first..);
            for sample in samples.take_while(|sample| sample.at < piece.end) {
                if cpus.len() == 1 || sample.source == piece.source {
                    self.counts.add(piece.source, sample.code);
                }
            }
        }
    }
}

impl Victim {
    /// Also counts the samples of a profile during the waits.
    pub(crate) fn profile_waits(&mut self) {
        self.wait_samples.get_or_insert_default();
    }

    /// Notes a sample of a profile.
    pub(super) fn profiled(&mut self, event: &Event<'_>) {
        if let Some(samples) = &mut self.wait_samples {
            samples.note(event);
        }
    }

    /// Adds a wait to the sums of the sources that ran during it. The arguments have the same
    /// meaning as those of [`Victim::waited`].
    pub(super) fn add_behind(
        &mut self,
        thread: ThreadId,
        span: &Span,
        on: Option<Cpu>,
        moved: bool,
        pieces: &[Piece],
    ) {
        let mut seen = false;
        // If a wait was spent on two CPUs, both count.
        let other = on.filter(|&on| on != span.cpu);
        let cpus: Vec<Cpu> = other.into_iter().chain([span.cpu]).collect();
        for piece in pieces {
            let length = piece.end - piece.start;
            let behind = self.behind.entry((piece.source, moved)).or_default();
            behind.sum.add(length, length);
            behind.times.add((piece.start, piece.end));
            for cpu in on.into_iter().chain([span.cpu]) {
                *self.behind_on.entry((piece.source, cpu)).or_default() += length;
            }
            if let Some(samples) = &mut self.wait_samples {
                samples.count(piece, &cpus);
            }
            if let Some(losses) = &mut self.losses {
                let time = (piece.start, piece.end);
                losses.waited(thread, time, Some(piece.source), moved);
            }
            seen = true;
        }
        if let (false, Some(losses)) = (seen, &mut self.losses) {
            losses.waited(thread, (span.start, span.end()), None, moved);
        }
    }

    /// Returns whether the profile is one of the waits.
    pub(crate) fn profiles_waits(&self) -> bool {
        self.wait_samples.is_some()
    }

    /// Returns the lives of the victim's threads.
    fn lives_of<'a>(&'a self, about: &'a VictimHeader) -> impl Iterator<Item = &'a Life> {
        let pids = self.processes(Some(about));
        let is_reported = |tid: i32| about.only_thread.is_none_or(|only| only == tid);
        let present = self.threads.iter();
        let present = present.filter(move |(tid, _)| is_reported(**tid));
        let past = self.past_lives.iter();
        let past = past.filter(|_| about.only_thread.is_none());
        let lives = present.map(|(_, life)| life).chain(past);
        lives.filter(move |life| pids.contains(&life.pid))
    }

    /// Returns the time that the victim's threads waited for a CPU.
    fn waited_by(&self, about: &VictimHeader) -> Nanos {
        let waits = self.lives_of(about);
        let waits = waits.filter_map(|life| life.states.get(&ThreadState::Waiting));
        waits.map(|tally| tally.time).sum()
    }

    /// Divides the time that the victim waited among the sources that ran during that time. If they
    /// are not known for all of it, the rest is unexplained. Must be called after
    /// [`Victim::settle`].
    pub(crate) fn profiled_waits(
        &self,
        about: &VictimHeader,
        names: &FunctionNames<'_>,
        timeline: &Timeline,
        sources: &SourceTable,
    ) -> Vec<ProfiledAccount> {
        let Some(samples) = &self.wait_samples else {
            return Vec::new();
        };
        let key = |id| key_of(id, timeline, sources);
        let mut counts = samples.counts.by_account(&samples.codes, names, key);
        let mut accounts: BTreeMap<Key, (Nanos, BTreeMap<&str, Nanos>)> = BTreeMap::new();
        for (&(id, _), waits) in &self.behind {
            let Some(key) = key(id) else {
                continue;
            };
            let (time, functions) = accounts.entry(key).or_default();
            *time += waits.sum.time;
            let detail = &*sources.get(id).detail;
            if !detail.is_empty() {
                *functions.entry(detail).or_default() += waits.sum.time;
            }
        }
        let behind: Nanos = accounts.values().map(|(time, _)| *time).sum();
        let waited = self.waited_by(about);
        if waited > behind {
            let name = account_name(Class::Unexplained, &Source::idle());
            let key = (Class::Unexplained, name, None);
            accounts.entry(key).or_default().0 += waited - behind;
        }
        let divide = |(key, (time, functions)): (Key, (Nanos, BTreeMap<&str, Nanos>))| {
            let by_code = counts.remove(&key).unwrap_or_default();
            let (class, name, pid) = key;
            let whole = Whole {
                class,
                name: name.to_string(),
                pid,
                time,
            };
            let functions = functions.into_iter();
            whole.divided(
                &by_code,
                functions.map(|(name, time)| (name.to_owned(), time)),
            )
        };
        accounts.into_iter().map(divide).collect()
    }

    /// Divides the time during which the victim's processes ran, without interruptions.
    pub(crate) fn profiled_runs(
        &self,
        about: &VictimHeader,
        profiled: &Profiled,
        names: &FunctionNames<'_>,
        sources: &SourceTable,
    ) -> Vec<ProfiledAccount> {
        let pids = self.processes(Some(about));
        let is_reported = |tid: i32| about.only_thread.is_none_or(|only| only == tid);
        let pid_of = |id| {
            let thread = sources.get(id).thread.as_ref()?;
            let is_victims = pids.contains(&thread.pid) && is_reported(thread.tid);
            is_victims.then_some(thread.pid)
        };
        let counts = profiled.counts.by_account(&profiled.codes, names, pid_of);
        let mut processes: BTreeMap<i32, (Nanos, Option<(Nanos, SourceId)>)> = BTreeMap::new();
        for life in self.lives_of(about) {
            let (time, latest) = processes.entry(life.pid).or_default();
            *time += life.ran();
            *latest = (*latest).max(life.source);
        }
        let divide = |(pid, (time, latest)): (i32, (Nanos, Option<(Nanos, SourceId)>))| {
            let (_, id) = latest?;
            let whole = Whole {
                class: Class::Program,
                name: account_name(Class::Program, sources.get(id)).to_string(),
                pid: Some(pid),
                time,
            };
            let none = ByCode::default();
            Some(whole.divided(counts.get(&pid).unwrap_or(&none), std::iter::empty()))
        };
        processes.into_iter().filter_map(divide).collect()
    }
}
