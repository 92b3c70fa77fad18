//! Programs with frame triggers. Finds their processes, schedules the searches for the rhythm of
//! their frames, and stores the results.
//!
//! The caller does the actual searching, because that is part of the analysis. See
//! [`RecorderEvent::Program`](super::RecorderEvent).

use std::collections::VecDeque;

use ticktax_host::Proc;
use ticktax_model::incident::{TriggerKind, TriggerSpec, TriggerTarget};
use ticktax_model::pace::{FrameRhythm, NoRhythm};
use ticktax_model::{Nanos, SourceTable};
use ticktax_trace::PacedThread;

use super::{FrameState, FrameStatus, ProgramWindow, Recorder, SETTLE};
use crate::error::ObserveError;

/// Length of the recording that is searched for a rhythm.
const LOOK: Nanos = Nanos::from_secs(5);

/// The recording for a search may use at most 1/`MEMORY` of a window's memory limit, because the
/// search itself needs the rest. A recording that reaches its limit ends early.
const MEMORY: usize = 4;

/// Interval between two visits to a program. A visit checks whether the thread that runs the frames
/// still exists, and whether a search for the rhythm is due.
const VISIT: Nanos = Nanos::from_secs(10);

/// Number of visits between two searches once the rhythm is known. The search is repeated because
/// the rhythm can change without any frame being lost. Searching costs CPU time, so until a rhythm
/// is found, the number of visits doubles after each search, up to this limit.
const ANEW: u32 = 6;

/// If this many frames fire a trigger within [`OFTEN`], the frame rate has probably changed.
const MANY: usize = 10;
const OFTEN: Nanos = Nanos::from_secs(2);

/// All programs with frame triggers.
#[derive(Debug, Default)]
pub(super) struct Programs {
    all: Vec<Program>,
    /// Number of different rhythms found so far.
    armed: u64,
    /// Whether the rules in the kernel must be updated.
    changed: bool,
}

/// A program that a trigger names.
#[derive(Debug)]
struct Program {
    target: TriggerTarget,
    pid: i32,
    name: String,
    state: FrameState,
    /// Number of the current rhythm. The rhythms of all programs share one sequence.
    armed: u64,
    /// Time of the next visit, or `None` after the program has exited.
    visit: Option<Nanos>,
    /// Number of visits since the last search.
    visits: u32,
    /// Number of visits between two searches.
    look_at: u32,
    /// Times of this program's last [`MANY`] frames that fired a trigger.
    lost: VecDeque<Nanos>,
    /// Whether the program is losing many frames even though a search confirmed its rhythm.
    loses_many: bool,
}

impl Programs {
    /// Finds the programs that the triggers name.
    ///
    /// # Errors
    /// Returns an error if no process has the ID, or if several processes have the name.
    pub(super) fn from_triggers(specs: &[TriggerSpec], proc: &Proc) -> Result<Self, ObserveError> {
        let mut programs = Self::default();
        for spec in specs.iter().filter(|spec| spec.kind == TriggerKind::Frame) {
            if programs
                .all
                .iter()
                .any(|program| program.target == spec.target)
            {
                continue;
            }
            let pid = match &spec.target {
                &TriggerTarget::Process(pid) => {
                    let found = proc.process_of(pid).filter(|&pid| proc.is_alive(pid));
                    found.ok_or(ObserveError::NoProcess { pid })?
                }
                TriggerTarget::Named(name) => match proc.processes_named(name)[..] {
                    [] => 0,
                    [pid] => pid,
                    _ => return Err(ObserveError::SeveralNamed { name: name.clone() }),
                },
                // The parser allows frame triggers only for a process ID or a name.
                TriggerTarget::Any | TriggerTarget::Cgroup(_) | TriggerTarget::Cpus(_) => continue,
            };
            programs
                .all
                .push(Program::new(spec.target.clone(), pid, proc));
        }
        Ok(programs)
    }

    /// Schedules the first visit to each program. `now` is when the ring started.
    pub(super) fn begin(&mut self, now: Nanos) {
        for program in &mut self.all {
            program.visit = Some(now + LOOK + SETTLE);
        }
    }

