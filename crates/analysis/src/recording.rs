//! Turns a recording into the document that is printed by the verb which made the recording.

use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Paced, Row, RowSink, RowSource};
use ticktax_model::{Cpu, SourceTable};

use crate::Auditor;
use crate::pace::{FrameStats, TurnStats, loop_statement};
use crate::packets::{ReceiverWatch, packet_statement};

/// Takes a recording's rows and builds the document that the recording verb printed. This is the
/// statement of an audit, the frames of a loop or process, or the fate of datagrams.
#[derive(Debug)]
pub struct RecordingAnalysis(Kind);

#[derive(Debug)]
enum Kind {
    Audit(Box<Auditor>),
    Loop(Box<FrameStats>),
    Turns(Box<TurnStats>),
    Process(Box<Auditor>),
    Packets(Option<Box<ReceiverWatch>>),
}

impl RecordingAnalysis {
    /// Prepares an audit's statement, even if another verb made the recording.
    pub fn audit(header: &Header) -> Self {
        Self(Kind::Audit(Box::new(Auditor::for_recording(header))))
    }

    /// Prepares the document of the verb that made the recording with this header.
    pub fn new(header: &Header) -> Self {
        Self(match &header.paced {
            None => return Self::audit(header),
            Some(Paced::Loop(run)) => {
                let stats = FrameStats::of_loop(run.report.spec.period, header.overshot_threshold);
                Kind::Loop(Box::new(stats))
            }
            Some(Paced::Turns(turns)) => Kind::Turns(Box::new(TurnStats::new(
                &turns.arms,
                header.overshot_threshold,
            ))),
            Some(Paced::Program) => Kind::Process(Box::new(Auditor::for_recording(header))),
            Some(Paced::Packets(run)) => {
                let followed = run.thread.zip(header.followed_since());
                let watch = followed.map(|(thread, since)| ReceiverWatch::new(thread, since));
                Kind::Packets(watch.map(Box::new))
            }
        })
    }

    /// Makes the profile one of the time that the analysed program waited for a CPU. Has no effect
    /// on documents other than an audit's statement.
    #[must_use]
    pub fn profiling_waits(self) -> Self {
        Self(match self.0 {
            Kind::Audit(auditor) => Kind::Audit(Box::new(auditor.profiling_waits())),
            other => other,
        })
    }

    /// Reads a recording to its end and returns its document. `threads` is the number of threads
    /// that search for beats.
    ///
    /// # Errors
    /// Returns an error if the recording's rows are damaged.
    pub fn document<S: RowSource>(recording: &mut S, threads: usize) -> Result<Document, S::Error> {
        let mut analysis = Self::new(recording.header());
        let sources = recording.replay(&mut |sources, row| analysis.row(sources, row))?;
        Ok(analysis.finish(recording.header(), &sources, threads))
    }

    /// Builds the document after the last row. `header` must be the one passed to the constructor,
    /// and `sources` the table that the rows refer to. `threads` is the number of threads that
    /// search for beats.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Document {
        match self.0 {
            Kind::Audit(auditor) => auditor.finish(header, sources, threads).into(),
            Kind::Loop(stats) => {
                let run = header.paced_loop();
                let run = run.expect("the constructor got a loop's header");
                loop_statement(header, run, &stats.close()).into()
            }
            Kind::Turns(stats) => {
                let turns = header.paced_turns();
                let turns = turns.expect("the constructor got the header of compared loops");
                stats.finish(header, turns).into()
            }
            Kind::Process(auditor) => auditor.finish_pace(header, sources, threads).into(),
            Kind::Packets(watch) => {
                let Some(Paced::Packets(run)) = &header.paced else {
                    unreachable!("the constructor got the header of a packet run");
                };
                let cpu = run.receiver_cpu.map(Cpu);
                let hold_ups = watch.and_then(|watch| watch.finish(sources, cpu));
                packet_statement(header, run, hold_ups.as_ref()).into()
            }
        }
    }
}

impl RowSink for RecordingAnalysis {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        match &mut self.0 {
            Kind::Audit(auditor) | Kind::Process(auditor) => auditor.row(sources, row),
            Kind::Loop(stats) => stats.row(sources, row),
            Kind::Turns(stats) => stats.row(sources, row),
            Kind::Packets(Some(watch)) => watch.row(sources, row),
            Kind::Packets(None) => {}
        }
    }
}
