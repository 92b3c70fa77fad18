//! Settings and cgroups that a journal's records leave to be restored.

use crate::group::Place;
use crate::journal::Record;
use crate::target::Target;

/// A setting that must still be restored.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) knob: String,
    pub(super) target: Target,
    pub(super) identity: String,
    /// Value before ticktax first changed it.
    pub(super) original: String,
    /// Value when it was last read back.
    pub(super) last: String,
    /// Value that was about to be written but was not read back.
    pub(super) unread: Option<String>,
    /// Whether the kernel changes it along with another setting, so that any value found came from
    /// us.
    pub(super) along: bool,
    pub(super) boot: String,
}

/// Everything that must still be restored.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// In the order of their first change.
    pub(super) settings: Vec<Pending>,
    /// Created cgroups, each with the id of its boot.
    pub(super) groups: Vec<(Place, String)>,
}

impl Left {
    /// Replays a journal.
    pub(super) fn of(records: &[Record]) -> Self {
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

    /// Index of a setting in the list.
    pub(super) fn position(&self, knob: &str, target: &Target) -> Option<usize> {
        let mut places = self.settings.iter();
        places.position(|pending| pending.knob == knob && pending.target == *target)
    }

    /// Applies a record that was written during the given boot.
    pub(super) fn apply(&mut self, boot: &str, record: Record) {
        match record {
            Record::Began { .. } => {}
            Record::Making { folder, home } => {
                self.groups.push((Place { folder, home }, boot.to_owned()));
            }
            Record::Dissolved { folder } => {
                self.groups.retain(|(place, _)| place.folder != folder);
            }
            Record::Intended {
                knob,
                target,
                identity,
                old,
                new,
                along,
            } => {
                // The kernel changes a companion; nothing was about to be written to it.
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
