//! Networking, machine-wide and per network namespace.

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
        "how long poll and select look for packets themselves before they sleep; 0 is not at all",
        "Longer, packets are noticed without an interrupt; the CPU is busy meanwhile.",
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
        "how long a read looks for packets itself before it sleeps; 0 is not at all",
        "Longer, packets are noticed without an interrupt; the CPU is busy meanwhile.",
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
        "how many packets a softirq takes before others have a turn",
        "Fewer, its stretches are short; more, a flood is worked off with less ado.",
    )
    .careful("Too few, packets are dropped under load.")
    .from("2.6.12 and later", CORE),
    knob(
        "netdev.budget_usecs",
        Machine,
        File("proc/sys/net/core/netdev_budget_usecs"),
        Integer(1, 1_000_000),
    )
    .unit("µs")
    .words(
        "how long a softirq takes packets before others have a turn",
        "Shorter, its stretches are short; longer, a flood is worked off with less ado.",
    )
    .careful("Too short, packets are dropped under load.")
    .from("4.12 and later", CORE),
    knob(
        "net.core.somaxconn",
        Net,
        Namespaced("proc/sys/net/core/somaxconn"),
        Integer(1, 65_535),
    )
    .words(
        "how many connections may wait until a server accepts them",
        "More, a burst is not refused; the last of it waits long.",
    )
    .from("2.6 and later", IP),
    knob(
        "net.ipv4.tcp_autocorking",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_autocorking"),
        Integer(0, 1),
    )
    .words(
        "whether small writes are put together while a packet waits to be sent",
        "On, fewer packets and less CPU time; off, small writes leave at once.",
    )
    .from("3.14 and later", IP),
    knob(
        "net.ipv4.tcp_slow_start_after_idle",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_slow_start_after_idle"),
        Integer(0, 1),
    )
    .words(
        "whether a connection begins slowly again after a pause",
        "On, it is kind to a network that changed; off, a burst after a pause leaves at full rate.",
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
        "how little is left to send before a program may write more",
        "Smaller, less lies in the kernel, and what is urgent leaves sooner; the program is woken more often.",
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
        "how many segments a burst has at least",
        "More costs less CPU time; fewer makes slow connections even.",
    )
    .from("3.12 and later", IP),
    knob(
        "net.ipv4.tcp_congestion_control",
        Net,
        Namespaced("proc/sys/net/ipv4/tcp_congestion_control"),
        OfferedIn("proc/sys/net/ipv4/tcp_available_congestion_control"),
    )
    .words(
        "what decides how fast new connections send",
        "cubic fills queues until packets are lost; bbr paces, with more timers.",
    )
    .from("2.6.13 and later", IP),
];
