//! What the lines of a journal leave to be put back.

use crate::group::Place;
use crate::journal::Record;
use crate::target::Target;

/// A setting that is still to be put back.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) knob: String,
    pub(super) target: Target,
    pub(super) identity: String,
    /// What it was before anybody of ours changed it.
    pub(super) original: String,
    /// What it was when it was last read back.
    pub(super) last: String,
    /// What was about to be written, and was not read back.
    pub(super) unread: Option<String>,
    /// The kernel changes it along with another, so that any value found is of our making.
    pub(super) along: bool,
    pub(super) boot: String,
}

/// What is still to be put back.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// In the order in which they were first changed.
    pub(super) settings: Vec<Pending>,
    /// Cgroups that were made, each with the boot that it is of.
    pub(super) groups: Vec<(Place, String)>,
}

impl Left {
    /// What a journal leaves.
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

    /// The place of a setting among those that are left.
    pub(super) fn position(&self, knob: &str, target: &Target) -> Option<usize> {
        let mut places = self.settings.iter();
        places.position(|it| it.knob == knob && it.target == *target)
    }

    /// What is left once a line has been written on a boot of the machine.
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
                // What goes along with another is not written by itself.
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
