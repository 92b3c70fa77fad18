//! Time that is taken from a lab guest, as a hypervisor or firmware would take it.
//!
//! The guest's clock counts instructions, so it stops while QEMU is stopped. To take time from such
//! a guest, its CPU has to execute instructions that its kernel does not know of. [`Stolen::take`]
//! therefore disables interrupts in user mode, where the kernel never disables them, and runs a
//! loop. The kernel cannot distinguish this from a CPU that was stopped. A program needs the I/O
//! privilege level 3 to disable interrupts, which Linux no longer grants, so a debugger outside the
//! guest has to set it when the program reaches [`LOOP`] for the first time.

use ticktax_model::Nanos;

use crate::error::InjectError;
use crate::sys::FixedLoop;

/// Address of the loop's first instruction, which disables interrupts.
pub const LOOP: u64 = 0x5eed_0000_0000;

/// Code of the loop, a function with the number of rounds as its argument: `cli`, `1: dec %rdi`,
/// `jnz 1b`, `sti`, `ret`.
const CODE: [u8; 8] = [0xfa, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xfb, 0xc3];
/// Number of instructions in each round.
const ROUND: i64 = 2;

/// A loop that runs with interrupts disabled.
#[derive(Debug)]
pub struct Stolen(FixedLoop);

impl Stolen {
    /// Places the loop at its address. Fails on architectures other than x86-64.
    pub fn new() -> Result<Self, InjectError> {
        let placed = FixedLoop::new(LOOP, &CODE);
        placed.map(Self).map_err(|e| {
            InjectError::system("place code at a fixed address", e, "use an x86-64 guest")
        })
    }

    /// Runs the loop for `length`. An instruction of the guest takes `instruction`.
    pub fn take(&self, length: Nanos, instruction: Nanos) {
        let rounds = length.0 / (instruction.0 * ROUND);
        self.0.run(rounds.max(1).unsigned_abs());
    }
}
