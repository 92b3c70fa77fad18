//! Maps each source to its account, and keeps a tally for each source and account.

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::recording::Sum;
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Moment, Nanos, Source, SourceId, SourceTable, Span};

use super::tally::{LengthTally, Tally, sort_parts};
use crate::fast_map::FastMap;
use crate::timeline::Event;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AccountId(pub(super) u32);

impl AccountId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    class: Class,
    name: Arc<str>,
    pid: Option<i32>,
}

impl Key {
    fn new(class: Class, source: &Source) -> Self {
        let name = account_name(class, source);
        let thread = source.thread.as_ref();
        let pid = thread
            .filter(|_| class == Class::Program)
            .map(|thread| thread.pid);
        Self { class, name, pid }
    }
}

pub(crate) fn account_name(class: Class, source: &Source) -> Arc<str> {
    match (class, &source.thread) {
        (Class::Program, Some(thread)) => thread.program.clone(),
        (Class::KernelThread, _) => stem(&source.name).into(),
        _ => class
            .account()
            .map_or_else(|| source.name.clone(), Arc::from),
    }
}

/// Returns the stem shared by the names of related kernel threads, such as `kworker` for
/// `kworker/0:1`.
fn stem(name: &str) -> &str {
    name.split_once('/').map_or(name, |(stem, _)| stem)
}

/// Returns the name of the part that `source` forms within its account, if it does.
fn part_name(class: Class, source: &Source) -> Option<&str> {
    match (&*source.detail, class.is_thread()) {
        _ if class == Class::Probe => None,
        ("", true) => Some(&source.name),
        ("", false) => None,
        (detail, _) => Some(detail),
    }
}

/// Returns whether intervals of `source` count as intervals of its account. A function within an
/// interrupt does not count, because the frame around it already does.
pub(crate) fn is_counted(class: Class, source: &Source) -> bool {
    !class.is_interrupt() || source.detail.is_empty()
}

#[derive(Debug)]
struct Entry {
    /// Class of the source's time, or `None` if its rows are not CPU time.
    class: Option<Class>,
    account: AccountId,
    counted: bool,
    tally: Tally,
}

#[derive(Debug)]
struct Group {
    key: Key,
    lengths: LengthTally,
    /// The longest interval, with its start on the recording's clock, or `None` if that interval
    /// was only part of a sum.
    longest: Option<Moment>,
}

/// All sources seen so far, indexed by [`SourceId`], with their accounts.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Vec<Entry>,
    groups: Vec<Group>,
    by_key: FastMap<Key, AccountId>,
}

impl Registry {
    /// Returns the entry for the event's source. Adds all entries up to that one if needed.
    fn entry(&mut self, event: &Event<'_>) -> &mut Entry {
        let index = event.span.source.0 as usize;
        while self.entries.len() <= index {
            self.enter(event);
        }
        &mut self.entries[index]
    }

    /// Adds an entry for the next source in the source table.
    fn enter(&mut self, event: &Event<'_>) {
        let id = SourceId(u32::try_from(self.entries.len()).expect("a source's id has 32 bits"));
        let (source, class) = (event.sources.get(id), event.roles.class(id));
        let (account, counted) = match class {
            Some(class) => (
                self.account_for(Key::new(class, source)),
                is_counted(class, source),
            ),
            None => (AccountId(u32::MAX), false),
        };
        self.entries.push(Entry {
            class,
            account,
            counted,
            tally: Tally::default(),
        });
    }

    fn account_for(&mut self, key: Key) -> AccountId {
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        let id =
            AccountId(u32::try_from(self.groups.len()).expect("no more accounts than sources"));
        self.groups.push(Group {
            key: key.clone(),
            lengths: LengthTally::default(),
            longest: None,
        });
        self.by_key.insert(key, id);
        id
    }

    #[inline]
    pub(super) fn add_span(&mut self, event: &Event<'_>) {
        let span = event.span;
        let entry = self.entry(event);
        entry.tally.add(span.self_time, span.dur);
        if entry.counted {
            let account = entry.account.index();
            self.groups[account].add(span);
        }
    }

    pub(super) fn add_sum(&mut self, event: &Event<'_>, sum: &Sum) {
        let tally = Tally {
            time: sum.span.self_time,
            count: sum.count,
            longest: sum.max,
        };
        let entry = self.entry(event);
        entry.tally.merge(&tally);
        if entry.counted {
            let account = entry.account.index();
            self.groups[account].add_sum(sum);
        }
    }

