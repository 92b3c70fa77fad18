//! What is set of a pair beside its traffic, and what of it is in effect: sysctls and offloads of its namespaces, options
//! of its sockets. Nothing is set outside of the namespaces: a thread that is in none sets no sysctl and no offload.

mod offload;
mod socket;
mod sysctl;

pub use offload::Offload;
pub use sysctl::{SysctlError, has_sysctl};

pub(super) use socket::Options;

use ticktax_model::net::Protocol;
use ticktax_model::net_experiment::Fact;

use super::error::NetError;

/// Settings of both ends; what is not named stays as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Sysctls below `net.` by their names, set in both namespaces, in this order.
    pub sysctls: Vec<(String, String)>,
    /// Offloads of both devices.
    pub offloads: Vec<(Offload, bool)>,
    /// The largest data of a TCP segment that either end offers, in bytes.
    pub mss: Option<u32>,
    /// The sending socket's buffer, in bytes as they are asked for.
    pub send_buffer: Option<u32>,
    /// The receiving socket's.
    pub receive_buffer: Option<u32>,
    /// Whether small segments are sent at once.
    pub nodelay: Option<bool>,
    /// The sending socket's congestion control.
    pub congestion: Option<String>,
}

impl Tuning {
    /// Whether it needs namespaces.
    pub fn needs_namespaces(&self) -> bool {
        !(self.sysctls.is_empty() && self.offloads.is_empty())
    }

    /// Sets what is the namespace's, of the calling thread, before there is a socket, and reads all of it back.
    ///
    /// # Errors
    /// A sysctl is not there or refused, or a device does not do as it is told.
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
            // One may turn others off.
            for offload in Offload::ALL {
                facts.push(Fact::new(offload.name(), on_off(offload.read()?)));
            }
        }
        Ok(facts)
    }

    /// The options that are one end's.
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
