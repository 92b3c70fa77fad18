//! Settings of a simulated machine and its kernel: a table of names, values and descriptions.
//!
//! Scenarios, the grids of `--vary`, the machine description in predictions, and the list in
//! docs/reference/settings.md all use this table. To add a setting, add a row.
//!
//! ```
//! use ticktax_sim::{Machine, Policy, Setup, settings};
//!
//! let machine = Machine::new(1, 100, Policy::Fair);
//! let mut setup = Setup::new(machine, ticktax_model::Nanos::from_secs(1));
//! let hz = settings::find("hz").unwrap();
//! hz.set(&mut setup, hz.parse("250")?)?;
//! assert_eq!(setup.machine.hz, 250);
//! let error = hz.parse("0").unwrap_err();
//! assert_eq!(error.to_string(), "0 is out of range: choose 1 to 1000000");
//! # Ok::<(), settings::SettingError>(())
//! ```

mod error;
mod read;
mod table;
mod value;

use std::collections::BTreeMap;
use std::fmt;

use ticktax_model::Nanos;

pub use error::{RecordedSettingError, SettingError};
use read::PHASES;
pub(crate) use read::{Fault, read};
pub use value::{Kind, Value};

use crate::scheduler::Policy;
use crate::setup::{Machine, Setup};

/// Section of a scenario that a setting is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The top of the file, for settings of the simulation itself.
    Run,
    /// `[machine]`.
    Machine,
}

/// A row of the settings table.
pub struct Setting {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    section: Section,
    is_required: bool,
    is_always_listed: bool,
    sets: &'static str,
    get: fn(&Setup) -> Option<Value>,
    set: fn(&mut Setup, Value) -> Result<(), SettingError>,
}

impl Setting {
    /// Returns the name as users type it, such as `hz` or `costs.tick`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kind of the setting's values.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the scenario section that the setting is written in.
    pub const fn section(&self) -> Section {
        self.section
    }

    /// Returns the description of the setting, which is one line of Markdown.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Returns the name of the property that this setting changes: the setting's own name or, if it
    /// is an alias, the other setting's. A setup may set each property only once.
    pub const fn sets(&self) -> &'static str {
        self.sets
    }

    /// Returns the setting's index in the table. Settings are applied in table order, because later
    /// ones may depend on earlier ones.
    pub fn rank(&self) -> usize {
        let place = table::ALL
            .iter()
            .position(|setting| setting.name == self.name);
        place.unwrap_or(table::ALL.len())
    }

    /// Parses a value for this setting.
    ///
    /// # Errors
    /// Returns an error if the value is invalid.
    pub fn parse(&self, text: &str) -> Result<Value, SettingError> {
        self.kind.parse(text)
    }

    /// Returns the setting's value in `setup`, or `None` if the setting does not apply there. For
    /// example, `slice` does not apply to a policy without slices.
    pub fn get(&self, setup: &Setup) -> Option<Value> {
        (self.get)(setup)
    }

    /// Changes the setting's value in `setup`.
    ///
    /// # Errors
    /// Returns an error if the setting does not apply, or if the value is invalid in this setup.
    pub fn set(&self, setup: &mut Setup, value: Value) -> Result<(), SettingError> {
        (self.set)(setup, value)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Iterates over all settings, in the order they are applied.
pub fn all() -> impl Iterator<Item = &'static Setting> + Clone {
    table::ALL.iter()
}

/// Returns the setting called `name`, or `None` if it does not exist.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// Returns the names of all settings, separated by commas.
pub fn names() -> String {
    all().map(Setting::name).collect::<Vec<_>>().join(", ")
}