    /// Returns the time of the next visit to any program, or `None` if no visit is scheduled.
    pub(super) fn next_visit(&self) -> Option<Nanos> {
        self.all.iter().filter_map(|program| program.visit).min()
    }

    /// Visits the programs that are due. If a search for a rhythm is due, returns the ID of the
    /// process.
    fn visit(&mut self, now: Nanos, proc: &Proc) -> Option<i32> {
        for program in &mut self.all {
            if program.visit.is_none_or(|visit| now < visit) {
                continue;
            }
            program.visit = Some(now + VISIT);
            let before = program.thread();
            let look = program.look_after(now, proc);
            self.changed |= program.thread() != before;
            if look {
                return Some(program.pid);
            }
        }
        None
    }

    /// Stores the result of a search for the rhythm of process `pid`. `learnt_in` is the length of
    /// the recording that was searched.
    fn set(&mut self, pid: i32, found: &Result<FrameRhythm, NoRhythm>, learnt_in: Nanos) {
        for program in self.all.iter_mut().filter(|program| program.pid == pid) {
            program.visits = 0;
            program.lost.clear();
            let known = program.rhythm().is_some();
            program.look_at = match found {
                Ok(_) => ANEW,
                Err(_) if known => 1,
                Err(_) => (2 * program.look_at).clamp(1, ANEW),
            };
            let same = match (program.rhythm(), found) {
                (Some(before), Ok(found)) => before.is_as(found),
                _ => false,
            };
            program.loses_many &= same;
            if same {
                continue;
            }
            self.changed |= known || found.is_ok();
            program.state = match found {
                Ok(rhythm) => {
                    self.armed += 1;
                    program.armed = self.armed;
                    let rhythm = rhythm.clone();
                    FrameState::Known { rhythm, learnt_in }
                }
                Err(why) => FrameState::Unknown(why.clone()),
            };
        }
    }

    /// Counts a frame that fired its trigger. If there have been many such frames, the frame rate
    /// may have changed, so a new search is scheduled.
    pub(super) fn lost_one(&mut self, target: &TriggerTarget, time: Nanos) {
        for program in self
            .all
            .iter_mut()
            .filter(|program| program.target == *target)
        {
            program.lost.push_back(time);
            if program.lost.len() > MANY {
                program.lost.pop_front();
            }
            let first = program.lost.front().copied().unwrap_or(time);
            if program.lost.len() == MANY && time - first <= OFTEN && !program.loses_many {
                program.loses_many = true;
                program.visits = ANEW;
                program.visit = program.visit.map(|_| time + LOOK + SETTLE);
            }
        }
    }

    /// Returns the thread that runs the program's frames, or `None` if it is unknown.
    pub(super) fn paced(&self, target: &TriggerTarget) -> Option<PacedThread> {
        let program = self.all.iter().find(|program| program.target == *target)?;
        let rhythm = program.rhythm()?;
        Some(PacedThread {
            tid: rhythm.tid,
            period: rhythm.period,
            due: rhythm.due,
            rearmed: rhythm.rearmed,
            long_from: rhythm.long_from,
            armed: program.armed,
        })
    }

    fn status(&self) -> impl Iterator<Item = FrameStatus> + '_ {
        self.all.iter().map(|program| FrameStatus {
            target: program.target.clone(),
            pid: program.pid,
            name: program.name.clone(),
            state: program.state.clone(),
        })
    }

    /// Returns whether all programs were selected by ID and have exited. Such programs cannot come
    /// back.
    fn have_ended(&self) -> bool {
        self.all
            .iter()
            .all(|program| program.state == FrameState::Ended)
    }
}

impl Program {
    fn new(target: TriggerTarget, pid: i32, proc: &Proc) -> Self {
        let mut program = Self {
            target,
            pid,
            name: String::new(),
            state: FrameState::Sought,
            armed: 0,
            visit: None,
            visits: ANEW,
            look_at: 0,
            lost: VecDeque::new(),
            loses_many: false,
        };
        program.read_name(proc);
        if pid == 0 {
            program.state = FrameState::Absent;
        }
        program
    }

