//! Which exit code an error gets: one table for all commands.

use std::io::ErrorKind;

use myxtts_data::audio::AudioError;
use myxtts_data::batch::BatchError;
use myxtts_data::cache::CacheError;
use myxtts_data::dataset::DatasetError;
use myxtts_data::dataset::list::ListError;
use myxtts_data::npy::NpyError;
use myxtts_data::problem::ProblemKind;
use myxtts_data::record::RecordError;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_demo::DemoError;
use myxtts_model::GenerateError;
use myxtts_model::weights::WeightsError;
use myxtts_monitor::log::LogError;
use myxtts_run::config::ConfigError;
use myxtts_run::destination::DestinationError;
use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::folder::FolderError;
use myxtts_run::lock::LockError;
use myxtts_speak::SpeakError;
use myxtts_speak::long_text::LongTextError;
use myxtts_speak::narration::BookError;
use myxtts_speak::sound_file::SoundFileError;
use myxtts_speak::voices::VoiceError;
use myxtts_text::TextError;
use myxtts_train::TrainError;
use myxtts_train::evaluate::recognizer::RecognizerError;
use myxtts_train::evaluate::texts::TextsError;
use myxtts_train::resynthesize::ResynthesizeError;
use myxtts_web::ServeError;

/// The command line asks for something that cannot be: the message says what to write instead.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Characters of an error that are printed: what is longer is a list that nobody reads on a terminal.
const LONGEST: usize = 2000;

/// An error with its causes, each once: many of ours name their cause in their own sentence.
pub fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain() {
        let said = cause.to_string();
        if words.is_empty() {
            words = said;
        } else if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
    }
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => {
            format!("{} ... and {} characters more", &words[..end], words[end..].chars().count())
        }
        None => words,
    }
}

/// What to try where an error alone does not say it.
pub fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let cache = error.chain().find_map(|cause| cause.downcast_ref::<CacheError>())?;
    let system = match cache {
        CacheError::Disk(DurableError { source, .. }) | CacheError::Lock(LockError::Io { source, .. }) => {
            source
        }
        _ => return None,
    };
    matches!(system.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem).then_some(
        "the cache is kept inside the corpus unless told otherwise: --cache-dir DIR keeps it in a folder you can write to",
    )
}

