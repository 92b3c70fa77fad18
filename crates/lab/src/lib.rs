//! A deterministic laboratory for real kernels. QEMU boots them with ticktax's own binary as PID 1,
//! which runs one verb and sends back its output.
//!
//! The parts are independent of each other:
//! - [`image`] makes the initramfs.
//! - [`kernel`] provides kernels to boot.
//! - [`qemu`] boots a kernel with an initramfs, and always ends the guest.
//! - [`guest`] is the code of PID 1 inside the guest.
//! - [`wire`] is the protocol between host and guest.
//!
//! Under [`Clock::Icount`](qemu::Clock::Icount), the guest's time is the number of instructions
//! that it has executed. Results then depend only on the kernel and are the same every time. But an
//! instruction costs the same on a cache hit and a miss, and the work of a hypervisor costs
//! nothing.

mod arch;
mod error;
pub mod guest;
pub mod image;
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
pub use error::LabError;
pub use run::{Program, Run};
pub use turns::in_turns;
