//! Folders in which ticktax keeps files after it ends.
//!
//! Each has its own owner and its own parent, so that no run has to trust a folder that another
//! user can write to:
//!
//! | folder | root | an ordinary user | owner |
//! |---|---|---|---|
//! | settings to restore | `/var/lib/ticktax/knobs` | `~/.local/state/ticktax/knobs` | who runs `try` |
//! | recorder's incidents | `/var/lib/ticktax/incidents` | `~/.local/state/ticktax/incidents` | who runs `record` |
//! | agent's incidents | `/var/lib/ticktax-agent/incidents` | `~/.local/state/ticktax-agent/incidents` | the agent's user |

use std::path::PathBuf;

use nix::unistd::geteuid;

use crate::failure::Failure;

/// Name of the journal of changed settings, in the folder of [`StateFolder::Knobs`].
const KNOB_JOURNAL: &str = "knobs.journal";

/// A folder of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateFolder {
    /// Settings that were changed and are to be restored.
    Knobs,
    /// Incidents of `ticktax record`.
    Incidents,
    /// Incidents of `ticktax agent --trigger`.
    AgentIncidents,
}

impl StateFolder {
    /// Its path below the folder that keeps state.
    const fn below_state(self) -> &'static str {
        match self {
            Self::Knobs => "ticktax/knobs",
            Self::Incidents => "ticktax/incidents",
            Self::AgentIncidents => "ticktax-agent/incidents",
        }
    }

    /// Where it lies by default. `option` is the option that names another place.
    ///
    /// # Errors
    /// An ordinary user has no home.
    pub(crate) fn path(self, option: &str) -> Result<PathBuf, Failure> {
        if geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib").join(self.below_state()));
        }
        let set = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::Arguments(format!("HOME is not set: name the place with {option}"))
        })?;
        Ok(state.join(self.below_state()))
    }
}

/// The journal of changed settings, where no other was named.
///
/// # Errors
/// As [`StateFolder::path`].
pub(crate) fn knob_journal(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(StateFolder::Knobs.path("--journal")?.join(KNOB_JOURNAL)),
    }
}