    pub(super) fn account_of(&self, id: SourceId) -> AccountId {
        self.entries[id.0 as usize].account
    }

    pub(super) fn describe(&self, id: AccountId) -> (Class, &Arc<str>) {
        let key = &self.groups[id.index()].key;
        (key.class, &key.name)
    }

    /// Returns the rows whose thread is unknown. They form only part of the unexplained account, so
    /// [`accounts`](Self::accounts) omits them.
    pub(super) fn unreported(&self) -> LengthTally {
        let entries = self.entries.iter();
        let mut unreported = LengthTally::default();
        for entry in entries.filter(|entry| entry.class == Some(Class::Unexplained)) {
            let group = &self.groups[entry.account.index()];
            unreported.histogram.clone_from(&group.lengths.histogram);
            unreported.tally.merge(&entry.tally);
        }
        unreported
    }

    /// Returns the accounts that have rows, in no particular order. `begin` is when the recording
    /// started.
    pub(super) fn accounts(&self, sources: &SourceTable, begin: Nanos) -> Vec<Account> {
        let mut times = vec![Tally::default(); self.groups.len()];
        let mut parts: Vec<BTreeMap<&str, Tally>> = vec![BTreeMap::new(); self.groups.len()];
        for (entry, (_, source)) in self.entries.iter().zip(sources.iter()) {
            let Some(class) = entry.class else {
                continue;
            };
            if entry.tally.is_empty() {
                continue;
            }
            times[entry.account.index()].merge(&entry.tally);
            if let Some(name) = part_name(class, source) {
                parts[entry.account.index()]
                    .entry(name)
                    .or_default()
                    .merge(&entry.tally);
            }
        }
        let groups = self.groups.iter().zip(times).zip(parts);
        groups
            .filter(|((group, tally), _)| {
                !tally.is_empty() && group.key.class != Class::Unexplained
            })
            .map(|((group, tally), parts)| group.to_account(tally.time, parts, begin))
            .collect()
    }
}

impl Group {
    #[inline]
    fn add(&mut self, span: &Span) {
        // The maximum is `None` until the first interval is added, even if that interval has zero
        // length.
        let max = self.lengths.tally.max();
        if Some(span.dur) >= max {
            // If intervals are equally long, keep the earliest. That makes the result independent
            // of the order in which CPUs are drained.
            let is_first = |longest: &Moment| (span.start, span.cpu) < (longest.at, longest.cpu);
            if Some(span.dur) > max || self.longest.as_ref().is_some_and(is_first) {
                self.longest = Some(Moment {
                    at: span.start,
                    length: span.dur,
                    cpu: span.cpu,
                });
            }
        }
        self.lengths.add(span.self_time, span.dur);
    }

    fn add_sum(&mut self, sum: &Sum) {
        // A sum does not record when in its window the longest interval occurred.
        if Some(sum.max) >= self.lengths.tally.max() {
            self.longest = None;
        }
        self.lengths.add_sum(sum);
    }

    fn to_account(&self, time: Nanos, parts: BTreeMap<&str, Tally>, begin: Nanos) -> Account {
        let mut account = self
            .lengths
            .to_account(self.key.class, &self.key.name, time);
        account.pid = self.key.pid;
        account.longest = self.longest.map(|longest| Moment {
            // An interval that was in progress when the recording started is placed at that start.
            at: (longest.at - begin).max(Nanos::ZERO),
            ..longest
        });
        // Omit a part that is the only one and merely repeats the account's name.
        if !(parts.len() == 1 && parts.contains_key(&*self.key.name)) {
            let parts = parts
                .into_iter()
                .map(|(name, tally)| tally.into_part(name.to_owned()));
            account.parts = parts.collect();
            sort_parts(&mut account.parts);
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::statement::Class;
    use ticktax_model::{Kind, Source};

    use super::{part_name, stem};

    #[test]
    fn threads_are_parts_but_an_interrupts_own_frame_is_not() {
        let kworker = Source::kernel(Kind::Task, "kworker/0:1", "vmstat_update");
        assert_eq!(stem(&kworker.name), "kworker");
        assert_eq!(
            part_name(Class::KernelThread, &kworker),
            Some("vmstat_update")
        );
        let timer = Source::kernel(Kind::Irq, "local_timer", "");
        assert_eq!(part_name(Class::Irq, &timer), None);
    }
}
