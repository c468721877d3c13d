//! Settings of older files that mean nothing any more: such a file still loads, and a note says which of its lines has
//! no effect.

use super::sources::Origin;

/// A setting that was taken out of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Section and name, as files have it.
    pub path: &'static str,
    /// Other names for it within the section.
    pub aliases: &'static [&'static str],
    /// Why it means nothing.
    pub why: &'static str,
}

/// Every setting that was taken out.
pub static REMOVED: &[Removed] = &[Removed {
    path: "training.fused_kernels",
    aliases: &["enable_xla_compilation"],
    why: "kernels are always fused, and there is no other form of them to switch to",
}];

impl Removed {
    /// The removed setting of that path: `training.fused_kernels`.
    pub fn find(path: &str) -> Option<&'static Removed> {
        let (section, name) = path.split_once('.')?;
        REMOVED.iter().find(|removed| {
            let own = removed.path.split_once('.');
            own.is_some_and(|(of, own)| of == section && (own == name || removed.aliases.contains(&name)))
        })
    }

    /// The note for whoever still sets it.
    pub(super) fn note(&self, origin: &Origin, written: &str) -> String {
        format!("{origin}: {written} no longer means anything ({}): remove it", self.why)
    }
}
