//! The settings as arguments: `--config`, `--set`, and a flag for each setting that has one of its
//! own. Commands flatten [`Settings`]; the flags are built from the table, none is written here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use myxtts_run::config::{ConfigError, Flag, KEYS, Key, Kind, Machine, Origin, Sources};
use myxtts_run::plan::Plan;

use crate::UsageError;
use crate::output::errln;

/// What the command line says about settings.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    file: Option<PathBuf>,
    /// In the order of the command line, so that the later one wins.
    flags: Vec<Flag>,
}

/// Ids of the two arguments that are not settings. No setting's path is without a dot.
const CONFIG: &str = "config";
const SET: &str = "set";
/// Where a value that a command prefers is said to come from.
const PREFERRED: &str = "train";
const HEADING: &str = "Settings (all of them: `myxtts config keys`)";

impl Settings {
    /// Sets a path that the command takes as an argument of its own, such as `DIR`; nothing where the
    /// argument was not given.
    ///
    /// # Panics
    /// Where there is no such setting: the name is written in the code of a command.
    pub fn set_path(&mut self, argument: &str, setting: &str, value: Option<&Path>) -> anyhow::Result<()> {
        let key = Key::find(setting).expect("the path of a setting of the table");
        if let Some(path) = value {
            let value = path.to_str().ok_or_else(|| {
                UsageError(format!("{argument}: {} is not valid UTF-8; rename it", path.display()))
            })?;
            self.flags.push(Flag::Own { name: argument.to_owned(), key, value: value.to_owned() });
        }
        Ok(())
    }

    /// The same for several paths; nothing where there are none.
    ///
    /// # Panics
    /// As above.
    pub fn set_paths(&mut self, argument: &str, setting: &str, values: &[PathBuf]) -> anyhow::Result<()> {
        let key = Key::find(setting).expect("the path of a setting of the table");
        let mut paths = Vec::new();
        for path in values {
            paths.push(path.to_str().ok_or_else(|| {
                UsageError(format!("{argument}: {} is not valid UTF-8; rename it", path.display()))
            })?);
        }
        if !paths.is_empty() {
            self.flags.push(Flag::Own { name: argument.to_owned(), key, value: listed(&paths) });
        }
        Ok(())
    }

    /// Sets a value that a flag of a command's own stands for; nothing where the flag was not given.
    ///
    /// # Panics
    /// Where there is no such setting: the name is written in the code of a command.
    pub fn set_where(&mut self, given: bool, argument: &str, setting: &str, value: &str) {
        let key = Key::find(setting).expect("the path of a setting of the table");
        if given {
            self.flags.push(Flag::Own { name: argument.to_owned(), key, value: value.to_owned() });
        }
    }

    /// Sets a value that everything else the command line says comes before.
    ///
    /// # Panics
    /// Where there is no such setting: the name is written in the code of a command.
    pub fn prefer(&mut self, setting: &str, value: &str) {
        let key = Key::find(setting).expect("the path of a setting of the table");
        self.flags.insert(0, Flag::Own { name: PREFERRED.to_owned(), key, value: value.to_owned() });
    }

    /// Whether the user set a value, and not the table, the tuning or a command's own preference.
    pub fn is_users(origin: &Origin) -> bool {
        origin.is_written() && !matches!(origin, Origin::CommandLine { flag } if flag == PREFERRED)
    }

    /// The plan on this machine. Its notes go to stderr.
    pub fn resolve(&self) -> anyhow::Result<Plan> {
        let plan = self.plan()?;
        for note in &plan.notes {
            errln!("note: {note}");
        }
        Ok(plan)
    }

    /// The plan on this machine, with nothing printed.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let command_line = self.flags.clone();
        Plan::resolve(&Sources {
            file: self.file.clone(),
            environment,
            command_line,
            ..Sources::of(Machine::detect())
        })
    }
}

impl clap::Args for Settings {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG)
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("YAML file with settings; `myxtts config init` writes one to start from");
        let set = Arg::new(SET)
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help("Set any value, such as data.batch_size=32; may be repeated");
        let flags = KEYS.iter().filter_map(|key| key.flag.map(|flag| own_flag(key, flag)));
        command.args([file, set].into_iter().chain(flags).map(|arg| arg.help_heading(HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Values of a flag as the table reads them: one as it is, several as a list.
fn listed(values: &[&str]) -> String {
    match values {
        [one] => (*one).to_owned(),
        several => serde_json::Value::from(several.to_vec()).to_string(),
    }
}

/// The flag of one setting. Its value is read by the table, so that it is refused in the same words
/// as in a file.
fn own_flag(key: &'static Key, flag: &'static str) -> Arg {
    let default = if key.optional() { String::new() } else { format!(" [default: {}]", key.default) };
    let arg = Arg::new(key.path)
        .long(flag)
        .value_name(value_name(key))
        // A number below zero is refused by the table, with the range; a flag is never taken for a value.
        .allow_negative_numbers(true)
        .help(format!("{}{default}", key.doc));
    match key.kind {
        // `--multi-gpu` and `--multi-gpu=false`, but never `--multi-gpu DIR`.
        Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // Once for each path.
        Kind::Paths => arg.action(ArgAction::Append),
        _ => arg,
    }
}

fn value_name(key: &Key) -> &'static str {
    match key.kind {
        Kind::Bool => "BOOL",
        Kind::Int { .. } => "N",
        Kind::Float { .. } => "X",
        Kind::Size { .. } => "SIZE",
        Kind::Choice(_) => "NAME",
        Kind::Choices(_) => "NAMES",
        Kind::Text => "TEXT",
        Kind::Path | Kind::Paths => "PATH",
        Kind::Language => "CODE",
        Kind::Gpu => "GPU",
        Kind::Gpus => "GPUS",
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
            ..Sources::of(Machine { cores: 64, memory_bytes: None, gpus: None })
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
            let machine = Machine { cores: 64, memory_bytes: None, gpus: None };
            let sources = Sources { command_line, ..Sources::of(machine) };
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
