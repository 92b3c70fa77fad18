//! Changes settings and restores them.
//!
//! For each change, a [`Session`] writes a record to its journal, makes the change, and reads the
//! value back. When the session ends, it restores all settings. If it is killed, the next session
//! restores them, or [`undo`] does.

mod left;
mod raised;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ticktax_model::knob::{UndoOutcome, UndoStatement, UndoneSetting};

use crate::error::{KnobError, RestoreError};
use crate::group::{self, Controller};
use crate::journal::{Contents, Journal, OnStep, Record, SessionStep};
use crate::knob::Knob;
use crate::mechanism::HeldValue;
use crate::registry;
use crate::system::System;
use crate::target::{Presence, Target};

use left::{Left, Pending};

/// Whether the user has agreed to changing dangerous settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The user agreed.
    Given,
    /// The user did not agree. Dangerous settings must not be changed.
    Withheld,
}

/// Result of changing a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Previous value.
    pub old: String,
    /// Requested value, in the form in which the setting is read.
    pub asked: String,
    /// Value that was read back. It can differ from `asked`, because the kernel may clamp or round.
    pub got: String,
}

/// A period during which settings are changed. The session locks its journal, so a journal has at
/// most one session at a time.
pub struct Session {
    system: System,
    journal: Journal,
    boot: String,
    pending: Left,
    held: BTreeMap<(String, Target), HeldValue>,
    ended: bool,
}

impl Session {
    /// Starts a session. Locks the journal, and restores the settings that a killed session left
    /// changed. `by`, a command with its PID, identifies the new session in the journal and in
    /// messages.
    ///
    /// # Errors
    /// Returns an error if another session is changing settings, or if the journal cannot be used.
    pub fn begin(
        system: &System,
        journal: &Path,
        by: &str,
    ) -> Result<(Self, UndoStatement), KnobError> {
        Self::begin_observed(system, journal, by, Box::new(|_| {}))
    }

    /// Same as [`Session::begin`], with a callback that is invoked at each step.
    ///
    /// # Errors
    /// Returns the same errors as [`Session::begin`].
    pub fn begin_observed(
        system: &System,
        journal: &Path,
        by: &str,
        on_step: OnStep,
    ) -> Result<(Self, UndoStatement), KnobError> {
        let (journal, contents) = Journal::open(journal, on_step)?;
        let mut session = Self::new(system, journal, &contents)?;
        let undone = session.undo_all(&contents);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let began = Record::Began {
            boot: session.boot.clone(),
            by: by.to_owned(),
            at_unix_ms: since.map_or(0, |time| {
                i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
            }),
        };
        session.journal.append(&began)?;
        Ok((session, undone))
    }

    fn new(system: &System, journal: Journal, contents: &Contents) -> Result<Self, KnobError> {
        let boot = system.boot_id().map_err(|error| KnobError::Journal {
            verb: "keep",
            path: journal.path().to_owned(),
            why: format!("cannot read the boot ID in /proc: {}", error.kind()),
        })?;
        Ok(Self {
            system: system.clone(),
            journal,
            boot,
            pending: Left::from_records(&contents.records),
            held: BTreeMap::new(),
            ended: false,
        })
    }

    /// Records a setting's original value in the journal, changes the setting, and reads it back.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - The value or the target is invalid.
    /// - The kernel refuses the value. The write may still have had a partial effect, which the
    ///   session undoes when it ends.
    /// - Another program has changed the setting since this session changed it. From then on, the
    ///   session leaves the setting alone.
    pub fn set(
        &mut self,
        knob: &'static Knob,
        target: &Target,
        value: &str,
        consent: Consent,
    ) -> Result<Change, KnobError> {
        knob.permits(consent)?;
        self.change(knob, target, value)
    }

