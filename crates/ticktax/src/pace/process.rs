//! Somebody else's loop: following a process, and finding its frames.

use ticktax_analysis::pace::{PaceWatch, tick};
use ticktax_model::Nanos;
use ticktax_model::pace::PaceStatement;
use ticktax_model::recording::{Header, Level, Paced, RowSink};
use ticktax_observe::{Event, Plan, Program, Progress, Session};

use super::LIVE;
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::saved::SavedAs;
use crate::terminal::{Progress as Bar, Terminal};

/// Without other wishes.
const LENGTH: Nanos = Nanos::from_secs(10);
/// Somebody who looks on is told by the second for this long; looking takes longer with time.
const LIVE_UNTIL: Nanos = Nanos::from_secs(60);
const LIVE_LATER: Nanos = Nanos::from_secs(10);

/// Watches process `pid` and says what became of its frames.
pub(super) fn watch(
    pid: i32,
    typed: &PaceArguments,
    file: &mut Option<SavedAs>,
    terminal: &Terminal,
) -> Result<(PaceStatement, Header), Failure> {
    let length = typed.length.map_or(LENGTH, |length| length.0);
    let interrupt = Interrupt::listen()?;
    let mut session = Session::start(Plan {
        length: Some(length),
        program: Some(Program::Process(pid)),
        thread_usage: true,
        needs: Level::Kernel,
        ..Plan::default()
    })?;
    let started = session.started();
    // It may have been named by one of its threads.
    let mut watch = PaceWatch::new(started.process.unwrap_or(pid));
    let (tick, _) = tick(&started.machine);
    let line = ticktax_report::pace_line(None, 0, 0);
    let bar = terminal.progress(Some(length), line, false);
    let mut shown = Nanos::ZERO;
    let header = loop {
        match session.next_event() {
            Event::Started(_) => {}
            Event::Rows { sources, rows } => {
                for row in rows {
                    watch.row(sources, row);
                    if let Some(file) = file {
                        file.row(sources, row);
                    }
                }
            }
            Event::Progress(progress) => {
                let elapsed = progress.elapsed;
                let often = if elapsed < LIVE_UNTIL {
                    LIVE
                } else {
                    LIVE_LATER
                };
                if terminal.is_watched() && elapsed - shown >= often {
                    show(&watch, progress, tick, &bar);
                    shown = elapsed;
                }
            }
            Event::Ended(header) => break header,
        }
        if let Some(signal) = interrupt.signal() {
            session.stop(Some(signal));
        }
    };
    bar.done();
    let header = Header {
        paced: Some(Paced::Program),
        ..*header
    };
    Ok((watch.finish(&header), header))
}

fn show(watch: &PaceWatch, progress: Progress, tick: Nanos, bar: &Bar) {
    let so_far = watch.judge(progress.begin, progress.begin + progress.elapsed, tick);
    let figures = so_far.figures.as_ref();
    let (dropped, overshot) = figures.map_or((0, 0), |f| (f.dropped, f.overshot));
    bar.tell(ticktax_report::pace_line(
        so_far.last_second,
        dropped,
        overshot,
    ));
    bar.at(progress.elapsed);
}
