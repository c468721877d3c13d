//! The table of settings as a commented YAML file to start from, and as Markdown documentation.

use super::key::{Key, Section};

/// A YAML file with every setting, its description, accepted values and default.
///
/// The settings are commented out: an active default would override auto-tuning.
pub fn yaml() -> String {
    let mut text = String::from(
        "# MyXTTS settings. Lines that begin with `#` and a space are explanations; other lines are settings with\n\
         # their defaults: remove the `#` and change the value. Settings you leave unset are chosen for this\n\
         # machine or keep their default; `myxtts config show --config FILE` shows the result.\n",
    );
    for section in Section::ALL {
        text.push_str(&format!("\n# {}\n{}:\n", sentence(section.doc()), section.name()));
        for key in section.keys() {
            text.push_str(&format!("  # {}.\n", sentence(key.doc)));
            text.push_str(&format!("  # {}{}.\n", sentence(&key.allowed()), also(key)));
            text.push_str(&format!("  #{}: {}\n", key.name(), key.default_value().to_yaml()));
        }
    }
    text
}

fn also(key: &Key) -> String {
    if key.aliases.is_empty() { String::new() } else { format!("; older name: {}", key.aliases.join(", ")) }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Every setting as Markdown, one table per section.
pub fn markdown() -> String {
    let mut text = String::new();
    for section in Section::ALL {
        let title = format!("## `{}`: {}\n\n", section.name(), section.doc());
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&title);
        text.push_str("| setting | default | values | flag | description |\n|---|---|---|---|---|\n");
        for key in section.keys() {
            let aliases: String = key.aliases.iter().map(|alias| format!(" (also `{alias}`)")).collect();
            let flag = key.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
            let row = [
                format!("`{}`{aliases}", key.name()),
                format!("`{}`", key.default),
                key.allowed(),
                flag,
                key.doc.to_owned(),
            ];
            text.push_str(&format!("| {} |\n", row.map(|cell| cell.replace('|', "\\|")).join(" | ")));
        }
    }
    text
}