    fn change(
        &mut self,
        knob: &'static Knob,
        target: &Target,
        value: &str,
    ) -> Result<Change, KnobError> {
        let identity = knob.require(&self.system, target)?;
        let asked = knob.parse(&self.system, target, value)?;
        let old = knob.read(&self.system, target)?;
        self.require_ours(knob, target, &old)?;
        self.note_companions(knob, target, &identity)?;
        self.note(Record::Intended {
            knob: knob.id.to_owned(),
            target: target.clone(),
            identity,
            old: old.clone(),
            new: asked.clone(),
            along: false,
        })?;
        let refused = match knob.write(&self.system, target, &asked) {
            Ok(held) => {
                let key = (knob.id.to_owned(), target.clone());
                self.held.extend(held.map(|held| (key, held)));
                None
            }
            Err(trouble) => Some(trouble),
        };
        self.journal.step(SessionStep::Set);
        // Read the value back even if the kernel refused it, because part of it may have been
        // accepted.
        let got = knob.read(&self.system, target)?;
        self.note(Record::Written {
            knob: knob.id.to_owned(),
            target: target.clone(),
            value: got.clone(),
        })?;
        match refused {
            None => Ok(Change { old, asked, got }),
            Some(trouble) => Err(KnobError::Write {
                id: knob.id.to_owned(),
                target: target.to_string(),
                value: asked,
                trouble,
            }),
        }
    }

    /// Returns an error if another program has changed the setting since this session did. `found`
    /// is the setting's current value.
    fn require_ours(&mut self, knob: &Knob, target: &Target, found: &str) -> Result<(), KnobError> {
        let ours = self
            .place(knob.id, target)
            .map(|at| &self.pending.settings[at]);
        let changed =
            ours.filter(|setting| !setting.along && !knob.is_held() && setting.last != found);
        match changed.map(|setting| setting.last.clone()) {
            Some(left) => Err(self.disown(knob, target, found, left)),
            None => Ok(()),
        }
    }

    /// Checks that the setting still has the value `left`, even if this session has never changed
    /// it.
    ///
    /// # Errors
    /// Returns an error if the setting cannot be read, or if another program has changed it. After
    /// such a change, the session leaves the setting alone.
    pub fn require_unchanged(
        &mut self,
        knob: &'static Knob,
        target: &Target,
        left: &str,
    ) -> Result<(), KnobError> {
        // This kind of setting combines the requests of several processes, so a value other than
        // `left` doesn't prove that another program changed it.
        if knob.is_held() {
            return Ok(());
        }
        let found = knob.read(&self.system, target)?;
        if found == left {
            return Ok(());
        }
        Err(self.disown(knob, target, &found, left.to_owned()))
    }

    /// Stops tracking a setting that another program has changed. Returns an error that reports the
    /// change.
    fn disown(&mut self, knob: &Knob, target: &Target, found: &str, left: String) -> KnobError {
        let noted = match self.place(knob.id, target) {
            Some(_) => self.note(Record::Undone {
                knob: knob.id.to_owned(),
                target: target.clone(),
                outcome: UndoOutcome::ChangedByOther,
            }),
            None => Ok(()),
        };
        let foreign = || KnobError::Foreign {
            id: knob.id.to_owned(),
            target: target.to_string(),
            found: found.to_owned(),
            left,
        };
        noted.err().unwrap_or_else(foreign)
    }

