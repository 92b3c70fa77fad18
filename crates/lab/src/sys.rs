//! The one thing here that the compiler cannot check.
#![expect(
    unsafe_code,
    reason = "what a child does between fork and exec is unsafe by its nature"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// As [`die_with_parent`], and lets no Ctrl-C of a terminal reach the child directly.
pub(crate) fn end_with_parent(command: &mut Command) -> &mut Command {
    die_with_parent(command).process_group(0)
}

/// Has the kernel kill the child when the thread that starts it is gone, however it went.
pub(crate) fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = nix::unistd::getpid();
    let prepare = move || {
        prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
        // The parent may have gone before that was set.
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(nix::errno::Errno::ECHILD.into())
        }
    };
    // SAFETY: between fork and exec it only makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) }
}
