//! Why there is no traffic.

use std::io;

use nix::errno::Errno;

use super::tuning::SysctlError;

/// Why traffic could not begin, or what cut it short. Each text is one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address cannot be listened at.
    #[error(
        "cannot listen at {address}: {why}; stop what has the port, or choose another with --listen"
    )]
    Listen {
        /// The address.
        address: String,
        /// The kernel's reason.
        why: String,
    },
    /// Nobody answers at the address.
    #[error(
        "cannot reach a receiver at {address}: {why}; start `ticktax net recv`, or `ticktax pace --udp --listen`, \
         there first"
    )]
    Connect {
        /// The address.
        address: String,
        /// The kernel's reason.
        why: String,
    },
    /// The address is none.
    #[error(
        "`{address}` is no address of a host and a port, such as 192.0.2.7:7117 or server:7117: {why}"
    )]
    Address {
        /// As it was typed.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// What answers does not speak our language.
    #[error(
        "what answers at {address} is not `ticktax net recv`, nor `ticktax pace --udp --listen`: check the port, 7117 \
         unless it was set"
    )]
    NotOurs {
        /// Its address.
        address: String,
    },
    /// The other end is of another version.
    #[error(
        "{address} runs ticktax {theirs}, which speaks another version of the protocol than this one, {ours}: \
         use the same ticktax at both ends"
    )]
    Version {
        /// The other end's address.
        address: String,
        /// Its version.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The other end refused, in its own words.
    #[error("the receiver at {address} refused: {why}")]
    Refused {
        /// Its address.
        address: String,
        /// Its reason.
        why: String,
    },
    /// The other end went away.
    #[error(
        "{address} went away before the traffic was over ({why}): what it has to say stands on its terminal"
    )]
    Gone {
        /// Its address.
        address: String,
        /// What was noticed.
        why: String,
    },
    /// The other end said nothing for too long.
    #[error(
        "{address} said nothing for {seconds} s: check that it still runs, and the network between"
    )]
    Silent {
        /// Its address.
        address: String,
        /// For how long, in s.
        seconds: u32,
    },
    /// Ctrl-C, before anything was sent.
    #[error("interrupted before any traffic")]
    Interrupted,
    /// No network namespace can be made.
    #[error(
        "cannot make network namespaces: {why}; run as root, or give CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NoNamespaces {
        /// The kernel's reason.
        why: String,
    },
    /// The kernel has no virtual Ethernet devices.
    #[error("this kernel has no virtual Ethernet pairs: {why}; load the module veth")]
    NoVeth {
        /// The kernel's reason.
        why: String,
    },
    /// The largest packet is out of range.
    #[error("an MTU of {mtu} bytes cannot be ({why}): choose {min} to {max}")]
    Mtu {
        /// What was asked for, in bytes.
        mtu: u32,
        /// The kernel's reason.
        why: String,
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// The link is to be something that no pair can be.
    #[error("this cannot be the {what} of a link: choose {range}")]
    LinkRange {
        /// Which property.
        what: &'static str,
        /// What can be, in words.
        range: String,
    },
    /// The kernel lacks what narrows a link.
    #[error(
        "this kernel has no {qdisc}, which {asked} takes ({option}): install its module {module}, or boot a kernel \
         that has it"
    )]
    NoQdisc {
        /// What was asked for.
        asked: &'static str,
        /// The queueing discipline.
        qdisc: &'static str,
        /// The option of the kernel's configuration.
        option: &'static str,
        /// The module.
        module: &'static str,
    },
    /// The kernel refuses to narrow a link.
    #[error("the kernel refuses to narrow the link: {why}; try another rate, delay or loss")]
    Link {
        /// Its reason.
        why: String,
    },
    /// A call cannot move so many bytes.
    #[error("{bytes} bytes a call cannot be sent over {protocol}: choose {min} to {max}")]
    Size {
        /// What was asked for.
        bytes: u32,
        /// What is to carry them.
        protocol: &'static str,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// What is to be logged are datagrams.
    #[error(
        "{address} sends a TCP stream: `ticktax pace --udp --to HOST` sends what is waited for here"
    )]
    NotDatagrams {
        /// The sender's address.
        address: String,
    },
    /// A sysctl cannot be set in a namespace.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A socket does not take an option.
    #[error("a socket's {name} cannot be {value}: {why}")]
    Option {
        /// The option, as it is varied.
        name: &'static str,
        /// What it was to be.
        value: String,
        /// The kernel's reason.
        why: String,
    },
    /// A device does not do as it is told.
    #[error("the offload {name} of a veth device cannot be set: {why}")]
    Offload {
        /// What ethtool calls it.
        name: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// The kernel refuses what else is needed.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason, and what to do.
        why: String,
    },
}

impl NetError {
    /// A failure of the kernel at something that should work.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System {
            what,
            why: reason(&error),
        }
    }

    /// The same of a call of nix.
    pub(super) fn errno(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::System {
            what,
            why: words(error),
        }
    }
}

/// The kernel's reason in words, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => words(Errno::from_raw(number)),
        // What names of hosts fail by has a sentence of its own.
        None => error.to_string().to_lowercase(),
    }
}

/// The same of the number alone.
pub(super) fn words(error: Errno) -> String {
    error.desc().to_lowercase()
}
