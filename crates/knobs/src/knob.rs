//! Settings. Each one says how it is read and written, which values are valid, and what it does.

use std::fmt;

use ticktax_model::Nanos;
use ticktax_model::knob::{KnobLine, KnobReading, KnobReadings, KnobRisk, KnobScope, KnobSheet};

use crate::error::{KnobError, Trouble};
use crate::mechanism::{HeldValue, Mechanism};
use crate::session::Consent;
use crate::system::System;
use crate::target::{Presence, Target};
use crate::values::Values;

/// A setting, which is one row of the registry.
pub struct Knob {
    pub(crate) id: &'static str,
    pub(crate) scope: KnobScope,
    pub(crate) mechanism: Mechanism,
    pub(crate) values: Values,
    pub(crate) unit: Option<&'static str>,
    pub(crate) risk: KnobRisk,
    pub(crate) risk_reason: &'static str,
    pub(crate) about: &'static str,
    pub(crate) trades: &'static str,
    pub(crate) kernels: &'static str,
    pub(crate) source: &'static str,
    pub(crate) also: &'static [&'static str],
    pub(crate) settle: Nanos,
}

/// Creates a row whose texts are still empty.
pub(crate) const fn knob(
    id: &'static str,
    scope: KnobScope,
    mechanism: Mechanism,
    values: Values,
) -> Knob {
    Knob {
        id,
        scope,
        risk: if mechanism.is_read_only() {
            KnobRisk::ReadOnly
        } else {
            KnobRisk::Safe
        },
        mechanism,
        values,
        unit: None,
        risk_reason: "",
        about: "",
        trades: "",
        kernels: "",
        source: "",
        also: &[],
        settle: match scope {
            KnobScope::Task => Nanos::ZERO,
            KnobScope::Cgroup => Nanos::from_millis(50),
            KnobScope::Machine
            | KnobScope::Cpu
            | KnobScope::Irq
            | KnobScope::Disk
            | KnobScope::Net => Nanos::from_millis(200),
        },
    }
}

impl Knob {
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Marks the setting as able to slow down or break other programs. `why` is the reason.
    pub(crate) const fn careful(mut self, why: &'static str) -> Self {
        self.risk = KnobRisk::Careful;
        self.risk_reason = why;
        self
    }

    /// Marks the setting as able to hang the machine. `why` is the reason.
    pub(crate) const fn dangerous(mut self, why: &'static str) -> Self {
        self.risk = KnobRisk::Dangerous;
        self.risk_reason = why;
        self
    }

    pub(crate) const fn words(mut self, about: &'static str, trades: &'static str) -> Self {
        self.about = about;
        self.trades = trades;
        self
    }

    /// Sets which kernel versions have the setting, and where the kernel documents it.
    pub(crate) const fn from(mut self, kernels: &'static str, source: &'static str) -> Self {
        self.kernels = kernels;
        self.source = source;
        self
    }

    /// Lists other settings that the kernel changes whenever this one changes.
    pub(crate) const fn also(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }

    pub(crate) const fn settles_in_ms(mut self, time: i64) -> Self {
        self.settle = Nanos::from_millis(time);
        self
    }

    /// Returns the name that users type, for example `vm.swappiness`.
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// Returns the kind of target that the setting belongs to.
    pub const fn scope(&self) -> KnobScope {
        self.scope
    }

    /// Returns how dangerous it is to change the setting.
    pub const fn risk(&self) -> KnobRisk {
        self.risk
    }

    /// Returns how long to wait between a change and a measurement.
    pub const fn settle(&self) -> Nanos {
        self.settle
    }

