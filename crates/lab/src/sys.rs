//! Sets up child processes between fork and exec, and feeds the kernel's random number generator.
//! Both require unsafe code.
#![expect(
    unsafe_code,
    reason = "code between fork and exec, and ioctls, are inherently unsafe"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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

/// `struct rand_pool_info` of `linux/random.h`, with room for a seed.
#[repr(C)]
struct RandomSeed {
    entropy_bits: i32,
    bytes: i32,
    seed: [u32; 16],
}

nix::ioctl_write_ptr_bad!(
    add_entropy,
    // `RNDADDENTROPY` contains the size of the two numbers, but not that of the seed.
    nix::request_code_write!(b'R', 3, 2 * size_of::<i32>()),
    RandomSeed
);

/// Makes the kernel's random number generator ready, with a constant seed. A guest whose clock
/// counts instructions has no source of randomness, so the first program that asks for random
/// numbers would keep its CPU busy for ten seconds.
pub(crate) fn seed_random_numbers() -> io::Result<()> {
    let seed = RandomSeed {
        entropy_bits: 512,
        bytes: 64,
        seed: [0x7469_636b; 16],
    };
    let random = File::options().write(true).open("/dev/random")?;
    // SAFETY: the descriptor is open during the call, and the kernel only reads `bytes` bytes of
    // `seed` after the two numbers, which is the size of the array.
    unsafe { add_entropy(random.as_raw_fd(), &raw const seed) }?;
    Ok(())
}
