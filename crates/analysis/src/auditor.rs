//! The auditor: the consumers of one timeline side by side, and the statement that they make
//! together.

use ticktax_model::beats::BeatLine;
use ticktax_model::glance::Glance;
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceStatement;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::{Account, Statement};
use ticktax_model::victim::ProgramFrames;
use ticktax_model::{Nanos, SourceTable};

use crate::accounting::AccountingCheck;
use crate::beats::Finder;
use crate::ledger::{Books, Ledger};
use crate::pace::Watched;
use crate::pace::lateness::{self, late_frames};
use crate::pace::watch::Process;
use crate::packet_path::Packets;
use crate::real_time::Limits;
use crate::statement::{Parts, assemble};
use crate::tick::TickAccumulator;
use crate::timeline::{Keep, Timeline};
use crate::victim::{Loss, Victim, named};
use crate::workload::{Asked, NoWorkload, Recorded, WorkRows};

/// Takes a recording's rows, live or from a file, and makes its statement.
///
/// The [`SourceTable`] passed with each row, and at the end, must be one and the same growing
/// table.
#[derive(Debug)]
pub struct Auditor {
    timeline: Timeline,
    ledger: Ledger,
    /// Where no program is asked for.
    waits: Option<crate::waits::Waits>,
    packets: Option<Packets>,
    /// What may keep real-time threads from a CPU.
    limits: Option<Limits>,
    tick: TickAccumulator,
    accounting: Option<AccountingCheck>,
    beats: Option<Finder>,
    victim: Option<Victim>,
    frames: Option<Process>,
    work: Option<WorkRows>,
}

impl Auditor {
    /// An auditor of `machine` that has seen nothing, and says everything there is to say.
    pub fn new(machine: &Machine) -> Self {
        Self {
            accounting: Some(AccountingCheck::new(machine)),
            beats: Some(Finder::new(machine)),
            waits: Some(crate::waits::Waits::new(machine)),
            packets: Some(Packets::default()),
            limits: Limits::of(machine),
            ..Self::books()
        }
    }

    /// An auditor that keeps only the books and the tick's bill: no accounting check, no beats.
    pub fn books() -> Self {
        Self {
            timeline: Timeline::new(Keep::LONG),
            ledger: Ledger::default(),
            waits: None,
            packets: None,
            limits: None,
            tick: TickAccumulator::default(),
            accounting: None,
            beats: None,
            victim: None,
            frames: None,
            work: None,
        }
    }

    /// The same without the search for beats, which takes most of the time. Enough for
    /// [`figures`](crate::figures()).
    #[must_use]
    pub fn without_beats(mut self) -> Self {
        self.beats = None;
        self
    }

    /// Also keeps what [`Auditor::work`] is read from: up to 320 MiB.
    #[must_use]
    pub fn with_work(mut self) -> Self {
        self.work = Some(WorkRows::default());
        self
    }

    /// From when on there is a program whose time is asked for, unless that was said before. Rows
    /// that ended at `begin` or before are not looked at for it.
    pub fn victim_since(&mut self, begin: Nanos) {
        self.waits = None;
        let limits = self.limits;
        let new = || Victim::new(begin).with_limits(limits);
        let victim = self.victim.get_or_insert_with(new);
        if let Some(process) = &self.frames {
            victim.keep_losses(process.pid());
        }
    }

    /// Looks for the frames of the process `pid`, the program whose time is asked for, in its
    /// wake-ups. That takes memory for every one of them, up to 40 MiB.
    pub fn frames_of(&mut self, pid: i32) {
        self.frames.get_or_insert_with(|| Process::new(pid));
        if let Some(victim) = &mut self.victim {
            victim.keep_losses(pid);
        }
    }

    /// What the rows so far say of these frames, watched from `begin` to `end`; `overshot_from` as in
    /// [`Terms`](crate::pace::Terms). `None` where no frames were asked for.
    pub fn frames_so_far(
        &self,
        begin: Nanos,
        end: Nanos,
        overshot_from: Option<Nanos>,
    ) -> Option<Watched> {
        let frames = self.frames.as_ref()?;
        Some(frames.judge(begin, end, overshot_from))
    }

    /// Has the accounting check list the program `pid` however little it ran, because its
    /// [`figures`](crate::figures()) will be asked for.
    pub fn list_program(&mut self, pid: i32) {
        if let Some(check) = &mut self.accounting {
            check.list(pid);
        }
    }

    /// Beats that were not told before, for a live view.
    pub fn news(&mut self) -> Vec<BeatLine> {
        self.beats.as_mut().map_or_else(Vec::new, Finder::news)
    }

    /// The accounts of the rows so far, as the tracer saw them: nothing is moved between accounts by
    /// what a probe's gaps tell, as it is at the end.
    pub fn so_far(&self, sources: &SourceTable) -> Vec<Account> {
        self.ledger.so_far(sources)
    }

    /// What is known so far, for somebody who watches.
    pub fn glance(&self, sources: &SourceTable) -> Glance {
        Glance {
            accounts: self.so_far(sources),
            program: self.victim.as_ref().map(|victim| victim.glance(sources)),
        }
    }

