//! The virtual Ethernet devices' offloads.

use std::fs;
use std::os::fd::AsFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::super::error::{NetError, words};
use super::super::sys;

/// Work that a device can do instead of the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Computes the checksums of outgoing packets.
    Checksum,
    /// Splits outgoing TCP data into segments. On a veth pair, the data is passed on unsplit.
    Segmentation,
    /// Splits outgoing data of any protocol as late as possible, just before it reaches the device.
    GenericSegmentation,
    /// Merges incoming segments.
    GenericReceive,
}

impl Offload {
    /// All offloads, each after the ones that it depends on.
    pub const ALL: [Self; 4] = [
        Self::Checksum,
        Self::GenericSegmentation,
        Self::Segmentation,
        Self::GenericReceive,
    ];

    /// Returns ethtool's name for the offload.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "tx-checksum",
            Self::Segmentation => "tso",
            Self::GenericSegmentation => "gso",
            Self::GenericReceive => "gro",
        }
    }

    /// Returns the commands that read and write the offload (`<linux/ethtool.h>`).
    const fn commands(self) -> (u32, u32) {
        match self {
            Self::Checksum => (0x16, 0x17),
            Self::Segmentation => (0x1e, 0x1f),
            Self::GenericSegmentation => (0x23, 0x24),
            Self::GenericReceive => (0x2b, 0x2c),
        }
    }

    /// Turns the offload on or off for the device in the calling thread's namespace.
    pub(super) fn set(self, on: bool) -> Result<(), NetError> {
        self.ask(self.commands().1, u32::from(on)).map(|_| ())
    }

    /// Returns whether the offload is on.
    pub(super) fn read(self) -> Result<bool, NetError> {
        Ok(self.ask(self.commands().0, 0)? != 0)
    }

    fn ask(self, command: u32, value: u32) -> Result<u32, NetError> {
        let refused = |error| NetError::Offload {
            name: self.name(),
            why: words(error),
        };
        let asks = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(refused)?;
        let device = device().ok_or(NetError::Offload {
            name: self.name(),
            why: "the namespace has no device".to_owned(),
        })?;
        sys::ethtool(asks.as_fd(), &device, command, value).map_err(refused)
    }
}

/// Returns the name of the device in the calling thread's namespace that is not the loopback
/// device, or `None` if there is only that one.
fn device() -> Option<String> {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    let mut names = names.map(|(name, _)| name.trim().to_owned());
    names.find(|name| name != "lo")
}
