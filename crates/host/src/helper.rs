//! Helper programs: those that ticktax starts for its own work, such as `tar`, QEMU and the pager.
//!
//! Root does not search the PATH that it inherited: a folder in it may belong to another user, or
//! be the working folder (`.`). The user's own command keeps the whole environment.

use std::ffi::OsStr;
use std::process::Command;

/// Folders in which root's helper programs are searched.
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A helper program by its name or absolute path. If root runs ticktax, the helper and all programs
/// that it starts are searched in a fixed PATH. Other users' helpers are searched in their PATH.
pub fn helper(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        // Unix searches the program in the PATH that the child is given.
        command.env("PATH", ROOT_PATH);
    }
    command
}

/// Whether this process runs as root.
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
