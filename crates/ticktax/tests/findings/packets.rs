//! Cases about receiving network packets.

use std::collections::BTreeMap;

use ticktax_model::configured::{DeviceOffloads, Offload};
use ticktax_model::machine::{DevicePackets, InterruptRow, UdpSocket};
use ticktax_model::packet_path::{
    PacketCpu, PacketDelay, PacketPathGroup, PacketPaths, PacketRan, PacketThread, ReceivedIn,
    Step, StepLength, StepTime,
};
use ticktax_model::recording::Header;
use ticktax_model::statement::{Account, Class};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::{Interferer, StateAccount, ThreadState, ThreadTimes};
use ticktax_model::{Cpu, CpuList, Intervals, Kind, Nanos};

use super::tree::Expected::{self, Found, Silence};
use super::tree::{Case, case};

const BUDGET: (&str, &str) = ("proc/sys/net/core/netdev_budget", "300\n");
const TIME: (&str, &str) = ("proc/sys/net/core/netdev_budget_usecs", "8000\n");

fn with(
    rule: &'static str,
    name: &'static str,
    files: &[(&'static str, &str)],
    packets: fn() -> Option<PacketPaths>,
    expected: Expected,
) -> Case {
    Case {
        packets,
        ..case(rule, name, files, expected)
    }
}

/// Returns the packet figures for a machine on which CPU 1 ended its softirq `times` times even
/// though packets were left to process. One in 50 wake-ups went through `ksoftirqd`.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the packets of a case are optional"
)]
fn squeezed(times: u64) -> Option<PacketPaths> {
    let way = |received_in, count, ms| PacketPathGroup {
        raised_by: Some("eth0".to_owned()),
        kind: None,
        received_in,
        delay: Intervals {
            count,
            max: Some(Nanos::from_millis(ms)),
            ..Intervals::default()
        },
    };
    Some(PacketPaths {
        wakeups: 50,
        followed: 50,
        groups: vec![
            way(ReceivedIn::Softirq, 49, 1),
            way(ReceivedIn::Ksoftirqd, 1, 4),
        ],
        cpus: vec![PacketCpu {
            cpu: Cpu(1),
            processed: 9_000,
            dropped: 0,
            squeezed: times,
        }],
        ..PacketPaths::default()
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let lists = [budgets(), buffers(), steering(), interrupting(), offloads()];
    lists.into_iter().flatten().collect()
}

/// Makes process 10's socket on port 5000 drop `more` additional datagrams during the audit. A
/// second socket drops none.
fn dropped(header: &mut Header, more: u64) -> Option<TickBill> {
    let socket = |inode, drops| UdpSocket {
        inode,
        port: 5_000,
        pid: 10,
        queued_bytes: 0,
        drops,
        ..UdpSocket::default()
    };
    header.before.udp_sockets = vec![socket(1, 7), socket(2, 9)];
    header.after.udp_sockets = vec![socket(1, 7 + more), socket(2, 9)];
    None
}

/// Returns the packet figures for a machine on which packets woke a thread of process 10, which
/// then waited 17 ms behind a backup.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the packets of a case are optional"
)]
fn stalled() -> Option<PacketPaths> {
    let length = Nanos::from_millis(17);
    let (step, empty) = (Step::Woken, Intervals::default());
    Some(PacketPaths {
        threads: vec![PacketThread {
            name: "game".to_owned(),
            program: "game".to_owned(),
            pid: 10,
            tid: 11,
            cpus: CpuList::from_iter([Cpu(1)]),
            delay: empty,
            steps: vec![StepLength {
                step,
                length: Intervals {
                    max: Some(length),
                    ..empty
                },
            }],
        }],
        longest: vec![PacketDelay {
            thread: "game".to_owned(),
            pid: 10,
            tid: 11,
            at: Nanos::ZERO,
            length,
            cpu: Cpu(0),
            ran_on: Cpu(1),
            raised_by: None,
            received_in: ReceivedIn::Softirq,
            steps: vec![StepTime { step, time: length }],
            longest: step,
            ran: vec![PacketRan {
                name: "backup".to_owned(),
                kind: Kind::Task,
                pid: Some(20),
                time: length,
            }],
        }],
        ..PacketPaths::default()
    })
}

