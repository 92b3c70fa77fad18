//! The factors of traffic experiments. Some have names in a table. In addition, any sysctl of a
//! network namespace is a factor, under its full name.

use crate::{Offload, TCP_CALL, Tuning, UDP_HEADERS};
use ticktax_model::Nanos;
use ticktax_model::net::{LinkSpec, Protocol, TrafficSpec};
use ticktax_model::net_experiment::{Fact, FactorPlace, VariedFactor};

use super::MOST_ARMS;
use ticktax_experiment::design::Factorial;
use ticktax_experiment::vary::{Axis, Grid, Parameter, Vary, VaryError};

/// Rate of datagrams, in bits per second, if the user doesn't give one.
const UDP_RATE: f64 = 100e6;

/// Largest packet, in bytes, to assume if the link's MTU is unknown.
const ETHERNET: u32 = 1_500;

/// Largest size accepted when parsing, in bytes. The device's own limit is checked when the device
/// is created.
const MOST_BYTES: u32 = 1 << 30;

/// Traffic between two ends on this machine, with all settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Number of bytes per call, or `None` for the protocol's default.
    pub size: Option<u32>,
    /// Rate in bits per second. `Some(None)` means unlimited, and `None` means the protocol's
    /// default.
    pub rate: Option<Option<f64>>,
    /// Duration.
    pub length: Nanos,
    /// MTU of the link in bytes, if known.
    pub mtu: Option<u32>,
    /// Limits of the link, in each direction.
    pub link: LinkSpec,
    /// All other settings.
    pub tuning: Tuning,
}

impl Setup {
    /// Returns the traffic sent with this setup.
    pub fn spec(&self) -> TrafficSpec {
        let (call_bytes, rate) = match self.protocol {
            Protocol::Tcp => (TCP_CALL, None),
            Protocol::Udp => {
                let packet = self.mtu.unwrap_or(ETHERNET);
                (packet.saturating_sub(UDP_HEADERS), Some(UDP_RATE))
            }
        };
        TrafficSpec {
            protocol: self.protocol,
            call_bytes: self.size.unwrap_or(call_bytes),
            rate: self.rate.unwrap_or(rate),
            length: self.length,
        }
    }
}

/// A factor in the table [`FACTORS`].
#[derive(Debug)]
pub struct Factor {
    /// Name on the command line.
    pub name: &'static str,
    /// Whether the factor applies to the traffic, the device or the namespace.
    pub place: FactorPlace,
    /// Allowed values, as shown in the help text.
    pub values: &'static str,
    /// Description for the help text.
    pub about: &'static str,
    /// Facts, read back from the kernel, that show the factor's effect. If the list is empty, the
    /// factor's value is shown instead.
    shown_by: &'static [&'static str],
    set: Set,
}

#[derive(Debug)]
enum Set {
    By(fn(&mut Setup, &str) -> Result<(), String>),
    /// Sets the sysctl with this name.
    Sysctl(&'static str),
    Offload(Offload),
}

/// Parses a number of bytes, such as 4096, 64k or 1M.
fn bytes(text: &str) -> Result<u32, String> {
    let wrong = || format!("invalid size `{text}`: give bytes, for example 4096, 64k or 1M");
    let units = [("k", 10), ("K", 10), ("M", 20)];
    let unit = units.into_iter().find_map(|(unit, shift)| {
        let number = text.strip_suffix(unit)?;
        Some((number, shift))
    });
    let (number, shift) = unit.unwrap_or((text, 0));
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if (1..=MOST_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(wrong())
    }
}

/// Parses an on/off switch.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" | "off" => Ok(false),
        "1" | "on" => Ok(true),
        _ => Err(format!("invalid switch `{text}`: choose 0 or 1")),
    }
}

/// Parses the size of a buffer. Returns `None` for `auto`, which lets the kernel choose the size.
fn buffer(text: &str) -> Result<Option<u32>, String> {
    match text {
        "auto" => Ok(None),
        _ => bytes(text).map(Some),
    }
}

/// Parses a rate in bits per second. Returns `None` for `max`, which means unlimited.
///
/// # Errors
/// Returns an error if the text is not a rate.
pub fn rate(text: &str) -> Result<Option<f64>, String> {
    if text == "max" {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "invalid rate `{text}`: choose 8 to 10000G bit/s, for example 64k, 100M or 2.5G, or max"
        )
    };
    let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];
    let unit = units.into_iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?;
        Some((number, factor))
    });
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let rate = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if (8.0..=1e13).contains(&rate) {
        Ok(Some(rate))
    } else {
        Err(wrong())
    }
}

