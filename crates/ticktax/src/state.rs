//! Directories for files that outlive the process.
//!
//! Each directory has a separate owner and parent, so ticktax never has to trust a directory that
//! another user can write to. The paths are below `/var/lib` for root, and below `~/.local/state`
//! for other users:
//!
//! | contents | path | owner |
//! |---|---|---|
//! | settings to restore | `ticktax/knobs` | user of `try` |
//! | readings of hardware clocks | `ticktax/clock` | user of `clock` |
//! | recorder's incidents | `ticktax/incidents` | user of `record` |
//! | agent's incidents | `ticktax-agent/incidents` | the agent's user |

use std::path::PathBuf;

use nix::unistd::geteuid;

use crate::failure::Failure;

/// File name of the journal of changed settings, in [`StateFolder::Knobs`].
const KNOB_JOURNAL: &str = "knobs.journal";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateFolder {
    /// Settings to restore.
    Knobs,
    /// Readings of hardware clocks.
    Clock,
    /// Incidents that `ticktax record` saves.
    Incidents,
    /// Incidents that `ticktax agent --trigger` saves.
    AgentIncidents,
}

impl StateFolder {
    const fn below_state(self) -> &'static str {
        match self {
            Self::Knobs => "ticktax/knobs",
            Self::Clock => "ticktax/clock",
            Self::Incidents => "ticktax/incidents",
            Self::AgentIncidents => "ticktax-agent/incidents",
        }
    }

    /// Returns this directory's default path. `option` is the command-line option that selects a
    /// different path, for the error message.
    ///
    /// # Errors
    /// Returns an error if an ordinary user has no home directory.
    pub(crate) fn path(self, option: &str) -> Result<PathBuf, Failure> {
        if geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib").join(self.below_state()));
        }
        let absolute = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let state =
            absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::Arguments(format!(
                "HOME is not set: set it, or give a path with {option}"
            ))
        })?;
        Ok(state.join(self.below_state()))
    }
}

/// Returns the path of the journal of changed settings: `named` if the user gave a path, otherwise
/// the default path.
pub(crate) fn knob_journal(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(StateFolder::Knobs.path("--journal")?.join(KNOB_JOURNAL)),
    }
}