fn buffers() -> Vec<Case> {
    const RULE: &str = "udp-buffer-overrun";
    const MOST: (&str, &str) = ("proc/sys/net/core/rmem_max", "212992\n");
    let lost = |name, files: &[_], packets, text| Case {
        measured: |header| dropped(header, 400),
        ..with(RULE, name, files, packets, Found(text))
    };
    vec![
        lost(
            "a stall",
            &[MOST],
            stalled,
            "400 datagrams lost; after a packet woke it, one of its threads waited 17.0 ms to run, \
             behind backup",
        ),
        lost(
            "what to do about it",
            &[MOST],
            stalled,
            "make the buffer large enough for at least 17.0 ms of traffic: run `sysctl -w \
             net.core.rmem_max=425984",
        ),
        lost(
            "no stall",
            &[MOST],
            || None,
            "make the program read more often",
        ),
        lost(
            "nothing known of buffers",
            &[],
            || None,
            "rmem_max = unknown",
        ),
        Case {
            measured: |header| {
                let bill = dropped(header, 400);
                for socket in &mut header.after.udp_sockets {
                    (socket.buffer_bytes, socket.charged_bytes) = (Some(300_000), Some(299_520));
                }
                bill
            },
            ..with(
                RULE,
                "its buffer",
                &[MOST],
                stalled,
                Found(
                    "socket 1 of process 10, which happens when its buffer is full; 299520 of its \
                     300000 bytes",
                ),
            )
        },
        Case {
            measured: |header| dropped(header, 0),
            ..with(RULE, "nothing dropped", &[MOST], stalled, Silence)
        },
    ]
}

/// Returns the times of a program that ran for a second and was interrupted by `NET_RX` for an
/// additional `ms` milliseconds.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the threads of a case are optional"
)]
fn interrupted(ms: i64) -> Option<ThreadTimes> {
    let account = |state, time| StateAccount {
        state,
        time,
        count: 1,
        max: None,
    };
    let time = Nanos::from_millis(ms);
    Some(ThreadTimes {
        accounts: vec![
            account(ThreadState::Running, Nanos::from_secs(1)),
            account(ThreadState::Interrupted, time),
            account(ThreadState::Sleeping, Nanos::from_secs(60)),
        ],
        interrupted_by: vec![Interferer {
            code: None,
            name: "NET_RX".to_owned(),
            kind: Kind::Softirq,
            pid: None,
            program: None,
            threads: 0,
            same_program: false,
            time,
            count: 400,
            max: time,
            migrated: false,
            period: None,
            policy: None,
        }],
        ..ThreadTimes::default()
    })
}

fn steering() -> Vec<Case> {
    const RULE: &str = "rps-on-programs-cpus";
    const QUEUE: &str = "sys/class/net/eth0/queues/rx-0/rps_cpus";
    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-3\n");
    let much = |name, files: &[_], expected| Case {
        threads: || interrupted(40),
        ..with(RULE, name, files, stalled, expected)
    };
    let all = [(QUEUE, "0000000f\n"), ONLINE];
    vec![
        much(
            "all CPUs",
            &all,
            Found(
                "packets wake its threads on CPU 1, where NET_RX interrupted the program for 40.0 \
                 ms in 400 softirqs",
            ),
        ),
        much(
            "which to take instead",
            &all,
            Found("echo d > /sys/class/net/eth0/queues/rx-0/rps_cpus"),
        ),
        much(
            "no CPU is left",
            &[(QUEUE, "2\n")],
            Found("fewer CPUs (taskset)"),
        ),
        much("other CPUs", &[(QUEUE, "d\n"), ONLINE], Silence),
        much("off", &[(QUEUE, "0\n"), ONLINE], Silence),
        Case {
            threads: || interrupted(4),
            ..with(RULE, "little", &all, stalled, Silence)
        },
        with(RULE, "no program", &all, stalled, Silence),
    ]
}

/// Makes interrupt 38 arrive 500 times on CPU 1, because of packets that woke the program.
fn interrupts(header: &mut Header) -> Option<TickBill> {
    let row = |count| InterruptRow {
        description: "PCI-MSIX-0000:00:03.0 1-edge eth0-rx-0".to_owned(),
        counts: BTreeMap::from([(0, 0), (1, count)]),
    };
    header.before.interrupts = BTreeMap::from([("38".to_owned(), row(7))]);
    header.after.interrupts = BTreeMap::from([("38".to_owned(), row(507))]);
    None
}

/// Returns the packet figures from [`stalled`], with a softirq that was raised by the interrupt
/// `name`.
fn raised_by(name: &str) -> Option<PacketPaths> {
    let mut packets = stalled()?;
    packets.groups = vec![PacketPathGroup {
        raised_by: Some(name.to_owned()),
        kind: Some(Kind::Irq),
        received_in: ReceivedIn::Softirq,
        delay: Intervals::default(),
    }];
    Some(packets)
}

