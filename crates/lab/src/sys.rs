//! The code between fork and exec, which the compiler cannot check.
#![expect(
    unsafe_code,
    reason = "code between fork and exec is inherently unsafe"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// [`die_with_parent`], and shields the child from a terminal's Ctrl-C.
pub(crate) fn end_with_parent(command: &mut Command) -> &mut Command {
    die_with_parent(command).process_group(0)
}

/// Makes the kernel kill the child when the thread that started it ends for any reason.
pub(crate) fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = nix::unistd::getpid();
    let prepare = move || {
        prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
        // The parent may have ended before the signal was set.
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(nix::errno::Errno::ECHILD.into())
        }
    };
    // SAFETY: between fork and exec, the closure only makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) }
}
