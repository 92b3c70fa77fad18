//! Two network namespaces with a link between them, which clean up after themselves.
//!
//! The namespaces have no names. They exist only while this process has their files open or has
//! threads in them. When the process ends, even by SIGKILL, the kernel removes the namespaces and
//! their devices.

use std::fs::File;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use ticktax_host::netlink::Netlink;
use ticktax_model::net::{LinkSpec, Shaping};

use super::error::{NetError, words};
use super::{devices, qdisc};

/// Allowed MTU of the link, in bytes. Devices accept 68 bytes, but TCP never sends less than 48
/// bytes of data per packet. If a packet has no room for these and the headers, no connection is
/// possible.
pub const MTU: RangeInclusive<u32> = 128..=65_535;

/// Address of the receiver.
pub(super) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 1);
/// Address of the sender.
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 2);

/// A network namespace. It exists until this is dropped and no thread is left in it.
#[derive(Debug)]
pub(super) struct Namespace {
    file: OwnedFd,
    netlink: Netlink,
}

impl Namespace {
    /// Creates a namespace that contains only a loopback device. Uses a temporary thread, so that
    /// the caller stays in its own namespace.
    fn make() -> Result<Self, NetError> {
        let made = thread::Builder::new()
            .name("ttx-net-make".to_owned())
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET)
                    .map_err(|error| NetError::NoNamespaces { why: words(error) })?;
                let file = File::open("/proc/thread-self/ns/net")
                    .map_err(NetError::system("open a network namespace in /proc"))?;
                let netlink = devices::open().map_err(NetError::errno("open a netlink socket"))?;
                Ok(Self {
                    file: file.into(),
                    netlink,
                })
            })
            .map_err(NetError::system("start a thread"))?;
        made.join().unwrap_or_else(|_| {
            Err(NetError::System {
                what: "create a network namespace",
                why: "its thread crashed; please report this bug".to_owned(),
            })
        })
    }

    /// Moves the calling thread into the namespace. Other threads stay where they are.
    pub(super) fn enter(&self) -> Result<(), NetError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(NetError::errno("enter a network namespace"))
    }
}

/// Two namespaces, connected by a pair of devices that are up.
#[derive(Debug)]
pub(super) struct NamespacePair {
    pub(super) sender: Namespace,
    pub(super) receiver: Namespace,
    /// The link's limits as read back from the kernel, or `None` if it has no limits.
    pub(super) shaping: Option<Shaping>,
}

impl NamespacePair {
    /// Creates the namespaces and a link with this MTU. The limits in `link` apply in both
    /// directions.
    pub(super) fn make(mtu: u32, link: &LinkSpec) -> Result<Self, NetError> {
        qdisc::check(link)?;
        let refused = |why| NetError::Mtu {
            mtu,
            why,
            min: *MTU.start(),
            max: *MTU.end(),
        };
        if !MTU.contains(&mtu) {
            return Err(refused(
                "outside the limits of veth devices and TCP".to_owned(),
            ));
        }
        let sender = Namespace::make()?;
        let receiver = Namespace::make()?;
        devices::add_pair(&sender.netlink, &receiver.file, mtu).map_err(|error| match error {
            Errno::EINVAL | Errno::ERANGE => refused(words(error)),
            Errno::EPERM | Errno::EACCES => NetError::NoNamespaces { why: words(error) },
            _ => NetError::NoVeth { why: words(error) },
        })?;
        for (namespace, address) in [(&sender, SENDER), (&receiver, RECEIVER)] {
            let begun = devices::begin(&namespace.netlink, address.octets());
            begun.map_err(NetError::errno("set a veth device's address"))?;
        }
        let shaping = qdisc::narrow(&sender.netlink, link, mtu)?;
        qdisc::narrow(&receiver.netlink, link, mtu)?;
        Ok(Self {
            sender,
            receiver,
            shaping,
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::net::LinkSpec;

    use super::{NamespacePair, NetError};

    #[test]
    fn an_mtu_out_of_range_is_refused_before_anything_is_created() {
        for mtu in [0, 127, 65_536, u32::MAX] {
            let error = NamespacePair::make(mtu, &LinkSpec::default()).unwrap_err();
            assert!(matches!(error, NetError::Mtu { .. }), "{error}");
            assert!(error.to_string().contains("choose 128 to 65535"), "{error}");
        }
    }

    #[test]
    fn a_link_out_of_range_is_refused_before_anything_is_created() {
        let plain = LinkSpec::default();
        let specs = [
            LinkSpec {
                rate: Some(999_999.0),
                ..plain
            },
            LinkSpec {
                delay: Some(Nanos::from_millis(301)),
                ..plain
            },
            LinkSpec {
                loss: Some(0.21),
                ..plain
            },
        ];
        for (spec, hint) in specs.iter().zip(["1M", "300ms", "20 %"]) {
            let error = NamespacePair::make(1_500, spec).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
