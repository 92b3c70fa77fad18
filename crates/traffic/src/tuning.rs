//! Settings for the two ends: sysctls and offloads in their namespaces, and socket options. All
//! settings are read back, to record the values in effect. Nothing outside the test's own
//! namespaces changes, because only threads in these namespaces set sysctls and offloads.

mod offload;
mod socket;
mod sysctl;

pub use offload::Offload;
pub use sysctl::{SysctlError, has_sysctl};

pub(super) use socket::Options;

use ticktax_model::net::Protocol;
use ticktax_model::net_experiment::Fact;

use super::error::NetError;

/// Settings for both ends. Anything that is `None` or absent keeps the kernel's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Names and values of sysctls below `net.`, set in both namespaces in this order.
    pub sysctls: Vec<(String, String)>,
    /// Offloads to set on both devices, and whether to turn each one on.
    pub offloads: Vec<(Offload, bool)>,
    /// Maximum segment size (MSS) that each end announces, in bytes.
    pub mss: Option<u32>,
    /// Requested size of the send buffer, in bytes.
    pub send_buffer: Option<u32>,
    /// Requested size of the receive buffer, in bytes.
    pub receive_buffer: Option<u32>,
    /// Whether to send small segments immediately (`TCP_NODELAY`).
    pub nodelay: Option<bool>,
    /// The sender's congestion control algorithm.
    pub congestion: Option<String>,
}

impl Tuning {
    /// Returns whether any setting requires the ends to be in separate network namespaces.
    pub fn needs_namespaces(&self) -> bool {
        !(self.sysctls.is_empty() && self.offloads.is_empty())
    }

    /// Applies the sysctls and offloads to the calling thread's namespace, and reads them all back.
    /// Call this before any socket is opened in the namespace.
    ///
    /// # Errors
    /// Returns an error if a sysctl does not exist or is refused, or if the device refuses an
    /// offload.
    pub(super) fn set_here(&self) -> Result<Vec<Fact>, NetError> {
        let mut facts = Vec::new();
        for (name, value) in &self.sysctls {
            let read = sysctl::set(name, value)?;
            facts.push(Fact::new(name, read));
        }
        if !self.offloads.is_empty() {
            for &(offload, on) in &self.offloads {
                offload.set(on)?;
            }
            // Read all offloads back, because changing one can turn others off.
            for offload in Offload::ALL {
                facts.push(Fact::new(offload.name(), on_off(offload.read()?)));
            }
        }
        Ok(facts)
    }

    /// Returns the socket options to set for this protocol.
    pub(super) fn options(&self, protocol: Protocol) -> Options<'_> {
        Options {
            tuning: self,
            protocol,
        }
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
