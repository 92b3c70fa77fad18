//! Starts helper programs for ticktax's own work, such as `tar`, QEMU and the pager.
//!
//! For root, helpers are not searched in the inherited PATH: a folder in it may belong to another
//! user or be the working folder (`.`). The user's own command keeps its whole environment.

use std::ffi::OsStr;
use std::process::Command;

/// Folders in which root's helper programs are searched.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Creates a command for a helper program, given its name or absolute path. If root runs ticktax,
/// the helper and all programs it starts are searched in a fixed PATH. Other users keep their PATH.
pub fn helper(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        // Unix searches for the program in the child's PATH.
        command.env("PATH", ROOT_PATH);
    }
    command
}

/// Whether the effective user of this process is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::{ROOT_PATH, helper, is_root};

    #[test]
    fn only_roots_helpers_have_a_fixed_path() {
        let command = helper("true");
        let path = command
            .get_envs()
            .find_map(|(name, value)| (name == "PATH").then_some(value).flatten());
        let fixed = path.is_some_and(|path| path == ROOT_PATH);
        assert_eq!(fixed, is_root());
        assert!(helper("true").status().unwrap().success());
    }
}
