//! Programs whose frames triggers are about: which process that is, when its rhythm is looked for, and what is known
//! of it. Finding it is the analysis', which whoever drives the recorder asks: [`RecorderEvent::Program`](super::RecorderEvent).

use std::collections::VecDeque;

use ticktax_host::Proc;
use ticktax_model::incident::{TriggerKind, TriggerSpec, TriggerTarget};
use ticktax_model::pace::FrameRhythm;
use ticktax_model::{Nanos, SourceTable};
use ticktax_trace::PacedThread;

use super::{FrameState, FrameStatus, ProgramWindow, Recorder, SETTLE};
use crate::error::ObserveError;

/// What a rhythm is looked for in.
const LOOK: Nanos = Nanos::from_secs(5);

/// The part of a window's memory that these seconds may take; what is found in them takes more. Where it does not suffice, they
/// end early.
const MEMORY: usize = 4;

/// From one visit to the next: whether the thread is there still, or a rhythm by now.
const VISIT: Nanos = Nanos::from_secs(10);

/// Of so many visits one looks for a rhythm, also where it is known: it may have changed without a frame being lost. Where
/// there is none, the visits between two looks double up to this, since a look at a busy machine's events costs CPU time.
const ANEW: u32 = 6;

/// So many frames that triggered within [`OFTEN`] are no rare ones: the rate may have changed.
const MANY: usize = 10;
const OFTEN: Nanos = Nanos::from_secs(2);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Programs {
    all: Vec<Program>,
    /// Rhythms that were learnt so far.
    armed: u64,
    /// Whether the kernel is to be told something else.
    changed: bool,
}

/// One that was named.
#[derive(Debug)]
struct Program {
    target: TriggerTarget,
    pid: i32,
    name: String,
    state: FrameState,
    /// The number of its rhythm.
    armed: u64,
    /// When it is to be looked at; `None` once it has ended.
    visit: Option<Nanos>,
    /// Visits since its rhythm was looked for.
    visits: u32,
    /// Of so many the next one looks.
    look_at: u32,
    /// When frames triggered, the last [`MANY`].
    lost: VecDeque<Nanos>,
    /// It loses many by the rhythm that it has: looking for another one was in vain.
    loses_many: bool,
}

impl Programs {
    /// Those of the triggers.
    ///
    /// # Errors
    /// Where there is no process of the number, or several of the name.
    pub(super) fn of(specs: &[TriggerSpec], proc: &Proc) -> Result<Self, ObserveError> {
        let mut programs = Self::default();
        for spec in specs.iter().filter(|it| it.kind == TriggerKind::Frame) {
            if programs.all.iter().any(|it| it.target == spec.target) {
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
                // The parser lets frames be nobody else's.
                TriggerTarget::Any | TriggerTarget::Cgroup(_) | TriggerTarget::Cpus(_) => continue,
            };
            programs
                .all
                .push(Program::new(spec.target.clone(), pid, proc));
        }
        Ok(programs)
    }

    /// The ring begins now.
    pub(super) fn begin(&mut self, now: Nanos) {
        for it in &mut self.all {
            it.visit = Some(now + LOOK + SETTLE);
        }
    }

    /// When one of them is to be looked at.
    pub(super) fn next_visit(&self) -> Option<Nanos> {
        self.all.iter().filter_map(|it| it.visit).min()
    }

    /// Looks at those whose time has come. Returns the process whose rhythm is to be looked for, one at a time.
    fn visit(&mut self, now: Nanos, proc: &Proc) -> Option<i32> {
        for it in &mut self.all {
            if it.visit.is_none_or(|visit| now < visit) {
                continue;
            }
            it.visit = Some(now + VISIT);
            let before = it.thread();
            let look = it.look_after(now, proc);
            self.changed |= it.thread() != before;
            if look {
                return Some(it.pid);
            }
        }
        None
    }

