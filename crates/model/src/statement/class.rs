//! The classes of accounts, with their properties.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The classes of accounts, in the order in which a statement lists them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The user's programs.
    Program,
    /// Kernel threads.
    KernelThread,
    /// Hardware interrupts.
    Irq,
    /// Softirqs.
    Softirq,
    /// Non-maskable interrupts.
    Nmi,
    /// Kernel entry and exit around spans with a known source, measured by a probe.
    EntryExit,
    /// Gaps in which the kernel provably ran nothing, because the hypervisor or firmware held the
    /// CPU.
    #[serde(alias = "outside")]
    HypervisorOrFirmware,
    /// Stolen time, according to the hypervisor's steal clock.
    Steal,
    /// Time that no source explains.
    Unexplained,
    /// ticktax's own work.
    Tool,
    /// A probe's loop. Its time was available to others.
    Probe,
    /// Idle: the CPU had nothing to run.
    Idle,
}

impl Class {
    /// All classes, in the order in which a statement lists them.
    pub const ALL: [Self; 12] = [
        Self::Program,
        Self::KernelThread,
        Self::Irq,
        Self::Softirq,
        Self::Nmi,
        Self::EntryExit,
        Self::HypervisorOrFirmware,
        Self::Steal,
        Self::Unexplained,
        Self::Tool,
        Self::Probe,
        Self::Idle,
    ];

