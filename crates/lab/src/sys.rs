//! Sets up child processes between fork and exec, which requires unsafe code.
#![expect(
    unsafe_code,
    reason = "code between fork and exec is inherently unsafe"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;

/// Same as [`die_with_parent`], but also protects the child from a Ctrl-C at the terminal.
pub(crate) fn end_with_parent(command: &mut Command) -> &mut Command {
    die_with_parent(command).process_group(0)
}

/// Makes the kernel kill the child when the thread that started it exits for any reason.
pub(crate) fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = nix::unistd::getpid();
    let prepare = move || {
        prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
        // If the parent exited before the signal was set up, the child has a new parent and must
        // not run.
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(nix::errno::Errno::ECHILD.into())
        }
    };
    // SAFETY: between fork and exec, the closure only makes two system calls and does not allocate.
    unsafe { command.pre_exec(prepare) }
}
