//! A setting: how it is read and written, what its values are, and what there is to know before it is changed.

use std::fmt;

use ticktax_model::Nanos;
use ticktax_model::knob::{KnobLine, KnobReading, KnobReadings, KnobRisk, KnobScope, KnobSheet};

use crate::error::{KnobError, Trouble};
use crate::mechanism::{Held, Mechanism};
use crate::session::Consent;
use crate::system::System;
use crate::target::{Presence, Target};
use crate::values::Values;

/// A setting: a row of the registry.
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

/// A row without words.
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
    /// What its values are counted in.
    pub(crate) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// A value can slow other programs down, or fail them; why.
    pub(crate) const fn careful(mut self, why: &'static str) -> Self {
        self.risk = KnobRisk::Careful;
        self.risk_reason = why;
        self
    }

    /// A value can hang the machine; how.
    pub(crate) const fn dangerous(mut self, why: &'static str) -> Self {
        self.risk = KnobRisk::Dangerous;
        self.risk_reason = why;
        self
    }

    /// What it sets, and what is gained and lost by that.
    pub(crate) const fn words(mut self, about: &'static str, trades: &'static str) -> Self {
        self.about = about;
        self.trades = trades;
        self
    }

    /// Which kernels have it, and where their documentation describes it.
    pub(crate) const fn from(mut self, kernels: &'static str, source: &'static str) -> Self {
        self.kernels = kernels;
        self.source = source;
        self
    }

    /// The kernel changes these along with it.
    pub(crate) const fn also(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }

    /// A change is in full effect only after so many ms.
    pub(crate) const fn settles_in_ms(mut self, time: i64) -> Self {
        self.settle = Nanos::from_millis(time);
        self
    }

    /// Its name, as it is typed: `vm.swappiness`.
    pub const fn id(&self) -> &'static str {
        self.id
    }

    /// What it is of.
    pub const fn scope(&self) -> KnobScope {
        self.scope
    }

    /// What may go wrong when it is changed.
    pub const fn risk(&self) -> KnobRisk {
        self.risk
    }

    /// How long to wait after a change before anything is measured.
    pub const fn settle(&self) -> Nanos {
        self.settle
    }

    /// That it may be changed at all, and by somebody who agreed to what may go wrong.
    ///
    /// # Errors
    /// [`KnobError::ReadOnly`] or [`KnobError::Dangerous`].
    pub fn permits(&self, consent: Consent) -> Result<(), KnobError> {
        match (self.risk, consent) {
            (KnobRisk::ReadOnly, _) => Err(KnobError::ReadOnly {
                id: self.id.to_owned(),
                why:
                    "it takes effect as the kernel starts; try it with `ticktax lab run --cmdline`"
                        .to_owned(),
            }),
            (KnobRisk::Dangerous, Consent::Withheld) => Err(KnobError::Dangerous {
                id: self.id.to_owned(),
                reason: self.risk_reason.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// A value in the words that reading it gives.
    ///
    /// # Errors
    /// [`KnobError::Value`], with what it can be.
    pub fn parse(&self, system: &System, target: &Target, text: &str) -> Result<String, KnobError> {
        let offered = match self.values {
            Values::Offered => self.mechanism.offered(system, target),
            Values::OfferedIn(path) => self.mechanism.offered_in(system, target, path),
            _ => Vec::new(),
        };
        let parsed = self.values.parse(text, &offered);
        parsed.map_err(|why| KnobError::Value {
            id: self.id.to_owned(),
            value: text.to_owned(),
            why,
        })
    }

    /// What it is set to.
    ///
    /// # Errors
    /// The target is of another kind or gone, or the kernel does not let it be read.
    pub fn read(&self, system: &System, target: &Target) -> Result<String, KnobError> {
        self.require(system, target)?;
        let read = self.look(system, target);
        read.map_err(|trouble| KnobError::Read {
            id: self.id.to_owned(),
            target: target.to_string(),
            trouble,
        })
    }

    /// Its readings of all that was asked about, for a page.
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

    /// That the target is of its kind, and there; what tells it from a later one.
    pub(crate) fn require(&self, system: &System, target: &Target) -> Result<String, KnobError> {
        if target.scope() != self.scope {
            return Err(KnobError::Scope {
                id: self.id.to_owned(),
                of: of_what(self.scope).to_owned(),
                hint: format!("{target} is none"),
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
            Presence::Offline => gone("it is offline; bring it online first"),
            Presence::Gone => gone(where_to_look(self.scope)),
        }
    }

    /// What it is set to, of a target that is there.
    pub(crate) fn look(&self, system: &System, target: &Target) -> Result<String, Trouble> {
        let text = self.mechanism.read(system, target)?;
        Ok(self.values.read(&text))
    }

    /// Sets it to a value in the words that reading it gives.
    pub(crate) fn write(
        &self,
        system: &System,
        target: &Target,
        value: &str,
    ) -> Result<Option<Held>, Trouble> {
        self.mechanism.write(system, target, value)
    }

    /// Whether it is in force only while the process that set it lives.
    pub(crate) const fn is_held(&self) -> bool {
        self.mechanism.is_held()
    }

    /// It in a line.
    pub fn line(&self) -> KnobLine {
        KnobLine {
            id: self.id.to_owned(),
            scope: self.scope,
            risk: self.risk,
            about: self.about.to_owned(),
        }
    }

    /// All there is to say about it.
    pub fn sheet(&self) -> KnobSheet {
        let reason = Some(self.risk_reason).filter(|it| !it.is_empty());
        KnobSheet {
            id: self.id.to_owned(),
            scope: self.scope,
            place: self.mechanism.place(),
            unit: self.unit.map(str::to_owned),
            values: self.values.to_string(),
            risk: self.risk,
            risk_reason: reason.map(str::to_owned),
            about: self.about.to_owned(),
            trades: self.trades.to_owned(),
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

/// What settings of this kind are of, in a sentence.
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

/// What to do where there is no such thing.
const fn where_to_look(scope: KnobScope) -> &'static str {
    match scope {
        KnobScope::Machine => "there is no machine",
        KnobScope::Cpu => "/sys/devices/system/cpu/online lists those that are there",
        KnobScope::Irq => "/proc/interrupts lists those that are there",
        KnobScope::Disk => "/sys/block lists those that are there",
        KnobScope::Task => "it has ended, or never was; `pgrep NAME` finds the PIDs of a program",
        KnobScope::Cgroup => "name its folder, such as /sys/fs/cgroup/system.slice",
        KnobScope::Net => "name a file of it, such as /run/netns/NAME or /proc/PID/ns/net",
    }
}
