//! Takes time from a lab guest, as a hypervisor or firmware would.
//!
//! The guest's clock counts instructions, so it stops while QEMU is stopped. To take time from such
//! a guest, its CPU must execute instructions that the guest's kernel does not know about.
//! [`Stolen::take`] therefore disables interrupts in user mode, where the kernel never does, and
//! runs a loop. The kernel cannot distinguish this from a stopped CPU. A program needs I/O
//! privilege level 3 to disable interrupts. Linux no longer grants it, so a debugger outside the
//! guest has to set it when the program first reaches [`LOOP`].

use ticktax_model::Nanos;

use crate::error::InjectError;
use crate::sys::FixedLoop;

/// Address of the loop's first instruction, which disables interrupts.
pub const LOOP: u64 = 0x5eed_0000_0000;

/// Code of the loop, as a function that takes the number of rounds: `cli`, `1: dec %rdi`, `jnz 1b`,
/// `sti`, `ret`.
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

    /// Runs the loop for `length`. `instruction` is the time that one instruction takes in the
    /// guest.
    pub fn take(&self, length: Nanos, instruction: Nanos) {
        let rounds = length.0 / (instruction.0 * ROUND);
        self.0.run(rounds.max(1).unsigned_abs());
    }
}
