//! Finds the frame rhythm of the watched programs in the same way as `pace --pid`, and reports when
//! it changes.

use ticktax_analysis::pace::FrameFinder;
use ticktax_model::incident::TriggerTarget;
use ticktax_model::pace::{FrameRhythm, NoRhythm};
use ticktax_model::recording::RowSink;
use ticktax_observe::{FrameState, FrameStatus, ProgramWindow, Recorder};

use crate::terminal::Terminal;

/// Finds a program's frame rhythm in the last few seconds, or returns the reason why it found no
/// rhythm.
pub(super) fn find(seen: &ProgramWindow) -> Result<FrameRhythm, NoRhythm> {
    let mut finder = FrameFinder::new(seen.pid);
    for row in &seen.rows {
        finder.row(&seen.sources, &row);
    }
    finder.frames(seen.begin, seen.end).rhythm()
}

/// The last state reported for each program.
pub(super) struct Frames {
    reported: Vec<FrameStatus>,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            reported: Vec::new(),
        }
    }

    pub(super) fn report(&mut self, recorder: &Recorder, terminal: &Terminal) {
        let now = recorder.frames();
        for status in &now {
            let before = self.reported.iter().find(|old| old.target == status.target);
            if before.is_none_or(|before| is_new(&before.state, &status.state)) {
                terminal.remark(&line(status, before.map(|before| &before.state)));
            }
        }
        self.reported = now;
    }
}

/// Returns whether to report `now` even though `before` was the last state reported. Two unknown
/// rhythms count as the same state, because the reason is worded differently each time.
fn is_new(before: &FrameState, now: &FrameState) -> bool {
    let is_unknown = |state: &FrameState| matches!(state, FrameState::Unknown(_));
    before != now && !(is_unknown(before) && is_unknown(now))
}

fn line(status: &FrameStatus, before: Option<&FrameState>) -> String {
    let FrameStatus {
        target,
        pid,
        name,
        state,
    } = status;
    let was_known = matches!(before, Some(FrameState::Known { .. }));
    let who = format!("{name} ({pid})");
    match state {
        FrameState::Sought if was_known => {
            format!("frames of {who}: the thread has exited; searching for its successor for 5 s")
        }
        FrameState::Sought => format!("frames of {who}: learning the frame rate for 5 s"),
        FrameState::Known { rhythm, learnt_in } => format!(
            "frames of {who}: {}, learned in {:.0} s",
            rate(rhythm, *pid),
            learnt_in.as_secs_f64()
        ),
        FrameState::Unknown(why) if was_known => {
            format!("frames of {who}: frame rate lost; the trigger is inactive: {why}")
        }
        FrameState::Unknown(why) => {
            format!("frames of {who}: no frame rate yet; the trigger is inactive: {why}")
        }
        FrameState::Absent => {
            let name = match target {
                TriggerTarget::Named(name) => name,
                _ => name,
            };
            format!(
                "frames of {name}: the trigger is inactive until exactly one process has this name"
            )
        }
        FrameState::Ended => {
            format!("frames of {who}: the process has exited; the trigger is inactive")
        }
    }
}

/// Describes the frame rate, and the events that reveal it.
fn rate(rhythm: &FrameRhythm, pid: i32) -> String {
    let which = match rhythm.long_from {
        None => "wake-ups",
        Some(_) => "long runs",
    };
    let by = if rhythm.tid == pid {
        format!("its {which}")
    } else {
        format!("the {which} of {} ({})", rhythm.name, rhythm.tid)
    };
    format!("{:.1} Hz from {by}", rhythm.rate_hz())
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::incident::TriggerTarget;
    use ticktax_model::pace::{FrameRhythm, NoRhythm};
    use ticktax_observe::{FrameState, FrameStatus};

    use super::line;

    #[test]
    fn each_state_of_frames_has_a_line() {
        let rhythm = FrameRhythm {
            tid: 4_290,
            name: "gamesrv".to_owned(),
            period: Nanos(16_666_667),
            due: Nanos(1),
            rearmed: false,
            long_from: None,
        };
        let known = |rhythm| FrameState::Known {
            rhythm,
            learnt_in: Nanos::from_millis(4_990),
        };
        let polling = FrameRhythm {
            tid: 4_291,
            name: "render".to_owned(),
            long_from: Some(Nanos(80_000)),
            ..rhythm.clone()
        };
        let was = known(rhythm.clone());
        let why = || FrameState::Unknown(NoRhythm::NotRun);
        for (state, before, words) in [
            (FrameState::Sought, None, "learning the frame rate for 5 s"),
            (
                FrameState::Sought,
                Some(&was),
                "has exited; searching for its successor",
            ),
            (
                known(rhythm.clone()),
                None,
                "60.0 Hz from its wake-ups, learned in 5 s",
            ),
            (
                known(polling),
                Some(&was),
                "60.0 Hz from the long runs of render (4291), learned in 5 s",
            ),
            (
                why(),
                None,
                "no frame rate yet; the trigger is inactive: it did not run",
            ),
            (
                why(),
                Some(&was),
                "frame rate lost; the trigger is inactive",
            ),
            (FrameState::Ended, Some(&was), "the process has exited"),
        ] {
            let status = FrameStatus {
                target: TriggerTarget::Process(4_290),
                pid: 4_290,
                name: "gamesrv".to_owned(),
                state,
            };
            let text = line(&status, before);
            assert!(
                text.starts_with("frames of gamesrv (4290): ") && text.contains(words),
                "{text}"
            );
        }
        let absent = FrameStatus {
            target: TriggerTarget::Named("gamesrv".to_owned()),
            pid: 0,
            name: String::new(),
            state: FrameState::Absent,
        };
        assert!(line(&absent, None).starts_with("frames of gamesrv: "));
    }
}