    /// What was found of this process.
    fn set(&mut self, pid: i32, found: &Result<FrameRhythm, String>, learnt_in: Nanos) {
        for it in self.all.iter_mut().filter(|it| it.pid == pid) {
            it.visits = 0;
            it.lost.clear();
            let known = it.rhythm().is_some();
            it.look_at = match found {
                Ok(_) => ANEW,
                Err(_) if known => 1,
                Err(_) => (2 * it.look_at).clamp(1, ANEW),
            };
            let same = match (it.rhythm(), found) {
                (Some(before), Ok(found)) => before.is_as(found),
                _ => false,
            };
            it.loses_many &= same;
            if same {
                continue;
            }
            self.changed |= known || found.is_ok();
            it.state = match found {
                Ok(rhythm) => {
                    self.armed += 1;
                    it.armed = self.armed;
                    let rhythm = rhythm.clone();
                    FrameState::Known { rhythm, learnt_in }
                }
                Err(why) => FrameState::Unknown(why.clone()),
            };
        }
    }

    /// A frame of such a program triggered. Where many do, the rate may be another one: the ring will tell.
    pub(super) fn lost_one(&mut self, target: &TriggerTarget, time: Nanos) {
        for it in self.all.iter_mut().filter(|it| it.target == *target) {
            it.lost.push_back(time);
            if it.lost.len() > MANY {
                it.lost.pop_front();
            }
            let first = it.lost.front().copied().unwrap_or(time);
            if it.lost.len() == MANY && time - first <= OFTEN && !it.loses_many {
                it.loses_many = true;
                it.visits = ANEW;
                it.visit = it.visit.map(|_| time + LOOK + SETTLE);
            }
        }
    }

    /// The thread that has such a program's frames, where it is known.
    pub(super) fn paced(&self, target: &TriggerTarget) -> Option<PacedThread> {
        let program = self.all.iter().find(|it| it.target == *target)?;
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
        self.all.iter().map(|it| FrameStatus {
            target: it.target.clone(),
            pid: it.pid,
            name: it.name.clone(),
            state: it.state.clone(),
        })
    }

    /// Whether all of them have ended, for good.
    fn have_ended(&self) -> bool {
        self.all.iter().all(|it| it.state == FrameState::Ended)
    }
}

impl Program {
    fn new(target: TriggerTarget, pid: i32, proc: &Proc) -> Self {
        let mut new = Self {
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
        new.name_it(proc);
        if pid == 0 {
            new.state = FrameState::Absent;
        }
        new
    }

    fn name_it(&mut self, proc: &Proc) {
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

    /// Whether its process and its thread are there still. Returns whether its rhythm is to be looked for.
    fn look_after(&mut self, now: Nanos, proc: &Proc) -> bool {
        if self.pid == 0 || !proc.is_alive(self.pid) {
            return self.look_for_another(now, proc);
        }
        let is_its = |tid| proc.process_of(tid) == Some(self.pid);
        if self.thread().is_some_and(|tid| !is_its(tid)) {
            // Another thread may have them now.
            self.seek(now);
            return false;
        }
        self.visits += 1;
        self.visits >= self.look_at
    }

    /// Its process has ended: one of the same name may have begun.
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
            self.name_it(proc);
        }
        false
    }

    /// Its rhythm is looked for once it was seen for long enough.
    fn seek(&mut self, now: Nanos) {
        self.state = FrameState::Sought;
        self.visits = ANEW;
        self.look_at = 0;
        self.visit = Some(now + LOOK + SETTLE);
    }
}

impl Recorder {
    /// What is known of the programs whose frames triggers are about.
    pub fn frames(&self) -> Vec<FrameStatus> {
        self.programs.status().collect()
    }

    /// Takes what was found of a process' frames in [`RecorderEvent::Program`](super::RecorderEvent::Program), or in words
    /// why there are none. A frame that is lost triggers from now on, by the rhythm that was found last.
    pub fn set_rhythm(&mut self, seen: &ProgramWindow, found: &Result<FrameRhythm, String>) {
        self.programs.set(seen.pid, found, seen.end - seen.begin);
        self.tell_kernel();
    }

    /// Whether nothing will trigger any more unless somebody asks: all triggers were about frames of processes, which have
    /// ended.
    pub fn has_nobody_left(&self) -> bool {
        let of_frames = |it: &TriggerSpec| it.kind == TriggerKind::Frame;
        !self.plan.triggers.is_empty()
            && self.plan.triggers.iter().all(of_frames)
            && self.programs.have_ended()
    }

    /// Looks after the programs whose time has come; what their rhythm is to be found in. Not while a window is kept, which
    /// has the memory.
    pub(super) fn turn_frames(&mut self, time: Nanos) -> Option<ProgramWindow> {
        if self.open.is_some() || self.stopped.is_some() {
            return None;
        }
        let pid = self.programs.visit(time, &self.proc);
        self.tell_kernel();
        self.last_seconds(pid?, time)
    }

