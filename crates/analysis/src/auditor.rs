//! The auditor passes the events of one timeline to all consumers and combines their results into a
//! statement.

use ticktax_model::beats::BeatLine;
use ticktax_model::glance::Glance;
use ticktax_model::machine::Machine;
use ticktax_model::pace::PaceStatement;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::{Account, Statement};
use ticktax_model::victim::Target;
use ticktax_model::{Nanos, SourceTable};

use crate::accounting::AccountingCheck;
use crate::beats::Finder;
use crate::guests::Guests;
use crate::ledger::Ledger;
use crate::pace::WatchedProcess;
use crate::pace::program::{Known, program_frames};
use crate::pace::watch::Process;
use crate::packet_path::Packets;
use crate::profile::Profiled;
use crate::real_time::{Limits, RealTime};
use crate::sampled::{FunctionNames, Samples};
use crate::served::Served;
use crate::started::Started;
use crate::statement::{Parts, assemble};
use crate::stops::Stops;
use crate::tick::TickAccumulator;
use crate::timeline::{Keep, Timeline};
use crate::victim::{Evidence, Victim};
use crate::waited::WaitCodes;
use crate::waits::Waits;
use crate::workload::{Asked, NoWorkload, Recorded, WorkRows};

/// Takes the rows of a recording, live or from a file, and turns them into a statement.
///
/// All calls must pass the same [`SourceTable`], which may grow between calls.
#[derive(Debug)]
pub struct Auditor {
    timeline: Timeline,
    ledger: Ledger,
    /// Run-queue waits of all threads. `None` when a single program is analysed.
    waits: Option<Waits>,
    packets: Option<Packets>,
    /// Short-lived processes. `None` if only the accounts are kept.
    started: Option<Started>,
    served: Served,
    guests: Guests,
    samples: Samples,
    codes: WaitCodes,
    profiled: Profiled,
    /// Waits that limits on real-time threads may have caused. `None` if the machine's settings are
    /// unknown, or if they never hold back real-time threads.
    real_time: Option<RealTime>,
    tick: TickAccumulator,
    /// Late timer interrupts. `None` if they were not requested.
    stops: Option<Stops>,
    accounting: Option<AccountingCheck>,
    beats: Option<Finder>,
    victim: Option<Victim>,
    frames: Option<Process>,
    work: Option<WorkRows>,
}

impl Auditor {
    /// Creates an auditor of `machine` with every consumer that a machine-wide statement needs.
    /// Programs and workloads must be requested separately.
    pub fn new(machine: &Machine) -> Self {
        Self {
            accounting: Some(AccountingCheck::new(machine)),
            beats: Some(Finder::new(machine)),
            waits: Some(Waits::default()),
            packets: Some(Packets::default()),
            started: Some(Started::default()),
            real_time: Limits::from_machine(machine).map(RealTime::new),
            stops: Some(Stops::new(machine)),
            ..Self::books()
        }
    }

    /// Creates an auditor that keeps only the accounts, the kernel work that groups queued, and the
    /// cost of the tick.
    pub fn books() -> Self {
        Self {
            timeline: Timeline::new(Keep::LONG),
            ledger: Ledger::default(),
            waits: None,
            packets: None,
            started: None,
            served: Served::default(),
            guests: Guests::default(),
            samples: Samples::default(),
            codes: WaitCodes::default(),
            profiled: Profiled::default(),
            real_time: None,
            tick: TickAccumulator::default(),
            stops: None,
            accounting: None,
            beats: None,
            victim: None,
            frames: None,
            work: None,
        }
    }

    /// Skips the search for beats, which takes most of the time. [`figures`](crate::figures()) does
    /// not need them.
    #[must_use]
    pub fn without_beats(mut self) -> Self {
        self.beats = None;
        self
    }

    /// Also keeps the rows that [`Auditor::work`] needs, which take up to 320 MiB.
    #[must_use]
    pub fn with_work(mut self) -> Self {
        self.work = Some(WorkRows::default());
        self
    }

    /// Creates the auditor of a recording, with the program that its header names.
    pub fn for_recording(header: &Header) -> Self {
        let auditor = Self::new(&header.machine);
        let Some(victim) = &header.victim else {
            return auditor;
        };
        // Frames of ticktax's own loop are recorded as rows, so they need not be inferred from
        // wake-ups.
        let has_rows = header.paced_loop().is_some();
        let is_process = victim.target == Target::Process && !has_rows;
        auditor.following(victim.begin, victim.pid.filter(|_| is_process))
    }

    /// Analyses the time of one program instead of the whole machine, ignoring rows that end at or
    /// before `begin`. If `process` is given, that process's frames are inferred from its wake-ups.
    /// For this, every wake-up is kept, which takes up to 40 MiB.
    #[must_use]
    pub fn following(self, begin: Nanos, process: Option<i32>) -> Self {
        let mut victim = Victim::new(begin);
        if let Some(pid) = process {
            victim.keep_losses(pid);
        }
        Self {
            waits: None,
            victim: Some(victim),
            frames: process.map(Process::new),
            ..self
        }
    }

    /// Makes the profile one of the time that the analysed program waited for a CPU. Has no effect
    /// without such a program.
    #[must_use]
    pub fn profiling_waits(mut self) -> Self {
        if let Some(victim) = &mut self.victim {
            victim.profile_waits();
        }
        self
    }

    /// Returns the followed process's frames in the rows so far, watched from `begin` to `end`. For
    /// `overshot_from`, see [`Terms`](crate::pace::Terms). Returns `None` without a followed
    /// process.
    pub fn frames_so_far(
        &self,
        begin: Nanos,
        end: Nanos,
        overshot_from: Option<Nanos>,
    ) -> Option<WatchedProcess> {
        let frames = self.frames.as_ref()?;
        Some(frames.judge(begin, end, overshot_from))
    }