/// Parses the delay that a link adds to each packet. Returns `None` for zero.
///
/// # Errors
/// Returns an error if the text is not a valid duration.
pub fn delay(text: &str) -> Result<Option<Nanos>, String> {
    let read = text.parse::<Nanos>().ok();
    let read = if text == "0" { Some(Nanos::ZERO) } else { read };
    let read = read
        .ok_or_else(|| format!("invalid delay `{text}`: choose up to 300ms, for example 20ms"))?;
    Ok(Some(read).filter(|delay| *delay > Nanos::ZERO))
}

/// Parses the share of packets that a link loses. Returns `None` for zero.
///
/// # Errors
/// Returns an error if the text is not a share.
pub fn loss(text: &str) -> Result<Option<f64>, String> {
    if text == "0" {
        return Ok(None);
    }
    let percent = text.strip_suffix('%').map(str::trim);
    let percent = percent.and_then(|percent| percent.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent
        .ok_or_else(|| format!("invalid loss `{text}`: choose up to 20%, for example 0.1%"))?;
    Ok(Some(percent / 100.0).filter(|share| *share > 0.0))
}

fn protocol(text: &str) -> Result<Protocol, String> {
    let mut all = Protocol::ALL.into_iter();
    all.find(|protocol| protocol.name().eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("invalid protocol `{text}`: choose tcp or udp"))
}

const fn by(
    name: &'static str,
    place: FactorPlace,
    values: &'static str,
    about: &'static str,
    shown_by: &'static [&'static str],
    set: fn(&mut Setup, &str) -> Result<(), String>,
) -> Factor {
    Factor {
        name,
        place,
        values,
        about,
        shown_by,
        set: Set::By(set),
    }
}

const fn sysctl(
    name: &'static str,
    full: &'static str,
    about: &'static str,
    shown_by: &'static [&'static str],
) -> Factor {
    Factor {
        name,
        place: FactorPlace::Namespace,
        values: "any value the sysctl accepts",
        about,
        shown_by,
        set: Set::Sysctl(full),
    }
}

const fn offload(offload: Offload, about: &'static str) -> Factor {
    Factor {
        name: offload.name(),
        place: FactorPlace::Device,
        values: "0, 1",
        about,
        shown_by: &["tx-checksum", "gso", "tso", "gro"],
        set: Set::Offload(offload),
    }
}

