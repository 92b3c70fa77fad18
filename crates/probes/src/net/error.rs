//! Errors of test traffic.

use std::io;

use nix::errno::Errno;

use super::tuning::SysctlError;

/// Why traffic could not start, or why it ended early. Each message is one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The receiver cannot listen on the address.
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
    /// The address is invalid.
    #[error(
        "invalid address `{address}`: {why}; give a host and port, such as 192.0.2.7:7117 or \
         server:7117"
    )]
    Address {
        /// The address as the user gave it.
        address: String,
        /// The problem with it.
        why: String,
    },
    /// The program at the other end is not a ticktax receiver.
    #[error(
        "the program at {address} is not a ticktax receiver (`ticktax net recv` or `ticktax pace \
         --udp --listen`): check the port (default 7117)"
    )]
    NotOurs {
        /// Its address.
        address: String,
    },
    /// The other end uses another version of the protocol.
    #[error(
        "{address} runs ticktax {theirs}, whose protocol is incompatible with this version \
         ({ours}): use the same ticktax at both ends"
    )]
    Version {
        /// The other end's address.
        address: String,
        /// The other end's version.
        theirs: String,
        /// Our version.
        ours: String,
    },
    /// The receiver refused, and gave a reason.
    #[error("the receiver at {address} refused: {why}")]
    Refused {
        /// Its address.
        address: String,
        /// Its reason.
        why: String,
    },
    /// The other end closed the connection.
    #[error(
        "{address} disconnected before the traffic was complete ({why}): see its terminal for the \
         reason"
    )]
    Gone {
        /// Its address.
        address: String,
        /// How this end noticed.
        why: String,
    },
    /// The other end was silent for too long.
    #[error(
        "no message from {address} for {seconds} s: check that the program still runs, and the \
         network in between"
    )]
    Silent {
        /// Its address.
        address: String,
        /// Duration of the silence, in s.
        seconds: u32,
    },
    /// Ctrl-C before anything was sent.
    #[error("interrupted before any traffic was sent")]
    Interrupted,
    /// Network namespaces cannot be created.
    #[error(
        "cannot create network namespaces: {why}; run as root, or grant CAP_SYS_ADMIN and \
         CAP_NET_ADMIN"
    )]
    NoNamespaces {
        /// The kernel's reason.
        why: String,
    },
    /// The kernel has no virtual Ethernet devices.
    #[error("cannot create virtual Ethernet pairs: {why}; load the module veth")]
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
        /// Smallest accepted MTU.
        min: u32,
        /// Largest accepted MTU.
        max: u32,
    },
    /// A property of the requested link is out of range.
    #[error("invalid link {what}: choose {range}")]
    LinkRange {
        /// Name of the property.
        what: &'static str,
        /// The accepted range, in words.
        range: String,
    },
    /// The kernel lacks the queueing discipline that limits a link.
    #[error(
        "this kernel lacks {qdisc}, needed for {asked} ({option}): load the module {module}, or \
         boot a kernel that has it"
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
    /// The kernel refuses to limit a link.
    #[error("cannot set the link's rate, delay or loss: {why}; try other values")]
    Link {
        /// Its reason.
        why: String,
    },
    /// The size of a call is out of range.
    #[error("invalid size of {bytes} bytes per call over {protocol}: choose {min} to {max}")]
    Size {
        /// The requested size.
        bytes: u32,
        /// The protocol.
        protocol: &'static str,
        /// Smallest accepted size.
        min: u32,
        /// Largest accepted size.
        max: u32,
    },
    /// Logging needs datagrams, but the sender sends a stream.
    #[error(
        "{address} sends a TCP stream, but this receiver needs UDP: use `ticktax pace --udp --to \
         HOST` there"
    )]
    NotDatagrams {
        /// The sender's address.
        address: String,
    },
    /// A sysctl cannot be set in a namespace.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A socket refuses an option.
    #[error("cannot set a socket's {name} to {value}: {why}")]
    Option {
        /// Name of the option, as the user varies it.
        name: &'static str,
        /// The requested value.
        value: String,
        /// The kernel's reason.
        why: String,
    },
    /// A device refuses an offload setting.
    #[error("cannot set the offload {name} of a veth device: {why}")]
    Offload {
        /// ethtool's name of the offload.
        name: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// Another system call failed.
    #[error("cannot {what}: {why}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The kernel's reason, and a remedy.
        why: String,
    },
}

impl NetError {
    /// Wraps an I/O error of an action that should work.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System {
            what,
            why: reason(&error),
        }
    }

    /// Like [`NetError::system`], for an error of nix.
    pub(super) fn errno(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::System {
            what,
            why: words(error),
        }
    }
}

/// The kernel's reason in words, without the error number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => words(Errno::from_raw(number)),
        // Failed look-ups of host names carry a message instead of an error number.
        None => error.to_string().to_lowercase(),
    }
}

/// Like [`reason`], for an error number alone.
pub(super) fn words(error: Errno) -> String {
    error.desc().to_lowercase()
}