/// The exit code of an error: that of the outermost cause which has one.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Internal)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    // Configuration comes before I/O: a file of settings that cannot be read is a wrong argument.
    if cause.is::<ConfigError>()
        || cause.is::<UsageError>()
        || cause.is::<DestinationError>()
        // A device that cannot be opened, before there is any work for it.
        || cause.is::<myxtts_tensor::Error>()
    {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<CacheError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<TrainError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<FolderError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<LogError>() {
        let asked = matches!(error, LogError::Kind { .. } | LogError::Columns { .. });
        return Some(if asked { Exit::Usage } else { Exit::Io });
    }
    if let Some(error) = cause.downcast_ref::<WeightsError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<SpeakError>() {
        return match error {
            SpeakError::Weights(error) => exit_of_cause(error),
            SpeakError::Tokenizer(error) => exit_of_cause(error),
            SpeakError::Audio(error) => exit_of_cause(error),
            SpeakError::Voice(error) => exit_of_cause(error),
            SpeakError::Engine(_) | SpeakError::Generate(GenerateError::Engine(_)) => None,
            _ => Some(Exit::BadData),
        };
    }
    if let Some(error) = cause.downcast_ref::<ServeError>() {
        return match error {
            ServeError::NoToken { .. } | ServeError::Token => Some(Exit::Usage),
            ServeError::Listen { .. } | ServeError::Start(_) => Some(Exit::Io),
            ServeError::Speaker(error) => exit_of_cause(error),
            ServeError::Died => Some(Exit::Internal),
        };
    }
    if let Some(error) = cause.downcast_ref::<VoiceError>() {
        return Some(match error {
            VoiceError::Name { .. }
            | VoiceError::Unknown { .. }
            | VoiceError::Exists { .. }
            | VoiceError::Mix { .. } => Exit::Usage,
            VoiceError::OtherModel { .. } | VoiceError::Damaged { .. } => Exit::BadData,
            VoiceError::Io { .. } | VoiceError::Disk(_) => Exit::Io,
        });
    }
    if let Some(error) = cause.downcast_ref::<SoundFileError>() {
        return Some(match error {
            SoundFileError::UnknownFormat(_)
            | SoundFileError::NoExtension(_)
            | SoundFileError::Rate { .. } => Exit::Usage,
            SoundFileError::Encoder { .. } => Exit::Internal,
            SoundFileError::Io(_) => Exit::Io,
        });
    }
    if let Some(error) = cause.downcast_ref::<LongTextError>() {
        return Some(if matches!(error, LongTextError::Io(_)) { Exit::Io } else { Exit::BadData });
    }
    if let Some(error) = cause.downcast_ref::<BookError>() {
        return Some(match error {
            BookError::Disk(_) | BookError::Io { .. } => Exit::Io,
            _ => Exit::Usage,
        });
    }
    if let Some(error) = cause.downcast_ref::<TextsError>() {
        return match error {
            TextsError::Voice(error) => exit_of_cause(error),
            TextsError::Disk(_) => Some(Exit::Io),
        };
    }
    if let Some(error) = cause.downcast_ref::<ResynthesizeError>() {
        return match error {
            ResynthesizeError::Train(error) => exit_of_cause(error),
            ResynthesizeError::Voice(error) => exit_of_cause(error),
            ResynthesizeError::Disk(_) => Some(Exit::Io),
            ResynthesizeError::NoDvae { .. } => Some(Exit::BadData),
        };
    }
    if let Some(error) = cause.downcast_ref::<RecognizerError>() {
        return Some(if error.is_usage() { Exit::Usage } else { Exit::Io });
    }
    if let Some(error) = cause.downcast_ref::<ListError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<DatasetError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<DemoError>() {
        return Some(match error {
            DemoError::Options(_) | DemoError::NotEmpty { .. } => Exit::Usage,
            DemoError::Io { .. } => Exit::Io,
        });
    }
    if let Some(error) = cause.downcast_ref::<TokenizerError>() {
        return Some(match error {
            TokenizerError::Io { .. } => Exit::Io,
            TokenizerError::NoLanguage { .. }
            | TokenizerError::TooSmall { .. }
            | TokenizerError::Foreign { .. } => Exit::Usage,
            TokenizerError::Engine(_) => Exit::Internal,
            _ => Exit::BadData,
        });
    }
    if let Some(error) = cause.downcast_ref::<AudioError>() {
        let missing = error.kind() == ProblemKind::Missing || matches!(error, AudioError::Io { .. });
        return Some(if missing { Exit::Io } else { Exit::BadData });
    }
    if let Some(error) = cause.downcast_ref::<RecordError>() {
        return Some(if matches!(error, RecordError::Io { .. }) { Exit::Io } else { Exit::BadData });
    }
    if let Some(error) = cause.downcast_ref::<TextError>() {
        let asked = matches!(error, TextError::BadLanguage(_) | TextError::UnknownCleaner(_));
        return Some(if asked { Exit::Usage } else { Exit::BadData });
    }
    if cause.is::<NpyError>() || cause.is::<BatchError>() {
        return Some(Exit::BadData);
    }
    cause.is::<std::io::Error>().then_some(Exit::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says its cause itself, as many errors do.
    #[derive(Debug)]
    struct Doubled(std::io::Error);

    impl std::fmt::Display for Doubled {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "reading a.wav: {}", self.0)
        }
    }

    impl std::error::Error for Doubled {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_were_said_twice_and_lists_of_kilobytes_printed() {
        let error =
            anyhow::Error::new(Doubled(std::io::Error::other("the disk is gone"))).context("checking");
        assert_eq!(words(&error), "checking: reading a.wav: the disk is gone");
        let long = words(&anyhow::anyhow!("{}", "é".repeat(9000)));
        assert!(
            long.len() < 2 * LONGEST + 100 && long.ends_with("... and 7000 characters more"),
            "{}",
            long.len()
        );
    }

    #[test]
    fn a_corpus_that_cannot_be_written_to_hears_of_another_place_for_its_cache() {
        let error = |kind: ErrorKind| {
            let (action, path) = ("make the folder", "corpus/.myxtts-cache".into());
            anyhow::Error::new(CacheError::Disk(DurableError { action, path, source: kind.into() }))
                .context("preparing")
        };
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            assert!(hint(&error(kind)).is_some_and(|hint| hint.contains("--cache-dir")), "{kind:?}");
        }
        assert!(hint(&error(ErrorKind::StorageFull)).is_none());
    }
}
