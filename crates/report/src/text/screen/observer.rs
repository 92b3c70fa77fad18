//! The cost of observing: what ticktax itself took from everything else.

use ticktax_model::Nanos;
use ticktax_model::statement::{Holder, Statement};
use ticktax_model::victim::{Interferer, PROBE, TOOL, ThreadTimes, VictimStatement};

use super::machine::time_of;
use super::program::wanted;
use crate::text::numbers::percent;
use crate::text::page::tied;

/// Minimum share of the time for a cost to count as large. A screen with a large cost starts with
/// it.
const LARGE: f64 = 0.005;

/// Minimum share of CPU time that other threads waited for ticktax. Shorter waits are left out.
const WAITED: f64 = 0.001;

/// Cost of observing to the watched program, or to the machine if no program was watched.
pub(super) struct ObserverCost {
    /// A sentence.
    pub(super) text: String,
    /// Whether the cost is at least [`LARGE`].
    pub(super) is_large: bool,
}

impl ObserverCost {
    pub(super) fn of_statement(statement: &Statement) -> Self {
        let victim = statement.victim.as_ref();
        let threads = victim.and_then(|victim| victim.threads.as_ref());
        match (victim, threads) {
            _ if statement.coverage.is_imported() => Self {
                text: "Converted from another tool's trace.".to_owned(),
                is_large: false,
            },
            (Some(victim), Some(threads)) => Self::to_program(victim, threads),
            _ => Self::to_machine(statement),
        }
    }

    fn to_program(victim: &VictimStatement, threads: &ThreadTimes) -> Self {
        // A culprit with a pid is a program that happens to have the same name.
        let own =
            |culprit: &&Interferer| matches!(&*culprit.name, TOOL | PROBE) && culprit.pid.is_none();
        let behind = threads.behind.iter().filter(own);
        let time: Nanos = behind.map(|culprit| culprit.time).sum();
        let share = time.share_of(wanted(threads));
        let is_large = share >= LARGE;
        let of_what = if is_large {
            let share = tied(format!("{} of the time", percent(share)));
            format!(", {share} that it needed a CPU")
        } else {
            String::new()
        };
        let text = if time == Nanos::ZERO {
            format!("ticktax did not delay {}.", victim.name)
        } else {
            format!(
                "ticktax delayed {} by {}{of_what}.",
                victim.name,
                tied(time)
            )
        };
        Self { text, is_large }
    }

    /// The traced time equals ticktax's share in the verdict. By its own clock, ticktax may have
    /// used more, because that also covers the time just before and after the recording.
    fn to_machine(statement: &Statement) -> Self {
        let (seen, own) = (time_of(statement, Holder::Tool), statement.cost.cpu);
        let time = if seen == Nanos::ZERO { own } else { seen };
        let whole = statement.balance.elapsed;
        let delayed = statement
            .waits
            .as_ref()
            .map_or(Nanos::ZERO, |waits| waits.behind_ticktax);
        let mut text = format!(
            "ticktax used {} ({})",
            tied(time),
            tied(format!("{} CPU", percent(time.share_of(whole)))),
        );
        if own > time {
            text = format!("{text}, {} by its own clock", tied(own));
        }
        if delayed.share_of(whole) >= WAITED {
            text = format!("{text}; other threads waited {} for it", tied(delayed));
        }
        Self {
            text: format!("{text}."),
            is_large: whole > Nanos::ZERO && time.max(delayed).share_of(whole) >= LARGE,
        }
    }
}
