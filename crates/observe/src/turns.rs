//! Compares several arms, that is, settings of a paced loop. Their trials (turns) are interleaved,
//! so that a slow spell of the machine affects all arms.

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::{LoopRun, LoopSpec, LoopTurns, frame_source};
use ticktax_model::recording::{Coverage, EndedEarly, Header, Paced, Row};
use ticktax_model::{Nanos, SourceId, SourceTable};

use crate::error::ObserveError;
use crate::event::{Event, Observation, Progress};
use crate::paced::{LoopPlan, PacedLoop};
use crate::running::length_not_kept;

/// The arms of a comparison, and the number of trials for each.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnsPlan {
    arms: Vec<LoopSpec>,
    /// Plan for the loop with the first arm. Its remaining settings apply to all arms.
    first: LoopPlan,
    rounds: u32,
}

impl TurnsPlan {
    /// Maximum number of arms in a comparison.
    pub const MAX_ARMS: usize = 100;

    /// Creates a plan that runs the arms in turn, each `rounds` times. Every trial uses the length,
    /// CPU and scheduling policy in `plan`.
    ///
    /// # Errors
    /// Returns an error if the number of arms is 0 or too large, or if an arm cannot work
    /// ([`LoopPlan::check`]).
    pub fn new(plan: LoopPlan, arms: Vec<LoopSpec>, rounds: u32) -> Result<Self, ObserveError> {
        if !(1..=Self::MAX_ARMS).contains(&arms.len()) {
            return Err(ObserveError::Arms {
                count: arms.len(),
                max: Self::MAX_ARMS,
            });
        }
        for &spec in &arms {
            LoopPlan {
                spec,
                ..plan.clone()
            }
            .check()?;
        }
        Ok(Self {
            arms,
            first: plan,
            rounds,
        })
    }

    /// Returns the arms, in the order in which they run within a round.
    pub fn arms(&self) -> &[LoopSpec] {
        &self.arms
    }

    /// Returns the total number of trials.
    pub fn turns(&self) -> u64 {
        u64::from(self.rounds) * self.arms.len() as u64
    }

    /// Returns the total length of all trials.
    pub fn length(&self) -> Nanos {
        self.begin_of(self.turns())
    }

    /// Returns the number, counted from 0, of the trial that is running `elapsed` after the start.
    pub fn turn_at(&self, elapsed: Nanos) -> u64 {
        let turn = elapsed.0 / self.first.length.0.max(1);
        turn.unsigned_abs().min(self.turns().saturating_sub(1))
    }

    /// Returns the arm that runs in trial `turn`.
    pub fn arm_of(&self, turn: u64) -> &LoopSpec {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "smaller than the number of arms"
        )]
        &self.arms[(turn % self.arms.len() as u64) as usize]
    }

    fn begin_of(&self, turn: u64) -> Nanos {
        let turn = i64::try_from(turn).unwrap_or(i64::MAX);
        Nanos(self.first.length.0.saturating_mul(turn))
    }

    fn plan_of(&self, turn: u64) -> LoopPlan {
        LoopPlan {
            spec: *self.arm_of(turn),
            ..self.first.clone()
        }
    }
}

/// A comparison of loop arms in interleaved trials. The rows are the frames of all trials, with one
/// source per trial ([`frame_source`]). The header contains each trial's result
/// ([`Header::paced_turns`]).
pub struct PacedTurns {
    plan: TurnsPlan,
    current: PacedLoop,
    turn: u64,
    runs: Vec<LoopRun>,
    /// Header of the first trial.
    first: Option<Box<Header>>,
    sources: SourceTable,
    source: SourceId,
    /// Frames read since the last batch.
    rows: Vec<Row>,
    begin: Option<Nanos>,
    stopped: bool,
    ended: Option<Box<Header>>,
}

impl PacedTurns {
    /// Starts the first trial.
    ///
    /// # Errors
    /// Returns an error if the loop of the first trial does not start.
    pub fn start(plan: TurnsPlan) -> Result<Self, ObserveError> {
        let current = PacedLoop::start(plan.plan_of(0))?;
        let mut sources = SourceTable::default();
        let source = sources.intern(frame_source(Some(0)));
        Ok(Self {
            plan,
            current,
            turn: 0,
            runs: Vec::new(),
            first: None,
            sources,
            source,
            rows: Vec::new(),
            begin: None,
            stopped: false,
            ended: None,
        })
    }

    /// Returns the state of the machine before the first trial.
    pub fn machine(&self) -> &Machine {
        self.current.machine()
    }

    /// Stores the results of the trial that has ended. Then starts the next trial or, after the
    /// last one, ends the comparison.
    fn next_turn(&mut self, mut header: Box<Header>) -> Result<(), ObserveError> {
        let Some(Paced::Loop(run)) = header.paced.take() else {
            unreachable!("the header of a paced loop has its run")
        };
        let failed = run.error.is_some();
        self.runs.push(*run);
        self.turn += 1;
        let after = header.after.clone();
        let first = self.first.get_or_insert(header);
        if !failed && !self.stopped && self.turn < self.plan.turns() {
            self.current = PacedLoop::start(self.plan.plan_of(self.turn))?;
            self.source = self.sources.intern(frame_source(Some(self.turn)));
            return Ok(());
        }
        let mut limitations = first.coverage.limitations.clone();
        limitations.retain(|limitation| !matches!(limitation, Limitation::LengthDiffers { .. }));
        if !failed && !self.stopped {
            let watched = self.runs.iter().map(|run| run.elapsed).sum();
            limitations.extend(length_not_kept(self.plan.length(), watched));
        }
        let turns = LoopTurns {
            turn: self.plan.first.length,
            rounds: self.plan.rounds.into(),
            arms: self.plan.arms.clone(),
            runs: std::mem::take(&mut self.runs),
        };
        self.ended = Some(Box::new(Header {
            after,
            coverage: Coverage {
                limitations,
                ..Coverage::default()
            },
            ended_early: self.stopped.then_some(EndedEarly::Interrupted),
            paced: Some(Paced::Turns(Box::new(turns))),
            ..(**first).clone()
        }));
        Ok(())
    }
}

