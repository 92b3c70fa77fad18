//! The classes of accounts, and what each is.

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
    /// Threads of the kernel.
    KernelThread,
    /// Hardware interrupts.
    Irq,
    /// Softirqs.
    Softirq,
    /// Non-maskable interrupts.
    Nmi,
    /// Getting into and out of the kernel around what has a name, as a probe saw it.
    EntryExit,
    /// Gaps in which the kernel provably ran nothing: the hypervisor or the firmware had the CPU.
    Outside,
    /// Taken by the hypervisor, by its own clock.
    Steal,
    /// What no source explains.
    Unexplained,
    /// ticktax's own work.
    Tool,
    /// A probe's loop: time that was there to be used.
    Probe,
    /// Nothing to run.
    Idle,
}

impl Class {
    /// Every class, in a statement's order.
    pub const ALL: [Self; 12] = [
        Self::Program,
        Self::KernelThread,
        Self::Irq,
        Self::Softirq,
        Self::Nmi,
        Self::EntryExit,
        Self::Outside,
        Self::Steal,
        Self::Unexplained,
        Self::Tool,
        Self::Probe,
        Self::Idle,
    ];

    /// The word for it, as documents and files write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::KernelThread => "kernel_thread",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
            Self::Nmi => "nmi",
            Self::EntryExit => "entry_exit",
            Self::Outside => "outside",
            Self::Steal => "steal",
            Self::Unexplained => "unexplained",
            Self::Tool => "tool",
            Self::Probe => "probe",
            Self::Idle => "idle",
        }
    }

    /// What the class is, for every question that is asked of classes: a new one is described here
    /// once.
    #[inline]
    const fn nature(self) -> Nature {
        use Form::{Absent, Interrupt, Loop, Surround, Thread};
        use Holder::{Hypervisor, Kernel, Nothing, Programs, Tool, Unexplained};
        match self {
            Self::Nmi => Nature::of(Kernel, Interrupt).named(0),
            Self::Irq => Nature::of(Kernel, Interrupt).named(1),
            Self::Softirq => Nature::of(Kernel, Interrupt).named(2),
            Self::KernelThread => Nature::of(Kernel, Thread).named(3),
            Self::Program => Nature::of(Programs, Thread).named(4),
            Self::Tool => Nature::of(Tool, Thread),
            Self::EntryExit => Nature::of(Kernel, Surround),
            Self::Outside | Self::Steal => Nature::of(Hypervisor, Absent),
            Self::Unexplained => Nature::of(Unexplained, Absent),
            Self::Probe => Nature::of(Nothing, Loop),
            Self::Idle => Nature::of(Nothing, Absent),
        }
    }

    /// The name of its only account; `None` where programs, threads or interrupts have one each.
    pub const fn account(self) -> Option<&'static str> {
        match self {
            Self::Program | Self::KernelThread | Self::Irq | Self::Softirq | Self::Nmi => None,
            Self::EntryExit => Some("entry and exit"),
            Self::Outside => Some("outside"),
            Self::Steal => Some("steal"),
            Self::Unexplained => Some("unexplained"),
            Self::Tool => Some("ticktax"),
            Self::Probe => Some("probe"),
            Self::Idle => Some("idle"),
        }
    }

    /// The name of its account where only counters tell of it (`/proc/stat`); `None` where none does.
    pub const fn counted_account(self) -> Option<&'static str> {
        match self {
            Self::Program => Some("programs"),
            Self::KernelThread => Some("kernel"),
            Self::Irq => Some("interrupts"),
            Self::Softirq => Some("softirqs"),
            Self::Steal | Self::Unexplained | Self::Probe | Self::Idle => self.account(),
            Self::Nmi | Self::EntryExit | Self::Outside | Self::Tool => None,
        }
    }

    /// Who had the CPU.
    #[inline]
    pub const fn holder(self) -> Holder {
        self.nature().holder
    }

    /// Whether time in this class is time that a program wanted and did not get.
    pub const fn is_taken(self) -> bool {
        matches!(
            self.holder(),
            Holder::Kernel | Holder::Hypervisor | Holder::Unexplained
        )
    }

    /// Whether the CPU was at work, as a column of `/proc/stat` would say: a probe's loop, which
    /// stands for idle time, left out.
    pub const fn is_busy(self) -> bool {
        matches!(
            self.holder(),
            Holder::Programs | Holder::Kernel | Holder::Tool
        )
    }

    /// Whether threads ran, which are the parts of their account.
    pub const fn is_thread(self) -> bool {
        matches!(self.nature().form, Form::Thread)
    }

    /// Whether a program ran that had asked for the CPU: one of the user's, or ticktax.
    #[inline]
    pub const fn is_program(self) -> bool {
        matches!(self.holder(), Holder::Programs | Holder::Tool)
    }

    /// Whether these are interrupts, whose parts are the functions within them.
    #[inline]
    pub const fn is_interrupt(self) -> bool {
        matches!(self.nature().form, Form::Interrupt)
    }

    /// Whether what a probe's gaps turn out to be moves time into its account, or out of it: it is
    /// not what its rows add up to.
    pub const fn is_moved_by_gaps(self) -> bool {
        let nature = self.nature();
        match nature.form {
            Form::Surround | Form::Loop => true,
            Form::Thread | Form::Interrupt => false,
            Form::Absent => matches!(nature.holder, Holder::Hypervisor | Holder::Unexplained),
        }
    }

    /// Whether the kernel interrupted what ran: interrupts, and getting into and out of them.
    pub const fn is_interruption(self) -> bool {
        matches!(self.nature().form, Form::Interrupt | Form::Surround)
    }

    /// Whether its time is work of the kernel that has a name, about which something can be done.
    pub const fn is_kernel_work(self) -> bool {
        let nature = self.nature();
        matches!(nature.holder, Holder::Kernel)
            && matches!(nature.form, Form::Thread | Form::Interrupt)
    }

    /// Its place where several are named together: what interrupts comes before what it interrupts.
    pub const fn precedence(self) -> u8 {
        self.nature().precedence
    }
}

/// Who had a CPU, as a first screen divides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The user's programs.
    Programs,
    /// The kernel.
    Kernel,
    /// The hypervisor, or the firmware.
    Hypervisor,
    /// Not known.
    Unexplained,
    /// ticktax.
    Tool,
    /// Nothing: the time was there to be used.
    Nothing,
}

/// What a class's time is made of.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Threads.
    Thread,
    /// A probe's loop, of which no part is named.
    Loop,
    /// Interrupts, with the functions in them.
    Interrupt,
    /// What lies around interrupts.
    Surround,
    /// Nothing that the kernel ran.
    Absent,
}

/// What a [`Class`] is.
#[derive(Clone, Copy, Debug)]
struct Nature {
    holder: Holder,
    form: Form,
    precedence: u8,
}

impl Nature {
    const fn of(holder: Holder, form: Form) -> Self {
        Self {
            holder,
            form,
            precedence: u8::MAX,
        }
    }

    /// It is named at this place among others.
    const fn named(self, precedence: u8) -> Self {
        Self { precedence, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn a_class_has_one_word_in_all_files() {
        for class in Class::ALL {
            let json = serde_json::to_value(class).unwrap();
            assert_eq!(json, class.name());
        }
    }
}
