//! Sizes of the tracer's tables and rings.

use super::{Output, TraceSettings};
use crate::hooks::Need;
use crate::record::{
    NAME_SLOTS, NOTES, RESTS_PER_CPU, RingEntry, RuleHistogram, SpanRecord, StackNote, SumRecord,
    TRIGGER_RULES, ThreadName, VCPUS, VcpuRecord,
};

/// Size in bytes of a record in a ring that the reader empties.
const SPAN: usize = size_of::<SpanRecord>();

/// Size in bytes of a record in the flight recorder's ring.
const ENTRY: usize = size_of::<RingEntry>();

/// Sizes of tables and rings on this machine.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent properties of the output"
)]
pub(crate) struct Sizes {
    pub(crate) cpus: usize,
    pub(crate) ring_order: u32,
    pub(crate) sum_entries: u32,
    pub(crate) summing: bool,
    pub(crate) following: bool,
    /// Whether a profile is recorded.
    pub(crate) profiling: bool,
    /// Whether virtual machines are watched.
    pub(crate) guests: bool,
    /// Whether these sizes are for the flight recorder, which has two tables of sums and overwrites
    /// its rings.
    pub(crate) flight: bool,
}

impl Sizes {
    pub(crate) fn new(settings: &TraceSettings, cpus: usize) -> Self {
        let power = |n: u32, min: u32, max: u32| n.clamp(min, max).next_power_of_two();
        match settings.output {
            Output::Spans { per_cpu } => Self {
                cpus,
                ring_order: power(per_cpu.min(Self::share(cpus, SPAN)), 1 << 10, 1 << 22).ilog2(),
                sum_entries: 1,
                summing: false,
                following: settings.following,
                profiling: settings.profile.is_some(),
                guests: settings.guests,
                flight: false,
            },
            Output::Sums { entries } => Self {
                cpus,
                ring_order: power(
                    Self::LONG_SPANS.min(Self::share(cpus, SPAN)),
                    1 << 8,
                    1 << 10,
                )
                .ilog2(),
                sum_entries: power(entries, 1 << 8, 1 << 20),
                summing: true,
                following: false,
                profiling: false,
                guests: settings.guests,
                flight: false,
            },
            Output::Flight { per_cpu, entries } => Self {
                cpus,
                ring_order: power(per_cpu.min(Self::share(cpus, ENTRY)), 1 << 10, 1 << 22).ilog2(),
                sum_entries: power(entries, 1 << 8, 1 << 19),
                summing: true,
                following: false,
                profiling: false,
                guests: false,
                flight: true,
            },
        }
    }

    /// Number of long spans that fit into a CPU's ring when sums are kept. They take 64 KiB. A CPU
    /// produces at most a thousand such spans per second, plus nested ones and waits. Spans that do
    /// not fit are added to the sums.
    const LONG_SPANS: u32 = 1 << 10;

    /// Memory limit for all rings together, in bytes. The kernel allocates the rings completely,
    /// with one for every CPU that the machine could ever have.
    const RINGS: usize = 256 << 20;

    /// Returns how many records of this many `bytes` per CPU fit into [`Self::RINGS`], rounded down
    /// to a power of two.
    fn share(cpus: usize, bytes: usize) -> u32 {
        let records = Self::RINGS / bytes / cpus.max(1);
        u32::try_from(records.max(1)).map_or(1 << 22, |records| 1 << records.ilog2())
    }

    pub(crate) fn ring_len(self) -> usize {
        1 << self.ring_order
    }

    pub(super) fn ring_mask(self) -> u32 {
        (1 << self.ring_order) - 1
    }

    /// Returns the number of tables of sums.
    fn tables(self) -> u32 {
        if self.flight { 2 } else { 1 }
    }

    /// Returns the number of entries in all tables of sums together.
    pub(crate) fn all_sum_entries(self) -> u32 {
        self.sum_entries * self.tables()
    }

    pub(crate) fn rest_entries(self) -> u32 {
        let entries = self.cpus * RESTS_PER_CPU * self.tables() as usize;
        u32::try_from(entries).unwrap_or(u32::MAX)
    }

    /// Returns the total number of records in all span rings. It is 1 for the flight recorder,
    /// which uses its own rings instead.
    pub(crate) fn span_entries(self) -> usize {
        if self.flight {
            1
        } else {
            self.cpus << self.ring_order
        }
    }

    /// Returns the total number of records in the flight recorder's rings. It is 1 for other
    /// outputs.
    pub(crate) fn ring_entries(self) -> usize {
        if self.flight {
            self.cpus << self.ring_order
        } else {
            1
        }
    }

    /// Returns how many threads' names the flight recorder can keep. It is 1 for other outputs.
    pub(crate) fn name_entries(self) -> usize {
        if self.flight { NAME_SLOTS } else { 1 }
    }

    /// Returns the number of histograms for the flight recorder's rules. It is 1 for other outputs.
    pub(crate) fn rule_entries(self) -> usize {
        if self.flight {
            self.cpus * TRIGGER_RULES
        } else {
            1
        }
    }

    /// Returns how many notes the flight recorder can keep. It is 1 for other outputs.
    pub(crate) fn note_entries(self) -> usize {
        if self.flight { self.cpus * NOTES } else { 1 }
    }

    /// Returns how many vCPUs' sums can be kept. It is 1 if virtual machines are not watched.
    pub(crate) fn vcpu_entries(self) -> usize {
        if self.guests { VCPUS } else { 1 }
    }

    /// Returns whether the code that keeps threads waiting is sampled.
    pub(crate) fn sampling(self) -> bool {
        !self.summing || self.flight
    }

    /// Returns whether the BPF programs use the maps of stacks.
    pub(crate) fn takes_stacks(self) -> bool {
        self.following || !self.summing
    }

    /// Returns whether hooks with this condition are attached.
    pub(super) fn needs(self, need: Need) -> bool {
        match need {
            Need::Always => true,
            Need::Spans => !self.summing || self.flight,
            Need::Following => self.following,
            Need::Samples => self.sampling(),
            Need::Profile => self.profiling,
            Need::SpansOrFollowing => !self.summing || self.following,
            Need::Guests => self.guests,
        }
    }

    /// Returns the total memory that these sizes take, in bytes.
    pub(crate) fn bytes(self) -> u64 {
        let rings = self.span_entries() * SPAN + self.ring_entries() * ENTRY;
        let sums = self.all_sum_entries() as usize * size_of::<SumRecord>();
        let names = self.name_entries() * size_of::<ThreadName>();
        let lengths = self.rule_entries() * size_of::<RuleHistogram>();
        let vcpus = self.vcpu_entries() * size_of::<VcpuRecord>();
        let notes = self.note_entries() * size_of::<StackNote>();
        (rings + sums + names + lengths + vcpus + notes) as u64
    }
}
