//! The program whose time is asked for: finding it, having it followed, noticing its end.

use std::path::PathBuf;

use nix::unistd::gettid;
use ticktax_host::{Proc, throttling};
use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Throttling;
use ticktax_model::victim::FollowedThread;
use ticktax_model::victim::{Target, Usage, VictimHeader};
use ticktax_trace::Tracer;

use crate::command::Audited;
use crate::plan::{Program, Settings};

/// A victim that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    proc: Proc,
    program: Program,
    name: String,
    pids: Vec<i32>,
    cgroup: Option<PathBuf>,
    begin: Nanos,
    followed: bool,
    without_room: u64,
    before: Option<Usage>,
    after: Option<Usage>,
}

impl Watched {
    /// How often the threads of a program are listed anew, until all are followed: one that is not
    /// yet may start another in between.
    const ROUNDS: usize = 20;

    /// Finds the victim, and has `tracer`, which has not been started, follow it.
    pub(crate) fn find(
        settings: &Settings,
        proc: &Proc,
        tracer: Option<&mut Tracer>,
    ) -> Option<Self> {
        let program = settings.followed()?.clone();
        let mut watched = Self {
            proc: proc.clone(),
            name: String::new(),
            pids: Vec::new(),
            cgroup: None,
            begin: Nanos::ZERO,
            followed: tracer.is_some(),
            without_room: 0,
            before: None,
            after: None,
            program,
        };
        match &watched.program {
            Program::Command(_) => watched.cgroup = own_cgroup(proc),
            Program::Process(pid) => {
                watched.name = proc.program(*pid).unwrap_or_default();
                watched.cgroup = proc.cpu_cgroup(*pid);
            }
            Program::Cgroup(folder) => {
                watched.name = folder.display().to_string();
                watched.cgroup = Some(folder.clone());
            }
        }
        if let Some(tracer) = tracer {
            watched.follow_all(tracer);
        }
        watched.pids = watched.processes();
        watched.before = proc.usage(&watched.pids);
        Some(watched)
    }

    fn processes(&self) -> Vec<i32> {
        match &self.program {
            Program::Command(_) => self.pids.clone(),
            Program::Process(pid) => vec![*pid],
            Program::Cgroup(folder) => Proc::processes_in(folder).unwrap_or_default(),
        }
    }

    fn threads(&self) -> Vec<FollowedThread> {
        let pids = self.processes().into_iter();
        pids.flat_map(|pid| self.proc.threads_of(pid)).collect()
    }

    fn follow_all(&mut self, tracer: &mut Tracer) {
        let mut known: Vec<i32> = Vec::new();
        for _ in 0..Self::ROUNDS {
            let mut new = self.threads();
            new.retain(|thread| !known.contains(&thread.tid));
            if new.is_empty() {
                break;
            }
            known.extend(new.iter().map(|thread| thread.tid));
            let missing = new.len() - tracer.follow(&new);
            self.without_room += missing as u64;
        }
    }

    /// The books are open since `now`: lives begin.
    pub(crate) fn begin(&mut self, tracer: Option<&mut Tracer>, now: Nanos) {
        self.begin = now;
        let threads = self.threads();
        if let Some(tracer) = tracer {
            tracer.begin_lives(now, &threads);
            if matches!(self.program, Program::Command(_)) {
                self.followed = tracer.follow_children_of(gettid().as_raw());
            }
        }
    }

    /// The command has been started: it is the victim.
    pub(crate) fn started(&mut self, command: Option<&Audited>, tracer: Option<&mut Tracer>) {
        if let (Program::Command(_), Some(command)) = (&self.program, command) {
            self.pids = vec![command.pid()];
            self.name = command.name();
            self.before = Some(Usage::default());
        }
        if let Some(tracer) = tracer {
            tracer.let_go(gettid().as_raw());
        }
    }

    pub(crate) fn first_moment(&self) -> Nanos {
        self.begin
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> bool {
        // Nothing else tells what a program used that will have ended.
        if !self.followed {
            self.look();
        }
        match self.program {
            Program::Process(pid) => !self.proc.is_alive(pid),
            // The command's own end is seen by who started it.
            Program::Command(_) | Program::Cgroup(_) => false,
        }
    }

    fn look(&mut self) {
        self.after = self.proc.usage(&self.processes()).or(self.after);
    }

    /// The counters of its cgroup's quota.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        throttling(self.cgroup.as_deref()?)
    }

    /// What the header says of it; `incomplete` is why not all of it may have been seen.
    pub(crate) fn header(mut self, incomplete: Option<Limitation>) -> VictimHeader {
        self.look();
        let threads = self.without_room;
        let no_room = (threads > 0).then_some(Limitation::ThreadsNotFollowed { threads });
        let incomplete = incomplete.or(no_room);
        let pid = match &self.program {
            Program::Cgroup(_) => None,
            Program::Process(pid) => Some(*pid),
            Program::Command(_) => self.pids.first().copied(),
        };
        VictimHeader {
            target: match &self.program {
                Program::Command(_) => Target::Command,
                Program::Process(_) => Target::Process,
                Program::Cgroup(folder) => Target::Cgroup(folder.display().to_string()),
            },
            name: self.name,
            pid,
            begin: self.begin,
            followed: self.followed,
            incomplete,
            before: self.before,
            after: self.after,
        }
    }
}

/// The cgroup that a command will be in.
fn own_cgroup(proc: &Proc) -> Option<PathBuf> {
    proc.cpu_cgroup(nix::unistd::getpid().as_raw())
}
