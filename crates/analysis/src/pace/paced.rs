//! The statement about one of ticktax's own loops, based on its frames and on readings taken while
//! it ran.

use ticktax_model::machine::Machine;
use ticktax_model::pace::{
    CpuStatement, Distribution, Figures, LoopReport, LoopRun, PaceEnd, PaceRule, PaceStatement,
    Subject, TickAlias,
};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Nanos, SourceTable};

use super::alias::tick_alias;
use super::tick::sampled_at_tick;
use super::{Accounts, FrameStats, Terms};
use crate::accounting::counting;

impl FrameStats {
    /// Creates statistics for one of ticktax's own loops, whose period is `period`. For
    /// `overshot_from`, see [`Terms`].
    pub fn of_loop(period: Nanos, overshot_from: Option<Nanos>) -> Self {
        Self::new(Terms {
            period,
            overshot_from,
            asked_for: true,
        })
    }
}

impl RowSink for FrameStats {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        if let Row::Frame(frame) = row {
            self.frame(frame.frame());
        }
    }
}

/// Returns the statement about a loop that ticktax ran. `accounts` contains the loop's frames.
pub fn loop_statement(header: &Header, run: &LoopRun, accounts: &Accounts) -> PaceStatement {
    let machine = &header.machine;
    let figures = accounts.figures();
    let alias = alias(&run.report, machine, figures.as_ref());
    let failed = run.error.clone();
    let failed = failed.map(|failure| PaceEnd::Failed { failure });
    PaceStatement {
        world: header.world,
        tool_version: header.tool_version.clone(),
        began_unix: header.began_unix,
        elapsed: run.elapsed,
        figures,
        late: None,
        cpu: CpuStatement {
            readings: run.readings.clone(),
            cpus: [run.report.cpu].into_iter().collect(),
            sampled_at_tick: sampled_at_tick(machine),
            alias,
        },
        wakeups: run.wakeups,
        limitations: header.coverage.limitations.clone(),
        ended_early: failed.or(header.ended_early.map(|_| PaceEnd::Interrupted)),
        machine: machine.clone(),
        subject: Subject::Loop(run.report.clone()),
    }
}

/// Returns the alias between the loop and the tick, if there is one. Frames stay at the same phases
/// of the tick only if the loop is on a grid and sleeps between frames.
fn alias(report: &LoopReport, machine: &Machine, figures: Option<&Figures>) -> Option<TickAlias> {
    let grid = report.spec.rule == PaceRule::Deadline && report.spec.sleep.sleeps();
    if !grid || sampled_at_tick(machine) != Some(true) {
        return None;
    }
    // If sleeps end at ticks, every frame starts at the same phase.
    if machine.high_resolution == Some(false) {
        return None;
    }
    let tick = counting(machine).tick?;
    let busy = report.margin.unwrap_or_default() + report.spec.work;
    let figures = figures?;
    let alias = tick_alias(report.spec.period, busy, tick, figures.frames)?;
    keeps_to_phases(&alias, report.spec.work, figures).then_some(alias)
}

/// Returns whether frames kept to their phases: at least 90 % of them must have started and ended
/// within a quarter of the distance between phases.
fn keeps_to_phases(alias: &TickAlias, work: Nanos, figures: &Figures) -> bool {
    let max = Nanos(alias.tick.0 / i64::from(alias.frames.max(1)) / 4);
    let within = |times: &Option<Distribution>, min: Nanos| {
        let p90 = times.as_ref().and_then(|times| times.quantile(0.9));
        p90.is_some_and(|time| time - min <= max)
    };
    let earliest = figures.wait.as_ref().map_or(Nanos::ZERO, |wait| wait.min);
    within(&figures.wait, earliest) && within(&figures.busy, work)
}
