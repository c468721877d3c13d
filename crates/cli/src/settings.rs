//! Settings as arguments: `--config`, `--set`, and the flags of the table of settings. Commands flatten [`Settings`]; the flags are
//! built from the table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use myxtts_run::config::{ConfigError, Flag, HostResources, KEYS, Key, Sources, ValueKind};
use myxtts_run::plan::{Plan, TUNABLE};
use myxtts_train::{ComputeDevice, preferences};

use crate::UsageError;
use crate::arguments::device;
use crate::output::errln;

/// The settings on a command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    file: Option<PathBuf>,
    /// In the order of the command line, so that the later one wins.
    flags: Vec<Flag>,
}

/// Ids of the two arguments that are not settings. The path of every setting contains a dot.
const CONFIG: &str = "config";
const SET: &str = "set";
const HEADING: &str = "Settings (`myxtts config keys` lists all)";

impl Settings {
    /// Sets a path from an argument of the command, such as `DIR`. Does nothing if the argument was not given.
    ///
    /// # Panics
    /// If the setting does not exist: its name is a constant in a command.
    pub fn set_path(&mut self, argument: &str, setting: &str, value: Option<&Path>) -> anyhow::Result<()> {
        let key = Key::find(setting).expect("the path of a setting of the table");
        if let Some(path) = value {
            let value = path.to_str().ok_or_else(|| {
                UsageError(format!("{argument}: {} is not valid UTF-8; rename it", path.display()))
            })?;
            self.push_argument(argument, key, value.to_owned())?;
        }
        Ok(())
    }

    /// Sets a list of paths from an argument of the command. Does nothing if it is empty.
    ///
    /// # Panics
    /// If the setting does not exist: its name is a constant in a command.
    pub fn set_paths(&mut self, argument: &str, setting: &str, values: &[PathBuf]) -> anyhow::Result<()> {
        let key = Key::find(setting).expect("the path of a setting of the table");
        let mut paths = Vec::new();
        for path in values {
            paths.push(path.to_str().ok_or_else(|| {
                UsageError(format!("{argument}: {} is not valid UTF-8; rename it", path.display()))
            })?);
        }
        if !paths.is_empty() {
            self.push_argument(argument, key, listed(&paths))?;
        }
        Ok(())
    }

    /// Adds the value of an argument, unless a flag or `--set` gives the same setting another value: one of them would be ignored.
    fn push_argument(&mut self, argument: &str, key: &'static Key, value: String) -> Result<(), UsageError> {
        for flag in &self.flags {
            let (name, other) = match flag {
                Flag::Own { name, key: own, value } if own.path == key.path => (name.clone(), value.as_str()),
                Flag::Set(text) => match text.split_once('=') {
                    Some((path, value)) if path.trim() == key.path => ("--set".to_owned(), value),
                    _ => continue,
                },
                Flag::Own { .. } => continue,
            };
            if other != value {
                return Err(UsageError(format!(
                    "{argument} gives {} = {value}, and {name} gives {other}: one of them would be ignored; give all of it once",
                    key.path
                )));
            }
        }
        self.flags.push(Flag::Own { name: argument.to_owned(), key, value });
        Ok(())
    }

    /// Sets a value from a switch of the command. Does nothing if the switch was not given.
    ///
    /// # Panics
    /// If the setting does not exist: its name is a constant in a command.
    pub fn set_if(&mut self, given: bool, argument: &str, setting: &str, value: &str) {
        let key = Key::find(setting).expect("the path of a setting of the table");
        if given {
            self.flags.push(Flag::Own { name: argument.to_owned(), key, value: value.to_owned() });
        }
    }

    /// Sets the values that training on a machine prefers. Anything else on the command line overrides them.
    ///
    /// # Panics
    /// If a preferred setting does not exist: their names are constants.
    pub fn prefer_for_training(&mut self, machine: ComputeDevice) -> Result<(), ConfigError> {
        for (setting, value) in preferences::preferred(&self.plan()?, machine) {
            let key = Key::find(setting).expect("the path of a setting of the table");
            self.flags.insert(0, Flag::Own { name: preferences::ORIGIN.to_owned(), key, value });
        }
        Ok(())
    }

    /// Resolves the plan for trying out training steps on corpora and a device as the command line names them.
    pub fn for_training(mut self, corpora: &[PathBuf], named: &str) -> anyhow::Result<(Plan, ComputeDevice)> {
        let machine = ComputeDevice::choose(device(named)?)?;
        self.set_paths("CORPUS", "data.train_data", corpora)?;
        self.prefer_for_training(machine)?;
        Ok((self.resolve()?, machine))
    }

    /// Resolves the plan on this machine, and prints its notes to stderr.
    pub fn resolve(&self) -> anyhow::Result<Plan> {
        let plan = self.plan()?;
        for note in &plan.notes {
            errln!("note: {note}");
        }
        Ok(plan)
    }

    /// Resolves the plan on this machine without printing anything.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let command_line = self.flags.clone();
        Plan::resolve(&Sources {
            file: self.file.clone(),
            environment,
            command_line,
            ..Sources::for_host(HostResources::detect())
        })
    }
}

