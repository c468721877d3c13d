//! `myxtts config`: the resolved settings, a settings file to start from, and the list of all settings.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use myxtts_run::config::{ConfigError, Section, template};
use myxtts_run::exit::Exit;
use myxtts_run::plan::{Plan, Resolved};
use serde_json::json;

use crate::output::errln;
use crate::settings::Settings;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the value of every setting on this machine, with its origin
    Show {
        /// Print plan, values with origins, and notes as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Write a settings file in which every setting is explained
    Init {
        /// The file to write
        #[arg(default_value = "myxtts.yaml")]
        path: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Print every setting with its default, values, flag and description, as Markdown tables
    Keys,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Show { json, settings } => {
            let plan = settings.plan()?;
            let text = if json { as_json(&plan)? } else { as_table(&plan) };
            print(&text)
        }
        Command::Init { path, force } => {
            write(&path, force)?;
            errln!("wrote {0}; use it with --config {0}", path.display());
            Ok(Exit::Done)
        }
        Command::Keys => print(&template::markdown()),
    }
}

fn write(path: &Path, force: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    // create_new instead of a check beforehand: another process cannot create the file in between.
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let file = options.write(true).open(path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(ConfigError::Exists { path: path.to_owned() }.into());
        }
        other => other.with_context(|| format!("writing {}", path.display()))?,
    };
    file.write_all(template::yaml().as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("writing {}", path.display()))
}

/// Prints to stdout; a closed pipe (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<Exit> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing to stdout"),
        _ => Ok(Exit::Done),
    }
}

fn as_json(plan: &Plan) -> anyhow::Result<String> {
    let report = json!({ "plan": plan, "values": plan.values, "notes": plan.notes });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn as_table(plan: &Plan) -> String {
    // A long path may overflow its column; it must not widen the column for all rows.
    let width = |column: fn(&Resolved) -> String| {
        plan.values.iter().map(|resolved| column(resolved).chars().count().min(40)).max().unwrap_or(0)
    };
    let name = |resolved: &Resolved| resolved.key.name().to_owned();
    let value = |resolved: &Resolved| resolved.value.to_string();
    let (names, values) = (width(name), width(value));
    let mut text = String::new();
    for section in Section::ALL {
        text.push_str(&format!("{}:\n", section.name()));
        for resolved in plan.values.iter().filter(|resolved| resolved.key.section() == section) {
            let (name, value) = (name(resolved), value(resolved));
            text.push_str(&format!(
                "  {name:names$}  {value:values$}  {}{}\n",
                resolved.origin,
                capped(resolved)
            ));
        }
    }
    for note in &plan.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn capped(resolved: &Resolved) -> String {
    let capped = resolved.capped.as_ref();
    capped.map(|capped| format!(", capped from {}: {}", capped.requested, capped.reason)).unwrap_or_default()
}