    fn read_name(&mut self, proc: &Proc) {
        let given = match &self.target {
            TriggerTarget::Named(name) => name.clone(),
            _ => String::new(),
        };
        self.name = proc.program(self.pid).unwrap_or(given);
    }

    fn rhythm(&self) -> Option<&FrameRhythm> {
        match &self.state {
            FrameState::Known { rhythm, .. } => Some(rhythm),
            _ => None,
        }
    }

    fn thread(&self) -> Option<i32> {
        self.rhythm().map(|rhythm| rhythm.tid)
    }

    /// Checks that the process and the thread that runs its frames still exist. Returns whether to
    /// search for the rhythm now.
    fn look_after(&mut self, now: Nanos, proc: &Proc) -> bool {
        if self.pid == 0 || !proc.is_alive(self.pid) {
            return self.look_for_another(now, proc);
        }
        let is_own = |tid| proc.process_of(tid) == Some(self.pid);
        if self.thread().is_some_and(|tid| !is_own(tid)) {
            // The thread has exited, but a different thread may be running the frames now.
            self.seek(now);
            return false;
        }
        self.visits += 1;
        self.visits >= self.look_at
    }

    /// Looks for a new process with the same name after the previous one has exited.
    fn look_for_another(&mut self, now: Nanos, proc: &Proc) -> bool {
        let TriggerTarget::Named(name) = &self.target else {
            self.state = FrameState::Ended;
            self.visit = None;
            return false;
        };
        self.pid = match proc.processes_named(name)[..] {
            [pid] => pid,
            _ => 0,
        };
        if self.pid == 0 {
            self.state = FrameState::Absent;
        } else {
            self.seek(now);
            self.read_name(proc);
        }
        false
    }

    /// Schedules a search, which takes place once the recording is long enough.
    fn seek(&mut self, now: Nanos) {
        self.state = FrameState::Sought;
        self.visits = ANEW;
        self.look_at = 0;
        self.visit = Some(now + LOOK + SETTLE);
    }
}

impl Recorder {
    /// Returns the state of each program that has frame triggers.
    pub fn frames(&self) -> Vec<FrameStatus> {
        self.programs.status().collect()
    }

    /// Stores the result of a search for a rhythm: either the rhythm, or the reason why none was
    /// found. `seen` is the recording that was searched, which came with
    /// [`RecorderEvent::Program`](super::RecorderEvent::Program). From now on, the most recently
    /// found rhythm determines when frames are due.
    pub fn set_rhythm(&mut self, seen: &ProgramWindow, found: &Result<FrameRhythm, NoRhythm>) {
        self.programs.set(seen.pid, found, seen.end - seen.begin);
        self.update_kernel();
    }

    /// Returns whether only explicit requests can still fire a trigger. That is the case if all
    /// triggers are about frames and all of their processes have exited for good.
    pub fn has_nobody_left(&self) -> bool {
        let is_frame = |spec: &TriggerSpec| spec.kind == TriggerKind::Frame;
        !self.plan.triggers.is_empty()
            && self.plan.triggers.iter().all(is_frame)
            && self.programs.have_ended()
    }

    /// Visits the programs that are due. If a search for a rhythm is due, returns the recorded
    /// events to search. Does nothing while a window is being kept, because the window needs the
    /// memory.
    pub(super) fn turn_frames(&mut self, time: Nanos) -> Option<ProgramWindow> {
        if self.open.is_some() || self.stopped.is_some() {
            return None;
        }
        let pid = self.programs.visit(time, &self.proc);
        self.update_kernel();
        self.last_seconds(pid?, time)
    }

    /// Updates the rules in the kernel if anything has changed.
    fn update_kernel(&mut self) {
        if !std::mem::take(&mut self.programs.changed) {
            return;
        }
        self.rules.pace(&self.programs);
        if let Some(tracer) = &mut self.tracer {
            // If the update fails, the previous rules stay in effect.
            let _ = self.rules.apply(tracer);
        }
    }

