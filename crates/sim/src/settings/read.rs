//! Reads the settings from a scenario file.

use ticktax_model::Nanos;
use toml::de::{DeTable, DeValue};

use super::{Kind, Section, Setting, SettingError, Value, all, find};
use crate::scheduler::Policy;
use crate::setup::{Machine, Setup};

/// Top-level tables of a scenario that do not contain settings.
const OTHERS: [&str; 4] = ["task", "interrupt", "link", "group"];
/// The only key in `[machine]` that is not a setting. Its value is a list of tick phases, one per
/// CPU.
pub(super) const PHASES: &str = "phases";

/// An error in a scenario's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte offset of the error in the text.
    pub(crate) at: usize,
    pub(crate) why: String,
}

/// A setting found in the text, with its value.
struct Given<'t> {
    setting: &'static Setting,
    value: &'t DeValue<'t>,
    at: usize,
}

/// Reads the settings of a scenario. Returns a setup without tasks, and the byte offset of the
/// `[machine]` section.
pub(crate) fn read(text: &str) -> Result<(Setup, usize), Fault> {
    let table = DeTable::parse(text).map_err(|wrong| Fault {
        at: wrong.span().map_or(0, |span| span.start),
        why: wrong.message().to_owned(),
    })?;
    let (mut given, mut phases, mut machine_at) = (Vec::new(), None, None);
    for (key, value) in table.get_ref() {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        match value.get_ref() {
            DeValue::Table(machine) if name == "machine" => {
                machine_at = Some(at);
                collect(machine, "", &mut given, &mut phases)?;
            }
            _ if name == "machine" => return Err(fault(at, "use a section, [machine]")),
            _ if OTHERS.contains(&name) => {}
            value => match find(name).filter(|setting| setting.section == Section::Run) {
                Some(setting) => given.push(Given { setting, value, at }),
                None => return Err(fault(at, &format!("unknown setting `{name}`"))),
            },
        }
    }
    let machine_at = machine_at.ok_or_else(|| fault(0, "no [machine] section"))?;
    let is_given = |setting: &Setting| given.iter().any(|entry| entry.setting.name == setting.name);
    if let Some(missing) = all().find(|setting| setting.is_required && !is_given(setting)) {
        let at = match missing.section {
            Section::Run => 0,
            Section::Machine => machine_at,
        };
        return Err(fault(
            at,
            &format!("the setting `{}` is missing", missing.name),
        ));
    }
    let mut setup = Setup::new(Machine::new(1, 1, Policy::Fair), Nanos::ZERO);
    given.sort_by_key(|entry| entry.setting.rank());
    for (place, entry) in given.iter().enumerate() {
        let name = entry.setting.name;
        if let Some(other) = given[..place]
            .iter()
            .find(|other| other.setting.sets == entry.setting.sets)
        {
            let why = format!(
                "`{name}` sets the same value as `{}`; remove one",
                other.setting.name
            );
            return Err(fault(entry.at, &why));
        }
        let set = value(entry.setting.kind, entry.value)
            .and_then(|parsed| entry.setting.set(&mut setup, parsed));
        set.map_err(|why| fault(entry.at, &format!("{name}: {why}")))?;
    }
    if let Some((list, at)) = phases {
        setup.machine.phases =
            durations(list).map_err(|why| fault(at, &format!("{PHASES}: {why}")))?;
    }
    Ok((setup, machine_at))
}

/// A TOML array and its byte offset, if the scenario contains it.
type List<'t> = Option<(&'t DeValue<'t>, usize)>;

/// Collects the settings in `table`. Settings in a nested table are prefixed with the table's name,
/// as in `costs.tick`.
fn collect<'t>(
    table: &'t DeTable<'t>,
    prefix: &str,
    given: &mut Vec<Given<'t>>,
    phases: &mut List<'t>,
) -> Result<(), Fault> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        let at = key.span().start;
        let setting = find(&name).filter(|setting| setting.section == Section::Machine);
        match (setting, value.get_ref()) {
            (Some(setting), value) => given.push(Given { setting, value, at }),
            (None, value) if name == PHASES => *phases = Some((value, at)),
            (None, DeValue::Table(inner))
                if all().any(|setting| setting.name.starts_with(&format!("{name}."))) =>
            {
                collect(inner, &format!("{name}."), given, phases)?;
            }
            _ => {
                let names: Vec<&str> = all()
                    .filter(|setting| setting.section == Section::Machine)
                    .map(Setting::name)
                    .collect();
                let why = format!("unknown setting `{name}`; choose from {}", names.join(", "));
                return Err(fault(at, &why));
            }
        }
    }
    Ok(())
}

fn value(kind: Kind, value: &DeValue<'_>) -> Result<Value, SettingError> {
    match (kind, value) {
        (Kind::Integer(..), DeValue::Integer(number)) => {
            let digits = i64::from_str_radix(number.as_str(), number.radix());
            let text =
                digits.map_or_else(|_| number.as_str().to_owned(), |digits| digits.to_string());
            kind.parse(&text)
        }
        (Kind::Duration | Kind::Word(_), DeValue::String(text)) => kind.parse(text),
        (Kind::Word(_), DeValue::Boolean(is_on)) => kind.parse(if *is_on { "on" } else { "off" }),
        (kind, _) => Err(SettingError::WrongType(kind)),
    }
}

fn durations(list: &DeValue<'_>) -> Result<Vec<Nanos>, SettingError> {
    let DeValue::Array(list) = list else {
        return Err(SettingError::NotAList);
    };
    let one = |item: &toml::Spanned<DeValue<'_>>| value(Kind::Duration, item.get_ref());
    list.iter().map(|item| Ok(one(item)?.duration())).collect()
}

fn fault(at: usize, why: &str) -> Fault {
    Fault {
        at,
        why: why.to_owned(),
    }
}
