//! A recording's rows, or those of a part of it.

use ticktax_analysis::{Cut, CutError};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Nanos, SourceTable};
use ticktax_store::recording::RecordingReader;

use crate::failure::Failure;

/// Passes the rows of a recording to `each`: all, or those from one time after its begin to another. Returns
/// their sources and, of a part, its header.
pub(crate) fn replay(
    recording: &mut RecordingReader,
    part: Option<(Option<Nanos>, Option<Nanos>)>,
    each: &mut dyn FnMut(&SourceTable, &Row),
) -> Result<(SourceTable, Option<Header>), Failure> {
    let Some((from, to)) = part else {
        return Ok((recording.replay(each)?, None));
    };
    let mut cut = Cut::new(recording.header(), from, to).map_err(no_part)?;
    let sources = recording.replay(&mut |sources, row| {
        if let Some(row) = cut.row(sources, row) {
            each(sources, &row);
        }
    })?;
    let header = cut.finish(recording.header()).map_err(no_part)?;
    Ok((sources, Some(header)))
}

/// The recording has no such part.
fn no_part(error: CutError) -> Failure {
    Failure::Arguments(match error {
        CutError::Empty { from, to } if from > to => {
            format!("--from {from} --to {to}: the part would end before it begins")
        }
        CutError::Empty { .. }
        | CutError::Beyond { .. }
        | CutError::Before { .. }
        | CutError::Sums
        | CutError::Counters
        | CutError::Turns
        | CutError::NoTimes => format!("--from, --to: {error}"),
    })
}
