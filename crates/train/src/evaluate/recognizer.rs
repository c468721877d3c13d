//! A speech recogniser that the user supplies: a command that prints what it understands, or a server that speaks OpenAI's
//! transcription interface. It only ever sees a WAV file and a language.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What stands in a command for the sound file.
pub const WAV: &str = "{wav}";
/// What stands in a command for the language.
pub const LANGUAGE: &str = "{language}";

/// A recogniser that does not answer for so long has failed. Whisper on a slow processor takes minutes to load.
const PATIENCE: Duration = Duration::from_secs(600);

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Why nothing was recognised.
#[derive(Debug, thiserror::Error)]
pub enum RecognizerError {
    /// The command cannot be one.
    #[error("the recogniser command {command:?} {what}")]
    Command {
        /// As written.
        command: String,
        /// What is wrong with it.
        what: String,
    },
    /// The address cannot be one.
    #[error("the recogniser address {url:?} {what}")]
    Url {
        /// As written.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The recogniser did not do its work.
    #[error("the recogniser {name} failed: {what}")]
    Failed {
        /// Which.
        name: String,
        /// What it said, or what became of it.
        what: String,
    },
}

impl RecognizerError {
    /// Whether it was asked for wrongly: nothing was tried.
    pub fn is_usage(&self) -> bool {
        !matches!(self, RecognizerError::Failed { .. })
    }
}

/// A recogniser.
#[derive(Clone, Debug)]
pub struct Recognizer {
    way: Way,
    patience: Duration,
}

#[derive(Clone, Debug)]
enum Way {
    /// The program and its arguments.
    Command(Vec<String>),
    /// Where transcriptions are asked for, and by which model.
    Url { address: String, model: String },
}

impl fmt::Display for Recognizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Command(words) => f.write_str(&words.join(" ")),
            Way::Url { address, model } => write!(f, "{address} ({model})"),
        }
    }
}

impl Recognizer {
    /// A command that prints the text of the file named in the place of `{wav}`; `{language}` becomes the language's code.
    /// It is no shell's: words are separated by spaces, quotes keep them together.
    pub fn command(command: &str) -> Result<Recognizer, RecognizerError> {
        let wrong =
            |what: &str| RecognizerError::Command { command: command.to_owned(), what: what.to_owned() };
        let words = words(command).ok_or_else(|| wrong("has a quote that is not closed"))?;
        match words.first() {
            None => return Err(wrong("is empty: write a command that prints the text of {wav}")),
            Some(program) if program.contains(WAV) => {
                return Err(wrong("begins with {wav}, which is the sound and no program"));
            }
            Some(_) => {}
        }
        if !words.iter().any(|word| word.contains(WAV)) {
            return Err(wrong("does not name the sound: write {wav} where its file belongs"));
        }
        Ok(Recognizer { way: Way::Command(words), patience: PATIENCE })
    }

    /// A server below `base` (`http://127.0.0.1:8000/v1`): sound is posted to `base/audio/transcriptions`.
    pub fn url(base: &str, model: &str) -> Result<Recognizer, RecognizerError> {
        let wrong = |what: &str| RecognizerError::Url { url: base.to_owned(), what: what.to_owned() };
        if base.starts_with("https://") {
            return Err(wrong(
                "is encrypted, which is not spoken here: name a server on this machine or network as http://HOST:PORT/v1",
            ));
        }
        let host = base.strip_prefix("http://").ok_or_else(|| wrong("does not begin with http://"))?;
        if host.is_empty()
            || host.starts_with('/')
            || base.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err(wrong("names no host: write http://HOST:PORT/v1"));
        }
        let address = format!("{}/audio/transcriptions", base.trim_end_matches('/'));
        Ok(Recognizer { way: Way::Url { address, model: model.to_owned() }, patience: PATIENCE })
    }

    /// Gives up sooner or later than after ten minutes.
    pub fn with_patience(self, patience: Duration) -> Recognizer {
        Recognizer { patience, ..self }
    }

    /// What is said in a WAV file.
    pub fn recognize(&self, wav: &Path, language: &str) -> Result<String, RecognizerError> {
        let text = match &self.way {
            Way::Command(words) => self.run(words, wav, language),
            Way::Url { address, model } => self.post(address, model, wav, language),
        };
        let failed = |what| RecognizerError::Failed { name: self.to_string(), what };
        text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).map_err(failed)
    }

    fn run(&self, words: &[String], wav: &Path, language: &str) -> Result<String, String> {
        let wav = std::path::absolute(wav).map_err(|error| error.to_string())?;
        let wav = wav.to_str().ok_or("the sound file's name is not UTF-8")?;
        let mut words = words.iter().map(|word| word.replace(WAV, wav).replace(LANGUAGE, language));
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        // Both pipes are emptied while it runs, or it would wait for us.
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    let _ = pipe.by_ref().take(LONGEST).read_to_end(&mut bytes);
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
                Ok(None) if began.elapsed() < self.patience => std::thread::sleep(Duration::from_millis(5)),
                outcome => {
                    // What it started may live on and hold the pipes: they are not waited for.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(match outcome {
                        Err(error) => error.to_string(),
                        _ => format!("it had no answer within {:.0} s", self.patience.as_secs_f64()),
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
        for (name, value) in [("model", model), ("language", language), ("response_format", "json")] {
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
            .timeout_global(Some(self.patience))
            .timeout_connect(Some(self.patience.min(Duration::from_secs(10))))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build()
            .into();
        let mut answer = agent
            .post(address)
            .content_type(format!("multipart/form-data; boundary={boundary}"))
            .send(&body[..])
            .map_err(|error| error.to_string())?;
        let status = answer.status();
        let text =
            answer.body_mut().with_config().limit(LONGEST).read_to_string().map_err(|e| e.to_string())?;
        if !status.is_success() {
            return Err(format!("it answered {status}: {}", last_line(&text)));
        }
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|_| format!("its answer is no JSON: {}", last_line(&text)))?;
        match json.get("text").and_then(|text| text.as_str()) {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("its answer has no \"text\": {}", last_line(&text))),
        }
    }
}

/// The last line that says something, short and without control characters.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(it said nothing)");
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The words of a command line; `None` where a quote is not closed.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            // As in a shell: a backslash before a quote or itself is one of them, else a backslash.
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
