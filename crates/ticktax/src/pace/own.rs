//! `ticktax pace` by default: runs a paced loop in ticktax's own process.

use crate::files::RowFiles;
use ticktax_analysis::pace::{FrameStats, loop_statement};
use ticktax_model::pace::LoopSpec;
use ticktax_model::{Nanos, SourceTable};
use ticktax_observe::{LoopPlan, Observation, PacedLoop, Progress};
use ticktax_report::RowsEnded;

use super::{LENGTH, LIVE};
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::Extent;
use crate::terminal::Terminal;
use crate::watch::watch;

pub(super) fn run(
    typed: &PaceArguments,
    mut files: RowFiles,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let plan = plan(typed, typed.length.map_or(LENGTH, |length| length.0))?;
    let (length, period, overshot_from) = (plan.length, plan.spec.period, plan.overshot_from);
    let interrupt = Interrupt::listen()?;
    let line = ticktax_report::pace_line(None, 0, 0);
    let bar = terminal.progress(Extent::Time(length), line);
    // From here on, any work in this process can take CPU time from the loop.
    let mut paced = PacedLoop::start(plan)?;
    let mut frames = FrameStats::of_loop(period, overshot_from);
    let mut shown = Nanos::ZERO;
    let mut show =
        |frames: &mut FrameStats, _: &SourceTable, Progress { elapsed, .. }: Progress| {
            // If standard error is not a terminal, nobody sees the figures, so take no CPU time
            // from the loop.
            if terminal.is_watched() && elapsed - shown >= LIVE {
                let (_, dropped, overshot) = frames.so_far();
                let last = frames.last_second();
                bar.tell(&ticktax_report::pace_line(last, dropped, overshot));
                bar.at(elapsed);
                shown = elapsed;
            }
        };
    let header = watch(&mut paced, &mut frames, &mut files, &interrupt, &mut show)?;
    bar.done();
    let run = header
        .paced_loop()
        .expect("the header of a paced loop describes its run");
    let ended = RowsEnded {
        header: &header,
        sources: paced.sources(),
        document: &loop_statement(&header, run, &frames.close()).into(),
    };
    output::finish(&ended, files, typed.output(), terminal)
}

pub(super) fn plan(typed: &PaceArguments, length: Nanos) -> Result<LoopPlan, Failure> {
    let rate = typed.frame_rate()?;
    Ok(LoopPlan {
        spec: LoopSpec {
            rate: rate.get(),
            period: rate.period(),
            work: typed.work,
            sleep: typed.sleep,
            rule: typed.rule,
        },
        cpu: typed.cpu(),
        policy: typed.policy,
        length,
        overshot_from: typed.overshot_from(),
    })
}
