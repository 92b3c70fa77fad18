//! The settings still to be restored and the cgroups still to be removed, according to a journal's
//! records.

use crate::group::GroupPath;
use crate::journal::Record;
use crate::target::Target;

/// A setting that has yet to be restored.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) knob: String,
    pub(super) target: Target,
    pub(super) identity: String,
    pub(super) original: String,
    /// The value that was most recently read back.
    pub(super) last: String,
    /// Value that was about to be written, or `None` if the setting has since been read back.
    pub(super) unread: Option<String>,
    /// Whether the kernel changed the setting as a side effect of a different change. ticktax
    /// doesn't know what the new value should be, so it accepts any value as its own.
    pub(super) along: bool,
    pub(super) boot: String,
}

/// All settings that have yet to be restored, and all cgroups that have yet to be removed.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Settings, in the order in which they were first changed.
    pub(super) settings: Vec<Pending>,
    /// The cgroups that were created, each with the ID of the boot in which it was created.
    pub(super) groups: Vec<(GroupPath, String)>,
}

impl Left {
    /// Replays a journal's records. Returns the settings and cgroups that remain to be restored or
    /// removed.
    pub(super) fn from_records(records: &[Record]) -> Self {
        let mut left = Self::default();
        let mut latest = "";
        for record in records {
            if let Record::Began { boot, .. } = record {
                latest = boot;
            }
            left.apply(latest, record.clone());
        }
        left
    }

    pub(super) fn position(&self, knob: &str, target: &Target) -> Option<usize> {
        let mut places = self.settings.iter();
        places.position(|pending| pending.knob == knob && pending.target == *target)
    }

    /// Applies a record written during the boot with the ID `boot`.
    pub(super) fn apply(&mut self, boot: &str, record: Record) {
        match record {
            Record::Began { .. } => {}
            Record::Making { folder, home } => {
                self.groups
                    .push((GroupPath { folder, home }, boot.to_owned()));
            }
            Record::Dissolved { folder } => {
                self.groups.retain(|(path, _)| path.folder != folder);
            }
            Record::Intended {
                knob,
                target,
                identity,
                old,
                new,
                along,
            } => {
                // ticktax neither writes nor reads back a setting that changes as a side effect.
                let unread = Some(new).filter(|_| !along);
                if let Some(at) = self.position(&knob, &target) {
                    self.settings[at].unread = unread;
                    self.settings[at].along |= along;
                    return;
                }
                self.settings.push(Pending {
                    knob,
                    target,
                    identity,
                    last: old.clone(),
                    original: old,
                    unread,
                    along,
                    boot: boot.to_owned(),
                });
            }
            Record::Written {
                knob,
                target,
                value,
            } => {
                if let Some(at) = self.position(&knob, &target) {
                    self.settings[at].last = value;
                    self.settings[at].unread = None;
                }
            }
            Record::Undone { knob, target, .. } => {
                if let Some(at) = self.position(&knob, &target) {
                    self.settings.remove(at);
                }
            }
        }
    }
}
