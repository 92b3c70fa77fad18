//! Putting the two sides beside each other.

use std::collections::BTreeMap;

use ticktax_model::accounting::{
    AccountingStatement, Bias, BiasKind, Counting, CpuCheck, Left, Method, ProgramCheck, Witness,
};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::statement::{Class, CpuBooks, Statement};
use ticktax_model::{Cpu, Nanos, SourceTable};

use super::samples::{By, Charge};
use super::{AccountingCheck, program};

/// Standard deviations from which a program is said to depend on the tick.
const SIGNIFICANT: f64 = 5.0;
/// The least share of a CPU's time that is worth naming as a cause.
const WORTH_NAMING: f64 = 0.001;
/// Programs that are listed.
const LISTED: usize = 10;

/// A program, by name and process id.
type Key = (String, i32);

pub(super) fn make(
    check: &AccountingCheck,
    header: &Header,
    statement: &Statement,
    sources: &SourceTable,
) -> Option<AccountingStatement> {
    let counting = counting(&header.machine);
    let by = check.tick_rows(header);
    let cpus: Vec<CpuCheck> = statement
        .cpus
        .iter()
        .filter_map(|books| {
            let mut found = cpu(header, books)?;
            if let Some(by) = by {
                found.ticks = Some(check.cpus.get(books.cpu.index())?.ticks(by));
            }
            found.causes = causes(
                &found,
                &charges(check, Some(books.cpu), sources),
                by,
                &counting,
            );
            Some(found)
        })
        .collect();
    if cpus.is_empty() {
        return None;
    }
    let charges = charges(check, None, sources);
    let charges = (header.level == Level::Kernel && !check.summed).then_some(charges);
    let mut programs = programs(header, statement, charges.as_ref(), by.zip(counting.tick));
    let left_out = programs.len().saturating_sub(LISTED);
    programs.truncate(LISTED);
    Some(AccountingStatement {
        counting,
        cpus,
        programs,
        programs_left_out: left_out as u64,
    })
}

/// How the machine's kernel counts, by its configuration.
pub fn counting(machine: &Machine) -> Counting {
    let has = |option: &str| machine.accounting.iter().any(|name| name == option);
    let known = !machine.accounting.is_empty();
    let method = if has("VIRT_CPU_ACCOUNTING_NATIVE") {
        Some(Method::Measured)
    } else if has("VIRT_CPU_ACCOUNTING_GEN") {
        Some(Method::MeasuredWithoutTick)
    } else {
        known.then_some(Method::Sampled)
    };
    let hz = machine.hz_configured.filter(|&hz| hz > 0);
    Counting {
        options: machine.accounting.clone(),
        method,
        tick: hz.map(|hz| Nanos(1_000_000_000 / i64::from(hz))),
        interrupts_measured: known.then(|| has("IRQ_TIME_ACCOUNTING")),
    }
}