fn interrupting() -> Vec<Case> {
    const RULE: &str = "packets-on-programs-cpus";
    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-3\n");
    const AFFINITY: (&str, &str) = ("proc/irq/38/effective_affinity_list", "1\n");
    let own: fn() -> _ = || raised_by("eth0-rx-0");
    let much = |name, files: &[_], packets, expected| Case {
        measured: interrupts,
        threads: || interrupted(40),
        ..with(RULE, name, files, packets, expected)
    };
    let all = [ONLINE, AFFINITY];
    vec![
        much(
            "its interrupt",
            &all,
            own,
            Found(
                "500 interrupts on CPU 1, where NET_RX interrupted the program for 40.0 ms in 400",
            ),
        ),
        much(
            "where it goes",
            &all,
            own,
            Found("interrupt 38 (eth0-rx-0) may run on CPU 1"),
        ),
        much(
            "where it could go",
            &all,
            own,
            Found("echo 0,2-3 > /proc/irq/38/smp_affinity_list"),
        ),
        much(
            "no CPU is left",
            &[("sys/devices/system/cpu/online", "1\n")],
            own,
            Found("fewer CPUs (taskset)"),
        ),
        much(
            "another interrupt",
            &all,
            || raised_by("eth0-rx-1"),
            Silence,
        ),
        Case {
            threads: || interrupted(4),
            ..much("little", &all, own, Silence)
        },
        Case {
            measured: |_| None,
            ..much("none of it here", &all, own, Silence)
        },
        Case {
            measured: interrupts,
            ..with(RULE, "no program", &all, own, Silence)
        },
    ]
}

/// Makes eth0 receive `packets` packets without GRO and send 90 packets without TSO within 10 s, on
/// a machine with four CPUs.
fn received(header: &mut Header, packets: u64) -> Option<TickBill> {
    header.machine.online = "0-3".parse().unwrap();
    header.after.at = Nanos::from_secs(10);
    let device = DeviceOffloads {
        device: "eth0".to_owned(),
        off: vec![Offload::Segmentation, Offload::GenericReceive],
    };
    header.machine.configured.offloads_off = vec![device];
    let count = |received, sent| DevicePackets { received, sent };
    header.before.devices = BTreeMap::from([("eth0".to_owned(), count(5, 7))]);
    header.after.devices = BTreeMap::from([("eth0".to_owned(), count(5 + packets, 97))]);
    None
}

/// Returns accounts in which softirqs for packets took `ms` milliseconds, and softirqs for timers
/// took more.
fn softirqs(ms: i64) -> Vec<Account> {
    let account = |name: &str, time| Account {
        class: Class::Softirq,
        name: name.to_owned(),
        pid: None,
        sampled: false,
        time,
        intervals: Intervals::default(),
        longest: None,
        parts: Vec::new(),
    };
    vec![
        account("NET_RX", Nanos::from_millis(ms)),
        account("TIMER", Nanos::from_secs(5)),
    ]
}

fn offloads() -> Vec<Case> {
    const RULE: &str = "offloads-off";
    let with_softirqs = |name, measured, accounts, expected| Case {
        measured,
        accounts,
        ..case(RULE, name, &[], expected)
    };
    vec![
        with_softirqs(
            "received one by one",
            |header| received(header, 40_000),
            || softirqs(800),
            Found("off, while 40000 packets were received and 90 sent"),
        ),
        with_softirqs(
            "only of what passed",
            |header| received(header, 40_000),
            || softirqs(800),
            Found(
                "run `ethtool -K eth0 gro on`; measure the saving on this kernel with `ticktax \
                 net pair --vary gro=0,1`",
            ),
        ),
        with_softirqs(
            "its cost",
            |header| received(header, 40_000),
            || softirqs(800),
            Found("NET_RX and NET_TX (2.0 % of all CPU time)"),
        ),
        with_softirqs(
            "few packets",
            |header| received(header, 400),
            || softirqs(800),
            Silence,
        ),
        with_softirqs(
            "little time",
            |header| received(header, 40_000),
            || softirqs(300),
            Silence,
        ),
        with_softirqs(
            "all on",
            |header| {
                let bill = received(header, 40_000);
                header.machine.configured.offloads_off.clear();
                bill
            },
            || softirqs(800),
            Silence,
        ),
    ]
}

fn budgets() -> Vec<Case> {
    const RULE: &str = "packet-budget-used-up";
    vec![
        with(
            RULE,
            "often",
            &[BUDGET, TIME],
            || squeezed(40),
            Found("40 times on CPU 1, which received 9000 frames"),
        ),
        with(
            RULE,
            "its cost",
            &[BUDGET, TIME],
            || squeezed(40),
            Found("of 50 wake-ups, 1 were by ksoftirqd, up to 4.00 ms late"),
        ),
        with(
            RULE,
            "what to do",
            &[BUDGET, TIME],
            || squeezed(40),
            Found("net.core.netdev_budget=600 net.core.netdev_budget_usecs=16000"),
        ),
        with(
            RULE,
            "on a kernel without a limit of time",
            &[BUDGET],
            || squeezed(40),
            Found("sysctl -w net.core.netdev_budget=600`;"),
        ),
        with(RULE, "now and then", &[BUDGET], || squeezed(3), Silence),
        with(RULE, "no packets", &[BUDGET], || None, Silence),
    ]
}
