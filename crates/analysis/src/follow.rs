//! Analyses a program that the tracer did not follow, from a machine-wide recording.
//!
//! Analysing a program ([`victim`](crate::Auditor::following)) requires knowing what each thread
//! did while it was off its CPU. The tracer writes such rows only for threads that it follows. For
//! any other thread, they are derived here from the thread's on-CPU periods (*runs*) and wake-ups.
//! The result is a recording like any other, with the subject in its header.
//!
//! # Derivation
//! Between two runs of a thread there is a gap:
//!
//! - A wake-up splits the gap: until then the thread slept, and afterwards it waited for a CPU. If
//!   there are several wake-ups, the thread must have run in between without a switch event, so it
//!   is unknown what it did from the first to the last.
//! - Without a wake-up, the thread did not sleep: it was preempted and waited throughout the gap.
//!
//! A wake-up can be missing. A wait without one is therefore believed only if no events were lost,
//! unreported threads ran for at most a small part of it, and the CPU was busy. Otherwise the gap
//! is unknown.
//!
//! # Limits
//! The recording does not show why a thread slept, so disk waits, locks, stops and voluntary sleep
//! are one state. A thread throttled by its quota looks preempted. Waits that cross either end of
//! the recording are not reported.
//!
//! # Two passes
//! The rows are read twice. [`Follow`] collects runs and wake-ups. [`Followed`] then passes the
//! rows on and inserts the derived ones. A wake-up can arrive a second after the run that it led
//! to, so a single pass would have to hold back rows for that long.

mod gaps;
mod header;

use std::collections::BTreeSet;
use std::fmt;

use ticktax_model::group::{GroupError, GroupName};
use ticktax_model::hook::Hook;
use ticktax_model::recording::{Effect, Header, Level, Row};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span};

use self::gaps::{CpuRun, Machine};
use crate::fast_map::FastMap;

/// The program, thread or cgroup whose time is analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All processes with one of these ids.
    Processes(Vec<i32>),
    /// The thread with this id.
    Thread(i32),
    /// All processes that run the program with this name.
    Program(String),
    /// All processes in a cgroup and its descendants. The path is relative to the CPU controller's
    /// hierarchy.
    Cgroup(String),
    /// All processes of a service, container or pod.
    Group(GroupName),
}

impl Subject {
    /// Returns the cgroup given by its directory, such as `/sys/fs/cgroup/system.slice`, or by its
    /// path in `/proc/PID/cgroup`.
    pub fn cgroup(folder: &str) -> Self {
        let Some(below) = folder.strip_prefix("/sys/fs/cgroup/") else {
            return Self::Cgroup(folder.to_owned());
        };
        // In version 1, each hierarchy has its own directory.
        let (first, rest) = below.split_once('/').unwrap_or((below, ""));
        let is_hierarchy = first == "unified" || first.split(',').any(|name| name == "cpu");
        Self::Cgroup(format!("/{}", if is_hierarchy { rest } else { below }))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processes(pids) if pids.len() == 1 => write!(f, "process {}", pids[0]),
            Self::Processes(pids) => {
                let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
                write!(f, "processes {}", pids.join(", "))
            }
            Self::Thread(tid) => write!(f, "thread {tid}"),
            Self::Program(name) => write!(f, "program `{name}`"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
            Self::Group(name) => name.fmt(f),
        }
    }
}

/// Reason that a recording cannot be analysed for a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowError {
    /// None of the subject's threads ran during the recording.
    NotSeen(Subject),
    /// The recording contains sums of intervals instead of single ones.
    Sums,
    /// The recording contains only counters, read when it started and ended.
    Counters,
    /// The wake-up tracepoint was not attached.
    NoWakeups,
    /// The recording does not show which processes were in which cgroup.
    NoCgroups,
    /// The name does not select a service, container or pod.
    Group(GroupError),
}

impl fmt::Display for FollowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSeen(subject) => write!(
                f,
                "{subject} did not run in this recording: list the programs that did with \
                 `--section time`"
            ),
            Self::Sums => f.write_str(
                "the recording contains only per-second sums, not individual waits: record with \
                 --keep spans",
            ),
            Self::Counters => f.write_str(
                "the recording contains only counters and does not show when each thread ran: \
                 record as root",
            ),
            Self::NoWakeups => f.write_str(
                "the recording has no wake-ups (sched_waking was not attached), so sleeping and \
                 waiting look the same",
            ),
            Self::Group(error) => error.fmt(f),
            Self::NoCgroups => f.write_str(
                "the recording does not contain the processes' cgroups: select processes with \
                 --pid or --comm",
            ),
        }
    }
}

impl std::error::Error for FollowError {}

/// Role of a source's rows in the first pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// This thread of the subject ran.
    Runs(i32),
    /// This thread of the subject was off its CPU. Such rows show that the tracer followed the
    /// thread.
    Waits(i32),
    /// A followed thread of another program was off its CPU.
    OthersWait,
    Idle,
    /// A thread ran, but the kernel sent no switch event for it.
    Unreported,
    Other,
}

