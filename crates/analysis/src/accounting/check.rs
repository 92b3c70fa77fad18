//! Compares the counters with the traced time for each CPU.

use std::collections::BTreeMap;

use ticktax_model::accounting::{
    AccountingStatement, Counting, CpuCheck, SpareTime, SpareTimeSource,
};
use ticktax_model::machine::{CpuTimes, ProgramTime};
use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::statement::{Class, CpuAccounts, Holder};
use ticktax_model::{CpuList, Nanos, SourceTable};

use super::causes::causes;
use super::programs::programs;
use super::samples::{By, CpuSamples};
use super::{AccountingCheck, counting, program, sampled};
use crate::ledger::Books;

/// Maximum number of programs listed, not counting the one requested.
const LISTED: usize = 10;

/// All inputs to the check except the final accounts.
pub(super) struct Case<'a> {
    pub(super) check: &'a AccountingCheck,
    pub(super) header: &'a Header,
    pub(super) counting: Counting,
    /// Kind of rows that are ticks, and the tick period. `None` if the kernel's sampling cannot be
    /// repeated.
    pub(super) samples: Option<(By, Nanos)>,
    pub(super) names: BTreeMap<i32, String>,
}

/// Tick samples on a CPU whose columns the kernel fills by sampling.
#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    pub(super) by: By,
    pub(super) tick: Nanos,
    pub(super) cpu: &'a CpuSamples,
}

impl Samples<'_> {
    pub(super) fn charged(&self, count: u64) -> Nanos {
        ticks(count, self.tick)
    }
}

impl Case<'_> {
    /// Returns the tick samples on a CPU. Returns `None` if the kernel does not sample the CPU's
    /// columns in `/proc/stat`, or if its sampling cannot be reproduced from the recording.
    fn samples(&self, books: &CpuAccounts) -> Option<Samples<'_>> {
        let (by, tick) = self.samples?;
        let cpu = self.check.on(books.cpu)?;
        (sampled(&self.header.machine, books.cpu)?).then_some(Samples { by, tick, cpu })
    }
}

pub(super) fn make(
    check: &AccountingCheck,
    header: &Header,
    closed: &Books,
    sources: &SourceTable,
) -> Option<AccountingStatement> {
    let counting = counting(&header.machine);
    let case = Case {
        check,
        header,
        samples: check.tick_rows(header).zip(counting.tick),
        counting,
        names: names(header, sources),
    };
    let checked = closed.cpus.iter().filter_map(|books| {
        let samples = case.samples(books);
        let mut found = cpu(&case, books, samples)?;
        found.causes = causes(&case, &found, samples, books.time_of(Class::EntryExit));
        Some(found)
    });
    let cpus: Vec<CpuCheck> = checked.collect();
    if cpus.is_empty() {
        return None;
    }
    let watched = |cpu| header.cpus.iter().any(|books| books.cpu == cpu);
    let online = header.machine.online.iter();
    let unwatched: CpuList = online.filter(|&cpu| !watched(cpu)).collect();
    let mut programs = programs(&case, &closed.accounts, &unwatched);
    let found = programs.len();
    let mut place = 0;
    programs.retain(|program| {
        place += 1;
        place <= LISTED || check.listed == Some(program.pid)
    });
    let left_out = found - programs.len();
    Some(AccountingStatement {
        config: case.counting,
        cpus,
        programs,
        programs_left_out: left_out as u64,
        unwatched_cpus: unwatched,
    })
}

/// Returns each program's last known name. It comes from `/proc` at the end or, if the process has
/// exited, from the latest source among its threads.
fn names(header: &Header, sources: &SourceTable) -> BTreeMap<i32, String> {
    let mut names = BTreeMap::new();
    for (_, source) in sources.iter() {
        if let Some((name, pid)) = program(source) {
            names.insert(pid, name.to_owned());
        }
    }
    for (&pid, program) in &header.after.programs {
        names.insert(pid, program.name.clone());
    }
    names
}

