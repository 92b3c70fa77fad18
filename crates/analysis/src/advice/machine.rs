//! What to do for a machine as a whole.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::statement::{Account, Holder, Statement};

use super::{autogroup_pids, programs, whole};

/// From this share of all CPUs' time on, what the hypervisor took is worth a word.
const MUCH_STOLEN: f64 = 0.01;
/// From this share on, one piece of the kernel's work is.
const MUCH_KERNEL_WORK: f64 = 0.03;
/// With less of their time to spare, CPUs are full.
const SPARE: f64 = 0.03;
/// From this share of the audit on, being throttled is worth a word.
const MUCH_THROTTLED: f64 = 0.01;

/// The rules, the costliest first.
pub(super) fn advise(statement: &Statement, autogroups: &[ProcessAutogroup]) -> Vec<Advice> {
    let mut found: Vec<(Nanos, Advice)> = Vec::new();
    found.extend(throttled(statement));
    found.extend(stolen(statement));
    found.extend(kernel_work(statement));
    found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    // Full CPUs may be intended, so that they come last.
    found.extend(full(statement, autogroups));
    found.into_iter().map(|(_, advice)| advice).collect()
}

fn throttled(statement: &Statement) -> impl Iterator<Item = (Nanos, Advice)> {
    let longest = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
    let wall = longest.unwrap_or_default();
    let much = statement
        .throttled
        .iter()
        .filter(move |held| held.time.share_of(wall) >= MUCH_THROTTLED);
    much.map(|held| {
        let advice = Advice::Throttled {
            program: held.name.clone(),
            pid: held.pid,
            cgroup: None,
            time: held.time,
            count: held.intervals.count,
        };
        (held.time, advice)
    })
}

/// What the hypervisor took, by its own clock or by the proof that nothing else ran.
pub(super) fn stolen(statement: &Statement) -> Option<(Nanos, Advice)> {
    let time = statement.time_of(|class| class.holder() == Holder::Hypervisor);
    let share = time.share_of(whole(statement));
    let virtual_machine = statement.machine.hypervisor.is_some();
    (virtual_machine && share >= MUCH_STOLEN).then_some((time, Advice::Stolen { time, share }))
}

fn kernel_work(statement: &Statement) -> impl Iterator<Item = (Nanos, Advice)> {
    let all = whole(statement);
    let much = statement.accounts.iter().filter(move |account| {
        account.class.is_kernel_work() && account.time.share_of(all) >= MUCH_KERNEL_WORK
    });
    much.map(move |account: &Account| {
        let part = account.parts.first().map(|part| part.name.clone());
        let advice = Advice::KernelWork {
            name: account.name.clone(),
            part: part.filter(|part| *part != account.name),
            time: account.time,
            share: account.time.share_of(all),
        };
        (account.time, advice)
    })
}

/// CPUs without time to spare, and who used most of it. A probe's loop is spare time.
fn full(statement: &Statement, autogroups: &[ProcessAutogroup]) -> Option<(Nanos, Advice)> {
    let all = whole(statement);
    let spare = statement.time_of(|class| class.holder() == Holder::Nothing);
    let spare = spare.share_of(all);
    if all == Nanos::ZERO || spare >= SPARE {
        return None;
    }
    let (program, pids, time) = programs(&statement.accounts).into_iter().next()?;
    let advice = Advice::CpusFull {
        busy_share: 1.0 - spare,
        program: program.to_owned(),
        autogroup_pids: autogroup_pids(autogroups, &pids, None),
        pids,
        time,
        share: time.share_of(all),
    };
    Some((time, advice))
}