    /// Checks that the setting may be changed: it must not be read-only, and if it is dangerous,
    /// the user must have agreed.
    ///
    /// # Errors
    /// Returns [`KnobError::ReadOnly`] or [`KnobError::Dangerous`] if it must not be changed.
    pub fn permits(&self, consent: Consent) -> Result<(), KnobError> {
        match (self.risk, consent) {
            (KnobRisk::ReadOnly, _) => Err(KnobError::ReadOnly {
                id: self.id.to_owned(),
                why: "the kernel reads it only at boot; try it with `ticktax lab run --cmdline`"
                    .to_owned(),
            }),
            (KnobRisk::Dangerous, Consent::Withheld) => Err(KnobError::Dangerous {
                id: self.id.to_owned(),
                reason: self.risk_reason.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Validates a value and converts it to the form in which [`read`](Self::read) returns it.
    ///
    /// # Errors
    /// Returns [`KnobError::Value`], with a description of the valid values, if `text` is not
    /// valid.
    pub fn parse(&self, system: &System, target: &Target, text: &str) -> Result<String, KnobError> {
        let offered = match self.values {
            Values::Offered | Values::Toggles => self.mechanism.offered(system, target),
            Values::OfferedIn(path) => self.mechanism.offered_in(system, target, path),
            _ => Vec::new(),
        };
        let parsed = self.values.parse(text, &offered);
        parsed.map_err(|why| KnobError::Value {
            id: self.id.to_owned(),
            value: text.to_owned(),
            why: why.to_string(),
        })
    }

    /// Returns the setting's current value for `target`.
    ///
    /// # Errors
    /// Returns an error if the target is of the wrong kind or does not exist, or if the setting
    /// cannot be read.
    pub fn read(&self, system: &System, target: &Target) -> Result<String, KnobError> {
        self.require(system, target)?;
        let read = self.look(system, target);
        read.map_err(|trouble| KnobError::Read {
            id: self.id.to_owned(),
            target: target.to_string(),
            trouble,
        })
    }

    /// Reads the setting for each of `targets`, formatted for users.
    pub fn readings(&self, system: &System, targets: &[Target]) -> KnobReadings {
        let reading = |target: &Target| {
            let read = self.read(system, target);
            KnobReading {
                target: target.to_string(),
                problem: read.as_ref().err().map(ToString::to_string),
                value: read.ok(),
            }
        };
        KnobReadings {
            id: self.id.to_owned(),
            unit: self.unit.map(str::to_owned),
            readings: targets.iter().map(reading).collect(),
        }
    }

    /// Checks that `target` is of the right kind and exists. Returns its identity, which no later
    /// target of the same name will have.
    pub(crate) fn require(&self, system: &System, target: &Target) -> Result<String, KnobError> {
        if target.scope() != self.scope {
            return Err(KnobError::Scope {
                id: self.id.to_owned(),
                of: of_what(self.scope).to_owned(),
                hint: format!("{target} is not one"),
            });
        }
        let gone = |why: &str| {
            Err(KnobError::Gone {
                target: target.to_string(),
                why: why.to_owned(),
            })
        };
        match target.presence(system) {
            Presence::There(identity) => Ok(identity),
            Presence::Offline => gone("offline; bring it online first"),
            Presence::Gone => gone(where_to_look(self.scope)),
        }
    }

    /// Reads the setting for a target that is known to exist.
    pub(crate) fn look(&self, system: &System, target: &Target) -> Result<String, Trouble> {
        let text = self.mechanism.read(system, target)?;
        Ok(self.values.read(&text))
    }

    /// Writes a value, which must be in the form in which [`parse`](Self::parse) returns it.
    pub(crate) fn write(
        &self,
        system: &System,
        target: &Target,
        value: &str,
    ) -> Result<Option<HeldValue>, Trouble> {
        self.mechanism.write(system, target, value)
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.mechanism.is_held()
    }

    /// Returns the setting's summary, for the list of settings.
    pub fn line(&self) -> KnobLine {
        KnobLine {
            id: self.id.to_owned(),
            scope: self.scope,
            risk: self.risk,
            description: self.about.to_owned(),
        }
    }

    /// Returns the setting's full documentation.
    pub fn sheet(&self) -> KnobSheet {
        let reason = Some(self.risk_reason).filter(|reason| !reason.is_empty());
        KnobSheet {
            id: self.id.to_owned(),
            scope: self.scope,
            location: self.mechanism.place(),
            unit: self.unit.map(str::to_owned),
            values: self.values.to_string(),
            risk: self.risk,
            risk_reason: reason.map(str::to_owned),
            description: self.about.to_owned(),
            trade_offs: self.trades.to_owned(),
            kernels: self.kernels.to_owned(),
            source: self.source.to_owned(),
            also_changes: self.also.iter().map(|&id| id.to_owned()).collect(),
            settle: self.settle,
        }
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// Returns a phrase for a kind of target, such as "a CPU", for use in a sentence.
pub const fn of_what(scope: KnobScope) -> &'static str {
    match scope {
        KnobScope::Machine => "the machine",
        KnobScope::Cpu => "a CPU",
        KnobScope::Irq => "an interrupt line",
        KnobScope::Disk => "a disk",
        KnobScope::Task => "a task",
        KnobScope::Cgroup => "a cgroup",
        KnobScope::Net => "a network namespace",
    }
}

const fn where_to_look(scope: KnobScope) -> &'static str {
    match scope {
        KnobScope::Machine => "no such machine",
        KnobScope::Cpu => "/sys/devices/system/cpu/online lists existing CPUs",
        KnobScope::Irq => "/proc/interrupts lists existing interrupts",
        KnobScope::Disk => "/sys/block lists existing disks",
        KnobScope::Task => "no such thread; find a program's PIDs with `pgrep NAME`",
        KnobScope::Cgroup => "give its directory, for example /sys/fs/cgroup/system.slice",
        KnobScope::Net => "give its file, for example /run/netns/NAME or /proc/PID/ns/net",
    }
}
