//! From a recording to the document that it is for.

use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Paced, Row, RowSink, RowSource};
use ticktax_model::victim::Target;
use ticktax_model::{Cpu, SourceTable};

use crate::Auditor;
use crate::pace::{FrameStats, TurnStats, loop_statement};
use crate::packets::{ReceiverWatch, packet_statement};

/// Takes the rows of a recording, and makes the document that the recording verb printed: the
/// statement of an audit, or what became of a loop's frames.
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
    /// The statement of an audit, whatever the recording with this header was made for.
    pub fn audit(header: &Header) -> Self {
        Self(Kind::Audit(Box::new(auditor(header))))
    }

    /// For a recording with this header, of which no row has come.
    pub fn new(header: &Header) -> Self {
        Self(match &header.paced {
            None => return Self::audit(header),
            Some(Paced::Loop(run)) => {
                let stats = FrameStats::of_loop(run.report.spec.period, header.overshot_from);
                Kind::Loop(Box::new(stats))
            }
            Some(Paced::Turns(turns)) => Kind::Turns(Box::new(TurnStats::new(
                &turns.variants,
                header.overshot_from,
            ))),
            Some(Paced::Program) => Kind::Process(Box::new(auditor(header))),
            Some(Paced::Packets(run)) => {
                let followed = run.thread.zip(header.followed_since());
                let watch = followed.map(|(thread, since)| ReceiverWatch::new(thread, since));
                Kind::Packets(watch.map(Box::new))
            }
        })
    }

    /// The document of a whole recording; beats are searched on `threads` threads.
    ///
    /// # Errors
    /// Its rows are damaged.
    pub fn document<S: RowSource>(recording: &mut S, threads: usize) -> Result<Document, S::Error> {
        let mut analysis = Self::new(recording.header());
        let sources = recording.replay(&mut |sources, row| analysis.row(sources, row))?;
        Ok(analysis.finish(recording.header(), &sources, threads))
    }

    /// The document of all rows; beats are searched on `threads` threads. `header` is the one that it
    /// was made with, and `sources` the table that the rows point into.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Document {
        match self.0 {
            Kind::Audit(auditor) => auditor.finish(header, sources, threads).into(),
            Kind::Loop(stats) => {
                let run = header.paced_loop();
                let run = run.expect("it was made with the header of a loop");
                loop_statement(header, run, &stats.close()).into()
            }
            Kind::Turns(stats) => {
                let turns = header.paced_turns();
                let turns = turns.expect("it was made with the header of such loops");
                stats.finish(header, turns).into()
            }
            Kind::Process(auditor) => auditor.finish_pace(header, sources, threads).into(),
            Kind::Packets(watch) => {
                let Some(Paced::Packets(run)) = &header.paced else {
                    unreachable!("it was made with the header of such a run");
                };
                let cpu = run.receiver_cpu.map(Cpu);
                let hold_ups = watch.and_then(|watch| watch.finish(sources, cpu));
                packet_statement(header, run, hold_ups.as_ref()).into()
            }
        }
    }
}

/// An auditor of the recording with this header.
fn auditor(header: &Header) -> Auditor {
    let mut auditor = Auditor::new(&header.machine);
    if let Some(victim) = &header.victim {
        auditor.victim_since(victim.begin);
        // A loop whose frames are rows needs no search for them.
        let pid = victim.pid.filter(|_| victim.target == Target::Process);
        let pid = pid.filter(|_| header.paced_loop().is_none());
        if let Some(pid) = pid {
            auditor.frames_of(pid);
        }
    }
    auditor
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