    /// Returns the last few seconds recorded for process `pid`, starting where the shortest ring
    /// starts.
    fn last_seconds(&mut self, pid: i32, time: Nanos) -> Option<ProgramWindow> {
        let tracer = self.tracer.as_mut()?;
        let asked = time - SETTLE;
        let begin = (asked - LOOK).max(self.started.begin);
        let capture = tracer.capture(begin, self.plan.window_bytes / MEMORY);
        let mut sources = SourceTable::default();
        let frozen = tracer.freeze(capture, asked, Some(pid), &mut sources);
        let begin = frozen.books.iter().map(|books| books.begin).max()?;
        let end = frozen.full.unwrap_or(asked);
        (begin < end).then_some(ProgramWindow {
            pid,
            begin,
            end,
            sources,
            rows: frozen.rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use ticktax_host::Proc;
    use ticktax_model::Nanos;
    use ticktax_model::incident::TriggerSpec;
    use ticktax_model::pace::{FrameRhythm, NoRhythm};

    use super::{ANEW, FrameState, LOOK, MANY, Programs, SETTLE, VISIT};

    /// A simulated machine that runs a game with process ID 7, which has a second thread with ID 8.
    struct World(TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            world.begins(7);
            world.put("proc/8/status", "Name:\trender\nTgid:\t7\n");
            world
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn begins(&self, pid: i32) {
            let stat = format!("{pid} (gamesrv) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0");
            self.put(&format!("proc/{pid}/stat"), &stat);
            self.put(&format!("proc/{pid}/comm"), "gamesrv\n");
            let status = format!("Name:\tgamesrv\nTgid:\t{pid}\n");
            self.put(&format!("proc/{pid}/status"), &status);
        }

        fn ends(&self, pid: i32) {
            fs::remove_dir_all(self.0.path().join(format!("proc/{pid}"))).unwrap();
        }

        fn proc(&self) -> Proc {
            Proc::at(self.0.path())
        }

        fn programs(&self, texts: &[&str]) -> Result<Programs, String> {
            let specs: Vec<TriggerSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let mut programs =
                Programs::from_triggers(&specs, &self.proc()).map_err(|error| error.to_string())?;
            programs.begin(Nanos::ZERO);
            Ok(programs)
        }
    }

    fn rhythm(tid: i32, hz: i64) -> FrameRhythm {
        FrameRhythm {
            tid,
            name: "render".to_owned(),
            period: Nanos(1_000_000_000 / hz),
            due: Nanos::from_secs(4),
            rearmed: false,
            long_from: None,
        }
    }

    fn state(programs: &Programs) -> FrameState {
        programs.status().next().unwrap().state
    }

    /// Makes the next visit. Returns when it took place and, if a search for a rhythm is due, the
    /// ID of the process.
    fn visit(programs: &mut Programs, world: &World) -> (Nanos, Option<i32>) {
        let at = programs.next_visit().unwrap();
        (at, programs.visit(at, &world.proc()))
    }

    fn thread(programs: &Programs) -> Option<i32> {
        let target = programs.all[0].target.clone();
        programs.paced(&target).map(|paced| paced.tid)
    }

    #[test]
    fn a_program_must_exist_and_be_unique() {
        let world = World::new();
        let error = world.programs(&["frame:pid=9"]).unwrap_err();
        assert!(error.contains("no process 9"), "{error}");
        // A thread's ID selects its process. Two triggers for the same program share their state.
        let programs = world.programs(&["frame:pid=8", "frame:pid=8>5ms", "wait>5ms"]);
        let programs = programs.unwrap();
        assert_eq!(programs.all.len(), 1);
        let status = programs.status().next().unwrap();
        assert_eq!((status.pid, &*status.name), (7, "gamesrv"));
        world.begins(17);
        let error = world.programs(&["frame:comm=gamesrv"]).unwrap_err();
        assert!(error.contains("several processes"), "{error}");
    }

    #[test]
    fn a_rhythm_is_searched_until_found_and_then_each_minute() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        assert_eq!(programs.visit(LOOK, &world.proc()), None);
        assert_eq!(visit(&mut programs, &world), (LOOK + SETTLE, Some(7)));
        programs.set(7, &Err(NoRhythm::NotRun), LOOK);
        assert_eq!(state(&programs), FrameState::Unknown(NoRhythm::NotRun));
        assert!(!programs.changed);
        assert_eq!(
            visit(&mut programs, &world),
            (LOOK + SETTLE + VISIT, Some(7))
        );
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        assert!(programs.changed);
        assert_eq!(thread(&programs), Some(8));
        for _ in 1..ANEW {
            assert_eq!(visit(&mut programs, &world).1, None);
        }
        assert_eq!(visit(&mut programs, &world).1, Some(7));
        // The period has hardly changed, so this is still the same rhythm, with the same number.
        let armed = programs.all[0].armed;
        programs.set(
            7,
            &Ok(FrameRhythm {
                period: Nanos(16_666_900),
                ..rhythm(8, 60)
            }),
            LOOK,
        );
        assert_eq!(programs.all[0].armed, armed);
        programs.set(7, &Ok(rhythm(8, 30)), LOOK);
        assert_ne!(programs.all[0].armed, armed);
        programs.set(7, &Err(NoRhythm::NotRun), LOOK);
        assert_eq!(thread(&programs), None);
    }

    #[test]
    fn without_a_rhythm_searches_become_rarer() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        let none = Err(NoRhythm::NotRun);
        let mut looks = Vec::new();
        while looks.len() < 7 {
            let (at, look) = visit(&mut programs, &world);
            if look.is_some() {
                looks.push((at - LOOK - SETTLE).0 / VISIT.0);
                programs.set(7, &none, LOOK);
            }
        }
        assert_eq!(looks, [0, 1, 3, 7, 13, 19, 25]);
        // If the search doesn't find the rhythm again, the next visit repeats it.
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        programs.set(7, &none, LOOK);
        assert_eq!(visit(&mut programs, &world).1, Some(7));
    }

    #[test]
    fn many_lost_frames_start_one_new_search() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        visit(&mut programs, &world);
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        let target = programs.all[0].target.clone();
        let lose = |programs: &mut Programs, from: Nanos, apart: i64| {
            let count = i64::try_from(MANY).unwrap();
            for number in 0..count {
                programs.lost_one(&target, from + Nanos::from_millis(apart * number));
            }
            from + Nanos::from_millis(apart * (count - 1))
        };
        // A few lost frames don't change anything.
        let before = programs.next_visit();
        lose(&mut programs, Nanos::from_secs(6), 1_000);
        assert_eq!(programs.next_visit(), before);
        let last = lose(&mut programs, Nanos::from_secs(20), 33);
        assert_eq!(
            visit(&mut programs, &world),
            (last + LOOK + SETTLE, Some(7))
        );
        // The search finds the same rhythm, so more lost frames don't cause another search.
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        let before = programs.next_visit();
        lose(&mut programs, Nanos::from_secs(30), 33);
        assert_eq!(programs.next_visit(), before);
    }

