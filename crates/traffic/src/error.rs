//! Errors of test traffic.

use std::io;

use nix::errno::Errno;

use super::tuning::SysctlError;

/// Why the traffic did not start, or ended early. Each message is a single line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The receiver cannot listen on its address.
    #[error(
        "cannot listen on {address}: {why}; stop the program that uses the port, or choose another \
         with --listen"
    )]
    Listen {
        /// The address.
        address: String,
        /// The kernel's reason.
        why: String,
    },
    /// No receiver answers at the address.
    #[error(
        "cannot reach a receiver at {address}: {why}; start `ticktax net recv` or `ticktax pace \
         --udp --listen` there first"
    )]
    Connect {
        /// The address.
        address: String,
        /// The kernel's reason.
        why: String,
    },
    /// The address is not valid.
    #[error(
        "invalid address `{address}`: {why}; give a host and port, for example 192.0.2.7:7117 \
         or server:7117"
    )]
    Address {
        /// The address as the user gave it.
        address: String,
        /// The problem with the address.
        why: String,
    },
    /// The program that answers at the address is not a ticktax receiver.
    #[error(
        "the program at {address} is not a ticktax receiver (`ticktax net recv` or `ticktax pace \
         --udp --listen`): check the port (default 7117)"
    )]
    NotOurs {
        /// Address of the program.
        address: String,
    },
    /// The other end uses a different protocol version.
    #[error(
        "{address} runs ticktax {theirs}, whose protocol is incompatible with this version \
         ({ours}): use the same ticktax at both ends"
    )]
    Version {
        /// Address of the other end.
        address: String,
        /// ticktax version of the other end.
        theirs: String,
        /// ticktax version of this end.
        ours: String,
    },
    /// The receiver rejected the traffic.
    #[error("the receiver at {address} refused: {why}")]
    Refused {
        /// Address of the receiver.
        address: String,
        /// Reason given by the receiver.
        why: String,
    },
    /// The other end closed the connection.
    #[error(
        "{address} disconnected before the traffic was complete ({why}): check its output for \
         the reason"
    )]
    Gone {
        /// Address of the other end.
        address: String,
        /// How this end noticed that the connection was closed.
        why: String,
    },
    /// The other end has not sent a message for too long.
    #[error(
        "no message from {address} for {seconds} s: check that the program is still running, \
         and check the network"
    )]
    Silent {
        /// Address of the other end.
        address: String,
        /// Time in seconds since the last message from the other end.
        seconds: u32,
    },
    /// The user pressed Ctrl-C before any traffic was sent.
    #[error("interrupted before any traffic was sent")]
    Interrupted,
    /// The kernel refused to create network namespaces.
    #[error(
        "cannot create network namespaces: {why}; run as root, or grant CAP_SYS_ADMIN and \
         CAP_NET_ADMIN"
    )]
    NoNamespaces {
        /// The kernel's reason.
        why: String,
    },
    /// The kernel has no virtual Ethernet devices.
    #[error("cannot create virtual Ethernet pairs: {why}; load the kernel module veth")]
    NoVeth {
        /// The kernel's reason.
        why: String,
    },
    /// The MTU is out of range.
    #[error("invalid MTU {mtu} ({why}): choose {min} to {max}")]
    Mtu {
        /// The requested MTU, in bytes.
        mtu: u32,
        /// The kernel's reason.
        why: String,
        /// Minimum MTU.
        min: u32,
        /// Maximum MTU.
        max: u32,
    },
    /// A property of the link, such as its rate or its delay, is out of range.
    #[error("invalid link {what}: choose {range}")]
    LinkRange {
        /// Name of the property.
        what: &'static str,
        /// Description of the valid range.
        range: String,
    },
    /// The kernel lacks the queueing discipline needed to shape the link.
    #[error(
        "this kernel lacks {qdisc}, which {asked} ({option}) needs: load the kernel module \
         {module}, or boot a kernel that has it"
    )]
    NoQdisc {
        /// The requested property.
        asked: &'static str,
        /// The queueing discipline.
        qdisc: &'static str,
        /// The kernel configuration option.
        option: &'static str,
        /// The kernel module.
        module: &'static str,
    },
    /// The kernel refused to shape the link.
    #[error("cannot set the link's rate, delay or loss: {why}; try other values")]
    Link {
        /// The kernel's reason.
        why: String,
    },
    /// The number of bytes per read, write or datagram is out of range.
    #[error("invalid size of {bytes} bytes per call over {protocol}: choose {min} to {max}")]
    Size {
        /// The requested size.
        bytes: u32,
        /// The protocol.
        protocol: &'static str,
        /// Minimum size.
        min: u32,
        /// Maximum size.
        max: u32,
    },
    /// The receiver was started to log datagrams, but the sender sends a TCP stream.
    #[error(
        "{address} sends a TCP stream, but this receiver needs UDP: use `ticktax pace --udp --to \
         HOST` there"
    )]
    NotDatagrams {
        /// Address of the sender.
        address: String,
    },
    /// A sysctl cannot be set in a network namespace.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The kernel refused a socket option.
    #[error("cannot set the socket option {name} to {value}: {why}")]
    Option {
        /// Name of the option, as used in `ticktax` sweeps.
        name: &'static str,
        /// The requested value.
        value: String,
        /// The kernel's reason.
        why: String,
    },
    /// The device refused an offload setting.
    #[error("cannot set the offload {name} of a veth device: {why}")]
    Offload {
        /// Name of the offload, as ethtool calls it.
        name: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// Another system call failed.
    #[error("cannot {what}: {why}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// The kernel's reason, followed by a remedy.
        why: String,
    },
}

impl NetError {
    /// Returns a closure that turns an I/O error into a [`NetError::System`]. `what` names an
    /// action that normally succeeds.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System {
            what,
            why: reason(&error),
        }
    }

    /// Same as [`NetError::system`], for an error from the nix crate.
    pub(super) fn errno(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::System {
            what,
            why: words(error),
        }
    }
}

/// Returns the description of an I/O error, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => words(Errno::from_raw(number)),
        // If a host name cannot be resolved, the error has a message instead of a number.
        None => error.to_string().to_lowercase(),
    }
}

/// Same as [`reason`], for an error number.
pub(super) fn words(error: Errno) -> String {
    error.desc().to_lowercase()
}