    /// Leaves a setting at its current value, instead of restoring the original one when the
    /// session ends. Use this if the original value itself came from this session, for example
    /// because a thread inherited it from its parent.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn keep(&mut self, knob: &'static Knob, target: &Target) -> Result<(), KnobError> {
        if self.place(knob.id, target).is_none() {
            return Ok(());
        }
        self.note(Record::Undone {
            knob: knob.id.to_owned(),
            target: target.clone(),
            outcome: UndoOutcome::Restored,
        })
    }

    /// Stops tracking settings of targets that no longer exist, such as threads that have exited.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub fn forget_gone(&mut self) -> Result<(), KnobError> {
        let is_gone = |pending: &&Pending| match pending.target.presence(&self.system) {
            Presence::There(identity) => identity != pending.identity,
            Presence::Offline => false,
            Presence::Gone => true,
        };
        let gone: Vec<Pending> = self
            .pending
            .settings
            .iter()
            .filter(is_gone)
            .cloned()
            .collect();
        for pending in gone {
            self.note(Record::Undone {
                knob: pending.knob,
                target: pending.target,
                outcome: UndoOutcome::Gone,
            })?;
        }
        Ok(())
    }

    /// Records the settings that the kernel will change along with `knob`.
    fn note_companions(
        &mut self,
        knob: &Knob,
        target: &Target,
        identity: &str,
    ) -> Result<(), KnobError> {
        for other in knob.also.iter().filter_map(|id| registry::known(id)) {
            if self.place(other.id, target).is_some() {
                continue;
            }
            if let Ok(value) = other.look(&self.system, target) {
                self.note(Record::Intended {
                    knob: other.id.to_owned(),
                    target: target.clone(),
                    identity: identity.to_owned(),
                    old: value.clone(),
                    new: value,
                    along: true,
                })?;
            }
        }
        Ok(())
    }

    /// Creates a cgroup for a command, so that changing the cgroup's settings does not affect any
    /// other program. When the session ends, it moves the processes that are still in the cgroup to
    /// the session's own cgroup, and then removes the cgroup.
    ///
    /// # Errors
    /// Returns an error if neither this process's cgroup nor one of its ancestors delegates the
    /// controller, or if the kernel refuses to create the cgroup.
    pub fn make_group(&mut self, controller: Controller) -> Result<Target, KnobError> {
        let place = group::place(&self.system, controller)?;
        self.note(Record::Making {
            folder: place.folder.clone(),
            home: place.home.clone(),
        })?;
        group::make(&self.system, &place)?;
        Ok(Target::Cgroup(place.folder))
    }

    /// Moves process `pid` into a cgroup created by [`make_group`](Self::make_group).
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to move the process, or if the process has exited.
    pub fn join_group(&self, group: &Target, pid: i32) -> Result<(), KnobError> {
        match group {
            Target::Cgroup(folder) => group::join(&self.system, folder, pid),
            other => Err(KnobError::Group {
                what: format!("move process {pid} into {other}"),
                why: "not a cgroup".to_owned(),
            }),
        }
    }

    /// Restores all settings in reverse order of their first change, and reports each outcome.
    pub fn undo(mut self) -> UndoStatement {
        self.ended = true;
        self.undo_all(&Contents::default())
    }

    /// Writes a record to the journal and applies it to the session's state. If the write fails,
    /// for example because the disk is full, the record is normally applied anyway. The exception
    /// is a record that announces a change: it is not applied, and the change must not be made.
    fn note(&mut self, record: Record) -> Result<(), KnobError> {
        let noted = self.journal.append(&record);
        if noted.is_ok() || !matches!(record, Record::Intended { .. } | Record::Making { .. }) {
            self.pending.apply(&self.boot, record);
        }
        noted
    }

    fn place(&self, knob: &str, target: &Target) -> Option<usize> {
        self.pending.position(knob, target)
    }

    fn undo_all(&mut self, contents: &Contents) -> UndoStatement {
        let mut statement = UndoStatement {
            journal: self.journal.path().display().to_string(),
            changed_by: contents.by().map(str::to_owned),
            damaged_lines: contents.damaged,
            damaged_copy: contents
                .copy
                .as_ref()
                .map(|copy| copy.display().to_string()),
            ..UndoStatement::default()
        };
        for pending in self.pending.settings.clone().into_iter().rev() {
            let undone = self.undo_one(&pending);
            // Don't report a setting that could have changed as a side effect but didn't.
            let is_news = !pending.along || undone.outcome != UndoOutcome::AlreadyRestored;
            if !undone.outcome.is_pending() {
                let noted = self.note(Record::Undone {
                    knob: pending.knob,
                    target: pending.target,
                    outcome: undone.outcome,
                });
                // If the journal cannot be written, restore the remaining settings before reporting
                // the problem.
                statement.keep_problem(noted);
            }
            statement.settings.extend(is_news.then_some(undone));
        }
        self.dissolve_all(&mut statement);
        if self.pending.settings.is_empty() && self.pending.groups.is_empty() {
            let cleared = self.journal.clear();
            statement.keep_problem(cleared);
        }
        statement
    }

    /// Removes the cgroups that this session or a killed one created. A cgroup that cannot be
    /// removed is reported like a setting that could not be restored.
    fn dissolve_all(&mut self, statement: &mut UndoStatement) {
        for (place, boot) in self.pending.groups.clone() {
            let dissolved = if boot == self.boot {
                group::dissolve(&self.system, &place)
            } else {
                Ok(())
            };
            match dissolved {
                Ok(()) => {
                    let folder = place.folder;
                    let noted = self.note(Record::Dissolved { folder });
                    statement.keep_problem(noted);
                }
                Err(error) => statement.settings.push(UndoneSetting {
                    id: "cgroup".to_owned(),
                    target: Target::Cgroup(place.folder).to_string(),
                    original: "not there".to_owned(),
                    found: None,
                    outcome: UndoOutcome::Failed,
                    problem: Some(error.to_string()),
                }),
            }
        }
    }

    fn undo_one(&mut self, pending: &Pending) -> UndoneSetting {
        let mut found = None;
        let (outcome, problem) = match self.put_back(pending, &mut found) {
            Ok(outcome) => (outcome, None),
            Err(why) => (UndoOutcome::Failed, Some(why.to_string())),
        };
        UndoneSetting {
            id: pending.knob.clone(),
            target: pending.target.to_string(),
            original: pending.original.clone(),
            found,
            outcome,
            problem,
        }
    }

    fn put_back(
        &mut self,
        pending: &Pending,
        found: &mut Option<String>,
    ) -> Result<UndoOutcome, RestoreError> {
        if pending.boot != self.boot {
            return Ok(UndoOutcome::Rebooted);
        }
        let Some(knob) = registry::known(&pending.knob) else {
            return Err(RestoreError::UnknownKnob);
        };
        if pending.target.scope() != knob.scope() {
            return Err(RestoreError::Scope {
                scope: knob.scope(),
                target: pending.target.clone(),
            });
        }
        if knob.is_held() {
            // This session holds the lock on the journal. Any other session that set the value has
            // therefore exited, and the kernel has reset the value.
            self.held
                .remove(&(pending.knob.clone(), pending.target.clone()));
            return Ok(UndoOutcome::Released);
        }
        let target = pending.target.found_again(&pending.identity, &self.system);
        match target.presence(&self.system) {
            Presence::There(identity) if identity == pending.identity => {}
            Presence::Offline => return Ok(UndoOutcome::Offline),
            Presence::There(_) | Presence::Gone => return Ok(UndoOutcome::Gone),
        }
        let is_gone = || target.presence(&self.system) == Presence::Gone;
        let value = match knob.look(&self.system, &target) {
            Ok(value) => found.insert(value).clone(),
            Err(_) if is_gone() => return Ok(UndoOutcome::Gone),
            Err(trouble) => return Err(trouble.into()),
        };
        if value == pending.original {
            return Ok(UndoOutcome::AlreadyRestored);
        }
        let is_ours = pending.along || value == pending.last || pending.unread.is_some();
        if !is_ours {
            return Ok(UndoOutcome::ChangedByOther);
        }
        let written = knob.write(&self.system, &target, &pending.original);
        self.journal.step(SessionStep::PutBack);
        match written.and_then(|_| knob.look(&self.system, &target)) {
            Ok(now) if now == pending.original => {}
            Ok(found) => return Err(RestoreError::Changed { found }),
            Err(_) if target.presence(&self.system) == Presence::Gone => {
                return Ok(UndoOutcome::Gone);
            }
            Err(trouble) => return Err(trouble.into()),
        }
        let expected = value == pending.last || pending.unread.as_ref() == Some(&value);
        Ok(if expected || pending.along {
            UndoOutcome::Restored
        } else {
            UndoOutcome::RestoredUnread
        })
    }
}

