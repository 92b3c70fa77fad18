//! Going from one arm to another: what is set where, and what it was.

use std::collections::BTreeMap;

use ticktax_knobs::{Consent, Controller, Knob, KnobError, Session, System, Target};
use ticktax_model::knob::UndoStatement;
use ticktax_model::trial::{Arm, ArmSetting};

use super::TryError;
use super::arms::{Place, Row, Value, label, threads};

/// A setting of one thing.
type Key = (&'static str, Target);

/// Sets arms, one after the other.
pub(super) struct Setter {
    system: System,
    session: Session,
    consent: Consent,
    rows: Vec<Row>,
    /// What each was before the trial.
    originals: BTreeMap<Key, String>,
    /// What each was left at.
    left: BTreeMap<Key, String>,
    /// What the kernel made of a value.
    taken: BTreeMap<(&'static str, String), String>,
    /// Threads that were started while their process had another arm's value: nothing but that is known of them.
    late: Vec<(&'static Knob, Target)>,
    /// Whether an arm has been set.
    begun: bool,
    /// The groups that the command joins.
    groups: BTreeMap<Controller, Target>,
}

impl Setter {
    /// Makes the groups that are needed; sets nothing yet.
    pub(super) fn new(
        system: System,
        mut session: Session,
        consent: Consent,
        rows: Vec<Row>,
    ) -> Result<Self, TryError> {
        let mut groups: BTreeMap<Controller, Target> = BTreeMap::new();
        for row in &rows {
            let Place::CommandGroup(controller) = row.place else {
                continue;
            };
            let target = match groups.get(&controller) {
                Some(target) => target.clone(),
                None => session.make_group(controller)?,
            };
            groups.insert(controller, target.clone());
            // That this kernel has it, before anything runs.
            row.knob.read(&system, &target)?;
        }
        Ok(Self {
            system,
            session,
            consent,
            rows,
            originals: BTreeMap::new(),
            left: BTreeMap::new(),
            taken: BTreeMap::new(),
            late: Vec::new(),
            begun: false,
            groups,
        })
    }

    /// Sets what an arm sets of all that is there without the command. What has the arm's value already is looked
    /// at instead: nobody else may have changed it.
    pub(super) fn enter(&mut self, arm: usize) -> Result<(), TryError> {
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            let (knob, value) = (row.knob, row.values[arm].clone());
            let (targets, of) = match &row.place {
                Place::Fixed(targets) => (targets.clone(), None),
                Place::Threads(pid) => (threads(*pid), Some(*pid)),
                Place::CommandGroup(controller) => (
                    self.groups.get(controller).cloned().into_iter().collect(),
                    None,
                ),
                Place::Command => continue,
            };
            for target in targets {
                let set = self.set(knob, &target, &value, of.map(Target::Task));
                // A thread may end meanwhile.
                let has_ended = |pid| !threads(pid).contains(&target);
                if set.is_err() && of.is_some_and(has_ended) {
                    continue;
                }
                set?;
            }
        }
        self.begun = true;
        Ok(())
    }

    fn set(
        &mut self,
        knob: &'static Knob,
        target: &Target,
        value: &Value,
        process: Option<Target>,
    ) -> Result<(), KnobError> {
        let key = (knob.id(), target.clone());
        if !self.originals.contains_key(&key) {
            let now = knob.read(&self.system, target)?;
            let inherited = process.filter(|_| self.begun);
            let inherited = inherited.and_then(|it| self.originals.get(&(knob.id(), it)).cloned());
            let original = inherited.unwrap_or_else(|| now.clone());
            if original != now {
                self.late.push((knob, target.clone()));
            }
            self.originals.insert(key.clone(), original);
            self.left.insert(key.clone(), now);
        }
        let wanted = match value {
            Value::Now => self.originals[&key].clone(),
            Value::Is(value) => value.clone(),
        };
        let taken = self.taken.get(&(knob.id(), wanted.clone()));
        let left = &self.left[&key];
        if *left == *taken.unwrap_or(&wanted) {
            return self.session.require_unchanged(knob, target, left);
        }
        let change = self.session.set(knob, target, &wanted, self.consent)?;
        self.taken.insert((knob.id(), wanted), change.got.clone());
        self.left.insert(key, change.got);
        Ok(())
    }

    /// Sets what an arm sets of the command, which has been started and waits.
    pub(super) fn enter_command(&mut self, arm: usize, pid: i32) -> Result<(), TryError> {
        for group in self.groups.values() {
            self.session.join_group(group, pid)?;
        }
        for row in &self.rows {
            if let (Place::Command, Value::Is(value)) = (&row.place, &row.values[arm]) {
                let target = Target::Task(pid);
                let change = self.session.set(row.knob, &target, value, self.consent)?;
                self.taken
                    .insert((row.knob.id(), value.clone()), change.got);
            }
        }
        Ok(())
    }

    /// What has ended has no settings any more: the command, threads of a process.
    pub(super) fn forget_gone(&mut self) -> Result<(), TryError> {
        Ok(self.session.forget_gone()?)
    }

    /// The arms, with the values that the kernel took.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let arms = self.rows.first().map_or(0, |row| row.values.len());
        let setting = |row: &Row, arm: usize| ArmSetting {
            knob: row.knob.id().to_owned(),
            target: row.place.words(),
            value: self.shown(row, arm),
        };
        (0..arms)
            .map(|arm| Arm {
                label: label(arm),
                settings: self.rows.iter().map(|row| setting(row, arm)).collect(),
            })
            .collect()
    }

    /// What a row is in an arm, as far as it has been set.
    fn shown(&self, row: &Row, arm: usize) -> String {
        let id = row.knob.id();
        match &row.values[arm] {
            Value::Is(value) => {
                let taken = self.taken.get(&(id, value.clone()));
                taken.unwrap_or(value).clone()
            }
            // What it inherits.
            Value::Now if row.place == Place::Command => {
                let own = Target::Task(i32::try_from(std::process::id()).unwrap_or(-1));
                let inherited = row.knob.read(&self.system, &own);
                inherited.unwrap_or_else(|_| "now".to_owned())
            }
            Value::Now => {
                let mut known: Vec<&String> = self
                    .originals
                    .iter()
                    .filter(|((knob, _), _)| *knob == id)
                    .map(|(_, value)| value)
                    .collect();
                known.dedup();
                match &*known {
                    [one] => (*one).clone(),
                    _ => "now".to_owned(),
                }
            }
        }
    }

    /// That the kernel did not make the same of two arms.
    pub(super) fn require_different(&self) -> Result<(), TryError> {
        let arms = self.arms();
        for (at, arm) in arms.iter().enumerate() {
            let mut before = arms[..at].iter();
            if let Some(same) = before.find(|it| it.settings == arm.settings) {
                let told = arm.settings.iter();
                let told = told.map(|it| format!("{} is {}", it.knob, it.value));
                return Err(TryError::SameInEffect {
                    first: same.label.clone(),
                    second: arm.label.clone(),
                    settings: told.collect::<Vec<String>>().join(", "),
                });
            }
        }
        Ok(())
    }

    /// Puts everything back.
    pub(super) fn undo(mut self) -> UndoStatement {
        for (knob, target) in std::mem::take(&mut self.late) {
            let original = self.originals.get(&(knob.id(), target.clone()));
            let Some(original) = original.cloned() else {
                continue;
            };
            // It may have ended.
            let set = self.session.set(knob, &target, &original, self.consent);
            if set.is_ok() {
                let _ = self.session.keep(knob, &target);
            }
        }
        self.session.undo()
    }
}