/// All factors that have names. Sysctls that aren't listed here are factors too.
pub static FACTORS: [Factor; 20] = [
    by(
        "size",
        FactorPlace::Traffic,
        "bytes",
        "bytes per call, or per datagram with UDP",
        &[],
        |setup, text| {
            setup.size = Some(bytes(text)?);
            Ok(())
        },
    ),
    by(
        "protocol",
        FactorPlace::Traffic,
        "tcp, udp",
        "TCP (stream) or UDP (datagrams)",
        &[],
        |setup, text| {
            setup.protocol = protocol(text)?;
            Ok(())
        },
    ),
    by(
        "rate",
        FactorPlace::Traffic,
        "bit/s, or max",
        "sending rate",
        &[],
        |setup, text| {
            setup.rate = Some(rate(text)?);
            Ok(())
        },
    ),
    by(
        "mss",
        FactorPlace::Socket,
        "bytes",
        "maximum TCP segment size that both ends advertise",
        &["segment data"],
        |setup, text| {
            setup.tuning.mss = Some(bytes(text)?);
            Ok(())
        },
    ),
    by(
        "sndbuf",
        FactorPlace::Socket,
        "bytes, or auto",
        "size of the sending socket's buffer",
        &["send buffer"],
        |setup, text| {
            setup.tuning.send_buffer = buffer(text)?;
            Ok(())
        },
    ),
    by(
        "rcvbuf",
        FactorPlace::Socket,
        "bytes, or auto",
        "size of the receiving socket's buffer",
        &["receive buffer"],
        |setup, text| {
            setup.tuning.receive_buffer = buffer(text)?;
            Ok(())
        },
    ),
    by(
        "nodelay",
        FactorPlace::Socket,
        "0, 1",
        "whether small segments are sent immediately (TCP_NODELAY)",
        &["nodelay"],
        |setup, text| {
            setup.tuning.nodelay = Some(switch(text)?);
            Ok(())
        },
    ),
    by(
        "congestion",
        FactorPlace::Socket,
        "a name, for example cubic",
        "congestion control of the sending socket",
        &["congestion control"],
        |setup, text| {
            setup.tuning.congestion = Some(text.to_owned());
            Ok(())
        },
    ),
    by(
        "mtu",
        FactorPlace::Device,
        "bytes, 128 to 65535",
        "MTU of the virtual devices",
        &[],
        |setup, text| {
            setup.mtu = Some(bytes(text)?);
            Ok(())
        },
    ),
    by(
        "link-rate",
        FactorPlace::Device,
        "bit/s, or max",
        "bandwidth of the link in each direction",
        &[],
        |setup, text| {
            setup.link.rate = rate(text)?;
            Ok(())
        },
    ),
    by(
        "delay",
        FactorPlace::Device,
        "a time, for example 20ms, or 0",
        "delay of the link in each direction",
        &[],
        |setup, text| {
            setup.link.delay = delay(text)?;
            Ok(())
        },
    ),
    by(
        "loss",
        FactorPlace::Device,
        "a percentage, for example 0.1%, or 0",
        "packet loss of the link in each direction",
        &[],
        |setup, text| {
            setup.link.loss = loss(text)?;
            Ok(())
        },
    ),
    offload(
        Offload::Checksum,
        "whether the device computes the checksums of sent packets",
    ),
    offload(
        Offload::Segmentation,
        "whether the device splits TCP data into segments; a veth pair passes it on unsplit",
    ),
    offload(
        Offload::GenericSegmentation,
        "whether the kernel splits data into packets as late as possible",
    ),
    offload(
        Offload::GenericReceive,
        "whether received segments are merged",
    ),
    sysctl(
        "tcp_timestamps",
        "net.ipv4.tcp_timestamps",
        "TCP timestamps: 12 bytes per segment, for round-trip times and detecting old duplicates",
        &["timestamps"],
    ),
    sysctl(
        "tcp_window_scaling",
        "net.ipv4.tcp_window_scaling",
        "whether windows can exceed 64 KiB",
        &["window scaling", "window scale"],
    ),
    sysctl(
        "tcp_sack",
        "net.ipv4.tcp_sack",
        "selective acknowledgements of data received out of order",
        &["SACK"],
    ),
    sysctl(
        "tcp_congestion_control",
        "net.ipv4.tcp_congestion_control",
        "default congestion control of the namespaces",
        &["congestion control"],
    ),
];

/// A factor that the user chose: a row of [`FACTORS`], or a sysctl.
#[derive(Clone, Debug)]
pub(super) enum Chosen {
    /// A factor from the table.
    Row(&'static Factor),
    /// Any sysctl of a network namespace.
    Sysctl(String),
}

impl Chosen {
    fn place(&self) -> FactorPlace {
        match self {
            Self::Row(row) => row.place,
            Self::Sysctl(_) => FactorPlace::Namespace,
        }
    }

    fn shown_by(&self) -> &'static [&'static str] {
        match self {
            Self::Row(row) => row.shown_by,
            Self::Sysctl(_) => &[],
        }
    }
}

impl Parameter for Chosen {
    type Arm = Setup;
    type Value = String;

    fn find(name: &str, _: &Setup) -> Result<Self, String> {
        let mut rows = FACTORS.iter();
        let row = rows
            .find(|row| row.name == name || matches!(row.set, Set::Sysctl(full) if full == name));
        match row {
            Some(row) => Ok(Self::Row(row)),
            None if name.starts_with("net.") => Ok(Self::Sysctl(name.to_owned())),
            None => {
                let known: Vec<&str> = FACTORS.iter().map(|row| row.name).collect();
                Err(format!(
                    "unknown factor: choose from {}, or a sysctl such as net.ipv4.tcp_rmem",
                    known.join(", ")
                ))
            }
        }
    }

    fn parse(&self, item: &str, base: &Setup) -> Result<Vec<String>, String> {
        let value = item.to_owned();
        self.set(&mut base.clone(), &value)?;
        Ok(vec![value])
    }

    /// Returns the factor's canonical name, which all its aliases share.
    fn target(&self) -> String {
        match self {
            Self::Row(Factor {
                set: Set::Sysctl(full),
                ..
            }) => (*full).to_owned(),
            Self::Row(row) => row.name.to_owned(),
            Self::Sysctl(name) => name.clone(),
        }
    }