/// First pass: collects the subject's threads, with their runs and wake-ups.
#[derive(Debug)]
pub struct Follow {
    subject: Subject,
    /// The subject's processes, if the subject is given by process id or cgroup.
    pids: Option<BTreeSet<i32>>,
    meanings: Vec<Option<Meaning>>,
    threads: FastMap<i32, Thread>,
    /// Wake-ups of all threads, by thread id. None can be dropped yet, because a thread's first
    /// wake-up can arrive before the run that shows that the thread is the subject's.
    wakes: FastMap<i32, Vec<Nanos>>,
    machine: Machine,
    has_sums: bool,
    can_derive: bool,
    /// Whether the tracer followed the subject. If it did, the recording is passed on unchanged.
    is_recorded: bool,
}

/// One of the subject's threads.
#[derive(Debug)]
struct Thread {
    /// A source of the thread's runs. It is the template for the sources of its waits.
    source: SourceId,
    /// Start and source of the thread's latest run or wait. A thread can execute another program.
    latest: (Nanos, SourceId),
    runs: Vec<CpuRun>,
    /// Whether the tracer followed the thread, in which case its waits are among the rows.
    is_followed: bool,
}

impl Follow {
    /// Prepares to find `subject` in the recording with this header.
    ///
    /// # Errors
    /// Returns an error if such a recording cannot show what the subject did.
    pub fn new(header: &Header, subject: Subject) -> Result<Self, FollowError> {
        if header.level == Level::Proc {
            return Err(FollowError::Counters);
        }
        let subject = match subject {
            Subject::Group(name) => {
                let path = header.groups.resolve(&name);
                Subject::Cgroup(path.map_err(FollowError::Group)?)
            }
            subject => subject,
        };
        let pids = match &subject {
            Subject::Processes(pids) => Some(pids.iter().copied().collect()),
            Subject::Cgroup(path) => Some(header::pids_in(header, path)?),
            Subject::Thread(_) | Subject::Program(_) | Subject::Group(_) => None,
        };
        let is_recorded = header::is_about(header, &subject);
        Ok(Self {
            subject,
            pids,
            meanings: Vec::new(),
            threads: FastMap::default(),
            wakes: FastMap::default(),
            machine: Machine::new(header),
            has_sums: false,
            can_derive: header.coverage.attached.contains(&Hook::SchedWaking),
            is_recorded,
        })
    }

    /// Adds the recording's next row.
    pub fn row(&mut self, sources: &SourceTable, row: &Row) {
        match row {
            Row::Span(span) => self.span(sources, span),
            Row::Edge(edge) => {
                if let Effect::Woke(tid) = edge.effect {
                    self.wakes.entry(tid).or_default().push(edge.span.start);
                }
            }
            Row::Sum(_) => self.has_sums = true,
            Row::Frame(_) => {}
        }
    }

    fn span(&mut self, sources: &SourceTable, span: &Span) {
        match self.meaning(sources, span.source) {
            Meaning::Runs(tid) => self.thread(tid, span).ran(span),
            Meaning::Waits(tid) => self.thread(tid, span).is_followed = true,
            Meaning::Idle => self.machine.idled(span),
            Meaning::Unreported => self.machine.ran_unreported(span),
            Meaning::OthersWait | Meaning::Other => {}
        }
    }

    fn thread(&mut self, tid: i32, span: &Span) -> &mut Thread {
        let row = (span.start, span.source);
        let thread = self.threads.entry(tid).or_insert_with(|| Thread {
            source: span.source,
            latest: row,
            runs: Vec::new(),
            is_followed: false,
        });
        thread.latest = thread.latest.max(row);
        thread
    }

    fn meaning(&mut self, sources: &SourceTable, id: SourceId) -> Meaning {
        let place = id.0 as usize;
        if let Some(Some(known)) = self.meanings.get(place) {
            return *known;
        }
        let meaning = self.meaning_of(sources.get(id));
        if place >= self.meanings.len() {
            self.meanings.resize(place + 1, None);
        }
        self.meanings[place] = Some(meaning);
        meaning
    }

    fn meaning_of(&self, source: &Source) -> Meaning {
        let thread = source.thread.as_ref();
        match (source.kind, thread) {
            (Kind::Idle, _) => Meaning::Idle,
            (Kind::Task, None) => Meaning::Unreported,
            (Kind::Task, Some(thread)) if self.is_subject(source) => Meaning::Runs(thread.tid),
            (Kind::Wait, Some(thread)) if self.is_subject(source) => Meaning::Waits(thread.tid),
            (Kind::Wait, _) => Meaning::OthersWait,
            _ => Meaning::Other,
        }
    }

    fn is_subject(&self, source: &Source) -> bool {
        let Some(thread) = &source.thread else {
            return false;
        };
        match (&self.subject, &self.pids) {
            (_, Some(pids)) => pids.contains(&thread.pid),
            (Subject::Thread(tid), _) => thread.tid == *tid,
            (Subject::Program(name), _) => {
                source.owner == Owner::Program && *thread.program == **name
            }
            (Subject::Processes(_) | Subject::Cgroup(_) | Subject::Group(_), None) => false,
        }
    }

