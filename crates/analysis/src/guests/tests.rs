//! Tests that the time of a virtual machine's threads is divided completely.

use ticktax_fixture::{books, header, process, replay, thread, whole};
use ticktax_model::guests::{
    ExitSet, ExitSum, GuestMachine, GuestName, GuestNamedBy, GuestStatement, GuestSums, Halts,
    VcpuSums,
};
use ticktax_model::hook::Hook;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Edge, Effect, Header, RecordingPart, Row};
use ticktax_model::{Cpu, Nanos, Owner, SourceId, SourceTable};

use crate::Auditor;

const HLT: u32 = 0x78;
const IO: u32 = 0x7b;

/// The threads of two machines with the same name, and a bystander.
struct Cast {
    sources: SourceTable,
    vcpu: SourceId,
    main: SourceId,
    vhost: SourceId,
    other_vhost: SourceId,
    second: SourceId,
    bystander: SourceId,
}

impl Cast {
    fn new() -> Self {
        let mut sources = SourceTable::default();
        Self {
            vcpu: sources.intern(thread(Owner::Program, "CPU 0/KVM", "qemu", (10, 11))),
            main: sources.intern(process(Owner::Program, "qemu", 10)),
            vhost: sources.intern(thread(Owner::Kernel, "vhost-10", "vhost-10", (12, 12))),
            other_vhost: sources.intern(thread(Owner::Kernel, "vhost-99", "vhost-99", (13, 13))),
            second: sources.intern(thread(Owner::Program, "CPU 0/KVM", "qemu", (20, 21))),
            bystander: sources.intern(process(Owner::Program, "sh", 30)),
            sources,
        }
    }

    fn statement(&self, rows: &[Row], header: &Header) -> Option<GuestStatement> {
        let mut auditor = Auditor::new(&Machine::default()).without_beats();
        replay(&self.sources, rows, &mut auditor);
        auditor.finish(header, &self.sources, 1).guests
    }
}

fn exits(code: u32, count: u64, kvm: i64, vmm: i64) -> ExitSum {
    ExitSum {
        code,
        count,
        kvm: Nanos(kvm),
        vmm: Nanos(vmm),
        elapsed: Nanos(2 * (kvm + vmm)),
    }
}

fn vcpu(tid: i32, pid: i32, since: i64, guest: i64, exits: Vec<ExitSum>) -> VcpuSums {
    VcpuSums {
        tid,
        pid,
        name: "CPU 0/KVM".to_owned(),
        since: Nanos(since),
        guest: Nanos(guest),
        injected: Some(5),
        halts: Some(Halts {
            slept: 2,
            ..Halts::default()
        }),
        exits,
        ..VcpuSums::default()
    }
}

fn name(pid: i32) -> GuestName {
    GuestName {
        pid,
        name: "web".to_owned(),
        named_by: GuestNamedBy::Qemu,
    }
}

/// Returns the header of a second in which these vCPUs were seen.
fn traced(vcpus: Vec<VcpuSums>) -> Header {
    let mut header = header();
    header.cpus.push(books(0, 0, 1_000_000_000));
    header.guests = Some(GuestSums {
        exit_set: ExitSet::Svm,
        vcpus,
        machines: vec![name(10), name(20)],
    });
    header
}

/// Returns the sum of a machine's activities.
fn sum(machine: &GuestMachine) -> Nanos {
    let GuestMachine {
        guest,
        kvm,
        vmm,
        unknown,
        other_threads,
        kernel_threads,
        unclassified,
        ..
    } = *machine;
    guest + kvm + vmm + unknown + other_threads + kernel_threads + unclassified
}

#[test]
fn each_nanosecond_of_a_machine_has_one_activity() {
    let cast = Cast::new();
    let rows = [
        whole(0, 0, 40, cast.vcpu),
        whole(0, 100, 500, cast.vcpu),
        whole(0, 600, 30, cast.main),
        whole(0, 700, 20, cast.vhost),
        whole(0, 800, 7, cast.other_vhost),
        whole(0, 900, 60, cast.second),
        whole(0, 1_000, 99, cast.bystander),
    ];
    let header = traced(vec![
        vcpu(
            11,
            10,
            100,
            300,
            vec![exits(HLT, 4, 150, 0), exits(IO, 10, 30, 20)],
        ),
        vcpu(21, 20, 0, 50, vec![exits(IO, 1, 10, 0)]),
    ]);
    let statement = cast.statement(&rows, &header).unwrap();
    let [first, second] = &statement.machines[..] else {
        panic!("{statement:?}");
    };
    // Two machines with the same name stay apart.
    assert_eq!((first.pid, second.pid), (10, 20));
    assert_eq!((&*first.name, &*second.name), ("web", "web"));
    assert_eq!(first.time, Nanos(590));
    assert_eq!(
        (first.guest, first.kvm, first.vmm),
        (Nanos(300), Nanos(180), Nanos(20))
    );
    // The vCPU's first run came before its first event.
    assert_eq!((first.unknown, first.unclassified), (Nanos(40), Nanos(0)));
    assert_eq!(
        (first.other_threads, first.kernel_threads),
        (Nanos(30), Nanos(20))
    );
    assert_eq!(sum(first), first.time);
    assert_eq!(first.vcpus[0].mismatch, Some(Nanos(0)));
    assert_eq!((first.exits, first.halting), (14, Nanos(150)));
    assert!((first.exits_per_s - 14.0).abs() < 1e-9);
    let reasons: Vec<_> = first.reasons.iter().map(|exits| &*exits.reason).collect();
    assert_eq!(reasons, ["hlt", "io"]);
    assert_eq!(first.overhead(), Nanos(290));
    assert_eq!((second.time, sum(second)), (Nanos(60), Nanos(60)));
    assert_eq!((second.injected, second.halts.unwrap().slept), (Some(5), 2));
}

