//! Code shared by the storms of interrupts that are sent from another CPU.
//!
//! A thread in this process spins on the disturbed CPU, so that the interrupts are sent there, and
//! records the gaps in its loop. A thread on another CPU makes the calls that send the interrupts.
//!
//! The cost of a storm is measured in two ways. The first adds up the gaps that started during a
//! call. The second adds up all gaps during the storm, and subtracts the gaps to be expected from
//! two control intervals, one before the storm and one after it. The second way requires an
//! otherwise idle machine: it includes the work of all other programs, and can even be negative.
//! The first way includes other work only if it falls into the same gap. Even then, the median cost
//! per call is not affected.

use ticktax_model::{Interval, Nanos};

use crate::control::{Arm, Control, Walk};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::spinner::{self, Gaps, Spinner};
use crate::truth::{Count, Event, Measured, Truth};

use super::{thread, truth_of};

/// Whether the machine has a separate interrupt for function calls to a single CPU. On arm64, all
/// function calls share one interrupt.
const SINGLE: bool = cfg!(target_arch = "x86_64");

/// Name of the function-call interrupt in kernel traces.
pub(super) const ACCOUNT: &str = if SINGLE {
    "call_function_single"
} else {
    "call_function"
};

/// Row of `/proc/interrupts` for the function-call interrupt. On arm64, the row's name contains the
/// interrupt's index in `ipi_types` (`arch/arm64/kernel/smp.c`).
pub(super) const CALLS: &str = if SINGLE { "CAL" } else { "IPI1" };

/// Maximum length of each of the two control intervals.
const LONGEST_CONTROL: Nanos = Nanos::from_secs(1);

/// Number of gaps per second that can have other causes. Memory is reserved for them. Some
/// hypervisors cause thousands.
const GAPS_A_SECOND: i64 = 20_000;

/// A storm of interrupts sent from another CPU.
pub(super) struct Storm<F> {
    /// The account in which the storm appears.
    pub(super) account: &'static str,
    /// The row of `/proc/interrupts` that counts the storm's interrupts.
    pub(super) row: &'static str,
    /// Function that makes one call. Returns when the call started and ended.
    pub(super) call: F,
}

impl<F: FnMut() -> Result<(Nanos, Nanos), InjectError>> Storm<F> {
    pub(super) fn run(mut self, plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
        let from = place::other_than(plan.cpu, plan.disturbance.name())?;
        place::pin(place::SELF, from)?;
        let target = Spinner::start(plan.cpu, room(plan))?;

        let half = Nanos(plan.duration.0 / 2).min(LONGEST_CONTROL);
        let before = crate::clock::now();
        control.sleep_until(before + half)?;
        let counter = CounterWatch::interrupts(self.row, plan.cpu);
        let walk = control.walk(plan, Arm::WhenEarly, |due, _| {
            let (start, end) = (self.call)()?;
            Ok(Event {
                due,
                start,
                length: end - start,
                cpu_time: None,
            })
        })?;
        let count = counter.end();
        let end = crate::clock::now();
        control.sleep_until(end + half)?;
        let controls = [
            Interval::new(before, walk.start),
            Interval::new(end, crate::clock::now()),
        ];
        let gaps = target.finish()?;

        let to_calls = (!gaps.overflowed).then(|| to_calls(&walk, &gaps)).flatten();
        let net = (!gaps.overflowed).then(|| net_of_control(&walk, &gaps, controls));
        let sent = walk.log.length;
        let target = thread(spinner::COMM);
        let mut truth = truth_of(plan, walk, self.account, &[&target]);
        truth.counts.extend(count);
        if let Some(mut lost) = to_calls {
            let method = "the target's loop gaps of 1 µs and more that began during a call";
            truth.injected = Some(Measured::new(lost.iter().sum(), method));
            lost.sort_unstable();
            if let Some(median) = lost.get(lost.len() / 2) {
                let method = "the median of what one call cost the target in such gaps";
                truth.measured.push(Measured::new(*median, method));
            }
            let name = "calls with a gap in the target".to_owned();
            truth.counts.push(Count {
                name,
                value: lost.len() as u64,
            });
        }
        truth.measured.extend(net.into_iter().flatten());
        truth.measured.push(Measured::new(
            sent,
            "CLOCK_MONOTONIC around each call, on the caller's CPU",
        ));
        Ok(truth)
    }
}

/// Returns the number of gaps for which to reserve memory.
fn room(plan: &Plan) -> usize {
    let events = plan.schedule.events(plan.duration).take(1 << 20).count();
    let seconds = 3 + 2 * plan.duration.0 / 1_000_000_000;
    let others = usize::try_from(seconds.saturating_mul(GAPS_A_SECOND)).unwrap_or(usize::MAX);
    others.saturating_add(2 * events).min(1 << 22)
}

/// Returns the time lost during each call, leaving out calls that lost none. Returns `None` if the
/// log of calls is incomplete.
fn to_calls(walk: &Walk, gaps: &Gaps) -> Option<Vec<Nanos>> {
    let calls = walk.log.kept();
    let all = calls.len() as u64 == walk.log.happened;
    all.then(|| spinner::lost_to_calls(&gaps.kept, calls))
}

/// Returns two measurements of the time lost in gaps during the storm: the total, and the total
/// minus the loss to be expected from the control intervals, scaled to the length of the storm.
fn net_of_control(walk: &Walk, gaps: &Gaps, controls: [Interval; 2]) -> Vec<Measured> {
    let storm = spinner::lost_within(&gaps.kept, Interval::new(walk.start, walk.end));
    let quiet: Nanos = controls
        .iter()
        .map(|&control| spinner::lost_within(&gaps.kept, control))
        .sum();
    let quiet_for: Nanos = controls.into_iter().map(Interval::length).sum();
    let all = Measured::new(
        storm,
        "all of the target's loop gaps of 1 µs and more in the storm",
    );
    if quiet_for <= Nanos::ZERO {
        return vec![all];
    }
    let scale = (walk.end - walk.start).share_of(quiet_for);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share of a time fits into a time"
    )]
    let expected = Nanos((quiet.0 as f64 * scale).round() as i64);
    let method = format!(
        "the same less {expected}, which a control time of {quiet_for} around the storm lost at \
         that rate"
    );
    vec![all, Measured::new(storm - expected, method)]
}
