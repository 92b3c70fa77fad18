//! Divides accounts of CPU time among the code in which the samples of a profile found them.
//!
//! # Weights
//! The clock of a profile samples each CPU at a constant rate, but it can't interrupt code that has
//! disabled interrupts, and it may be late. A sample therefore has no fixed weight. The accounts
//! are known exactly, so each account's time is divided evenly among its samples. The parts add up
//! to the account to the nanosecond ([`divided`]).
//!
//! An account without samples has one part, [`NOT_SAMPLED`]. Interrupts can't be sampled, but the
//! time of each of their functions is known exactly. They are divided by function.

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::profile::{
    NOT_SAMPLED, Profile, ProfileScope, ProfiledAccount, ProfiledStack, UNKNOWN,
};
use ticktax_model::recording::{Header, Level, Stack};
use ticktax_model::statement::{Account, Class};
use ticktax_model::{Nanos, SourceId, SourceTable};

use crate::fast_map::FastMap;
use crate::ledger::account_name;
use crate::sampled::FunctionNames;
use crate::timeline::{Event, EventKind, Timeline};
use crate::victim::Victim;

/// Number of a sampled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Code(u32);

/// The codes that samples found, in folded form.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    all: Vec<Arc<str>>,
    known: FastMap<Arc<str>, Code>,
}

impl Codes {
    pub(crate) fn number(&mut self, code: &Arc<str>) -> Code {
        if let Some(&number) = self.known.get(code) {
            return number;
        }
        let number = Code(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(Arc::clone(code));
        self.known.insert(Arc::clone(code), number);
        number
    }

    fn get(&self, code: Code) -> &str {
        &self.all[code.0 as usize]
    }
}

/// Numbers of samples by source and code.
#[derive(Debug, Default)]
pub(crate) struct Counts(FastMap<(SourceId, Code), u64>);

impl Counts {
    pub(crate) fn add(&mut self, source: SourceId, code: Code) {
        *self.0.entry((source, code)).or_default() += 1;
    }

    /// Groups the samples by account, as far as `key` returns one, and by code.
    pub(crate) fn by_account<K: Ord>(
        &self,
        codes: &Codes,
        names: &FunctionNames<'_>,
        key: impl Fn(SourceId) -> Option<K>,
    ) -> BTreeMap<K, ByCode> {
        let mut accounts: BTreeMap<K, ByCode> = BTreeMap::new();
        for (&(source, code), &samples) in &self.0 {
            if let Some(key) = key(source) {
                let code = match codes.get(code) {
                    "" => UNKNOWN.to_owned(),
                    known => names.named(Stack::from_folded(known)).to_string(),
                };
                let by_code = accounts.entry(key).or_default();
                *by_code.entry(code).or_default() += samples;
            }
        }
        accounts
    }
}

/// Numbers of samples of one account, by folded stack.
pub(crate) type ByCode = BTreeMap<String, u64>;

/// Class, name and process ID of an account.
pub(crate) type Key = (Class, Arc<str>, Option<i32>);

/// Returns the key of the account that a source's time belongs to in the ledger.
pub(crate) fn key_of(id: SourceId, timeline: &Timeline, sources: &SourceTable) -> Option<Key> {
    let class = timeline.class(id)?;
    let source = sources.get(id);
    let thread = source.thread.as_ref();
    let pid = thread.filter(|_| class == Class::Program);
    Some((
        class,
        account_name(class, source),
        pid.map(|thread| thread.pid),
    ))
}

/// The samples of the profile of a machine.
#[derive(Debug, Default)]
pub(crate) struct Profiled {
    pub(crate) codes: Codes,
    pub(crate) counts: Counts,
}

impl Profiled {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if let EventKind::Profiled(code) = event.kind() {
            let code = self.codes.number(code);
            self.counts.add(event.span.source, code);
        }
    }

    /// Divides the ledger's accounts.
    fn accounts(
        &self,
        accounts: &[Account],
        names: &FunctionNames<'_>,
        timeline: &Timeline,
        sources: &SourceTable,
    ) -> Vec<ProfiledAccount> {
        let key = |id| key_of(id, timeline, sources);
        let mut samples = self.counts.by_account(&self.codes, names, key);
        let divide = |account: &Account| {
            let key = (account.class, Arc::from(&*account.name), account.pid);
            let whole = Whole {
                class: account.class,
                name: account.name.clone(),
                pid: account.pid,
                time: account.time,
            };
            let parts = account.parts.iter();
            let functions = parts.map(|part| (part.name.clone(), part.time));
            whole.divided(&samples.remove(&key).unwrap_or_default(), functions)
        };
        accounts.iter().map(divide).collect()
    }
}

