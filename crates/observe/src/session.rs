//! A session, which runs the tracer and the probes together and emits their rows in batches.

use nix::time::{ClockId, clock_gettime};
use ticktax_host::{Proc, own_peak_memory, own_thread_cpu_time};
use ticktax_model::recording::{Header, Level, Row, World};
use ticktax_model::{Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Counted, ProfileClock, TraceError, TraceSettings, Tracer};

use crate::buffers::{RateMeter, Room};
use crate::cgroups::watched_hierarchy;
use crate::error::ObserveError;
use crate::event::{Event, Observation, Progress, Started};
use crate::head_start::HeadStart;
use crate::plan::{Plan, Program, Settings};
use crate::running::Running;

/// A session reserves memory for this many sources. When a list of many sources grows, it can
/// take a millisecond to copy it. Reserved memory is not used until it is needed.
const SOURCES: usize = 1 << 16;

/// A live observation of this machine. Dropping it unloads the tracer and stops the probes. A
/// command that the session started keeps running.
///
/// A session belongs to the thread that starts it, and that thread's CPU time counts as the
/// session's cost. During the session, the thread avoids the CPUs of the watched program if it can.
/// A second thread raises its priority, in slices of 80 µs, if it cannot empty the buffers in time.
/// The same happens while the session starts and ends.
pub struct Session {
    started: Started,
    start_reported: bool,
    /// The running parts, or `None` after the session has ended.
    running: Option<Box<Running>>,
    progress: Option<Progress>,
    /// CPU time of this thread's governor.
    governed: Nanos,
    /// Header of the ended session. While `uncounted` is set, the cost in it is incomplete.
    header: Header,
    uncounted: bool,
    /// CPU time that this thread had used before the session started.
    cpu_before: Nanos,
    sources: SourceTable,
    rows: Vec<Row>,
}

impl Session {
    /// Starts the tracer, the probes and the command. If rights are missing, [`Started`] and the
    /// header report what cannot be seen. Missing rights are an error only if the plan requires the
    /// tracer.
    ///
    /// # Errors
    /// Returns an error if the plan doesn't fit this machine, or if something that it requires
    /// cannot be started. In either case, nothing is left running.
    pub fn start(plan: Plan) -> Result<Self, ObserveError> {
        Self::start_with(plan, HeadStart::take())
    }

    /// Same as [`Session::start`], for a thread that has already taken a head start.
    ///
    /// # Errors
    /// Returns the same errors as [`Session::start`].
    pub fn start_with(plan: Plan, head_start: HeadStart) -> Result<Self, ObserveError> {
        let proc = Proc::default();
        let meter = RateMeter::start(&proc);
        let settings = Settings::new(plan, &proc)?;
        let machine = proc.machine();
        let room = Room {
            rate: meter.rate(&proc),
            online: settings.online.len(),
            buffers: proc.room_for_cpus(),
            available: proc.available_memory(),
            is_raised: head_start.is_granted(),
        };
        let (tracer, load) = load_tracer(&settings, room);
        let tracer = require(tracer, &settings)?;
        let running = Running::start(proc, settings, machine, tracer, load, head_start)?;
        let started = running.started();
        let version = env!("CARGO_PKG_VERSION");
        Ok(Self {
            header: Header::new(World::Live, started.level, version),
            started,
            start_reported: false,
            cpu_before: running.cpu_before,
            running: Some(Box::new(running)),
            progress: None,
            governed: Nanos::ZERO,
            uncounted: true,
            sources: SourceTable::with_capacity(SOURCES),
            rows: Vec::new(),
        })
    }

