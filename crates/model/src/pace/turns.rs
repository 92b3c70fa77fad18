//! A loop as it is asked for, and variants of one that run by turns.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoopRun, PaceRule, SleepMethod};
use crate::{Kind, Nanos, Owner, Source};

/// What a loop is to do, wherever it runs and for however long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopSpec {
    /// Frames a second.
    #[serde(rename = "rate_hz")]
    pub rate: f64,
    /// The same as a time, to the ns.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// CPU time of each frame's work; shorter than the period.
    #[serde(rename = "work_ns")]
    pub work: Nanos,
    /// How to wait for the next frame.
    pub sleep: SleepMethod,
    /// When frames are due.
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

/// Variants of a loop that ran by turns: one after the other, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopTurns {
    /// How long one turn was to last.
    #[serde(rename = "turn_ns")]
    pub turn: Nanos,
    /// How many turns each was to have.
    pub rounds: u64,
    /// The variants, in the order of a round; at least one.
    pub variants: Vec<LoopSpec>,
    /// How the turns went, in their order; fewer than were to be where it was ended early.
    pub runs: Vec<LoopRun>,
}

impl LoopTurns {
    /// How many turns there were to be.
    pub fn planned(&self) -> u64 {
        self.rounds * self.variants.len() as u64
    }
}

/// What the frames of all loops of ticktax's own are called.
const NAME: &str = "pace";

/// The source of the frames of a loop of ticktax's own: of the only one, or of turn number `turn`,
/// from 0, where variants run by turns.
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

/// The turn whose frames are of this source ([`frame_source`]).
pub fn turn_of(source: &Source) -> Option<u64> {
    let ours = source.kind == Kind::Frame && &*source.name == NAME;
    ours.then(|| source.detail.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{frame_source, turn_of};

    #[test]
    fn the_source_of_a_turns_frames_tells_the_turn() {
        assert_eq!(turn_of(&frame_source(Some(0))), Some(0));
        assert_eq!(turn_of(&frame_source(Some(99_999))), Some(99_999));
        assert_eq!(turn_of(&frame_source(None)), None);
    }
}