    /// Has the kernel go by what is known now.
    fn tell_kernel(&mut self) {
        if !std::mem::take(&mut self.programs.changed) {
            return;
        }
        self.rules.pace(&self.programs);
        if let Some(tracer) = &mut self.tracer {
            // Where it cannot be told, it goes by what it was told before.
            let _ = self.rules.apply(tracer);
        }
    }

    /// The last seconds of a process, as far as every ring reaches back.
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
    use ticktax_model::pace::FrameRhythm;

    use super::{ANEW, FrameState, LOOK, MANY, Programs, SETTLE, VISIT};

    /// A machine with a game, whose second thread has the number 8.
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
            let specs: Vec<TriggerSpec> = texts.iter().map(|it| it.parse().unwrap()).collect();
            let mut programs =
                Programs::of(&specs, &self.proc()).map_err(|error| error.to_string())?;
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

    /// When the next is due, and which process is to be looked for then.
    fn visit(programs: &mut Programs, world: &World) -> (Nanos, Option<i32>) {
        let at = programs.next_visit().unwrap();
        (at, programs.visit(at, &world.proc()))
    }

    fn thread(programs: &Programs) -> Option<i32> {
        let target = programs.all[0].target.clone();
        programs.paced(&target).map(|it| it.tid)
    }

    #[test]
    fn a_program_has_to_be_there_and_be_one() {
        let world = World::new();
        let error = world.programs(&["frame:pid=9"]).unwrap_err();
        assert!(error.contains("no process 9"), "{error}");
        // A thread and its process are one; two triggers of one program share what is known of it.
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
    fn a_rhythm_is_looked_for_until_it_is_found_and_then_each_minute() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        assert_eq!(programs.visit(LOOK, &world.proc()), None);
        assert_eq!(visit(&mut programs, &world), (LOOK + SETTLE, Some(7)));
        programs.set(7, &Err("it did not run".to_owned()), LOOK);
        assert_eq!(
            state(&programs),
            FrameState::Unknown("it did not run".to_owned())
        );
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
        // The same but for its last digits: slots are not counted anew.
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
        programs.set(7, &Err("it did not run".to_owned()), LOOK);
        assert_eq!(thread(&programs), None);
    }

    #[test]
    fn where_there_is_no_rhythm_looks_become_rarer() {
        let world = World::new();
        let mut programs = world.programs(&["frame:pid=7"]).unwrap();
        let none = Err("it did not run".to_owned());
        let mut looks = Vec::new();
        while looks.len() < 7 {
            let (at, look) = visit(&mut programs, &world);
            if look.is_some() {
                looks.push((at - LOOK - SETTLE).0 / VISIT.0);
                programs.set(7, &none, LOOK);
            }
        }
        assert_eq!(looks, [0, 1, 3, 7, 13, 19, 25]);
        // One that was lost is looked for at once.
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        programs.set(7, &none, LOOK);
        assert_eq!(visit(&mut programs, &world).1, Some(7));
    }

    #[test]
    fn where_many_frames_trigger_the_rhythm_is_looked_for_anew_but_not_in_vain() {
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
        // Rare ones change nothing.
        let before = programs.next_visit();
        lose(&mut programs, Nanos::from_secs(6), 1_000);
        assert_eq!(programs.next_visit(), before);
        let last = lose(&mut programs, Nanos::from_secs(20), 33);
        assert_eq!(
            visit(&mut programs, &world),
            (last + LOOK + SETTLE, Some(7))
        );
        // It is the same: it loses frames, and is not looked for each time.
        programs.set(7, &Ok(rhythm(8, 60)), LOOK);
        let before = programs.next_visit();
        lose(&mut programs, Nanos::from_secs(30), 33);
        assert_eq!(programs.next_visit(), before);
    }

    #[test]
    fn a_thread_that_ends_is_let_go_and_a_process_by_its_name_is_looked_for() {
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
        // Its first seconds are waited for.
        assert_eq!(
            visit(&mut programs, &world),
            (found + LOOK + SETTLE, Some(27))
        );
        assert!(!programs.have_ended());
    }

    #[test]
    fn a_process_by_its_number_ends_for_good() {
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
