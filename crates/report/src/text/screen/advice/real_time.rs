//! Describes the advice about limits on the CPU time of real-time threads.

use ticktax_model::advice::NeededBudget;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::victim::Stall;

use super::commands::{and_audit, quoted};
use super::name;
use crate::text::numbers::counted;
use crate::text::page::{clean, tied};
use crate::text::screen::Screen;

/// Returns the advice about a limit that kept real-time threads from running, with a command that
/// lifts the limit.
pub(super) fn words(
    held: &RealTimeHeld,
    costly: bool,
    screen: &Screen<'_>,
) -> (String, Option<String>) {
    let cause = match (held.limit, held.runtime) {
        (RealTimeLimit::Throttling | RealTimeLimit::Group, Some(_)) => setting(held),
        (RealTimeLimit::Either, Some(_)) => format!("{} or the fair server", setting(held)),
        _ => "the kernel's fair server, which reserves CPU time for ordinary threads,".to_owned(),
    };
    let lift = if costly { "" } else { ", or lift the limit" };
    let who = name(&held.name, &held.pids);
    let it = if held.pids.len() > 1 { "them" } else { "it" };
    let sentence = format!(
        "Make {who} sleep before the limit{lift}: {cause} stopped {it} for {}, {}, up to {} at \
         once.",
        tied(held.time),
        counted(held.count, "time"),
        tied(held.max),
    );
    let throttling = "sysctl kernel.sched_rt_runtime_us=-1";
    let server = "echo 0 | tee /sys/kernel/debug/sched/fair_server/cpu*/runtime";
    let risk = "  # a loop that never sleeps then blocks its CPU";
    let command = match held.limit {
        // A trial that shows the effect follows, so append no audit.
        RealTimeLimit::Throttling if screen.watched().is_some() => throttling.to_owned(),
        RealTimeLimit::Throttling => and_audit(throttling.to_owned(), screen),
        RealTimeLimit::Group => return (sentence, group_limit(held).filter(|_| !costly)),
        RealTimeLimit::FairServer => and_audit(server.to_owned(), screen),
        RealTimeLimit::Either => and_audit(format!("{throttling}; {server}"), screen),
    };
    (sentence, (!costly).then(|| format!("{command} {risk}")))
}

/// Returns the advice to raise a thread's own `SCHED_DEADLINE` budget.
pub(super) fn larger_budget(
    stall: &Stall,
    needed: &NeededBudget,
    screen: &Screen<'_>,
) -> (String, Option<String>) {
    let NeededBudget {
        budget,
        used,
        frames,
        needed,
    } = needed;
    let sentence = format!(
        "Give it a larger SCHED_DEADLINE budget, {} of CPU time in each {} instead of {}: the \
         longest of {} needed {}, so it used up its budget and then had to pause for {}, {}.",
        tied(needed),
        tied(budget.period),
        tied(budget.runtime),
        tied(counted(*frames, "frame")),
        tied(used),
        tied(stall.time),
        counted(stall.count, "time"),
    );
    let command = screen.watched().map(|pid| {
        format!(
            "chrt -d -T {} -D {} -P {} -p 0 {pid}",
            needed.0, budget.deadline.0, budget.period.0
        )
    });
    (sentence, command)
}

/// Returns the command that raises a cgroup's limit to what a machine allows by default. Only
/// cgroup v1 has such limits, and the cgroup's ancestors must allow as much.
fn group_limit(held: &RealTimeHeld) -> Option<String> {
    let runtime = held.period.0 / 1_000 * 95 / 100;
    let group = held.group.as_deref()?;
    let file = quoted(&format!("/sys/fs/cgroup/cpu{group}/cpu.rt_runtime_us"))?;
    Some(format!("echo {runtime} | tee {file}"))
}

/// Formats the setting for real-time throttling as its name and values, in the setting's own unit.
fn setting(held: &RealTimeHeld) -> String {
    let runtime = held.runtime.unwrap_or_default().0 / 1_000;
    let period = held.period.0 / 1_000;
    let values = tied(format!("({runtime} of {period} µs)"));
    match &held.group {
        Some(group) => format!("cpu.rt_runtime_us of {} {values}", clean(group)),
        None => format!("sched_rt_runtime_us {values}"),
    }
}