/// Both sides of one CPU, but for the causes.
fn cpu(header: &Header, books: &CpuBooks) -> Option<CpuCheck> {
    let times =
        |counters: &ticktax_model::machine::Counters| counters.cpu_times.get(&books.cpu.0).copied();
    let columns = times(&header.after)?.since(&times(&header.before)?);
    let between = header.after.at - header.before.at;
    let left = left(header, books).filter(|left| left.watched > Nanos::ZERO);
    let nice = if left.is_some() {
        Nanos::ZERO
    } else {
        columns.nice
    };
    let shown_busy = columns.user + nice + columns.system + columns.irq + columns.softirq;
    let sum = shown_busy + (columns.nice - nice) + columns.idle + columns.iowait + columns.steal;
    let kernel = header.level == Level::Kernel;
    let of = |classes: &[Class]| -> Nanos { classes.iter().map(|&class| books.of(class)).sum() };
    let interrupts = of(&[Class::Irq, Class::Softirq, Class::Nmi, Class::EntryExit]);
    let outside = of(&[Class::Outside, Class::Steal]);
    let busy = if kernel {
        Some(interrupts + of(&[Class::Program, Class::KernelThread, Class::Tool]))
    } else {
        left.map(|left| {
            // The witness may have begun a moment later than the books.
            let share = 1.0 - left.time.share_of(left.watched);
            scaled(books.elapsed, share)
        })
    };
    Some(CpuCheck {
        cpu: books.cpu,
        between,
        columns,
        shown_busy,
        shown_share: shown_busy.share_of(sum),
        uncounted: between - sum,
        elapsed: books.elapsed,
        busy,
        busy_share: busy.map(|busy| busy.share_of(books.elapsed)),
        interrupts: kernel.then_some(interrupts),
        outside: kernel.then_some(outside),
        left,
        ticks: None,
        causes: Vec::new(),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a part of a time")]
fn scaled(time: Nanos, share: f64) -> Nanos {
    Nanos((time.0 as f64 * share) as i64)
}

/// What somebody who never waits found to use.
fn left(header: &Header, books: &CpuBooks) -> Option<Left> {
    if let Some(soaker) = header.soakers.iter().find(|soaker| soaker.cpu == books.cpu) {
        return Some(Left {
            witness: Witness::Soaker,
            watched: soaker.end - soaker.begin,
            time: soaker.time(),
        });
    }
    let mut probes = header.probes.iter();
    let probe = probes.find(|p| p.cpu == books.cpu && p.probe == ProbeKind::Spin)?;
    Some(Left {
        witness: Witness::Spin,
        watched: probe.end - probe.begin,
        time: books.of(Class::Probe),
    })
}

/// What each program was charged, on one CPU or on all.
fn charges(
    check: &AccountingCheck,
    cpu: Option<Cpu>,
    sources: &SourceTable,
) -> BTreeMap<Key, Charge> {
    let mut sums: BTreeMap<Key, Charge> = BTreeMap::new();
    let wanted = (0u32..)
        .zip(&check.cpus)
        .filter(|(number, _)| cpu.is_none_or(|cpu| cpu.0 == *number));
    for (id, charge) in wanted.flat_map(|(_, cpu)| cpu.charges()) {
        if let Some((name, pid)) = program(sources.get(id)) {
            sums.entry((name.to_owned(), pid)).or_default().add(charge);
        }
    }
    sums
}

/// Why a CPU's columns are not what was so.
fn causes(
    cpu: &CpuCheck,
    charges: &BTreeMap<Key, Charge>,
    by: Option<By>,
    counting: &Counting,
) -> Vec<Bias> {
    let mut causes = Vec::new();
    if let (Some(by), Some(tick), Some(Method::Sampled)) = (by, counting.tick, counting.method) {
        for ((name, pid), charge) in charges {
            let sampled = ticks(charge.found(by), tick);
            if charge.deviations(by, tick).abs() >= SIGNIFICANT {
                causes.push(Bias {
                    kind: BiasKind::TickPhase,
                    time: sampled - charge.on_cpu,
                    program: Some(name.clone()),
                    pid: Some(*pid),
                    ran: charge.on_cpu,
                    sampled,
                });
            }
        }
    }
    let plain = |kind, ran: Nanos, sampled: Nanos, time| Bias {
        kind,
        time,
        program: None,
        pid: None,
        ran,
        sampled,
    };
    if let (Some(ran), Some(false)) = (cpu.interrupts, counting.interrupts_measured) {
        let shown = cpu.columns.irq + cpu.columns.softirq;
        // What of it interrupted idling is shown as idle; the rest is somebody else's.
        causes.push(plain(
            BiasKind::InterruptsNotMeasured,
            ran,
            shown,
            shown - ran,
        ));
    }
    if let Some(outside) = cpu.outside {
        let silent = outside - cpu.columns.steal;
        causes.push(plain(
            BiasKind::StolenSilently,
            outside,
            cpu.columns.steal,
            silent,
        ));
    }
    let size = |cause: &Bias| {
        if cause.time < Nanos::ZERO {
            -cause.time
        } else {
            cause.time
        }
    };
    causes.retain(|cause| size(cause).share_of(cpu.elapsed) >= WORTH_NAMING);
    causes.sort_by_key(|cause| std::cmp::Reverse(size(cause)));
    causes
}

fn ticks(count: u64, tick: Nanos) -> Nanos {
    Nanos(
        i64::try_from(count)
            .unwrap_or(i64::MAX)
            .saturating_mul(tick.0),
    )
}

/// Both sides of each program, the longest first.
fn programs(
    header: &Header,
    statement: &Statement,
    charges: Option<&BTreeMap<Key, Charge>>,
    samples: Option<(By, Nanos)>,
) -> Vec<ProgramCheck> {
    let mut found: BTreeMap<Key, ProgramCheck> = BTreeMap::new();
    let entry = |(name, pid): Key| ProgramCheck {
        name,
        pid,
        ran: None,
        on_cpu: None,
        shown: None,
        sampled: None,
        deviations: None,
    };
    if header.level == Level::Kernel {
        for account in statement
            .accounts
            .iter()
            .filter(|a| a.class == Class::Program)
        {
            let Some(pid) = account.pid else { continue };
            let key = (account.name.clone(), pid);
            let check = found.entry(key.clone()).or_insert_with(|| entry(key));
            check.ran = Some(account.time);
        }
    }
    for (key, charge) in charges.into_iter().flatten() {
        let check = found
            .entry(key.clone())
            .or_insert_with(|| entry(key.clone()));
        check.on_cpu = Some(charge.on_cpu);
        if let Some((by, tick)) = samples {
            check.sampled = Some(ticks(charge.found(by), tick));
            check.deviations = Some(charge.deviations(by, tick));
        }
    }
    for (&pid, after) in &header.after.programs {
        let before = header.before.programs.get(&pid);
        let shown = after.time - before.map_or(Nanos::ZERO, |before| before.time);
        // A program may have taken another name meanwhile: its account has the last.
        let known = found.keys().find(|key| key.1 == pid).cloned();
        let key = known.unwrap_or_else(|| (after.name.clone(), pid));
        let own = statement.accounts.iter().any(|a| {
            matches!(a.class, Class::Tool | Class::Probe | Class::KernelThread)
                && a.pid == Some(pid)
        });
        if !own && !after.own_or_kernel {
            found.entry(key.clone()).or_insert_with(|| entry(key)).shown = Some(shown);
        }
    }
    let weight = |check: &ProgramCheck| {
        let times = [check.on_cpu, check.ran, check.shown, check.sampled];
        times.into_iter().flatten().max().unwrap_or_default()
    };
    let mut programs: Vec<ProgramCheck> = found.into_values().collect();
    programs.retain(|check| weight(check) > Nanos::ZERO);
    programs.sort_by_key(|check| std::cmp::Reverse(weight(check)));
    programs
}