impl Drop for Session {
    /// Restores all settings if an error or a panic ended the session early.
    fn drop(&mut self) {
        if !self.ended {
            // The outcome can no longer be reported, so ignore it.
            let _ = self.undo_all(&Contents::default());
        }
    }
}

/// Restores the settings that killed sessions left changed, and reports each outcome. Having
/// nothing to restore is not an error.
///
/// # Errors
/// Returns an error if another session is changing settings, or if the journal cannot be used.
pub fn undo(system: &System, journal: &Path) -> Result<UndoStatement, KnobError> {
    undo_observed(system, journal, Box::new(|_| {}))
}

/// Same as [`undo`], with a callback that is invoked at each step.
///
/// # Errors
/// Returns the same errors as [`undo`].
pub fn undo_observed(
    system: &System,
    journal: &Path,
    on_step: OnStep,
) -> Result<UndoStatement, KnobError> {
    let Some((opened, contents)) = Journal::open_existing(journal, on_step)? else {
        return Ok(UndoStatement {
            journal: journal.display().to_string(),
            ..UndoStatement::default()
        });
    };
    let mut session = Session::new(system, opened, &contents)?;
    session.ended = true;
    let mut statement = session.undo_all(&contents);
    statement.keep_problem(session.journal.frozen().cloned().map_or(Ok(()), Err));
    Ok(statement)
}

#[cfg(test)]
mod tests;
