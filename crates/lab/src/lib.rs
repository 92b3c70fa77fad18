//! A deterministic laboratory for real kernels: QEMU boots them with ticktax's own binary as PID 1,
//! which runs one verb and hands back what it wrote.
//!
//! These parts know nothing of each other: [`image`] makes the initramfs that a kernel unpacks,
//! [`qemu`] boots a kernel with it and ends whatever happens, [`kernel`] brings kernels to boot.
//! [`guest`] is the other side: what PID 1 does. [`wire`] is what the two sides say to each other.
//!
//! Under [`Clock::Icount`](qemu::Clock::Icount) the guest's time is the number of instructions that
//! it has executed. What follows is a property of the kernel alone, and the same every time; but an
//! instruction costs the same whether its data is in a cache or not, and what a hypervisor would do
//! costs nothing.

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
