//! Applies each arm's settings, and remembers the original values.

use std::collections::BTreeMap;

use ticktax_knobs::{Consent, Controller, Knob, KnobError, Session, System, Target};
use ticktax_model::comparison::{Arm, Origin, Setting};
use ticktax_model::knob::UndoStatement;

use super::TryError;
use super::arms::{Row, SettingTargets, Value, label, threads};

/// A setting's ID, and the object that it applies to.
type Key = (&'static str, Target);

/// Applies the settings of one arm after another, and restores them at the end.
pub(super) struct Setter {
    system: System,
    session: Session,
    consent: Consent,
    /// Number of arms.
    count: usize,
    rows: Vec<Row>,
    /// Values that the settings had before the trial.
    originals: BTreeMap<Key, String>,
    /// Values that the trial wrote last.
    left: BTreeMap<Key, String>,
    /// Values that the kernel stored, by setting and written value.
    taken: BTreeMap<(&'static str, String), String>,
    /// Threads that were started while their process had an arm's value. Their own original value
    /// is unknown, so they get the process's original value back.
    late: Vec<(&'static Knob, Target)>,
    /// Whether any arm's settings have been applied yet.
    begun: bool,
    /// Cgroups that were created for the command.
    groups: BTreeMap<Controller, Target>,
}

impl Setter {
    /// Creates the cgroups, but does not change any settings yet.
    pub(super) fn new(
        system: System,
        mut session: Session,
        consent: Consent,
        arms: usize,
        rows: Vec<Row>,
    ) -> Result<Self, TryError> {
        let mut groups: BTreeMap<Controller, Target> = BTreeMap::new();
        for row in &rows {
            let SettingTargets::CommandGroup(controller) = row.targets else {
                continue;
            };
            let target = match groups.get(&controller) {
                Some(target) => target.clone(),
                None => session.make_group(controller)?,
            };
            groups.insert(controller, target.clone());
            // Check that this kernel has the setting before anything runs.
            row.knob.read(&system, &target)?;
        }
        Ok(Self {
            system,
            session,
            consent,
            count: arms,
            rows,
            originals: BTreeMap::new(),
            left: BTreeMap::new(),
            taken: BTreeMap::new(),
            late: Vec::new(),
            begun: false,
            groups,
        })
    }

    /// Applies the settings of `arm`, except those for the command. A setting that already has the
    /// right value is only read, to detect changes by other programs.
    pub(super) fn enter(&mut self, arm: usize) -> Result<(), TryError> {
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            let (knob, value) = (row.knob, row.values[arm].clone());
            let (targets, of) = match &row.targets {
                SettingTargets::Fixed(targets) => (targets.clone(), None),
                SettingTargets::Threads(pid) => (threads(*pid), Some(*pid)),
                SettingTargets::CommandGroup(controller) => (
                    self.groups.get(controller).cloned().into_iter().collect(),
                    None,
                ),
                SettingTargets::Command => continue,
            };
            for target in targets {
                let set = self.set(knob, &target, &value, of.map(Target::Task));
                // The thread may have exited since it was listed.
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
        let runs_already = process.is_some();
        if !self.originals.contains_key(&key) {
            let now = knob.read(&self.system, target)?;
            let inherited = process.filter(|_| self.begun);
            let inherited =
                inherited.and_then(|process| self.originals.get(&(knob.id(), process)).cloned());
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
        let change = if runs_already {
            let original = &self.originals[&key];
            (self.session).set_on_running(knob, target, &wanted, original, self.consent)
        } else {
            self.session.set(knob, target, &wanted, self.consent)
        }?;
        self.taken.insert((knob.id(), wanted), change.got.clone());
        self.left.insert(key, change.got);
        Ok(())
    }

    /// Applies the settings of `arm` to the command, whose process has been started and is waiting.
    pub(super) fn enter_command(&mut self, arm: usize, pid: i32) -> Result<(), TryError> {
        for group in self.groups.values() {
            self.session.join_group(group, pid)?;
        }
        for row in &self.rows {
            if let (SettingTargets::Command, Value::Is(value)) = (&row.targets, &row.values[arm]) {
                let target = Target::Task(pid);
                let change = self.session.set(row.knob, &target, value, self.consent)?;
                self.taken
                    .insert((row.knob.id(), value.clone()), change.got);
            }
        }
        Ok(())
    }

    /// Forgets the settings of processes and threads that have exited.
    pub(super) fn forget_gone(&mut self) -> Result<(), TryError> {
        Ok(self.session.forget_gone()?)
    }

    /// Returns the arms with the values that the kernel stored.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let setting = |row: &Row, arm: usize| Setting {
            target: row.targets.words(),
            ..Setting::new(row.knob.id(), self.shown(row, arm))
        };
        (0..self.count)
            .map(|arm| {
                let settings = self.rows.iter().map(|row| setting(row, arm)).collect();
                Arm {
                    label: label(arm),
                    ..Arm::new(Origin::Measured, settings)
                }
            })
            .collect()
    }

    /// Returns the value of a setting in `arm`. Once the arm has been applied, this is the value
    /// that the kernel stored.
    fn shown(&self, row: &Row, arm: usize) -> String {
        let id = row.knob.id();
        match &row.values[arm] {
            Value::Is(value) => {
                let taken = self.taken.get(&(id, value.clone()));
                taken.unwrap_or(value).clone()
            }
            // The command inherits this process's value.
            Value::Now if row.targets == SettingTargets::Command => {
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

    /// Restores every setting.
    pub(super) fn undo(mut self) -> UndoStatement {
        for (knob, target) in std::mem::take(&mut self.late) {
            let original = self.originals.get(&(knob.id(), target.clone()));
            let Some(original) = original.cloned() else {
                continue;
            };
            // The thread may have exited, so ignore errors.
            let set = self.session.set(knob, &target, &original, self.consent);
            if set.is_ok() {
                let _ = self.session.keep(knob, &target);
            }
        }
        self.session.undo()
    }
}

/// Returns an error if the kernel stored the same values for two arms, whose settings are given.
pub(super) fn require_different(arms: &[Arm]) -> Result<(), TryError> {
    for (at, arm) in arms.iter().enumerate() {
        let mut before = arms[..at].iter();
        if let Some(same) = before.find(|other| other.settings == arm.settings) {
            let settings = arm.settings.iter();
            let settings = settings.map(|setting| format!("{} is {}", setting.name, setting.value));
            return Err(TryError::SameInEffect {
                first: same.label.clone(),
                second: arm.label.clone(),
                settings: settings.collect::<Vec<String>>().join(", "),
            });
        }
    }
    Ok(())
}