/// Lists the settings of `machine` as users type them, such as `hz=250`. Settings at their default
/// value are omitted, except for a few that are always listed.
pub fn list(machine: &Machine) -> Vec<String> {
    let setup = |machine| Setup::new(machine, Nanos::ZERO);
    let default = setup(Machine::new(1, machine.hz, Policy::Fair));
    let setup = setup(machine.clone());
    let of_machine =
        all().filter(|setting| setting.section == Section::Machine && setting.sets == setting.name);
    of_machine
        .filter_map(|setting| {
            let value = setting.get(&setup)?;
            let differs = setting.get(&default) != Some(value);
            (differs || setting.is_always_listed).then(|| format!("{}={value}", setting.name))
        })
        .collect()
}

/// Returns all settings of `setup` by name, for storing in its recording. [`machine`] converts them
/// back to a machine.
pub fn recorded(setup: &Setup) -> BTreeMap<String, String> {
    let own = all().filter(|setting| setting.sets == setting.name);
    let mut recorded: BTreeMap<String, String> = own
        .filter_map(|setting| Some((setting.name.to_owned(), setting.get(setup)?.to_string())))
        .collect();
    if !recorded.contains_key("phase") {
        let phases = setup.machine.phases.iter();
        let phases: Vec<String> = phases.map(|phase| phase.exact()).collect();
        recorded.insert(PHASES.to_owned(), phases.join(","));
    }
    recorded
}

/// Reconstructs a machine from its [`recorded`] settings. If `tick` is `nohz-full`, the machine may
/// stop the tick on every CPU, because the list of such CPUs is not a setting. The actual list is
/// in the recording's header ([`tick_mode`](ticktax_model::machine::Machine::tick_mode)).
///
/// # Errors
/// Returns an error that names the setting if a setting is invalid or unknown.
pub fn machine(recorded: &BTreeMap<String, String>) -> Result<Machine, RecordedSettingError> {
    let invalid = |name| move |why| RecordedSettingError::Invalid { name, why };
    let is_known = |name: &str| name == PHASES || find(name).is_some();
    if let Some(name) = recorded.keys().find(|name| !is_known(name)) {
        return Err(RecordedSettingError::Unknown(name.clone()));
    }
    let mut setup = Setup::new(Machine::new(1, 100, Policy::Fair), Nanos::ZERO);
    // Apply settings in table order, because later ones may depend on earlier ones.
    for setting in all() {
        let Some(text) = recorded.get(setting.name) else {
            continue;
        };
        let set = setting
            .parse(text)
            .and_then(|value| setting.set(&mut setup, value));
        set.map_err(invalid(setting.name))?;
    }
    if let Some(list) = recorded.get(PHASES) {
        let parse = |text| Kind::Duration.parse(text).map(Value::duration);
        let phases = list.split(',').map(parse).collect::<Result<_, _>>();
        setup.machine.phases = phases.map_err(invalid(PHASES))?;
    }
    Ok(setup.machine)
}

