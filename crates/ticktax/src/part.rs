//! The part of a saved recording to report: a time range and a subject.

use ticktax_analysis::{Cut, CutError, Follow, FollowError, Followed, Subject};
use ticktax_model::recording::{Header, Row};
use ticktax_model::{Nanos, SourceTable};
use ticktax_store::recording::RecordingReader;

use crate::failure::Failure;

#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Start and end of the time range, relative to the start of the recording. `None` means the
    /// entire recording.
    pub(crate) part: Option<(Option<Nanos>, Option<Nanos>)>,
    pub(crate) subject: Option<Subject>,
}

/// A recording restricted to the selected time range and subject.
pub(crate) struct Selected<'a> {
    recording: &'a mut RecordingReader,
    followed: Option<Followed>,
    cut: Option<Cut>,
}

impl Selection {
    /// Applies the selection to `recording`. If it has a subject, this reads all rows once.
    pub(crate) fn apply(self, recording: &mut RecordingReader) -> Result<Selected<'_>, Failure> {
        let followed = self.subject.map(|subject| follow(recording, subject));
        let followed = followed.transpose()?;
        let header = followed
            .as_ref()
            .map_or(recording.header(), Followed::header);
        let cut = self.part.map(|(from, to)| Cut::new(header, from, to));
        let cut = cut.transpose().map_err(no_part)?;
        Ok(Selected {
            recording,
            followed,
            cut,
        })
    }
}

fn follow(recording: &mut RecordingReader, subject: Subject) -> Result<Followed, Failure> {
    let refused = |error: FollowError| Failure::Arguments(error.to_string());
    let mut follow = Follow::new(recording.header(), subject).map_err(refused)?;
    let sources = recording.replay(&mut |sources, row| follow.row(sources, row))?;
    follow.finish(recording.header(), &sources).map_err(refused)
}

impl Selected<'_> {
    /// Returns the recording's header. If there is a subject, the header is rewritten as if the
    /// recording had followed it.
    pub(crate) fn header(&self) -> &Header {
        let followed = self.followed.as_ref();
        followed.map_or(self.recording.header(), Followed::header)
    }

    /// Passes the selected rows to `each`. Returns their source table, and a header that describes
    /// the selection.
    pub(crate) fn replay(
        self,
        each: &mut dyn FnMut(&SourceTable, &Row),
    ) -> Result<(SourceTable, Header), Failure> {
        let Self {
            recording,
            followed,
            mut cut,
        } = self;
        let mut pass_part = |sources: &SourceTable, row: &Row| match &mut cut {
            None => each(sources, row),
            Some(cut) => {
                if let Some(row) = cut.row(sources, row) {
                    each(sources, &row);
                }
            }
        };
        let (sources, header) = match followed {
            None => {
                let sources = recording.replay(&mut pass_part)?;
                (sources, recording.header().clone())
            }
            Some(followed) => {
                recording.replay(&mut |_, row| followed.row(row, &mut pass_part))?;
                followed.into_parts()
            }
        };
        let header = match cut {
            None => header,
            Some(cut) => cut.finish(&header).map_err(no_part)?,
        };
        Ok((sources, header))
    }
}

fn no_part(error: CutError) -> Failure {
    Failure::Arguments(match error {
        CutError::Empty { from, to } if from > to => {
            format!("--from {from} is after --to {to}: swap them")
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