impl Profiled {
    /// Returns the profile of the analysed program or, without one, of the machine, whose accounts
    /// are `accounts`. Returns `None` if the recording has none.
    pub(crate) fn profile(
        &self,
        header: &Header,
        victim: &Victim,
        accounts: &[Account],
        timeline: &Timeline,
        sources: &SourceTable,
    ) -> Option<Profile> {
        let names = FunctionNames::new(&header.code_files);
        let (scope, accounts) = match &header.victim {
            Some(about) if victim.profiles_waits() => {
                let accounts = victim.profiled_waits(about, &names, timeline, sources);
                (ProfileScope::Waits, accounts)
            }
            Some(about) => {
                let accounts = victim.profiled_runs(about, self, &names, sources);
                (ProfileScope::Program, accounts)
            }
            None => {
                let accounts = self.accounts(accounts, &names, timeline, sources);
                (ProfileScope::Machine, accounts)
            }
        };
        profile(header, scope, accounts)
    }
}

/// An account to divide.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) class: Class,
    pub(crate) name: String,
    pub(crate) pid: Option<i32>,
    pub(crate) time: Nanos,
}

impl Whole {
    /// Divides the account: interrupts by the exact times of their `functions`, anything else that
    /// executes code by `samples`.
    pub(crate) fn divided(
        self,
        samples: &ByCode,
        functions: impl Iterator<Item = (String, Nanos)>,
    ) -> ProfiledAccount {
        let stacks = match self.class {
            Class::Irq | Class::Nmi => by_function(self.time, functions),
            Class::Program | Class::KernelThread | Class::Softirq | Class::Tool | Class::Probe => {
                by_samples(self.time, samples)
            }
            Class::EntryExit
            | Class::HypervisorOrFirmware
            | Class::Steal
            | Class::Unexplained
            | Class::Idle => vec![undivided("", self.time)],
        };
        ProfiledAccount {
            class: self.class,
            name: self.name,
            pid: self.pid,
            time: self.time,
            samples: stacks.iter().map(|stack| stack.samples).sum(),
            stacks,
        }
    }
}

fn undivided(stack: &str, time: Nanos) -> ProfiledStack {
    ProfiledStack {
        stack: stack.to_owned(),
        time,
        samples: 0,
    }
}

fn by_function(
    time: Nanos,
    functions: impl Iterator<Item = (String, Nanos)>,
) -> Vec<ProfiledStack> {
    let named =
        |(name, time): (String, Nanos)| undivided(&Stack::from_kernel([&*name]).to_string(), time);
    let mut stacks: Vec<ProfiledStack> = functions.map(named).collect();
    let rest = time - stacks.iter().map(|stack| stack.time).sum();
    if rest != Nanos::ZERO || stacks.is_empty() {
        stacks.push(undivided("", rest));
    }
    sort(&mut stacks);
    stacks
}

fn by_samples(time: Nanos, samples: &ByCode) -> Vec<ProfiledStack> {
    if samples.is_empty() {
        return vec![undivided(NOT_SAMPLED, time)];
    }
    let counts: Vec<u64> = samples.values().copied().collect();
    let times = divided(time, &counts);
    let stack = |((stack, &samples), time): ((&String, &u64), Nanos)| ProfiledStack {
        stack: stack.clone(),
        time,
        samples,
    };
    let mut stacks: Vec<ProfiledStack> = samples.iter().zip(times).map(stack).collect();
    sort(&mut stacks);
    stacks
}

fn sort(stacks: &mut [ProfiledStack]) {
    stacks.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.stack.cmp(&b.stack)));
}

/// Divides `time` in proportion to `counts`, which must not all be 0. The parts add up to `time`
/// exactly: each is rounded down, and the remaining nanoseconds go to the parts that lost most by
/// that (method of the largest remainder). Equal remainders are served in order.
fn divided(time: Nanos, counts: &[u64]) -> Vec<Nanos> {
    let all = i128::from(counts.iter().sum::<u64>()).max(1);
    let exact = |count: &u64| i128::from(time.0) * i128::from(*count);
    let mut parts: Vec<i128> = counts.iter().map(|n| exact(n).div_euclid(all)).collect();
    let left = i128::from(time.0) - parts.iter().sum::<i128>();
    let mut by_loss: Vec<usize> = (0..counts.len()).collect();
    by_loss.sort_by_key(|&place| std::cmp::Reverse(exact(&counts[place]).rem_euclid(all)));
    // Fewer nanoseconds are left than there are parts.
    for &place in by_loss.iter().take(usize::try_from(left).unwrap_or(0)) {
        parts[place] += 1;
    }
    let nanos = |part: i128| Nanos(i64::try_from(part).unwrap_or(i64::MAX));
    parts.into_iter().map(nanos).collect()
}

/// Combines divided accounts into a profile. Returns `None` if the recording has none.
fn profile(
    header: &Header,
    scope: ProfileScope,
    mut accounts: Vec<ProfiledAccount>,
) -> Option<Profile> {
    let rate_hz = header
        .profile_hz
        .filter(|_| header.level == Level::Kernel)?;
    accounts.sort_by(|a, b| {
        let by_time = b.time.cmp(&a.time);
        by_time.then_with(|| (a.class, &a.name, a.pid).cmp(&(b.class, &b.name, b.pid)))
    });
    Some(Profile {
        scope,
        rate_hz,
        samples: accounts.iter().map(|account| account.samples).sum(),
        time: accounts.iter().map(|account| account.time).sum(),
        accounts,
    })
}

#[cfg(test)]
mod tests;