impl clap::Args for Settings {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG)
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("YAML file with settings; `myxtts config init` writes a template");
        let set = Arg::new(SET)
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help("Set any setting, such as data.batch_size=32; may be repeated");
        let flags = KEYS.iter().filter_map(|key| key.flag.map(|flag| own_flag(key, flag)));
        command.args([file, set].into_iter().chain(flags).map(|arg| arg.help_heading(HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Formats the values of a flag for the table: one value as it is, several as a list.
fn listed(values: &[&str]) -> String {
    match values {
        [one] => (*one).to_owned(),
        several => serde_json::Value::from(several.to_vec()).to_string(),
    }
}

/// The flag of one setting. The table parses its value, so that errors read the same as for a file.
fn own_flag(key: &'static Key, flag: &'static str) -> Arg {
    let default = match key.optional() {
        true => String::new(),
        false if TUNABLE.contains(&key.path) => " [default: chosen for the machine]".to_owned(),
        false => format!(" [default: {}]", key.default),
    };
    let arg = Arg::new(key.path)
        .long(flag)
        .value_name(value_name(key))
        // The table refuses a negative number and names the range; a flag is never taken for a value.
        .allow_negative_numbers(true)
        .help(format!("{}{default}", key.doc));
    match key.kind {
        // `--multi-gpu` and `--multi-gpu=false`, but never `--multi-gpu DIR`.
        ValueKind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // May be repeated, once for each path.
        ValueKind::Paths => arg.action(ArgAction::Append),
        _ => arg,
    }
}

fn value_name(key: &Key) -> &'static str {
    match key.kind {
        ValueKind::Bool => "BOOL",
        ValueKind::Int { .. } => "N",
        ValueKind::Float { .. } => "X",
        ValueKind::Size { .. } => "SIZE",
        ValueKind::Choice(_) => "NAME",
        ValueKind::Choices(_) => "NAMES",
        ValueKind::Text => "TEXT",
        ValueKind::Path | ValueKind::Paths => "PATH",
        ValueKind::Language => "CODE",
        ValueKind::Gpu => "GPU",
        ValueKind::Gpus => "GPUS",
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Settings::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>(CONFIG).cloned();
        let sets = matches.get_many::<String>(SET).into_iter().flatten();
        let sets =
            matches.indices_of(SET).into_iter().flatten().zip(sets.map(|text| Flag::Set(text.clone())));
        let own = KEYS.iter().filter_map(|key| {
            let name = format!("--{}", key.flag?);
            let values: Vec<&str> = matches.get_many::<String>(key.path)?.map(String::as_str).collect();
            let value = listed(&values);
            Some((matches.indices_of(key.path)?.next_back()?, Flag::Own { name, key, value }))
        });
        let mut flags: Vec<(usize, Flag)> = sets.chain(own).collect();
        flags.sort_by_key(|(index, _)| *index);
        self.flags = flags.into_iter().map(|(_, flag)| flag).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    fn parsed(arguments: &[&str]) -> Settings {
        let command = Settings::augment_args(Command::new("test").no_binary_name(true));
        Settings::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    fn batch_size(arguments: &[&str]) -> usize {
        let sources = Sources {
            command_line: parsed(arguments).flags,
            ..Sources::for_host(HostResources { cores: 64, memory_bytes: None })
        };
        Plan::resolve(&sources).unwrap().data.batch_size
    }

    #[test]
    fn clap_accepts_the_flags_of_the_table() {
        Settings::augment_args(Command::new("test")).debug_assert();
    }

    #[test]
    fn the_later_of_set_and_flag_wins() {
        assert_eq!(batch_size(&["--set", "data.batch_size=2", "--batch-size", "3"]), 3);
        assert_eq!(batch_size(&["--batch-size", "3", "--set", "data.batch_size=2"]), 2);
        assert_eq!(batch_size(&["--set=data.batch_size=2", "--seed=1", "--set", "data.batch_size=4"]), 4);
    }

    #[test]
    fn a_corpus_may_be_named_several_times() {
        let paths = |arguments: &[&str]| {
            let command_line = parsed(arguments).flags;
            let machine = HostResources { cores: 64, memory_bytes: None };
            let sources = Sources { command_line, ..Sources::for_host(machine) };
            let paths = Plan::resolve(&sources).unwrap().data.train_data;
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&["--train-data", "a", "--seed", "3", "--train-data", "b, c"]), ["a", "b, c"]);
        assert_eq!(paths(&["--train-data", "b, c"]), ["b, c"]);
        assert_eq!(paths(&["--set", "data.train_data=[a, b]"]), ["a", "b"]);
        assert_eq!(paths(&[]), [""; 0]);
    }

    #[test]
    fn a_switch_takes_its_value_with_an_equals_sign_only() {
        let value = |arguments| match &parsed(arguments).flags[..] {
            [Flag::Own { name, value, .. }] if name == "--multi-gpu" => value.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(value(&["--multi-gpu"]), "true");
        assert_eq!(value(&["--multi-gpu=false"]), "false");
    }
}
