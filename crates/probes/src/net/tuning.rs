//! Settings of a pair: sysctls and offloads of its namespaces, and options of its sockets. They are
//! read back to record which are in effect. Nothing outside the namespaces is changed: a thread
//! that is not in one sets no sysctl and no offload.

mod offload;
mod socket;
mod sysctl;

pub use offload::Offload;
pub use sysctl::{SysctlError, has_sysctl};

pub(super) use socket::Options;

use ticktax_model::net::Protocol;
use ticktax_model::net_experiment::Fact;

use super::error::NetError;

/// Settings of both ends; unset ones keep the kernel's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Names and values of sysctls below `net.`, set in both namespaces, in this order.
    pub sysctls: Vec<(String, String)>,
    /// Offloads of both devices.
    pub offloads: Vec<(Offload, bool)>,
    /// The largest data of a TCP segment that either end offers, in bytes.
    pub mss: Option<u32>,
    /// The sending socket's buffer, in bytes as requested.
    pub send_buffer: Option<u32>,
    /// The receiving socket's buffer, in bytes as requested.
    pub receive_buffer: Option<u32>,
    /// Whether small segments are sent immediately.
    pub nodelay: Option<bool>,
    /// The sending socket's congestion control.
    pub congestion: Option<String>,
}

impl Tuning {
    /// Whether any setting requires separate namespaces.
    pub fn needs_namespaces(&self) -> bool {
        !(self.sysctls.is_empty() && self.offloads.is_empty())
    }

    /// Applies the settings of the calling thread's namespace before a socket exists, and reads all
    /// of them back.
    ///
    /// # Errors
    /// A sysctl does not exist or is refused, or a device refuses an offload.
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
            // Setting one offload may turn others off.
            for offload in Offload::ALL {
                facts.push(Fact::new(offload.name(), on_off(offload.read()?)));
            }
        }
        Ok(facts)
    }

    /// The socket options of one end.
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
