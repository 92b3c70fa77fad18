//! `ticktax pace --pid` and `--comm`: watches another program's loop and finds its frames.

use crate::files::RowFiles;
use ticktax_analysis::Auditor;
use ticktax_model::recording::{Header, Level, Paced};
use ticktax_model::{Nanos, SourceTable};
use ticktax_observe::{Plan, Program, Progress, Session};
use ticktax_report::RowsEnded;

use super::{LENGTH, LIVE};
use crate::arguments::PaceArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Extent, Progress as Bar};
use crate::terminal::Terminal;
use crate::watch::watch;

/// Time during which the live figures are updated every second. After that, they are updated less
/// often, because the time to compute them grows with the length of the run.
const LIVE_UNTIL: Nanos = Nanos::from_secs(60);
const LIVE_LATER: Nanos = Nanos::from_secs(10);

pub(super) fn watch_process(
    program: Program,
    typed: &PaceArguments,
    mut files: RowFiles,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let length = typed.length.map_or(LENGTH, |length| length.0);
    let interrupt = Interrupt::listen()?;
    let mut session = Session::start(Plan {
        length: Some(length),
        program: Some(program),
        thread_usage: true,
        needs: Level::Kernel,
        ..Plan::default()
    })?;
    let started = session.started();
    let Some(pid) = started.process else {
        let name = typed.comm.as_deref().unwrap_or_default();
        return Err(Failure::Arguments(format!(
            "several processes are named {name}, but only one can be watched: choose one of \
             `pgrep -x {name}` with --pid"
        )));
    };
    let begin = started.victim_begin.unwrap_or_default();
    let mut auditor = Auditor::new(&started.machine).following(begin, Some(pid));
    let overshot_from = typed.overshot_from();
    let line = ticktax_report::pace_line(None, 0, 0);
    let bar = terminal.progress(Extent::Time(length), line);
    let mut shown = Nanos::ZERO;
    let mut show = |auditor: &mut Auditor, _: &SourceTable, progress: Progress| {
        let elapsed = progress.elapsed;
        let interval = if elapsed < LIVE_UNTIL {
            LIVE
        } else {
            LIVE_LATER
        };
        if terminal.is_watched() && elapsed - shown >= interval {
            show_figures(auditor, progress, overshot_from, &bar);
            shown = elapsed;
        }
    };
    let header = watch(
        &mut session,
        &mut auditor,
        &mut files,
        &interrupt,
        &mut show,
    )?;
    bar.done();
    let header = Header {
        paced: Some(Paced::Program),
        overshot_threshold: overshot_from,
        ..*header
    };
    let threads = crate::beats::threads();
    let statement = auditor.finish_pace(&header, session.sources(), threads);
    let ended = RowsEnded {
        header: &header,
        sources: session.sources(),
        document: &statement.into(),
    };
    output::finish(&ended, files, typed.output(), terminal)
}

fn show_figures(auditor: &Auditor, progress: Progress, overshot_from: Option<Nanos>, bar: &Bar) {
    let end = progress.begin + progress.elapsed;
    let Some(so_far) = auditor.frames_so_far(progress.begin, end, overshot_from) else {
        return;
    };
    let figures = so_far.figures.as_ref();
    let (dropped, overshot) = figures.map_or((0, 0), |figures| (figures.dropped, figures.overshot));
    bar.tell(&ticktax_report::pace_line(
        so_far.last_second,
        dropped,
        overshot,
    ));
    bar.at(progress.elapsed);
}