    /// Derives the subject's missing rows. Must be called after the last row. `sources` is the
    /// complete table.
    ///
    /// # Errors
    /// Returns an error if the subject was not seen, or if its waits cannot be derived.
    pub fn finish(
        mut self,
        header: &Header,
        sources: &SourceTable,
    ) -> Result<Followed, FollowError> {
        if self.is_recorded {
            return Ok(Followed {
                header: header.clone(),
                sources: sources.clone(),
                meanings: Vec::new(),
                waits: Vec::new(),
            });
        }
        if self.has_sums {
            return Err(FollowError::Sums);
        }
        if !self.threads.values().any(|thread| !thread.runs.is_empty()) {
            return Err(FollowError::NotSeen(self.subject));
        }
        let must_derive = self.threads.values().any(|thread| !thread.is_followed);
        if must_derive && !self.can_derive {
            return Err(FollowError::NoWakeups);
        }
        self.machine.settle();
        let mut table = sources.clone();
        let mut waits: Vec<Vec<Wait>> = Vec::new();
        for (tid, thread) in &mut self.threads {
            if thread.is_followed {
                continue;
            }
            let mut wakes = self.wakes.remove(tid).unwrap_or_default();
            wakes.sort_unstable();
            thread.settle();
            let is_real_time = header.policies.iter().any(|policy| policy.tid == *tid);
            let source = sources.get(thread.source).clone();
            for gap in self.machine.gaps(&thread.runs, &wakes, is_real_time) {
                let id = table.intern(Source {
                    kind: Kind::Wait,
                    detail: gap.detail().into(),
                    ..source.clone()
                });
                let slot = gap.cpu.index();
                if slot >= waits.len() {
                    waits.resize_with(slot + 1, Vec::new);
                }
                waits[slot].push(Wait {
                    run: gap.until,
                    span: gap.span(id),
                });
            }
        }
        for of_cpu in &mut waits {
            of_cpu.sort_by_key(|wait| (wait.run, wait.span.start));
        }
        let header = header::followed(header, &self.subject, &self.threads, sources);
        Ok(Followed {
            header,
            sources: table,
            meanings: self.meanings,
            waits,
        })
    }
}

impl Thread {
    fn ran(&mut self, span: &Span) {
        let run = CpuRun {
            start: span.start,
            end: span.end(),
            cpu: span.cpu,
        };
        match self.runs.last_mut() {
            Some(last) if last.end == run.start && last.cpu == run.cpu => last.end = run.end,
            _ => self.runs.push(run),
        }
    }

    /// Sorts the runs. Rows from several CPUs can arrive in any order.
    fn settle(&mut self) {
        self.runs.sort_by_key(|run| (run.start, run.end));
        self.runs.dedup_by(|next, run| {
            let continues = run.end == next.start && run.cpu == next.cpu;
            if continues {
                run.end = next.end;
            }
            continues
        });
    }
}

/// A derived row, and the start of the run on the same CPU that follows it.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Start of the run that follows the derived row.
    run: Nanos,
    span: Span,
}

/// Second pass: turns the recording into one that looks as if its tracer had followed the subject.
#[derive(Debug)]
pub struct Followed {
    header: Header,
    sources: SourceTable,
    meanings: Vec<Option<Meaning>>,
    /// Derived rows of each CPU, sorted by the start of the run that follows them.
    waits: Vec<Vec<Wait>>,
}

impl Followed {
    /// Returns the recording's header, changed to be about the subject.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the source table that the rows refer to.
    pub fn sources(&self) -> &SourceTable {
        &self.sources
    }

    /// Returns the source table that the rows refer to, and the header.
    pub fn into_parts(self) -> (SourceTable, Header) {
        (self.sources, self.header)
    }

    /// Passes the recording's next row to `each`, unless the row is another program's wait. A
    /// derived row precedes the first row of the run that ends it, just as if the tracer had
    /// written it.
    pub fn row(&self, row: &Row, each: &mut dyn FnMut(&SourceTable, &Row)) {
        if let Row::Span(span) = row {
            let meaning = self.meanings.get(span.source.0 as usize).copied().flatten();
            match meaning {
                Some(Meaning::OthersWait) => return,
                Some(Meaning::Runs(_)) => {
                    for wait in self.waits_before(span.cpu, span.start) {
                        each(&self.sources, &Row::Span(wait.span));
                    }
                }
                _ => {}
            }
        }
        each(&self.sources, row);
    }

    fn waits_before(&self, cpu: Cpu, run: Nanos) -> impl Iterator<Item = &Wait> {
        let waits = self.waits.get(cpu.index()).map_or(&[][..], |waits| waits);
        let first = waits.partition_point(|wait| wait.run < run);
        waits[first..]
            .iter()
            .take_while(move |wait| wait.run == run)
    }
}
