//! Programs whose frames are watched: their rhythm is found here, as `pace --pid` finds it, and what is known of it is told.

use ticktax_analysis::Auditor;
use ticktax_model::incident::TriggerTarget;
use ticktax_model::pace::FrameRhythm;
use ticktax_model::recording::RowSink;
use ticktax_observe::{FrameState, FrameStatus, ProgramWindow, Recorder};

use crate::terminal::Terminal;

/// The rhythm of a program's frames in its last seconds; in words why there is none, where that is so.
pub(super) fn find(seen: &ProgramWindow) -> Result<FrameRhythm, String> {
    let mut auditor = Auditor::books();
    auditor.frames_of(seen.pid);
    for row in &seen.rows {
        auditor.row(&seen.sources, &row);
    }
    let found = auditor.frames_so_far(seen.begin, seen.end, None);
    found.map_or_else(|| Err(String::new()), |found| found.rhythm())
}

/// What was told of each program.
pub(super) struct Frames {
    told: Vec<FrameStatus>,
}

impl Frames {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { told: Vec::new() }
    }

    /// Tells what is new.
    pub(super) fn tell(&mut self, recorder: &Recorder, terminal: &Terminal) {
        let now = recorder.frames();
        for it in &now {
            let before = self.told.iter().find(|told| told.target == it.target);
            if before.is_none_or(|before| is_news(&before.state, &it.state)) {
                terminal.remark(&line(it, before.map(|before| &before.state)));
            }
        }
        self.told = now;
    }
}

/// Whether what is known is told again. Why there is no rate is in other words each time.
fn is_news(before: &FrameState, now: &FrameState) -> bool {
    let is_unknown = |state: &FrameState| matches!(state, FrameState::Unknown(_));
    before != now && !(is_unknown(before) && is_unknown(now))
}

/// What is known of a program's frames, and was not before.
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
        FrameState::Sought if was_known => format!(
            "frames of {who}: the thread that had them has ended; learning which has them now, in 5 s"
        ),
        FrameState::Sought => format!("frames of {who}: learning their rate, in 5 s"),
        FrameState::Known { rhythm, learnt_in } => format!(
            "frames of {who}: {}, learnt in {:.0} s",
            rate(rhythm, *pid),
            learnt_in.as_secs_f64()
        ),
        FrameState::Unknown(why) if was_known => {
            format!("frames of {who}: no rate any more, so nothing triggers: {why}")
        }
        FrameState::Unknown(why) => {
            format!("frames of {who}: no rate yet, so nothing triggers: {why}")
        }
        FrameState::Absent => {
            let name = match target {
                TriggerTarget::Named(name) => name,
                _ => name,
            };
            format!(
                "frames of {name}: no process or several have this name; nothing triggers until exactly one has"
            )
        }
        FrameState::Ended => format!("frames of {who}: it has ended, so nothing triggers any more"),
    }
}

/// How often its frames are due, and by what they are told.
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
    format!("{:.1} Hz by {by}", rhythm.rate_hz())
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::incident::TriggerTarget;
    use ticktax_model::pace::FrameRhythm;
    use ticktax_observe::{FrameState, FrameStatus};

    use super::line;

    #[test]
    fn what_is_known_of_frames_is_told_in_a_line() {
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
        let why = || FrameState::Unknown("it did not run".to_owned());
        for (state, before, words) in [
            (FrameState::Sought, None, "learning their rate, in 5 s"),
            (
                FrameState::Sought,
                Some(&was),
                "has ended; learning which has them now",
            ),
            (
                known(rhythm.clone()),
                None,
                "60.0 Hz by its wake-ups, learnt in 5 s",
            ),
            (
                known(polling),
                Some(&was),
                "60.0 Hz by the long runs of render (4291), learnt in 5 s",
            ),
            (
                why(),
                None,
                "no rate yet, so nothing triggers: it did not run",
            ),
            (why(), Some(&was), "no rate any more, so nothing triggers"),
            (FrameState::Ended, Some(&was), "it has ended"),
        ] {
            let status = FrameStatus {
                target: TriggerTarget::Process(4_290),
                pid: 4_290,
                name: "gamesrv".to_owned(),
                state,
            };
            let told = line(&status, before);
            assert!(
                told.starts_with("frames of gamesrv (4290): ") && told.contains(words),
                "{told}"
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