    fn set(&self, setup: &mut Setup, value: &String) -> Result<(), String> {
        match self {
            Self::Row(Factor {
                set: Set::By(set), ..
            }) => set(setup, value)?,
            Self::Row(Factor {
                set: Set::Offload(offload),
                ..
            }) => {
                setup.tuning.offloads.push((*offload, switch(value)?));
                // Offloads depend on each other, so apply them in the order of `Offload::ALL`.
                let place =
                    |offload: &Offload| Offload::ALL.iter().position(|other| other == offload);
                setup
                    .tuning
                    .offloads
                    .sort_by_key(|(offload, _)| place(offload));
            }
            Self::Row(_) | Self::Sysctl(_) => {
                setup.tuning.sysctls.push((self.target(), value.clone()));
            }
        }
        Ok(())
    }
}

/// The factors of an experiment, and the settings that do not vary.
#[derive(Debug)]
pub struct Factors {
    grid: Grid<Chosen>,
    factorial: Factorial,
}

impl Factors {
    /// Parses the factors that the user typed. All other settings come from `base`.
    ///
    /// # Errors
    /// Returns an error if a factor is unknown, a value is invalid, or there are too many arms.
    pub fn read(typed: &[Vary], base: Setup) -> Result<Self, VaryError> {
        let grid = Grid::new(typed, base, MOST_ARMS)?;
        if let Some(axis) = grid.axes().iter().find(|axis| axis.values().len() < 2) {
            return Err(axis
                .typed()
                .error(&"a comparison needs at least two values"));
        }
        Ok(Self {
            factorial: Factorial::new(grid.levels()),
            grid,
        })
    }

    /// Returns the number of arms. Each combination of the factors' values is one arm.
    pub fn arms(&self) -> usize {
        self.grid.len()
    }

    /// Returns the design with all combinations of the factors' values.
    pub fn factorial(&self) -> &Factorial {
        &self.factorial
    }

    /// Returns the settings of the arm with this number.
    pub fn setup(&self, arm: usize) -> Setup {
        // This cannot fail, because every value was tried out when it was parsed.
        self.grid.arm(arm).unwrap_or_else(|_| self.base().clone())
    }

    /// Returns the settings in effect in an arm: the facts in `read`, plus the values of those
    /// factors whose effect the facts do not show.
    pub fn in_effect(&self, arm: usize, read: &[Fact]) -> Vec<Fact> {
        // Leave out a sysctl's value if other facts show its effect.
        let counts = |fact: &&Fact| {
            let mut shown = self.chosen().filter(|factor| !factor.shown_by().is_empty());
            shown.all(|factor| {
                factor.target() != fact.name || factor.shown_by().contains(&&*fact.name)
            })
        };
        let mut facts: Vec<Fact> = read.iter().filter(counts).cloned().collect();
        for (factor, value) in self.chosen().zip(self.grid.values(arm)) {
            let name = factor.target();
            if factor.shown_by().is_empty() && facts.iter().all(|fact| fact.name != name) {
                facts.push(Fact::new(&name, value));
            }
        }
        facts.sort();
        facts
    }

    fn chosen(&self) -> impl Iterator<Item = &Chosen> {
        self.grid.axes().iter().map(Axis::parameter)
    }

    /// Returns whether the factor called `name` is varied.
    pub fn varies(&self, name: &str) -> bool {
        self.grid.axes().iter().any(|axis| axis.name() == name)
    }

    /// Returns the factors in the form used in documents.
    pub fn varied(&self) -> Vec<VariedFactor> {
        let varied = self.grid.axes().iter().map(|axis| VariedFactor {
            name: axis.name().to_owned(),
            place: axis.parameter().place(),
            values: axis.values().to_vec(),
        });
        varied.collect()
    }

    /// Returns the names of those varied factors that require separate network namespaces.
    pub fn of_namespaces(&self) -> Vec<&str> {
        let needs = |axis: &&Axis<Chosen>| {
            let place = axis.parameter().place();
            matches!(place, FactorPlace::Device | FactorPlace::Namespace)
        };
        let needs = self.grid.axes().iter().filter(needs);
        needs.map(Axis::name).collect()
    }

    /// Returns the settings that are not varied.
    pub fn base(&self) -> &Setup {
        self.grid.base()
    }
}

#[cfg(test)]
pub(super) mod tests;
