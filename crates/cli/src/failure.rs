//! Which exit code an error gets: one table for all commands.

use myxtts_data::audio::AudioError;
use myxtts_data::batch::BatchError;
use myxtts_data::cache::CacheError;
use myxtts_data::dataset::DatasetError;
use myxtts_data::dataset::list::ListError;
use myxtts_data::demo::DemoError;
use myxtts_data::npy::NpyError;
use myxtts_data::problem::ProblemKind;
use myxtts_data::record::RecordError;
use myxtts_data::text::TextError;
use myxtts_data::tokenizer::TokenizerError;
use myxtts_model::GenerateError;
use myxtts_model::weights::WeightsError;
use myxtts_monitor::log::LogError;
use myxtts_run::config::ConfigError;
use myxtts_run::exit::Exit;
use myxtts_run::folder::FolderError;
use myxtts_train::TrainError;
use myxtts_train::evaluate::recognizer::RecognizerError;
use myxtts_train::evaluate::texts::SpeakError;
use myxtts_train::resynthesize::ResynthesizeError;
use myxtts_train::voice::VoiceError;

/// The command line asks for something that cannot be: the message says what to write instead.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The exit code of an error: that of the outermost cause which has one.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Internal)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    // Configuration comes before I/O: a file of settings that cannot be read is a wrong argument.
    if cause.is::<ConfigError>() || cause.is::<UsageError>() {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<CacheError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<TrainError>() {
        return Some(error.exit());
    }
    if cause.is::<FolderError>() {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<LogError>() {
        let asked = matches!(error, LogError::Kind { .. } | LogError::Columns { .. });
        return Some(if asked { Exit::Usage } else { Exit::Io });
    }
    if let Some(error) = cause.downcast_ref::<WeightsError>() {
        return Some(error.exit());
    }
    if let Some(error) = cause.downcast_ref::<VoiceError>() {
        return match error {
            VoiceError::Weights(error) => exit_of_cause(error),
            VoiceError::Tokenizer(error) => exit_of_cause(error),
            VoiceError::Engine(_) | VoiceError::Generate(GenerateError::Engine(_)) => None,
            _ => Some(Exit::BadData),
        };
    }
    if let Some(error) = cause.downcast_ref::<SpeakError>() {
        return match error {
            SpeakError::Voice(error) => exit_of_cause(error),
            SpeakError::Disk(_) => Some(Exit::Io),
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
