//! Settings of older files that no longer have any effect. Such a file still loads, with a note that names the line.

use super::sources::Origin;

/// A setting that was removed from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedKey {
    /// Section and name, as written in files.
    pub path: &'static str,
    /// Other names for it within the section.
    pub aliases: &'static [&'static str],
    /// Why it has no effect.
    pub why: &'static str,
}

/// Every removed setting.
pub static REMOVED_KEYS: &[RemovedKey] = &[RemovedKey {
    path: "training.fused_kernels",
    aliases: &["enable_xla_compilation"],
    why: "kernels are always fused",
}];

impl RemovedKey {
    /// Finds a removed setting by its path: `training.fused_kernels`.
    pub fn find(path: &str) -> Option<&'static RemovedKey> {
        let (section, name) = path.split_once('.')?;
        REMOVED_KEYS.iter().find(|removed| {
            removed.path.split_once('.').is_some_and(|(own_section, own_name)| {
                own_section == section && (own_name == name || removed.aliases.contains(&name))
            })
        })
    }

    /// Note for a user whose configuration still sets it.
    pub(super) fn note(&self, origin: &Origin, written: &str) -> String {
        format!("{origin}: {written} no longer has any effect ({}): remove it", self.why)
    }
}