/// Returns a Markdown table of all settings for docs/reference/settings.md.
pub fn markdown() -> String {
    let row = |setting: &Setting| {
        let required = if setting.is_required {
            " (required)"
        } else {
            ""
        };
        let place = match setting.section {
            Section::Run => "top of the file",
            Section::Machine => "`[machine]`",
        };
        let (name, kind, help) = (setting.name, setting.kind, setting.help);
        format!("| `{name}` | {kind} | {place}{required} | {help} |\n")
    };
    let rows: String = all().map(row).collect();
    format!("| name | values | in a scenario | what it sets |\n|---|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Kind, Section, Setting, Value, all, find, list, machine, markdown, recorded};
    use crate::setup::{Machine, Setup};
    use ticktax_model::Nanos;

    use crate::clock::Device;
    use crate::scheduler::Policy;

    fn setup(policy: &str) -> Setup {
        let mut setup = Setup::new(Machine::new(4, 100, Policy::Fair), Nanos::from_secs(1));
        let policy = Value::Word(match policy {
            "eevdf" => "eevdf",
            _ => "o1",
        });
        find("policy").unwrap().set(&mut setup, policy).unwrap();
        setup
    }

    fn values(kind: Kind) -> Vec<Value> {
        match kind {
            Kind::Integer(min, max) => vec![Value::Integer(min), Value::Integer(max)],
            Kind::Duration => vec![Value::Duration(Nanos::ZERO), Value::Duration(Nanos(1_500))],
            Kind::Word(words) => words.iter().map(|&word| Value::Word(word)).collect(),
        }
    }

    #[test]
    fn settings_can_be_set_read_and_parsed_again() {
        let mut setup = setup("eevdf");
        setup.machine.device = Device::Lapic {
            bus_hz: 1,
            divisor: 1,
        };
        for setting in all() {
            for value in values(setting.kind()) {
                let mut setup = setup.clone();
                setting.set(&mut setup, value).unwrap();
                assert_eq!(setting.get(&setup), Some(value), "{setting:?}");
                assert_eq!(setting.parse(&value.to_string()), Ok(value), "{setting:?}");
            }
        }
    }

    #[test]
    fn settings_that_do_not_apply_have_no_value() {
        let mut setup = setup("o1");
        for name in ["slice", "hrtick", "lapic.bus_hz", "lapic.divisor"] {
            let setting = find(name).unwrap();
            assert_eq!(setting.get(&setup), None, "{name}");
            let value = values(setting.kind())[0];
            assert!(setting.set(&mut setup, value).is_err(), "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_set_an_existing_property() {
        let names: BTreeSet<&str> = all().map(Setting::name).collect();
        assert_eq!(names.len(), all().count());
        for setting in all() {
            assert!(names.contains(setting.sets()), "{setting:?}");
            assert!(!setting.help().is_empty(), "{setting:?}");
        }
        assert!(all().any(|setting| setting.section == Section::Run));
    }

    #[test]
    fn a_machine_is_described_by_its_settings() {
        let mut setup = setup("eevdf");
        setup.machine.costs.tick = Nanos(1_500);
        let listed = list(&setup.machine).join(" ");
        assert_eq!(
            listed,
            "cpus=4 policy=eevdf hz=100 tick=periodic timers=first-tick slice=2.1ms hrtick=off \
             costs.tick=1.5us"
        );
    }

    #[test]
    fn the_documentation_lists_the_settings_as_they_are() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/settings.md"
        );
        ticktax_fixture::assert_documented(file, "<!-- settings -->\n", &markdown());
    }

    #[test]
    fn recorded_settings_restore_the_machine() {
        let mut setup = setup("eevdf");
        for (name, text) in [
            ("slice", "3ms"),
            ("hrtick", "on"),
            ("tick", "nohz-full"),
            ("device", "lapic"),
            ("lapic.divisor", "8"),
            ("phase", "500us"),
            ("seed", "7"),
        ] {
            let setting = find(name).unwrap();
            let value = setting.parse(text).unwrap();
            setting.set(&mut setup, value).unwrap();
        }
        let recorded = recorded(&setup);
        assert_eq!(recorded["slice"], "3ms");
        assert_eq!(recorded["seed"], "7");
        assert_eq!(machine(&recorded), Ok(setup.machine));
        let unknown = [("slize".to_owned(), "3ms".to_owned())].into();
        let error = machine(&unknown).unwrap_err();
        assert_eq!(error.to_string(), "unknown setting `slize`");
    }

    #[test]
    fn differing_phases_are_recorded() {
        let mut setup = setup("fair");
        setup.machine.phases = vec![Nanos::ZERO, Nanos::from_micros(250), Nanos(1)];
        let mut recorded = recorded(&setup);
        assert_eq!(recorded["phases"], "0s,250us,1ns");
        assert_eq!(machine(&recorded), Ok(setup.machine));
        recorded.insert("phases".to_owned(), "1ms,soon".to_owned());
        let why = machine(&recorded).unwrap_err().to_string();
        assert!(why.starts_with("phases: "), "{why}");
    }
}
