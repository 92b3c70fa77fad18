//! The session: tracer and probes side by side, their rows handed out in batches.

use nix::time::{ClockId, clock_gettime};
use ticktax_host::{Proc, own_peak_memory, own_thread_cpu_time};
use ticktax_model::recording::{Header, Level, Row, World};
use ticktax_model::{Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Counted, TraceError, TraceSettings, Tracer};

use crate::error::ObserveError;
use crate::event::{Event, Observation, Progress, Started};
use crate::plan::{Plan, Program, Settings};
use crate::running::Running;

/// A live observation of this machine. Dropping it takes the tracer out of the kernel and stops
/// the probes; a command that it started is left running.
///
/// A session belongs to the thread that starts it: what that thread uses is the session's cost. As long
/// as it lasts, that thread keeps off the CPUs of the watched program where it can, and it has itself
/// served sooner where it does not empty the buffers in time.
pub struct Session {
    started: Started,
    told: bool,
    /// `None` once everything is closed.
    running: Option<Box<Running>>,
    progress: Option<Progress>,
    /// Of what has ended; what is still to be counted of its cost.
    header: Header,
    uncounted: bool,
    /// CPU time of this thread before the session began.
    cpu_before: Nanos,
    sources: SourceTable,
    rows: Vec<Row>,
}

impl Session {
    /// Starts tracer, probes and command as the plan says. What cannot be seen for want of rights
    /// is no error unless the plan needs it: [`Started`] and the header say so.
    ///
    /// # Errors
    /// When the plan does not fit this machine, or something that it asks for cannot be started;
    /// nothing is left running then.
    pub fn start(plan: Plan) -> Result<Self, ObserveError> {
        let proc = Proc::default();
        let settings = Settings::of(plan, &proc)?;
        let machine = proc.machine();
        let (tracer, load) = load_tracer(&settings, &proc);
        let tracer = require(tracer, &settings)?;
        let running = Running::start(proc, settings, machine, tracer, load)?;
        let started = running.started();
        let version = env!("CARGO_PKG_VERSION");
        Ok(Self {
            header: Header::new(World::Live, started.level, version),
            started,
            told: false,
            cpu_before: running.cpu_before,
            running: Some(Box::new(running)),
            progress: None,
            uncounted: true,
            sources: SourceTable::default(),
            rows: Vec::new(),
        })
    }

    /// What [`Event::Started`] tells, or told.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// The next step; waits for it where there is none yet, no longer than the plan's interval. Once
    /// the session has ended, it is [`Event::Ended`] again and again.
    ///
    /// To be called from the thread that started the session, and again soon: with spans
    /// within half a second, buffers hold no more at 500,000 events a second.
    pub fn next_event(&mut self) -> Event<'_> {
        if !self.told {
            self.told = true;
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
                self.header = running.finish(&mut self.sources, &mut self.rows);
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

    /// The header, with what the session cost: the caller has taken the last rows by now, and
    /// that was work, too.
    fn ended(&mut self) -> &Header {
        if std::mem::take(&mut self.uncounted) {
            self.header.cost.cpu = own_thread_cpu_time() - self.cpu_before;
            // The tracer's buffers are mapped, so they are among it.
            self.header.cost.memory_bytes = own_peak_memory();
        }
        &self.header
    }

    /// Ends the session with the next call of [`Session::next_event`]. A `signal` is passed on to
    /// the command, unless that ends of itself: a Ctrl-C at the terminal has reached it already.
    pub fn stop(&mut self, signal: Option<i32>) {
        if let Some(running) = &mut self.running {
            running.stop(signal);
        }
    }

    /// What the tracer has counted so far; `None` where there is none, or the session has ended.
    pub fn counted(&self) -> Option<Counted> {
        self.running.as_ref()?.counted()
    }

    /// Keeps a session of sums that goes on for days within bounds: what the tracer keeps of threads that
    /// have ended is given back where it is much, and where more than `most` sources were named, all are
    /// forgotten. Returns whether they were: rows from then on name sources of a new table.
    pub fn tidy(&mut self, most: usize) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.recycle();
        let many = self.sources.len() > most;
        if many {
            running.forget_sources();
            self.sources = SourceTable::default();
        }
        many
    }

    /// The sources that the rows so far name.
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

/// Loads the tracer, and tells how long that took.
fn load_tracer(settings: &Settings, proc: &Proc) -> (Result<Tracer, TraceError>, Nanos) {
    let begin = now();
    let tracer = Tracer::load(
        &TraceSettings {
            output: settings.plan.keep.output(),
            window: settings.plan.window,
            following: settings.followed().is_some(),
            ..TraceSettings::default()
        },
        proc.room_for_cpus(),
    );
    let load = tracer.as_ref().map_or(Nanos::ZERO, |_| now() - begin);
    (tracer, load)
}

/// Fails where the plan needs a tracer that did not load.
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

/// Seconds since 1970 on the wall clock.
pub(crate) fn unix_time() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}