    /// The work in all rows, once ([`Auditor::with_work`]).
    ///
    /// # Errors
    /// Where the recording holds no work that could be done again.
    pub fn work(
        &mut self,
        header: &Header,
        sources: &SourceTable,
        asked: &Asked,
    ) -> Result<Recorded, NoWorkload> {
        let rows = self.work.take().unwrap_or_default();
        rows.finish(header, sources, asked)
    }

    /// The statement of all rows; beats are searched on `threads` threads. `sources` is the table
    /// that the rows point into.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Statement {
        self.conclude(header, sources, threads).0
    }

    /// What became of the frames of a process ([`Auditor::frames_of`]), by all rows, and what held up
    /// those that were late. The arguments are those of [`Auditor::finish`].
    pub fn finish_pace(
        self,
        header: &Header,
        sources: &SourceTable,
        threads: usize,
    ) -> PaceStatement {
        let (statement, process) = self.conclude(header, sources, threads);
        let pid = header.victim.as_ref().and_then(|victim| victim.pid);
        let process = process.unwrap_or_else(|| Process::new(pid.unwrap_or_default()));
        let frames = statement.victim.and_then(|victim| victim.frames);
        process.statement(header, frames.and_then(|frames| frames.late))
    }

    fn conclude(
        self,
        header: &Header,
        sources: &SourceTable,
        threads: usize,
    ) -> (Statement, Option<Process>) {
        let Self {
            mut timeline,
            ledger,
            waits,
            packets,
            limits: _,
            mut tick,
            accounting,
            beats,
            victim,
            frames,
            work: _,
        } = self;
        let mut victim = victim.unwrap_or_else(|| Victim::new(Nanos::ZERO));
        let books = ledger.close(header, sources, &mut timeline, |roles, gap| {
            tick.gap(roles, gap);
            victim.gap(gap);
        });
        let accounting = accounting.and_then(|check| check.finish(header, &books, sources));
        victim.settle(&mut timeline);
        let beats = beats.map(|finder| finder.finish(header, books.proofs.clone(), threads));
        let lines = beats.as_ref().map_or(&[][..], |beats| &*beats.beats);
        let own_frames = frames
            .as_ref()
            .and_then(|process| program_frames(process, header, (&victim, &books), sources));
        let followed = victim.processes(header.victim.as_ref());
        let packets =
            packets.and_then(|packets| packets.finish(header, sources, &mut timeline, &followed));
        let ran = match header.victim {
            Some(_) => victim.ran_meanwhile(sources),
            None => books.ran.clone(),
        };
        let victim = victim.finish(header, sources, lines).map(|mut victim| {
            let behind = victim.threads.iter_mut();
            for one in behind.flat_map(|threads| &mut threads.behind) {
                one.policy = one.pid.and_then(|pid| ran.policy(pid, &header.policies));
            }
            victim.frames = own_frames.map(|mut frames| {
                let threads = victim.threads.as_ref();
                let behind = threads.map_or(&[][..], |threads| &*threads.behind);
                if let Some(late) = &mut frames.late {
                    let known = (&ran, &*header.policies);
                    lateness::link(late, (behind, lines), known);
                }
                Box::new(frames)
            });
            victim
        });
        let parts = Parts {
            waits: waits.and_then(|waits| waits.finish(header, sources, &mut timeline)),
            packets,
            tick: tick.finish(header, sources),
            accounting,
            beats,
            victim,
            books,
            ran,
            followed: followed.into_iter().collect(),
        };
        (assemble(header, parts), frames)
    }
}

/// The frames of the process that a recording with this header is about, if there are any, and what
/// held up the late ones.
fn program_frames(
    process: &Process,
    header: &Header,
    (victim, books): (&Victim, &Books),
    sources: &SourceTable,
) -> Option<ProgramFrames> {
    let watched = process.watched(header)?;
    let thread = watched.threads.get(watched.chosen?)?;
    let figures = watched.figures?;
    let outside = lateness::Outside::of(&watched.cpus, header, books);
    let losses = victim.losses_of(thread.tid, &outside);
    let late = losses.map(|(losses, full_at)| {
        let terms = (figures.period, figures.late_from);
        let name = |loss: &Loss| loss.by.map(|by| named(by, sources));
        let begin = header.begin().unwrap_or(victim.since());
        let known = (&*losses, full_at);
        let late = late_frames(&watched.frames, terms, begin, known, &name);
        lateness::seen(late, &outside, &header.coverage.attached)
    });
    Some(ProgramFrames {
        thread: thread.name.clone(),
        tid: thread.tid,
        figures,
        late: late.filter(|late| late.frames + late.not_judged > 0),
    })
}

impl RowSink for Auditor {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let (event, history) = self.timeline.event(sources, row);
        self.ledger.event(&event, history, |roles, gap| {
            self.tick.gap(roles, gap);
            if let Some(victim) = &mut self.victim {
                victim.gap(gap);
            }
        });
        self.tick.event(&event);
        if let Some(waits) = &mut self.waits {
            waits.event(&event, history);
        }
        if let Some(packets) = &mut self.packets {
            packets.event(&event, history);
        }
        if let Some(check) = &mut self.accounting {
            check.event(&event);
        }
        if let Some(beats) = &mut self.beats {
            beats.event(&event);
        }
        if let Some(victim) = &mut self.victim {
            victim.event(&event, history);
        }
        if let Some(process) = &mut self.frames {
            process.event(&event);
        }
        if let Some(work) = &mut self.work {
            work.event(&event);
        }
    }
}
