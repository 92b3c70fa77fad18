//! Starts helper programs for ticktax's own work, such as `tar`, QEMU and the pager.
//!
//! As root, ticktax does not look for helpers in the inherited PATH, because a directory in it may
//! belong to another user or be the working directory (`.`). The user's own command keeps its
//! environment unchanged.

use std::ffi::OsStr;
use std::process::Command;

/// PATH for root's helper programs.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Creates a command that runs a helper, given its name or absolute path. If ticktax runs as root,
/// the helper and all programs that it starts get a fixed PATH. Otherwise PATH stays unchanged.
pub fn helper(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        // On Unix, `Command` searches the child's PATH for the program.
        command.env("PATH", ROOT_PATH);
    }
    command
}

/// Whether this process's effective user is root.
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
