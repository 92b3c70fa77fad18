//! Specifications of paced loops, and loops that take turns.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoopRun, PaceRule, SleepMethod};
use crate::{Kind, Nanos, Owner, Source};

/// Specification of a loop, without its CPU and duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopSpec {
    /// Frames per second.
    #[serde(rename = "rate_hz")]
    pub rate: f64,
    /// Frame period, rounded to the nanosecond.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// CPU time of each frame's work, which is less than the period.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// How the loop waits for its next frame.
    pub sleep: SleepMethod,
    /// Rule that determines when frames are due.
    pub rule: PaceRule,
}

impl fmt::Display for LoopSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            work,
            sleep,
            rule,
            ..
        } = self;
        write!(f, "{rate}/s {work} {sleep} {rule}")
    }
}

/// Several loops (arms) that take turns so that they can be compared. In each round, every arm has
/// one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopTurns {
    /// Planned length of a turn.
    #[serde(rename = "turn_ns")]
    pub turn: Nanos,
    /// Planned number of turns per arm.
    pub rounds: u64,
    /// Arms, at least one, in the order in which they run within a round.
    #[serde(alias = "variants")]
    pub arms: Vec<LoopSpec>,
    /// Results of the turns, in chronological order. There are fewer than planned if `pace` ended
    /// early.
    pub runs: Vec<LoopRun>,
}

impl LoopTurns {
    /// Returns the planned number of turns, over all arms.
    pub fn planned(&self) -> u64 {
        self.rounds * self.arms.len() as u64
    }
}

/// Name of the source of all frames that ticktax's loops run.
const NAME: &str = "pace";

/// Returns the source of the frames that one of ticktax's loops runs. If several arms take turns,
/// `turn` is the number of the turn, from 0.
pub fn frame_source(turn: Option<u64>) -> Source {
    let detail = turn.map_or_else(String::new, |turn| turn.to_string());
    Source {
        kind: Kind::Frame,
        owner: Owner::Probe,
        name: NAME.into(),
        detail: detail.into(),
        thread: None,
    }
}

/// Returns the number of the turn in which the frames of `source` ran, as passed to
/// [`frame_source`]; `None` if `source` has no turn.
pub fn turn_of(source: &Source) -> Option<u64> {
    let ours = source.kind == Kind::Frame && &*source.name == NAME;
    ours.then(|| source.detail.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{LoopTurns, frame_source, turn_of};

    #[test]
    fn recordings_that_call_arms_variants_are_read() {
        let turns = r#"{"turn_ns": 2000000000, "rounds": 5, "variants": [], "runs": []}"#;
        assert_eq!(serde_json::from_str::<LoopTurns>(turns).unwrap().rounds, 5);
    }

    #[test]
    fn frame_sources_identify_their_turn() {
        assert_eq!(turn_of(&frame_source(Some(0))), Some(0));
        assert_eq!(turn_of(&frame_source(Some(99_999))), Some(99_999));
        assert_eq!(turn_of(&frame_source(None)), None);
    }
}