impl Observation for PacedTurns {
    fn next_event(&mut self) -> Result<Event<'_>, ObserveError> {
        loop {
            if let Some(header) = &self.ended {
                return Ok(Event::Ended(header.clone()));
            }
            if self.stopped {
                self.current.stop(None);
            }
            self.rows.clear();
            let past = self.plan.begin_of(self.turn);
            let over = match self.current.next_event()? {
                Event::Started(_) => None,
                Event::Rows { rows, .. } => {
                    let source = self.source;
                    self.rows
                        .extend(rows.iter().map(|row| with_source(row, source)));
                    None
                }
                Event::Progress(progress) => {
                    let begin = *self.begin.get_or_insert(progress.begin);
                    // If a trial takes longer than planned, the excess doesn't count as part of the
                    // next trial.
                    let last = self.plan.first.length - Nanos(1);
                    return Ok(Event::Progress(Progress {
                        begin,
                        elapsed: past + progress.elapsed.min(last),
                    }));
                }
                Event::Ended(header) => Some(header),
            };
            if let Some(header) = over {
                self.next_turn(header)?;
            }
            if !self.rows.is_empty() {
                break;
            }
        }
        Ok(Event::Rows {
            sources: &self.sources,
            rows: &self.rows,
        })
    }

    fn stop(&mut self, _: Option<i32>) {
        self.stopped = true;
    }

    fn sources(&self) -> &SourceTable {
        &self.sources
    }
}

/// Returns a copy of `row` with the source of its trial.
fn with_source(row: &Row, source: SourceId) -> Row {
    let mut row = row.clone();
    if let Row::Frame(frame) = &mut row {
        frame.span.source = source;
    }
    row
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ticktax_model::Nanos;
    use ticktax_model::pace::{LoopSpec, PaceRule, SleepMethod, turn_of};
    use ticktax_model::recording::{EndedEarly, Header, Row};
    use ticktax_probes::SchedulingPolicy;

    use super::{Event, LoopPlan, Observation, ObserveError, PacedTurns, TurnsPlan};

    fn spec(sleep: SleepMethod) -> LoopSpec {
        LoopSpec {
            rate: 200.0,
            period: Nanos::from_millis(5),
            work: Nanos::ZERO,
            sleep,
            rule: PaceRule::Deadline,
        }
    }

    fn plan(arms: Vec<LoopSpec>, rounds: u32) -> Result<TurnsPlan, ObserveError> {
        let plan = LoopPlan {
            spec: spec(SleepMethod::Nanosleep),
            cpu: None,
            policy: SchedulingPolicy::Other,
            length: Nanos::from_millis(60),
            overshot_from: None,
        };
        TurnsPlan::new(plan, arms, rounds)
    }

    /// Runs all trials, or stops during trial `until`. Returns the header, and the number of frames
    /// in each trial.
    fn run(plan: &TurnsPlan, until: u64) -> (Box<Header>, BTreeMap<u64, u64>) {
        let mut turns = PacedTurns::start(plan.clone()).unwrap();
        let mut frames = BTreeMap::new();
        loop {
            let mut stop = false;
            match turns.next_event().unwrap() {
                Event::Started(_) => {}
                Event::Rows { sources, rows } => {
                    for row in rows {
                        let Row::Frame(frame) = row else {
                            panic!("{row:?}")
                        };
                        let turn = turn_of(sources.get(frame.span.source)).unwrap();
                        *frames.entry(turn).or_default() += 1;
                    }
                }
                Event::Progress(progress) => stop = plan.turn_at(progress.elapsed) >= until,
                Event::Ended(header) => return (header, frames),
            }
            if stop {
                turns.stop(None);
            }
        }
    }

    #[test]
    fn each_variant_gets_its_trials_and_an_interruption_is_reported() {
        let arms = vec![spec(SleepMethod::Nanosleep), spec(SleepMethod::Timerfd)];
        let plan = plan(arms, 2).unwrap();
        assert_eq!(plan.length(), Nanos::from_millis(240));
        let (header, frames) = run(&plan, u64::MAX);
        assert_eq!(header.ended_early, None);
        let turns = header.paced_turns().unwrap();
        assert_eq!((turns.runs.len(), turns.planned()), (4, 4));
        assert_eq!(turns.runs[1].report.spec.sleep, SleepMethod::Timerfd);
        assert!(frames.keys().eq(&[0, 1, 2, 3]), "{frames:?}");

        let (header, _) = run(&plan, 1);
        assert_eq!(header.ended_early, Some(EndedEarly::Interrupted));
        assert_eq!(header.paced_turns().unwrap().runs.len(), 2);
    }

    #[test]
    fn no_variants_and_too_many_are_rejected() {
        for count in [0, 101] {
            let error = plan(vec![spec(SleepMethod::Spin); count], 1).unwrap_err();
            assert!(matches!(error, ObserveError::Arms { count: found, .. } if found == count));
        }
    }
}