    /// Returns the facts that are known before the first row.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// Returns the next event, after at most the plan's interval. Once the session has ended, every
    /// call returns [`Event::Ended`].
    ///
    /// Call this from the thread that started the session, and keep calling it: the buffers may
    /// hold only one second of spans.
    pub fn next_event(&mut self) -> Event<'_> {
        if !self.start_reported {
            self.start_reported = true;
            return Event::Started(&self.started);
        }
        loop {
            if let Some(progress) = self.progress.take() {
                return Event::Progress(progress);
            }
            let Some(mut running) = self.running.take() else {
                return Event::Ended(Box::new(self.ended().clone()));
            };
            self.rows.clear();
            let over = running.turn(&mut self.sources, &mut self.rows);
            self.progress = Some(running.progress());
            if over {
                (self.header, self.governed) = running.finish(&mut self.sources, &mut self.rows);
            } else {
                self.running = Some(running);
            }
            if !self.rows.is_empty() {
                break;
            }
        }
        Event::Rows {
            sources: &self.sources,
            rows: &self.rows,
        }
    }

    /// Returns the header, with the session's cost so far. The cost includes the caller's work on
    /// the last rows.
    fn ended(&mut self) -> &Header {
        if std::mem::take(&mut self.uncounted) {
            self.header.cost.cpu = own_thread_cpu_time() - self.cpu_before + self.governed;
            // The tracer's buffers are mapped into this process, so they are included.
            self.header.cost.memory_bytes = own_peak_memory();
        }
        &self.header
    }

    /// Makes the next call of [`Session::next_event`] end the session and forward `signal` to the
    /// command. The command first gets time to exit without it, because a Ctrl-C at the terminal
    /// also reaches the command.
    pub fn stop(&mut self, signal: Option<i32>) {
        if let Some(running) = &mut self.running {
            running.stop(signal);
        }
    }

    /// Returns the tracer's counters so far. Returns `None` if the session has no tracer or has
    /// ended.
    pub fn counted(&self) -> Option<Counted> {
        self.running.as_ref()?.counted()
    }

    /// Limits the memory used by a session that keeps sums and runs for days. If many of the
    /// tracer's entries are in use, frees those of threads that have exited. If there are more than
    /// `most` sources, forgets all of them and returns `true`. Later rows then use a new table of
    /// sources.
    pub fn tidy(&mut self, most: usize) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.recycle();
        let many = self.sources.len() > most;
        if many {
            running.forget_sources();
            self.sources = SourceTable::with_capacity(SOURCES);
        }
        many
    }

    /// Returns the sources of the rows so far.
    pub fn sources(&self) -> &SourceTable {
        &self.sources
    }
}

impl Observation for Session {
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError> {
        Ok(Self::next_event(self))
    }

    fn stop(&mut self, signal: Option<i32>) {
        Self::stop(self, signal);
    }

    fn sources(&self) -> &SourceTable {
        &self.sources
    }
}

/// Loads the tracer. Also returns how long loading took.
fn load_tracer(settings: &Settings, room: Room) -> (Result<Tracer, TraceError>, Nanos) {
    let begin = now();
    let tracer = Tracer::load(
        &TraceSettings {
            output: settings.plan.keep.output(room.records()),
            window: settings.plan.window,
            following: settings.followed().is_some(),
            profile: settings.plan.profile_hz.map(|hz| ProfileClock {
                hz,
                cpus: settings.online.clone(),
            }),
            group_hierarchy: (!settings.plan.drops_rights)
                .then(|| watched_hierarchy(&Proc::default()))
                .flatten(),
            guests: Proc::default().has_kvm(),
            ..TraceSettings::default()
        },
        room.buffers,
    );
    let load = tracer.as_ref().map_or(Nanos::ZERO, |_| now() - begin);
    (tracer, load)
}

/// Returns an error if the plan requires the tracer but it could not be loaded.
fn require(
    tracer: Result<Tracer, TraceError>,
    settings: &Settings,
) -> Result<Result<Tracer, TraceError>, ObserveError> {
    match tracer {
        Err(why) if settings.plan.needs == Level::Kernel => {
            let program = settings.plan.program.as_ref();
            let program = program.map_or_else(|| "this machine".to_owned(), Program::shown);
            Err(ObserveError::NoTracer { program, why })
        }
        tracer => Ok(tracer),
    }
}

/// Returns the wall-clock time, in seconds since 1970.
pub(crate) fn unix_time() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}