    /// Makes the accounting check list program `pid` even if it barely ran. This is required to get
    /// [`figures`](crate::figures()) for it.
    pub fn list_program(&mut self, pid: i32) {
        if let Some(check) = &mut self.accounting {
            check.list(pid);
        }
    }

    /// Returns beats found since the last call, for a live view.
    pub fn news(&mut self) -> Vec<BeatLine> {
        self.beats.as_mut().map_or_else(Vec::new, Finder::news)
    }

    /// Returns the accounts of the rows so far, as the tracer saw them. A probe's gaps can show
    /// that time belongs to another account, but only [`Auditor::finish`] moves it there.
    pub fn so_far(&self, sources: &SourceTable) -> Vec<Account> {
        self.ledger.so_far(sources)
    }

    /// Returns the accounts and the analysed program's times so far, for a live view.
    pub fn glance(&self, sources: &SourceTable) -> Glance {
        Glance {
            accounts: self.so_far(sources),
            program: self.victim.as_ref().map(|victim| victim.glance(sources)),
        }
    }

    /// Extracts the workload from the rows that [`Auditor::with_work`] kept. A second call finds no
    /// rows.
    ///
    /// # Errors
    /// Returns an error if the recording contains no work that can be repeated.
    pub fn work(
        &mut self,
        header: &Header,
        sources: &SourceTable,
        asked: &Asked,
    ) -> Result<Recorded, NoWorkload> {
        let rows = self.work.take().unwrap_or_default();
        rows.finish(header, sources, asked)
    }

    /// Builds the statement after the last row. `sources` is the table that the rows refer to, and
    /// `threads` is the number of threads that search for beats.
    pub fn finish(self, header: &Header, sources: &SourceTable, threads: usize) -> Statement {
        self.conclude(header, sources, threads).0
    }

    /// Returns the frames of the followed process and the causes of late ones. The arguments have
    /// the same meaning as those of [`Auditor::finish`].
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
            mut waits,
            packets,
            started,
            served,
            mut guests,
            samples,
            codes,
            profiled,
            mut real_time,
            mut tick,
            stops,
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
        if let Some(waits) = &mut waits {
            waits.settle(&mut timeline, real_time.as_mut(), sources);
            guests.waited(waits.by_thread(header, sources));
        }
        let mut limited = real_time.map(|real_time| real_time.finish(header, sources));
        let waits = waits.and_then(|waits| waits.finish(header, sources, limited.take()));
        if let Some(limited) = limited {
            victim.judge_limited(limited);
        }
        victim.settle(&mut timeline, sources);
        let profile = profiled.profile(header, &victim, &books.accounts, &timeline, sources);
        let beats = beats.map(|finder| finder.finish(header, books.proofs.clone(), threads));
        let stops = stops.map(|stops| stops.settled(header));
        let known = Known {
            header,
            victim: &victim,
            books: &books,
            stops: stops.as_ref(),
            sources,
        };
        let own_frames = frames.as_ref().and_then(|own| program_frames(own, &known));
        let followed = victim.processes(header.victim.as_ref());
        let packets =
            packets.and_then(|packets| packets.finish(header, sources, &mut timeline, &followed));
        let waited_behind = || victim.ran_while_waiting(sources);
        let ran = (header.victim.as_ref()).map_or_else(|| books.ran.clone(), |_| waited_behind());
        let functions = FunctionNames::new(&header.code_files);
        let samples = samples.named(&functions).with_objects(header);
        let evidence = Evidence {
            beats: beats.as_ref().map_or(&[][..], |beats| &*beats.beats),
            ran: &ran,
            frames: own_frames,
            samples: &samples,
            codes: &codes.named(&functions),
        };
        let victim = victim.finish(header, sources, evidence);
        let parts = Parts {
            guests: guests.finish(header, sources),
            groups: served.groups(header, sources, &books.accounts),
            waits,
            packets,
            short_lived: started.map_or_else(Vec::new, |started| started.finish(header, sources)),
            sampled: samples.by_source(sources),
            profile,
            tick: tick.finish(header, sources),
            late_timers: stops.and_then(|stops| stops.finish(header)),
            accounting: accounting.and_then(|check| check.finish(header, &books, sources)),
            beats,
            victim,
            books,
            ran,
            followed: followed.into_iter().collect(),
        };
        (assemble(header, parts), frames)
    }
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
        self.served.event(&event);
        self.guests.event(&event);
        self.samples.event(&event);
        self.codes.event(&event);
        self.profiled.event(&event);
        if let Some(real_time) = &mut self.real_time {
            real_time.event(&event);
        }
        if let Some(stops) = &mut self.stops {
            stops.event(&event);
        }
        if let Some(waits) = &mut self.waits {
            waits.event(&event, history, self.real_time.as_mut());
        }
        if let Some(packets) = &mut self.packets {
            packets.event(&event, history);
        }
        if let Some(started) = &mut self.started {
            started.event(&event);
        }
        if let Some(check) = &mut self.accounting {
            check.event(&event);
        }
        if let Some(beats) = &mut self.beats {
            beats.event(&event);
        }
        if let Some(victim) = &mut self.victim {
            victim.event(&event, history, self.real_time.as_mut());
        }
        if let Some(process) = &mut self.frames {
            process.event(&event);
        }
        if let Some(work) = &mut self.work {
            work.event(&event);
        }
    }
}
