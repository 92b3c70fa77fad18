//! Runs ticktax on real kernels, reproducibly. QEMU boots a kernel with ticktax's own binary as its
//! init process (PID 1), which runs one verb and sends the verb's output back to the host.
//!
//! The main modules are largely independent of each other:
//! - [`image`] builds the initramfs.
//! - [`kernel`] builds or fetches kernels.
//! - [`qemu`] boots a kernel with an initramfs, and always terminates the guest.
//! - [`guest`] contains the code that runs as PID 1 in the guest.
//! - [`wire`] defines the protocol between guest and host.
//!
//! With [`Clock::Icount`](qemu::Clock::Icount), the guest's clock counts executed instructions.
//! Results then depend only on the kernel, and are identical every time. The price is that a cache
//! miss takes no longer than a hit, and that the hypervisor takes no time at all.

mod arch;
mod error;
pub mod guest;
pub mod image;
mod input;
pub mod kernel;
mod machine;
mod monitor;
mod outcome;
pub mod program;
pub mod qemu;
mod run;
mod sys;
mod turns;
pub mod wire;

pub use arch::Arch;
pub use error::{LabError, NameError};
pub use input::read_text;
pub use run::{GuestFile, GuestRun, Program};
pub use turns::in_turns;