#[test]
fn time_that_no_activity_explains_is_shown() {
    let cast = Cast::new();
    let rows = [whole(0, 100, 500, cast.vcpu)];
    let header = traced(vec![vcpu(11, 10, 100, 480, Vec::new())]);
    let statement = cast.statement(&rows, &header).unwrap();
    let machine = &statement.machines[0];
    assert_eq!(machine.unclassified, Nanos(20));
    assert_eq!(machine.vcpus[0].mismatch, Some(Nanos(20)));
    assert_eq!(sum(machine), machine.time);
}

#[test]
fn a_vcpu_that_starts_late_cannot_be_compared() {
    let cast = Cast::new();
    let rows: Vec<Row> = (0..100).map(|at| whole(0, at * 10, 5, cast.vcpu)).collect();
    let header = traced(vec![vcpu(11, 10, 900, 50, Vec::new())]);
    let statement = cast.statement(&rows, &header).unwrap();
    let machine = &statement.machines[0];
    assert_eq!((machine.time, machine.unknown), (Nanos(500), Nanos(450)));
    assert_eq!(machine.vcpus[0].mismatch, None);
    assert_eq!(sum(machine), machine.time);
    // If it starts among the first rows, it can.
    let header = traced(vec![vcpu(11, 10, 100, 450, Vec::new())]);
    let statement = cast.statement(&rows, &header).unwrap();
    assert_eq!(statement.machines[0].vcpus[0].mismatch, Some(Nanos(0)));
}

#[test]
fn waits_of_vcpus_are_those_for_a_cpu() {
    let cast = Cast::new();
    let woke = Row::Edge(Edge::new(
        Cpu(0),
        Nanos(150),
        cast.bystander,
        Effect::Woke(11),
    ));
    let rows = [
        whole(0, 0, 100, cast.vcpu),
        woke,
        whole(0, 100, 300, cast.bystander),
        whole(0, 400, 10, cast.vcpu),
    ];
    let mut header = traced(vec![vcpu(11, 10, 0, 110, Vec::new())]);
    let unknown = cast.statement(&rows, &header).unwrap();
    assert_eq!(unknown.machines[0].waits, None);
    header.coverage.attached.push(Hook::SchedWaking);
    let statement = cast.statement(&rows, &header).unwrap();
    let waits = statement.machines[0].waits.unwrap();
    assert_eq!(
        (waits.time, waits.count, waits.max),
        (Nanos(250), 1, Nanos(250))
    );
}

#[test]
fn a_machine_that_exited_has_the_name_of_a_thread() {
    let cast = Cast::new();
    let mut header = traced(vec![vcpu(11, 10, 0, 10, Vec::new())]);
    header.guests.as_mut().unwrap().machines.clear();
    let named = |rows: &[Row]| {
        let machine = cast.statement(rows, &header).unwrap().machines.remove(0);
        (machine.name, machine.named_by)
    };
    let (vcpu, main) = (whole(0, 0, 10, cast.vcpu), whole(0, 20, 10, cast.main));
    assert_eq!(
        named(std::slice::from_ref(&vcpu)),
        ("CPU 0/KVM".to_owned(), None)
    );
    assert_eq!(named(&[vcpu, main]), ("qemu".to_owned(), None));
}

#[test]
fn part_of_a_recording_has_no_machines() {
    let cast = Cast::new();
    let rows = [whole(0, 100, 500, cast.vcpu)];
    let mut header = traced(vec![vcpu(11, 10, 100, 500, Vec::new())]);
    assert!(cast.statement(&rows, &header).is_some());
    header.part = Some(RecordingPart {
        begin: Nanos(0),
        from: Nanos(0),
        to: Nanos(300),
        total: Nanos(1_000_000_000),
    });
    assert_eq!(cast.statement(&rows, &header), None);
    header.part = None;
    header.guests = None;
    assert_eq!(cast.statement(&rows, &header), None);
}
