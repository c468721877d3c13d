//! A speech recogniser that the user provides: a command that prints a transcript, or a server with OpenAI's transcription
//! API. Its input is a WAV file and a language.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Placeholder of the audio file in a command.
pub const WAV: &str = "{wav}";
/// Placeholder of the language in a command.
pub const LANGUAGE: &str = "{language}";

/// Default time limit of a recognition. Whisper on a slow CPU takes minutes to load.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum length of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Why recognition failed.
#[derive(Debug, thiserror::Error)]
pub enum RecognizerError {
    /// The command is invalid.
    #[error("the recogniser command {command:?} {what}")]
    Command {
        /// The command as the user wrote it.
        command: String,
        /// What is wrong with it.
        what: String,
    },
    /// The address is invalid.
    #[error("the recogniser address {url:?} {what}")]
    Url {
        /// The address as the user wrote it.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The recogniser failed.
    #[error("the recogniser {name} failed: {what}")]
    Failed {
        /// Name of the recogniser.
        name: String,
        /// Its error message, or how it ended.
        what: String,
    },
}

impl RecognizerError {
    /// Whether the user's settings are wrong; nothing was started.
    pub fn is_usage(&self) -> bool {
        !matches!(self, RecognizerError::Failed { .. })
    }
}

/// A speech recogniser.
#[derive(Clone, Debug)]
pub struct Recognizer {
    backend: Backend,
    timeout: Duration,
    key: Option<Key>,
}

/// The key of a server, which is never printed.
#[derive(Clone)]
struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[derive(Clone, Debug)]
enum Backend {
    /// The program and its arguments.
    Command(Vec<String>),
    /// Address of the transcription endpoint, and the model to request.
    Url { address: String, model: String },
}

impl fmt::Display for Recognizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Command(words) => f.write_str(&words.join(" ")),
            Backend::Url { address, model } => write!(f, "{address} ({model})"),
        }
    }
}

impl Recognizer {
    /// A command that prints the transcript of the file given as `{wav}`; `{language}` becomes the language code. It is not
    /// run by a shell: words are separated by spaces, and quotes group them.
    pub fn command(command: &str) -> Result<Recognizer, RecognizerError> {
        let wrong =
            |what: &str| RecognizerError::Command { command: command.to_owned(), what: what.to_owned() };
        let words = words(command).ok_or_else(|| wrong("has a quote that is not closed"))?;
        match words.first() {
            None => return Err(wrong("is empty: write a command that prints the text of {wav}")),
            Some(program) if program.contains(WAV) => {
                return Err(wrong("begins with {wav}, which is the audio file and not a program"));
            }
            Some(_) => {}
        }
        if !words.iter().any(|word| word.contains(WAV)) {
            return Err(wrong("does not contain {wav}: write {wav} in place of the audio file"));
        }
        Ok(Recognizer { backend: Backend::Command(words), timeout: DEFAULT_TIMEOUT, key: None })
    }

    /// A server below `base` (`http://127.0.0.1:8000/v1`): audio is posted to `base/audio/transcriptions`.
    pub fn url(base: &str, model: &str) -> Result<Recognizer, RecognizerError> {
        let wrong = |what: &str| RecognizerError::Url { url: base.to_owned(), what: what.to_owned() };
        if base.starts_with("https://") {
            return Err(wrong(
                "uses https, which is not supported: name a server on this machine or network as http://HOST:PORT/v1",
            ));
        }
        let host = base.strip_prefix("http://").ok_or_else(|| wrong("does not begin with http://"))?;
        if host.is_empty()
            || host.starts_with('/')
            || base.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err(wrong("has no host: write http://HOST:PORT/v1"));
        }
        let address = format!("{}/audio/transcriptions", base.trim_end_matches('/'));
        Ok(Recognizer {
            backend: Backend::Url { address, model: model.to_owned() },
            timeout: DEFAULT_TIMEOUT,
            key: None,
        })
    }

    /// Sets the key that a server is sent; a command gets none.
    pub fn with_key(self, key: Option<String>) -> Recognizer {
        Recognizer { key: key.filter(|key| !key.is_empty()).map(Key), ..self }
    }

    /// Sets the time limit; the default is ten minutes.
    pub fn with_timeout(self, timeout: Duration) -> Recognizer {
        Recognizer { timeout, ..self }
    }

    /// Transcribes a WAV file.
    pub fn recognize(&self, wav: &Path, language: &str) -> Result<String, RecognizerError> {
        // Recognisers know languages without their region: `zh`, where XTTS has `zh-cn`.
        let language = language.split(['-', '_']).next().unwrap_or_default();
        let text = match &self.backend {
            Backend::Command(words) => self.run(words, wav, language),
            Backend::Url { address, model } => self.post(address, model, wav, language),
        };
        let failed = |what| RecognizerError::Failed { name: self.to_string(), what };
        text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).map_err(failed)
    }

    fn run(&self, words: &[String], wav: &Path, language: &str) -> Result<String, String> {
        let wav = std::path::absolute(wav).map_err(|error| error.to_string())?;
        let wav = wav.to_str().ok_or("the name of the audio file is not UTF-8")?;
        let mut words = words.iter().map(|word| word.replace(WAV, wav).replace(LANGUAGE, language));
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        // Both pipes are drained while it runs, or it would block on a full pipe.
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    let _ = pipe.by_ref().take(MAX_ANSWER_BYTES).read_to_end(&mut bytes);
                    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let said = read(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let complained = read(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < self.timeout => std::thread::sleep(Duration::from_millis(5)),
                outcome => {
                    // Its child processes may live on and hold the pipes, so these are not waited for.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(match outcome {
                        Err(error) => error.to_string(),
                        _ => format!("no answer within {:.0} s", self.timeout.as_secs_f64()),
                    });
                }
            }
        };
        let join = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let said = join(said);
        match status.success() {
            true => Ok(said),
            false => Err(format!("it ended with {status}: {}", last_line(&join(complained)))),
        }
    }

    fn post(&self, address: &str, model: &str, wav: &Path, language: &str) -> Result<String, String> {
        let sound = std::fs::read(wav).map_err(|error| format!("{}: {error}", wav.display()))?;
        let boundary = format!("myxtts-{}", blake3::hash(&sound).to_hex());
        let mut body = Vec::with_capacity(sound.len() + 1024);
        let fields = [("model", model), ("language", language), ("response_format", "json")];
        // Servers refuse an empty language; without one they detect it.
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            let part =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(part.as_bytes());
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"speech.wav\"\r\n\
             Content-Type: audio/wav\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&sound);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(self.timeout))
            .timeout_connect(Some(self.timeout.min(Duration::from_secs(10))))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build()
            .into();
        let mut request =
            agent.post(address).content_type(format!("multipart/form-data; boundary={boundary}"));
        if let Some(Key(key)) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut answer = request.send(&body[..]).map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_string()
            .map_err(|e| e.to_string())?;
        if !status.is_success() {
            return Err(format!("it answered {status}: {}", last_line(&text)));
        }
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|_| format!("its answer is not JSON: {}", last_line(&text)))?;
        match json.get("text").and_then(|text| text.as_str()) {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("its answer has no \"text\": {}", last_line(&text))),
        }
    }
}

/// The last non-empty line, shortened and without control characters.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(no message)");
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Splits a command line into words; `None` if a quote is not closed.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            // As in a shell: a backslash escapes a quote or a backslash; elsewhere it is literal.
            (None | Some('"'), '\\') if chars.as_str().starts_with(['"', '\\', '\'']) => {
                word.get_or_insert_default().extend(chars.next());
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}
