//! The frames of an audited program's loop, and why some of them were late.

use ticktax_model::SourceTable;
use ticktax_model::kernel_words::system_call;
use ticktax_model::recording::Header;
use ticktax_model::victim::{HoldUp, ProgramFrames};

use super::lateness::{self, late_frames};
use super::watch::Process;
use crate::ledger::Books;
use crate::names::named;
use crate::stops::Stops;
use crate::victim::{Loss, Outside, Victim};

/// Results of the analysis that show the causes of late frames.
pub(crate) struct Known<'a> {
    pub(crate) header: &'a Header,
    pub(crate) victim: &'a Victim,
    pub(crate) books: &'a Books,
    pub(crate) stops: Option<&'a Stops>,
    pub(crate) sources: &'a SourceTable,
}

/// Returns the frames of the analysed process, if it has any, and the causes of late ones.
pub(crate) fn program_frames(process: &Process, known: &Known<'_>) -> Option<ProgramFrames> {
    let &Known {
        header,
        victim,
        books,
        stops,
        sources,
    } = known;
    let watched = process.watched(header)?;
    let thread = watched.threads.get(watched.chosen?)?;
    let figures = watched.figures?;
    let mut outside = Outside::from_books(&watched.cpus, header, books);
    outside.stops = stops.map_or_else(Vec::new, |stops| stops.longest(header));
    outside.stops_while_running = process.on_cpu_in(thread.tid, &outside.stops);
    let program = header.victim.as_ref();
    let at_limit = program.is_some_and(|program| program.memory_limit.is_some());
    let losses = victim.losses_of(thread.tid, &outside);
    let late = losses.map(|(losses, full_at)| {
        let rhythm = thread.periods.first();
        let schedule = lateness::Schedule {
            period: figures.period,
            late_from: figures.late_threshold,
            delays_add_up: rhythm.is_some_and(|rhythm| rhythm.rhythm.rearmed),
        };
        let name = |loss: &Loss| loss_name(loss, sources);
        let begin = header.begin().unwrap_or(victim.since());
        let known = (&*losses, full_at);
        let late = late_frames(&watched.frames, schedule, begin, known, at_limit, &name);
        lateness::seen(late, &outside, &header.coverage.attached)
    });
    Some(ProgramFrames {
        thread: thread.name.clone(),
        tid: thread.tid,
        figures,
        late: late.filter(|late| late.frames + late.unclassified > 0),
    })
}

/// Returns the culprit behind a loss. A thread of the program itself is named without its process.
fn loss_name(loss: &Loss, sources: &SourceTable) -> Option<lateness::Named> {
    let source = sources.get(loss.by?);
    match loss.kind {
        HoldUp::SystemCall => {
            let call = system_call(&source.detail)?;
            Some((call.to_owned(), lateness::CALL, None))
        }
        HoldUp::OwnThread => Some((source.name.to_string(), source.kind, None)),
        _ => Some(named(loss.by?, sources)),
    }
}
