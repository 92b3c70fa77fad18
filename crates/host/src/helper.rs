//! Starts helper programs that ticktax needs for its own work, such as `tar`, QEMU and the pager.
//!
//! As root, ticktax doesn't look for helpers in the inherited PATH, because a directory in it may
//! belong to another user or be the working directory (`.`). The environment of the command that
//! the user wants to run stays unchanged.

use std::ffi::OsStr;
use std::process::Command;

const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns a command that runs a helper. `program` is its name or absolute path. If ticktax runs as
/// root, the helper and all programs that it starts get a fixed PATH. Otherwise, PATH is left as it
/// is.
pub fn helper(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        // On Unix, `Command` looks for the program in the PATH that the child gets.
        command.env("PATH", ROOT_PATH);
    }
    command
}

/// Returns whether the effective user of this process is root.
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
