//! A loop of our own.

use ticktax_analysis::pace::{Accounts, FrameStats, loop_statement};
use ticktax_model::pace::{LoopRun, PaceStatement};
use ticktax_model::recording::{Header, Paced, PacedFrame, Row, RowSink};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};
use ticktax_observe::{LoopEvent, LoopPlan, PacedLoop};

use super::LIVE;
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::saved::SavedAs;
use crate::terminal::Terminal;

/// Without other wishes.
const LENGTH: Nanos = Nanos::from_secs(10);

/// Runs one loop and says what became of it.
pub(super) fn run(
    typed: &PaceArguments,
    file: &mut Option<SavedAs>,
    terminal: &Terminal,
) -> Result<(PaceStatement, Header), Failure> {
    let plan = plan(typed, typed.length.map_or(LENGTH, |length| length.0));
    let interrupt = Interrupt::listen()?;
    let line = ticktax_report::pace_line(None, 0, 0);
    let bar = terminal.progress(Some(plan.length), line, false);
    let ran = run_loop(plan, &interrupt, file, &mut |stats, elapsed| {
        let (_, dropped, overshot) = stats.so_far();
        bar.tell(ticktax_report::pace_line(
            stats.last_second(),
            dropped,
            overshot,
        ));
        bar.at(elapsed);
    })?;
    bar.done();
    let statement = loop_statement(&ran.header, &ran.run, &ran.accounts);
    let header = Header {
        paced: Some(Paced::Loop(ran.run)),
        ..*ran.header
    };
    Ok((statement, header))
}

/// What was typed, as a loop.
pub(super) fn plan(typed: &PaceArguments, length: Nanos) -> LoopPlan {
    LoopPlan {
        rate: typed.rate.0,
        period: typed.rate.period(),
        work: typed.work.0,
        sleep: typed.sleep,
        rule: typed.rule,
        cpu: typed.cpu(),
        policy: typed.policy.0,
        length,
    }
}

/// What one run of a loop brought.
pub(super) struct Ran {
    pub(super) header: Box<Header>,
    pub(super) run: Box<LoopRun>,
    pub(super) accounts: Accounts,
}

/// Runs a loop until it ends or somebody interrupts; saves its frames, and shows once a second how
/// it goes.
pub(super) fn run_loop(
    plan: LoopPlan,
    interrupt: &Interrupt,
    file: &mut Option<SavedAs>,
    show: &mut dyn FnMut(&FrameStats, Nanos),
) -> Result<Ran, Failure> {
    let period = plan.period;
    let mut paced = PacedLoop::start(plan)?;
    let mut stats = FrameStats::of_loop(period, paced.machine());
    let paced_cpu = paced.cpu();
    let mut sources = SourceTable::default();
    let source = sources.intern(Source {
        kind: Kind::Frame,
        owner: Owner::Probe,
        name: "pace".into(),
        detail: "".into(),
        thread: None,
    });
    let mut shown = Nanos::ZERO;
    loop {
        match paced.next_event()? {
            LoopEvent::Frames(frames) => {
                for frame in frames {
                    stats.frame(*frame);
                    if let Some(file) = file {
                        let row = PacedFrame::new(frame, paced_cpu, source);
                        file.row(&sources, &Row::Frame(row));
                    }
                }
            }
            LoopEvent::Progress(progress) => {
                if progress.elapsed - shown >= LIVE {
                    show(&stats, progress.elapsed);
                    shown = progress.elapsed;
                }
            }
            LoopEvent::Ended { header, run } => {
                let accounts = stats.close();
                return Ok(Ran {
                    header,
                    run,
                    accounts,
                });
            }
        }
        if interrupt.signal().is_some() {
            paced.stop();
        }
    }
}
