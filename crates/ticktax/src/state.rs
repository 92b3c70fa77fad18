//! Where ticktax keeps what outlives it: below `/var/lib` for root, else below the user's own state folder.

use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;

/// Where the file or folder of this name lies; `option` names another place.
pub(crate) fn place(name: &str, option: &str) -> Result<PathBuf, Failure> {
    if is_root() {
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

/// Whether this process may do everything.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}
