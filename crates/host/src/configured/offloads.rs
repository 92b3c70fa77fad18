//! Finds work that a network device could take off the CPUs but doesn't.
//!
//! The data comes from the netlink interface that `ethtool -k` uses as well (`<linux/genetlink.h>`,
//! `<linux/ethtool_netlink.h>`).

use std::path::Path;

use nix::sys::socket::SockProtocol;
use ticktax_model::configured::{DeviceOffloads, Offload};

use super::reading::Reading;
use crate::netlink::{Body, Netlink, attribute, attributes, half};

// Protocol of generic netlink itself, used to look up the protocol families.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const GET_FEATURES: u8 = 11;
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
/// Attributes with a device's features. The features that can be changed come as bits with values,
/// and the active ones as a list.
const FEATURES_HARDWARE: u16 = 2;
const FEATURES_ACTIVE: u16 = 4;
const SET_BITS: u16 = 3;
const SET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Size of `struct genlmsghdr`.
const HEAD: usize = 4;

const LOOPBACK: &str = "lo";

/// Returns the devices in this process's network namespace that have offloads which are available
/// but switched off. The list is empty if the kernel does not report offloads.
pub(super) fn off(reading: &Reading) -> Vec<DeviceOffloads> {
    // Netlink describes only the running kernel, not a directory with the files of a different
    // machine.
    if reading.path("") != Path::new("/") {
        return Vec::new();
    }
    listed().unwrap_or_default()
}

fn listed() -> nix::Result<Vec<DeviceOffloads>> {
    let netlink = Netlink::open(SockProtocol::NetlinkGeneric)?;
    let families = netlink.list(CONTROL, &request(GET_FAMILY))?;
    let Some(family) = families
        .iter()
        .find_map(|message| family(message, "ethtool"))
    else {
        return Ok(Vec::new());
    };
    let devices = netlink.list(family, &request(GET_FEATURES))?;
    let devices = devices.iter().filter_map(|message| device(message));
    Ok(devices.filter(|device| !device.off.is_empty()).collect())
}

fn request(command: u8) -> Body {
    Body(vec![command, 1, 0, 0])
}

/// Returns the ID of the family in `message` if the family is called `name`.
fn family(message: &[u8], name: &str) -> Option<u16> {
    let about = message.get(HEAD..)?;
    let has_name = text(attribute(about, FAMILY_NAME)?) == name;
    half(attribute(about, FAMILY_ID)?, 0).filter(|_| has_name)
}

/// Returns the device in `message`, with those of its offloads that are off. Returns `None` for the
/// loopback device and for invalid messages.
fn device(message: &[u8]) -> Option<DeviceOffloads> {
    let about = message.get(HEAD..)?;
    let name = text(attribute(attribute(about, HEADER)?, HEADER_NAME)?);
    if name == LOOPBACK {
        return None;
    }
    let hardware = attribute(about, FEATURES_HARDWARE)?;
    // Every feature in a list is on, so the bits carry no values.
    let available: Vec<&str> = bits(hardware)
        .filter(|bit| bit.1)
        .map(|bit| bit.0)
        .collect();
    let active = attribute(about, FEATURES_ACTIVE)?;
    let active: Vec<&str> = bits(active).map(|bit| bit.0).collect();
    let has = |list: &[&str], offload: Offload| {
        let features = offload.features();
        list.iter().any(|feature| features.contains(feature))
    };
    let all = Offload::ALL.into_iter();
    let off = all.filter(|&offload| has(&available, offload) && !has(&active, offload));
    Some(DeviceOffloads {
        device: name.to_owned(),
        off: off.collect(),
    })
}

/// Returns the name of each bit in a set, and whether the bit carries a value.
fn bits(set: &[u8]) -> impl Iterator<Item = (&str, bool)> {
    let bits = attribute(set, SET_BITS).unwrap_or_default();
    let bits = attributes(bits).filter(|(kind, _)| *kind == SET_BIT);
    bits.filter_map(|(_, bit)| {
        let name = text(attribute(bit, BIT_NAME)?);
        Some((name, attribute(bit, BIT_VALUE).is_some()))
    })
}

/// Returns the text before the terminating 0. Returns an empty text if it is not valid UTF-8.
fn text(bytes: &[u8]) -> &str {
    let length = bytes.iter().position(|&byte| byte == 0);
    let bytes = &bytes[..length.unwrap_or(bytes.len())];
    str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ticktax_model::configured::Offload;

    use super::{
        BIT_NAME, BIT_VALUE, Body, FAMILY_ID, FAMILY_NAME, FEATURES_ACTIVE, FEATURES_HARDWARE,
        HEADER, HEADER_NAME, SET_BIT, SET_BITS, device, family, request,
    };

    fn bits(names: &[&str], has_values: bool) -> Body {
        let all = names.iter().fold(Body::default(), |all, name| {
            let bit = Body::default().text(BIT_NAME, name);
            let bit = if has_values {
                bit.put(BIT_VALUE, &[])
            } else {
                bit
            };
            all.nested(SET_BIT, &bit)
        });
        Body::default().nested(SET_BITS, &all)
    }

    fn message(name: &str, available: &[&str], active: &[&str]) -> Vec<u8> {
        let about = Body::default()
            .nested(HEADER, &Body::default().text(HEADER_NAME, name))
            .nested(FEATURES_HARDWARE, &bits(available, true))
            .nested(FEATURES_ACTIVE, &bits(active, false));
        [request(0).0, about.0].concat()
    }

    const AVAILABLE: &[&str] = &[
        "rx-gro",
        "tx-checksum-ipv4",
        "tx-checksum-ip-generic",
        "tx-tcp-segmentation",
        "highdma",
    ];

    #[test]
    fn available_but_inactive_offloads_are_off() {
        let active = &["tx-checksum-ipv4", "tx-generic-segmentation"];
        let found = device(&message("eth0", AVAILABLE, active)).unwrap();
        assert_eq!(found.device, "eth0");
        // Checksum offload counts as on if at least one kind of it is active.
        assert_eq!(found.off, [Offload::Segmentation, Offload::GenericReceive]);
        assert!(
            device(&message("eth0", AVAILABLE, AVAILABLE))
                .unwrap()
                .off
                .is_empty()
        );
        assert!(device(&message("lo", AVAILABLE, &[])).is_none());
    }

    #[test]
    fn a_truncated_message_has_no_wrong_device() {
        let message = message("eth0", AVAILABLE, AVAILABLE);
        for length in 0..message.len() {
            let found = device(&message[..length]);
            assert!(found.is_none_or(|found| found.device == "eth0"));
        }
    }

    #[test]
    fn a_family_is_found_by_its_name() {
        let about = Body::default()
            .put(FAMILY_ID, &21_u16.to_ne_bytes())
            .text(FAMILY_NAME, "ethtool");
        let message = [request(1).0, about.0].concat();
        assert_eq!(family(&message, "ethtool"), Some(21));
        assert_eq!(family(&message, "nl80211"), None);
        assert_eq!(family(&message[..9], "ethtool"), None);
    }
}