/// Compares the kernel's counters with the traced time on one CPU, without looking for causes.
/// Returns `None` if the counters were not read.
fn cpu(case: &Case<'_>, books: &CpuAccounts, samples: Option<Samples<'_>>) -> Option<CpuCheck> {
    let header = case.header;
    let times =
        |counters: &ticktax_model::machine::Counters| counters.cpu_times.get(&books.cpu.0).copied();
    let columns = times(&header.after)?.since(&times(&header.before)?);
    let between = header.after.at - header.before.at;
    let left = left(header, books).filter(|left| left.watched > Nanos::ZERO);
    let of_probe = of_probe(header, books, &columns, samples);
    let shown_busy = (columns.busy() - of_probe).max(Nanos::ZERO);
    let sum = columns.busy() + columns.idle + columns.iowait + columns.steal;
    let kernel = header.level == Level::Kernel;
    let interrupts = books.time_where(Class::is_interruption);
    let unexplained = books.time_of(Class::Unexplained);
    let outside = books.time_where(|class| class.holder() == Holder::Hypervisor);
    let busy = if kernel {
        Some(books.time_where(Class::is_busy))
    } else {
        left.map(|left| {
            // The probe or soaker may have started slightly later than the accounts, so apply its
            // share of busy time to all of the elapsed time.
            let share = 1.0 - left.time.share_of(left.watched);
            books.elapsed.times(share)
        })
    };
    Some(CpuCheck {
        cpu: books.cpu,
        stat_elapsed: between,
        columns,
        shown_busy,
        shown_share: shown_busy.share_of(sum),
        uncounted: between - sum,
        elapsed: books.elapsed,
        busy,
        busy_share: busy.map(|busy| busy.share_of(books.elapsed)),
        unexplained: if kernel { unexplained } else { Nanos::ZERO },
        interrupts: kernel.then_some(interrupts),
        hypervisor_or_firmware: kernel.then_some(outside),
        spare: left,
        ticks: case
            .samples
            .and_then(|(by, _)| Some(case.check.on(books.cpu)?.ticks(by))),
        causes: Vec::new(),
    })
}

/// Returns the time in a CPU's columns that belongs to a spinning probe or a soaker. Both are
/// niced.
///
/// This can differ from the time that they really used. For example, they get all the samples if a
/// program sleeps through every tick. If it is unknown which ticks hit them, nice time beyond what
/// they used is attributed to other niced programs, up to the time that those programs used.
fn of_probe(
    header: &Header,
    books: &CpuAccounts,
    columns: &CpuTimes,
    samples: Option<Samples<'_>>,
) -> Nanos {
    let soaked = header.soakers.iter().any(|soaker| soaker.cpu == books.cpu);
    let mut probes = header.probes.iter();
    let spun = probes.any(|p| p.cpu == books.cpu && p.probe == ProbeKind::Spin);
    if !soaked && !spun {
        return Nanos::ZERO;
    }
    if let Some(samples) = samples {
        return samples.charged(samples.cpu.probe().found(samples.by));
    }
    let got = books.time_of(Class::Probe);
    if sampled(&header.machine, books.cpu) == Some(false) {
        return got.min(columns.nice);
    }
    let others = (columns.nice - got).max(Nanos::ZERO);
    columns.nice - others.min(nice_programs(header))
}

/// Returns an upper bound on the time that niced programs added to the nice columns of all CPUs:
/// the programs' own time plus that of their exited children.
fn nice_programs(header: &Header) -> Nanos {
    let all = |program: &ProgramTime| program.time + program.children;
    let nice = header.after.programs.iter();
    let nice = nice.filter(|(_, program)| program.nice && !program.ticktax_or_kernel);
    let grew = |(pid, after): (&i32, &ProgramTime)| {
        let before = header.before.programs.get(pid);
        (all(after) - before.map_or(Nanos::ZERO, all)).max(Nanos::ZERO)
    };
    nice.map(grew).sum()
}

/// Returns the CPU time left unused, as measured by a soaker or a spinning probe. Returns `None` if
/// neither ran on the CPU, or if the soaker ended early or was moved to another CPU.
fn left(header: &Header, books: &CpuAccounts) -> Option<SpareTime> {
    let mut soakers = header.soakers.iter();
    if let Some(soaker) = soakers.find(|soaker| soaker.cpu == books.cpu) {
        return soaker.ended_early.is_none().then(|| SpareTime {
            measured_by: SpareTimeSource::Soaker,
            watched: soaker.end - soaker.begin,
            time: soaker.time(),
        });
    }
    let mut probes = header.probes.iter();
    let probe = probes.find(|p| p.cpu == books.cpu && p.probe == ProbeKind::Spin)?;
    // The rows include time from before the probe started to measure. On a busy CPU, that can be
    // most of the probe's time.
    let watched = match header.level {
        Level::Kernel => books.elapsed,
        Level::Proc => probe.end - probe.begin,
    };
    Some(SpareTime {
        measured_by: SpareTimeSource::Spin,
        watched,
        time: books.time_of(Class::Probe),
    })
}

pub(super) fn ticks(count: u64, tick: Nanos) -> Nanos {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Nanos(count.saturating_mul(tick.0))
}
