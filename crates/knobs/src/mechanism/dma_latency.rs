//! `/dev/cpu_dma_latency`, a limit on the CPUs' wake-up latency. It is in effect while the process
//! that wrote it keeps the device open. When that process exits or is killed, the kernel resets the
//! limit.

use std::fs::OpenOptions;
use std::io::{Read, Write};

use super::HeldValue;
use crate::error::Trouble;
use crate::system::System;

pub(super) const DEVICE: &str = "dev/cpu_dma_latency";

/// Reads the limit in effect, in µs. It combines the requests of all processes.
pub(super) fn read(system: &System) -> Result<String, Trouble> {
    let mut bytes = [0; 4];
    let opened = OpenOptions::new().read(true).open(system.path(DEVICE));
    let read = opened.and_then(|mut device| device.read_exact(&mut bytes));
    read.map_err(|error| Trouble::of_file(DEVICE, &error))?;
    Ok(i32::from_ne_bytes(bytes).to_string())
}

pub(super) fn hold(system: &System, value: &str) -> Result<HeldValue, Trouble> {
    let limit: i32 = value
        .parse()
        .map_err(|_| Trouble::new(format!("`{value}` is not a time in µs")))?;
    let opened = OpenOptions::new().write(true).open(system.path(DEVICE));
    let held = opened.and_then(|mut device| {
        device.write_all(&limit.to_ne_bytes())?;
        Ok(HeldValue { _file: device })
    });
    held.map_err(|error| Trouble::of_file(DEVICE, &error))
}
