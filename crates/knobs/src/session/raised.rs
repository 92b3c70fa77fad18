//! Raises the priority of a running task without raising that of its children.

use super::{Change, Consent, Session};
use crate::error::KnobError;
use crate::journal::Record;
use crate::knob::Knob;
use crate::mechanism::{Mechanism, is_real_time, resetting_children, without_slice};
use crate::registry;
use crate::target::Target;

impl Session {
    /// Same as [`set`](Self::set), for a task that was already running. If the new value raises the
    /// task above the priority of ordinary tasks, children that it starts later do not inherit
    /// this. Otherwise, a child of an unprivileged user's process could keep the priority after the
    /// undo.
    ///
    /// `original` is the value before the session. If it already gave the task such a priority, the
    /// task's children continue to inherit it.
    ///
    /// # Errors
    /// Returns the same errors as [`set`](Self::set).
    pub fn set_on_running(
        &mut self,
        knob: &'static Knob,
        target: &Target,
        value: &str,
        original: &str,
        consent: Consent,
    ) -> Result<Change, KnobError> {
        let is_raised = |value: &str| match &knob.mechanism {
            Mechanism::Policy => is_real_time(value),
            Mechanism::Nice => value.parse().is_ok_and(|nice: i32| nice < 0),
            _ => false,
        };
        if !is_raised(value) || is_raised(original) {
            return self.set(knob, target, value, consent);
        }
        if matches!(knob.mechanism, Mechanism::Policy) {
            let resetting = resetting_children(value);
            return self.set(knob, target, resetting.as_deref().unwrap_or(value), consent);
        }
        knob.permits(consent)?;
        if let Some(policy) = registry::known("proc.policy") {
            self.reset_children(policy, target)?;
        }
        self.change(knob, target, value)
    }

    /// Adds the flag that makes a task's children start with the default policy. This does not need
    /// the user's consent, because it can only lower the children's priority.
    fn reset_children(&mut self, policy: &'static Knob, target: &Target) -> Result<(), KnobError> {
        let old = policy.read(&self.system, target)?;
        let Some(resetting) = resetting_children(&old).filter(|resetting| *resetting != old) else {
            return Ok(());
        };
        // The policy's text includes the slice, which this session may change as well. The undo
        // must restore policy and slice from separate records, so record the slice separately and
        // leave it out of the policy.
        let slice = registry::known("proc.slice");
        let slice = slice.and_then(|slice| Some((slice, slice.look(&self.system, target).ok()?)));
        let changes = slice.into_iter().chain([(policy, without_slice(&old))]);
        for (knob, old) in changes {
            self.note(Record::Intended {
                knob: knob.id.to_owned(),
                target: target.clone(),
                identity: policy.require(&self.system, target)?,
                old: old.clone(),
                new: old,
                along: true,
            })?;
        }
        self.change(policy, target, &resetting)?;
        Ok(())
    }
}
