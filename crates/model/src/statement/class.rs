//! The classes of accounts, and their properties.

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
    /// Kernel entry and exit around activities with a known source, which only a probe can measure.
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
    /// The loop of a probe, whose time was available to others.
    Probe,
    /// Idle time: the CPU had nothing to run.
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

    /// Returns the name used in documents and files.
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

    /// Returns the properties of the class, which the methods below are based on. A new class needs
    /// only a line in this function.
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

    /// Returns the name of the class's only account; `None` if each program, thread or interrupt
    /// has its own.
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

    /// Returns the name of the class's account in recordings that contain only the counters of
    /// `/proc/stat`; `None` if no counter covers the class.
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

    /// Returns which party held the CPU during the time of this class.
    #[inline]
    pub const fn holder(self) -> Holder {
        self.nature().holder
    }

    /// Returns whether the time of this class was taken from programs.
    pub const fn is_taken(self) -> bool {
        matches!(
            self.holder(),
            Holder::Kernel | Holder::Hypervisor | Holder::Unexplained
        )
    }

    /// Returns whether the time of this class counts as busy time in `/proc/stat`. The time of a
    /// probe's loop does not, because it would be idle time without the probe.
    pub const fn is_busy(self) -> bool {
        matches!(
            self.holder(),
            Holder::Programs | Holder::Kernel | Holder::Tool
        )
    }

    /// Returns whether the accounts of this class belong to threads. If so, an account's parts are
    /// threads.
    pub const fn is_thread(self) -> bool {
        matches!(self.nature().form, Form::Thread)
    }

    /// Returns whether a program, which can be ticktax, ran during the time of this class.
    #[inline]
    pub const fn is_program(self) -> bool {
        matches!(self.holder(), Holder::Programs | Holder::Tool)
    }

    /// Returns whether the accounts of this class belong to interrupts. If so, an account's parts
    /// are the functions that the interrupt called.
    #[inline]
    pub const fn is_interrupt(self) -> bool {
        matches!(self.nature().form, Form::Interrupt)
    }

    /// Returns whether the analysis of a probe's gaps moves time into or out of this class. If so,
    /// the time of the class is not the sum of its rows.
    pub const fn is_moved_by_gaps(self) -> bool {
        let nature = self.nature();
        match nature.form {
            Form::Surround | Form::Loop => true,
            Form::Thread | Form::Interrupt => false,
            Form::Absent => matches!(nature.holder, Holder::Hypervisor | Holder::Unexplained),
        }
    }

    /// Returns whether the time of this class interrupts the running thread, as interrupts and the
    /// kernel entry and exit around them do.
    pub const fn is_interruption(self) -> bool {
        matches!(self.nature().form, Form::Interrupt | Form::Surround)
    }

    /// Returns whether the time of this class goes to identifiable kernel work that a user can do
    /// something about.
    pub const fn is_kernel_work(self) -> bool {
        let nature = self.nature();
        matches!(nature.holder, Holder::Kernel)
            && matches!(nature.form, Form::Thread | Form::Interrupt)
    }

    /// Returns the rank of the class in lists that mix classes. An interruption comes before the
    /// activity it interrupts.
    pub const fn precedence(self) -> u8 {
        self.nature().precedence
    }
}

/// Holder of a CPU. The first screen of a statement divides CPU time by holder.
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
    /// Nobody: the CPU time was available.
    Nothing,
}

/// Kind of activity behind the time of a class.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Threads.
    Thread,
    /// The loop of a probe, which has no parts.
    Loop,
    /// Interrupts, whose parts are the functions that they ran.
    Interrupt,
    /// Kernel entry and exit around interrupts.
    Surround,
    /// Neither the kernel nor a program was active.
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

    /// Sets the rank of the class in lists that mix classes.
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
