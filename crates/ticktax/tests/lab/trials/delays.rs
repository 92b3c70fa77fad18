//! Reads how long a thread was delayed so far, according to the kernel's delay accounting.

use libtest_mimic::Failed;
use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};
use ticktax_host::netlink::{Body, Netlink, attribute, double, half};
use ticktax_model::Nanos;

// <linux/genetlink.h>
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Size of `struct genlmsghdr`.
const HEAD: usize = 4;

// <linux/taskstats.h>
const GET: u8 = 1;
const REQUESTED_THREAD: u16 = 1;
const OF_THREAD: u16 = 4;
const STATISTICS: u16 = 3;
// Offsets in `struct taskstats`.
const CPU: usize = 24;
const BLOCK_IO: usize = 40;
const RECLAIM: usize = 320;

/// Times for which a thread was delayed, since it started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Delays {
    /// Runnable, but not on a CPU.
    pub(super) cpu: Nanos,
    /// Blocked by I/O.
    pub(super) block_io: Nanos,
    /// Reclaiming memory.
    pub(super) reclaim: Nanos,
}

impl Delays {
    /// Returns the times of a thread that passed since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            block_io: self.block_io - before.block_io,
            reclaim: self.reclaim - before.reclaim,
        }
    }
}

/// A connection to the kernel's delay accounting.
pub(super) struct Accounting {
    netlink: Netlink,
    family: u16,
}

impl Accounting {
    pub(super) fn open() -> Result<Self, Failed> {
        let netlink = Netlink::open(SockProtocol::NetlinkGeneric)?;
        let request = head(GET_FAMILY).text(FAMILY_NAME, "TASKSTATS");
        let answer = netlink.get(CONTROL, &request)?;
        let family = answer.get(HEAD..).and_then(|all| attribute(all, FAMILY_ID));
        let family = family.and_then(|family| half(family, 0));
        Ok(Self {
            netlink,
            family: family.ok_or("the kernel has no delay accounting")?,
        })
    }

    pub(super) fn read(&self, tid: i32) -> Result<Delays, Failed> {
        let request = head(GET).word(REQUESTED_THREAD, tid.cast_unsigned());
        let answer = self.netlink.get(self.family, &request)?;
        let all = answer.get(HEAD..);
        let all = all.and_then(|all| attribute(attribute(all, OF_THREAD)?, STATISTICS));
        let all = all.ok_or("the kernel's answer has no statistics")?;
        let at = |offset| double(all, offset).map(|time| Nanos(time.cast_signed()));
        let read = || {
            Some(Delays {
                cpu: at(CPU)?,
                block_io: at(BLOCK_IO)?,
                reclaim: at(RECLAIM)?,
            })
        };
        Ok(read().ok_or("the kernel's statistics are too short")?)
    }
}

/// Returns the start of a request.
fn head(command: u8) -> Body {
    Body(vec![command, 1, 0, 0])
}