    /// Name used in documents and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::KernelThread => "kernel_thread",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::Nmi => "nmi",
            Self::EntryExit => "entry_exit",
            Self::HypervisorOrFirmware => "hypervisor_or_firmware",
            Self::Steal => "steal",
            Self::Unexplained => "unexplained",
            Self::Tool => "tool",
            Self::Probe => "probe",
            Self::Idle => "idle",
        }
    }

    /// The properties of the class that the methods below are based on. A new class only needs a
    /// line here.
    #[inline]
    const fn nature(self) -> Nature {
        use Form::{Absent, Interrupt, Loop, Surround, Thread};
        use Holder::{Hypervisor, Kernel, Nothing, Programs, Tool, Unexplained};
        match self {
            Self::Nmi => Nature::new(Kernel, Interrupt).with_precedence(0),
            Self::Irq => Nature::new(Kernel, Interrupt).with_precedence(1),
            Self::Softirq => Nature::new(Kernel, Interrupt).with_precedence(2),
            Self::KernelThread => Nature::new(Kernel, Thread).with_precedence(3),
            Self::Program => Nature::new(Programs, Thread).with_precedence(4),
            Self::Tool => Nature::new(Tool, Thread),
            Self::EntryExit => Nature::new(Kernel, Surround),
            Self::HypervisorOrFirmware | Self::Steal => Nature::new(Hypervisor, Absent),
            Self::Unexplained => Nature::new(Unexplained, Absent),
            Self::Probe => Nature::new(Nothing, Loop),
            Self::Idle => Nature::new(Nothing, Absent),
        }
    }

    /// The name of the class's account, if it has only one; `None` if each program, thread or
    /// interrupt has its own account.
    pub const fn account(self) -> Option<&'static str> {
        match self {
            Self::Program | Self::KernelThread | Self::Irq | Self::Softirq | Self::Nmi => None,
            Self::EntryExit => Some("entry and exit"),
            Self::HypervisorOrFirmware => Some("hypervisor or firmware"),
            Self::Steal => Some("steal"),
            Self::Unexplained => Some("unexplained"),
            Self::Tool => Some("ticktax"),
            Self::Probe => Some("probe"),
            Self::Idle => Some("idle"),
        }
    }

    /// The name of the class's account if only counters (`/proc/stat`) measure its time; `None` if
    /// no counter covers the class.
    pub const fn counted_account(self) -> Option<&'static str> {
        match self {
            Self::Program => Some("programs"),
            Self::KernelThread => Some("kernel"),
            Self::Irq => Some("interrupts"),
            Self::Softirq => Some("softirqs"),
            Self::Steal | Self::Unexplained | Self::Probe | Self::Idle => self.account(),
            Self::Nmi | Self::EntryExit | Self::HypervisorOrFirmware | Self::Tool => None,
        }
    }

    /// The holder of the CPU during this class's time.
    #[inline]
    pub const fn holder(self) -> Holder {
        self.nature().holder
    }

    /// Whether this class's time was taken from programs.
    pub const fn is_taken(self) -> bool {
        matches!(
            self.holder(),
            Holder::Kernel | Holder::Hypervisor | Holder::Unexplained
        )
    }

    /// Whether `/proc/stat` would count the CPU as busy. A probe's loop does not count, because it
    /// stands for idle time.
    pub const fn is_busy(self) -> bool {
        matches!(
            self.holder(),
            Holder::Programs | Holder::Kernel | Holder::Tool
        )
    }

    /// Whether the class consists of threads. If so, the parts of its accounts are threads.
    pub const fn is_thread(self) -> bool {
        matches!(self.nature().form, Form::Thread)
    }

    /// Whether a program ran. ticktax counts as one.
    #[inline]
    pub const fn is_program(self) -> bool {
        matches!(self.holder(), Holder::Programs | Holder::Tool)
    }

    /// Whether the class consists of interrupts. If so, the parts of its accounts are the functions
    /// that the interrupts called.
    #[inline]
    pub const fn is_interrupt(self) -> bool {
        matches!(self.nature().form, Form::Interrupt)
    }

    /// Whether the analysis of a probe's gaps moves time into or out of the class. If so, its time
    /// is not the sum of its rows.
    pub const fn is_moved_by_gaps(self) -> bool {
        let nature = self.nature();
        match nature.form {
            Form::Surround | Form::Loop => true,
            Form::Thread | Form::Interrupt => false,
            Form::Absent => matches!(nature.holder, Holder::Hypervisor | Holder::Unexplained),
        }
    }

    /// Whether the running thread was interrupted by the kernel: interrupts, and the entry and exit
    /// around them.
    pub const fn is_interruption(self) -> bool {
        matches!(self.nature().form, Form::Interrupt | Form::Surround)
    }

    /// Whether the time is identifiable kernel work that a user can act on.
    pub const fn is_kernel_work(self) -> bool {
        let nature = self.nature();
        matches!(nature.holder, Holder::Kernel)
            && matches!(nature.form, Form::Thread | Form::Interrupt)
    }

    /// Rank of the class in mixed lists. An interruption comes before the activity that it
    /// interrupts.
    pub const fn precedence(self) -> u8 {
        self.nature().precedence
    }
}

/// The holder of a CPU. The first screen divides CPU time this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The user's programs.
    Programs,
    /// The kernel.
    Kernel,
    /// The hypervisor or firmware.
    Hypervisor,
    /// Unknown.
    Unexplained,
    /// ticktax.
    Tool,
    /// Nobody. The time was available.
    Nothing,
}

/// Kind of activity that a class's time consists of.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Threads.
    Thread,
    /// A probe's loop, which has no parts.
    Loop,
    /// Interrupts, with the functions that they ran.
    Interrupt,
    /// The time around interrupts.
    Surround,
    /// Nothing run by the kernel.
    Absent,
}

/// Properties of a [`Class`].
#[derive(Clone, Copy, Debug)]
struct Nature {
    holder: Holder,
    form: Form,
    precedence: u8,
}

impl Nature {
    const fn new(holder: Holder, form: Form) -> Self {
        Self {
            holder,
            form,
            precedence: u8::MAX,
        }
    }

    /// Sets the precedence of the class.
    const fn with_precedence(self, precedence: u8) -> Self {
        Self { precedence, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn json_and_files_use_the_same_class_names() {
        for class in Class::ALL {
            let json = serde_json::to_value(class).unwrap();
            assert_eq!(json, class.name());
        }
    }
}
