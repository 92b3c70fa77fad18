//! The messages of Perfetto's format, with only the fields that are needed.

/// Concatenated packets, which are decoded one at a time.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Packets {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) packet: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Packet {
    #[prost(message, optional, tag = "1")]
    pub(super) ftrace_events: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    pub(super) process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "45")]
    pub(super) system_info: Option<SystemInfo>,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub(super) compressed_packets: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Bundle {
    #[prost(uint32, tag = "1")]
    pub(super) cpu: u32,
    #[prost(message, repeated, tag = "2")]
    pub(super) event: Vec<FtraceEvent>,
    #[prost(bool, tag = "3")]
    pub(super) lost_events: bool,
    #[prost(message, optional, tag = "4")]
    pub(super) compact_sched: Option<CompactSched>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CompactSched {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) switch_timestamp: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub(super) switch_next_pid: Vec<i32>,
    #[prost(string, repeated, tag = "5")]
    pub(super) intern_table: Vec<String>,
    #[prost(uint32, repeated, tag = "6")]
    pub(super) switch_next_comm_index: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub(super) waking_timestamp: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    pub(super) waking_pid: Vec<i32>,
    #[prost(uint32, repeated, tag = "11")]
    pub(super) waking_comm_index: Vec<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FtraceEvent {
    #[prost(uint64, tag = "1")]
    pub(super) timestamp: u64,
    #[prost(int32, optional, tag = "2")]
    pub(super) pid: Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub(super) sched_switch: Option<Switch>,
    #[prost(message, optional, tag = "17")]
    pub(super) sched_wakeup: Option<Woken>,
    #[prost(message, optional, tag = "20")]
    pub(super) sched_waking: Option<Woken>,
    #[prost(message, optional, tag = "21")]
    pub(super) ipi_entry: Option<IpiEntry>,
    #[prost(message, optional, tag = "22")]
    pub(super) ipi_exit: Option<Empty>,
    #[prost(message, optional, tag = "24")]
    pub(super) softirq_entry: Option<Softirq>,
    #[prost(message, optional, tag = "25")]
    pub(super) softirq_exit: Option<Softirq>,
    #[prost(message, optional, tag = "26")]
    pub(super) softirq_raise: Option<Softirq>,
    #[prost(message, optional, tag = "36")]
    pub(super) irq_handler_entry: Option<IrqEntry>,
    #[prost(message, optional, tag = "37")]
    pub(super) irq_handler_exit: Option<Empty>,
    #[prost(message, optional, tag = "114")]
    pub(super) sched_wakeup_new: Option<Woken>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Switch {
    #[prost(string, tag = "1")]
    pub(super) prev_comm: String,
    #[prost(int32, tag = "2")]
    pub(super) prev_pid: i32,
    #[prost(int64, tag = "4")]
    pub(super) prev_state: i64,
    #[prost(string, tag = "5")]
    pub(super) next_comm: String,
    #[prost(int32, tag = "6")]
    pub(super) next_pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Woken {
    #[prost(string, tag = "1")]
    pub(super) comm: String,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IrqEntry {
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct IpiEntry {
    #[prost(string, tag = "1")]
    pub(super) reason: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Softirq {
    #[prost(uint32, tag = "1")]
    pub(super) vec: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub(super) processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub(super) threads: Vec<ProcessThread>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Process {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(int32, tag = "2")]
    pub(super) ppid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessThread {
    #[prost(int32, tag = "1")]
    pub(super) tid: i32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(int32, tag = "3")]
    pub(super) tgid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) utsname: Option<Utsname>,
    #[prost(uint32, tag = "8")]
    pub(super) num_cpus: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Utsname {
    #[prost(string, tag = "3")]
    pub(super) release: String,
    #[prost(string, tag = "4")]
    pub(super) machine: String,
}
