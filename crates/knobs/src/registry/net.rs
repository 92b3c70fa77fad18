//! Networking settings for the machine and for network namespaces.

use ticktax_model::knob::KnobScope::{Machine, Net};

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{File, Namespaced};
use crate::values::Values::{Integer, OfferedIn};

const CORE: &str = "admin-guide/sysctl/net.rst";
const IP: &str = "networking/ip-sysctl.rst";

pub(super) static KNOBS: [Knob; 10] = [
    knob(
        "netdev.busy_poll",
        Machine,
        File("proc/sys/net/core/busy_poll"),
        Integer(0, 1_000_000),
    )
    .unit("µs")
    .words(
        "how long poll and select busy-poll for packets before sleeping; 0 disables",
        "Longer polling receives packets without an interrupt, but keeps the CPU busy.",
    )
    .from("3.11 and later, with CONFIG_NET_RX_BUSY_POLL", CORE),
    knob(
        "netdev.busy_read",
        Machine,
        File("proc/sys/net/core/busy_read"),
        Integer(0, 1_000_000),
    )
    .unit("µs")
    .words(
        "how long a read busy-polls for packets before sleeping; 0 disables",
        "Longer polling receives packets without an interrupt, but keeps the CPU busy.",
    )
    .from("3.11 and later, with CONFIG_NET_RX_BUSY_POLL", CORE),
    knob(
        "netdev.budget",
        Machine,
        File("proc/sys/net/core/netdev_budget"),
        Integer(1, 100_000),
    )
    .unit("packets")
    .words(
        "maximum number of packets per NET_RX softirq",
        "A small budget keeps softirqs short; a large one handles floods more efficiently.",
    )
    .careful("Too small a budget drops packets under load.")
    .from("2.6.12 and later", CORE),
    knob(
        "netdev.budget_usecs",
        Machine,
        File("proc/sys/net/core/netdev_budget_usecs"),
        Integer(1, 1_000_000),
    )
    .unit("µs")
    .words(
        "maximum duration of a NET_RX softirq",
        "A short limit keeps softirqs short; a long one handles floods more efficiently.",
    )
    .careful("Too short a limit drops packets under load.")
    .from("4.12 and later", CORE),
    knob(
        "net.core.somaxconn",
        Net,
        Namespaced("proc/sys/net/core/somaxconn"),
        Integer(1, 65_535),
    )
    .words(
        "maximum number of connections that wait for a server to accept them",
        "A long queue survives bursts, but connections at its end wait long.",
    )
    .from("2.6 and later", IP),
    knob(
        "net.ipv4.tcp_autocorking",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_autocorking"),
        Integer(0, 1),
    )
    .words(
        "whether small writes are combined while another packet waits to be sent",
        "On saves packets and CPU time; off sends small writes immediately.",
    )
    .from("3.14 and later", IP),
    knob(
        "net.ipv4.tcp_slow_start_after_idle",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_slow_start_after_idle"),
        Integer(0, 1),
    )
    .words(
        "whether a connection returns to slow start after a pause",
        "On is gentle to a network that might have changed; off sends at full rate after a pause.",
    )
    .from("2.6.18 and later", IP),
    knob(
        "net.ipv4.tcp_notsent_lowat",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_notsent_lowat"),
        Integer(1, 4_294_967_295),
    )
    .unit("bytes")
    .words(
        "amount of unsent data below which a socket becomes writable",
        "Smaller leaves less data queued in the kernel, so urgent data leaves sooner, but wakes \
         the program more often.",
    )
    .from("3.12 and later", IP),
    knob(
        "net.ipv4.tcp_min_tso_segs",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_min_tso_segs"),
        Integer(1, 65_535),
    )
    .unit("segments")
    .words(
        "minimum number of segments per burst",
        "More saves CPU time; fewer smooths slow connections.",
    )
    .from("3.12 and later", IP),
    knob(
        "net.ipv4.tcp_congestion_control",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_congestion_control"),
        OfferedIn("proc/sys/net/ipv4/tcp_available_congestion_control"),
    )
    .words(
        "default congestion control of new connections",
        "cubic fills queues until packets are lost; bbr paces, which takes more timers.",
    )
    .from("2.6.13 and later", IP),
];
