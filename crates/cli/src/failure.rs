//! The exit code of every error, and how errors are printed: one table for all commands.

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
use myxtts_run::durable::DurableError;
use myxtts_run::exit::Exit;
use myxtts_run::folder::FolderError;
use myxtts_run::lock::LockError;
use myxtts_run::output_path::OutputPathError;
use myxtts_speak::SpeakError;
use myxtts_speak::audio_file::AudioFileError;
use myxtts_speak::long_text::LongTextError;
use myxtts_speak::narration::BookError;
use myxtts_speak::voices::VoiceError;
use myxtts_text::TextError;
use myxtts_train::corpus::CorpusError;
use myxtts_train::evaluate::recognizer::RecognizerError;
use myxtts_train::evaluate::texts::TextsError;
use myxtts_train::resynthesize::ResynthesizeError;
use myxtts_train::{RunError, TrainError, engine_exit};
use myxtts_web::ServeError;

/// A wrong argument. The message says what to write instead.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// An error of a run, with notes that are printed after it.
#[derive(Debug)]
pub struct NotedError {
    pub error: RunError,
    pub notes: Vec<String>,
}

impl std::fmt::Display for NotedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Notes to print after an error.
pub fn notes(error: &anyhow::Error) -> &[String] {
    error.downcast_ref::<NotedError>().map_or(&[], |error| &error.notes)
}

/// Maximum number of printed characters of an error; longer ones are lists.
const MAX_CHARACTERS: usize = 2000;

/// Formats an error with its causes, each once: many messages contain their cause already.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    match message.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => {
            format!("{} ... and {} more characters", &message[..end], message[end..].chars().count())
        }
        None => message,
    }
}

/// A hint for errors whose message does not say what to do.
pub fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let cache = error.chain().find_map(cache_error)?;
    let system = match cache {
        CacheError::Disk(DurableError { source, .. }) | CacheError::Lock(LockError::Io { source, .. }) => {
            source
        }
        _ => return None,
    };
    matches!(system.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem).then_some(
        "by default the cache is stored inside the corpus: --cache-dir DIR stores it in a folder you can write to",
    )
}

/// The error of a cache, also where an error of a run or corpus wraps it.
fn cache_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a CacheError> {
    let wrapped = cause.downcast_ref::<RunError>().and_then(RunError::cause);
    let wrapped = wrapped.or_else(|| cause.downcast_ref::<CorpusError>().and_then(CorpusError::cause));
    match wrapped {
        Some(wrapped) => cache_error(wrapped),
        None => cause.downcast_ref(),
    }
}

/// The exit code of an error: that of the outermost cause which has one.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Internal)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    // Before I/O errors: a settings file that cannot be read is a wrong argument.
    if cause.is::<ConfigError>() || cause.is::<UsageError>() || cause.is::<OutputPathError>() {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<myxtts_tensor::Error>() {
        return Some(engine_exit(error));
    }
    if let Some(error) = cause.downcast_ref::<RunError>() {
        return error.exit().or_else(|| error.cause().and_then(exit_of_cause));
    }
    if let Some(error) = cause.downcast_ref::<CorpusError>() {
        return error.exit().or_else(|| error.cause().and_then(exit_of_cause));
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
        let is_usage = matches!(error, LogError::Extension { .. } | LogError::Columns { .. });
        return Some(if is_usage { Exit::Usage } else { Exit::Io });
    }
    if let Some(error) = cause.downcast_ref::<WeightsError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<SpeakError>() {
        return match error {
            SpeakError::Weights(error) => exit_of_cause(error),
            SpeakError::Tokenizer(error) => exit_of_cause(error),
            SpeakError::Audio(error) => exit_of_cause(error),
            SpeakError::NoReference { .. } => Some(Exit::Io),
            SpeakError::Voice(error) => exit_of_cause(error),
            SpeakError::Engine(error) | SpeakError::Generate(GenerateError::Engine(error)) => {
                Some(engine_exit(error))
            }
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
            | VoiceError::NeitherVoiceNorFile { .. }
            | VoiceError::Exists { .. }
            | VoiceError::Mix { .. } => Exit::Usage,
            VoiceError::OtherModel { .. } | VoiceError::Damaged { .. } => Exit::BadData,
            VoiceError::Io { .. } | VoiceError::Disk(_) => Exit::Io,
        });
    }
    if let Some(error) = cause.downcast_ref::<AudioFileError>() {
        return Some(match error {
            AudioFileError::UnknownFormat(_)
            | AudioFileError::NoExtension(_)
            | AudioFileError::Rate { .. } => Exit::Usage,
            AudioFileError::Encoder { .. } => Exit::Internal,
            AudioFileError::Io(_) => Exit::Io,
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
        let is_usage = matches!(error, TextError::BadLanguage(_) | TextError::UnknownCleaner(_));
        return Some(if is_usage { Exit::Usage } else { Exit::BadData });
    }
    if cause.is::<NpyError>() || cause.is::<BatchError>() {
        return Some(Exit::BadData);
    }
    cause.is::<std::io::Error>().then_some(Exit::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose message contains its cause.
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
    fn causes_were_printed_twice_and_lists_of_kilobytes_in_full() {
        let error =
            anyhow::Error::new(Doubled(std::io::Error::other("the disk is gone"))).context("checking");
        assert_eq!(message(&error), "checking: reading a.wav: the disk is gone");
        let long = message(&anyhow::anyhow!("{}", "é".repeat(9000)));
        assert!(
            long.len() < 2 * MAX_CHARACTERS + 100 && long.ends_with("... and 7000 more characters"),
            "{}",
            long.len()
        );
    }

    #[test]
    fn out_of_memory_was_70_when_speaking_and_a_failed_driver_2_when_opening_a_device() {
        use myxtts_tensor::Error;
        let out_of_memory =
            || Error::OutOfMemory { device: "cuda:0".into(), need: Default::default(), free: 1 << 20 };
        let driver =
            || Error::Driver { doing: "copy memory".into(), reason: "an illegal memory access".into() };
        let no_device = || Error::Unsupported("there is no cuda:99".into());
        let cases: Vec<(anyhow::Error, Exit)> = vec![
            (out_of_memory().into(), Exit::Usage),
            (no_device().into(), Exit::Usage),
            (driver().into(), Exit::Internal),
            (TrainError::from(out_of_memory()).into(), Exit::Usage),
            (TrainError::from(driver()).into(), Exit::Internal),
            (SpeakError::from(out_of_memory()).into(), Exit::Usage),
            (SpeakError::from(no_device()).into(), Exit::Usage),
            (SpeakError::from(driver()).into(), Exit::Internal),
            (SpeakError::from(GenerateError::from(out_of_memory())).into(), Exit::Usage),
            (SpeakError::from(GenerateError::from(driver())).into(), Exit::Internal),
            (ServeError::Speaker(SpeakError::from(out_of_memory())).into(), Exit::Usage),
        ];
        for (error, exit) in cases {
            assert_eq!(exit_of(&error).code(), exit.code(), "{error:?}");
            let error = error.context("speaking line 3");
            assert_eq!(exit_of(&error).code(), exit.code(), "{error:?}");
        }
    }

    #[test]
    fn a_corpus_without_write_permission_gets_a_hint_about_the_cache_folder() {
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
