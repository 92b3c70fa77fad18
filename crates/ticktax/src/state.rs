//! Where ticktax keeps what outlives it: below `/var/lib` for root, else below the user's own state folder.

use std::path::PathBuf;

use nix::unistd::geteuid;

use crate::failure::Failure;

/// The journal of changed settings.
pub(crate) const KNOB_JOURNAL: &str = "knobs.journal";

/// Where the file or folder of this name lies; `option` names another place.
pub(crate) fn place(name: &str, option: &str) -> Result<PathBuf, Failure> {
    if geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ticktax").join(name));
    }
    let set = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::Arguments(format!("HOME is not set: name the place with {option}"))
    })?;
    Ok(state.join("ticktax").join(name))
}