    #[test]
    fn an_ended_thread_is_dropped_and_a_process_is_found_by_name() {
        let world = World::new();
        let mut programs = world.programs(&["frame:comm=gamesrv"]).unwrap();
        visit(&mut programs, &world);
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        world.ends(8);
        assert_eq!(visit(&mut programs, &world).1, None);
        assert_eq!(
            (state(&programs), thread(&programs)),
            (FrameState::Sought, None)
        );
        assert!(programs.changed);
        world.ends(7);
        visit(&mut programs, &world);
        assert_eq!(state(&programs), FrameState::Absent);
        world.begins(27);
        let (found, _) = visit(&mut programs, &world);
        assert_eq!(state(&programs), FrameState::Sought);
        // The new process must first have been recorded for long enough.
        assert_eq!(
            visit(&mut programs, &world),
            (found + LOOK + SETTLE, Some(27))
        );
        assert!(!programs.have_ended());
    }

    #[test]
    fn a_process_named_by_id_ends_for_good() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        visit(&mut programs, &world);
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        world.ends(7);
        assert_eq!(visit(&mut programs, &world).1, None);
        assert_eq!(
            (state(&programs), thread(&programs)),
            (FrameState::Ended, None)
        );
        assert_eq!(programs.next_visit(), None);
        assert!(programs.have_ended() && programs.changed);
    }
}
