//! From text to token ids: `tokenizer.json` replayed (its normalizer as [`crate::normalizer`] decides), and our own
//! truncation.
//!
//! What the file says about padding and truncation is set aside: many files carry the settings of some training run
//! (all-MiniLM-L6-v2 pads and cuts everything to 128). The tokens that the post-processor puts around a text are taken
//! from it once, when the model is loaded; after that a text is tokenised without them, cut, and framed. So the number of
//! tokens before truncation is known, special tokens included, and cutting the end gives what the library's own
//! truncation gives.
//!
//! Contract: one call of [`Tokenizer::encode_while`] reads one text on the calling thread, and a panic inside the library becomes
//! an error of this text. Cost: about 0.4 s for each megabyte, in memory that does not grow with the text for BERT's kind
//! of pipeline (see [`crate::slices`]) and 130 times the text for others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::normalizers::{Lowercase, NormalizerWrapper, Sequence};
use tokenizers::{Encoding, Token};

use crate::error::{LoadError, PipelineError};
use crate::normalizer::{BertKeys, BertValues};
use crate::options::Truncate;
use crate::slices;
use crate::template::{Rendered, Role};

/// One text of a call, as it comes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// Which side of a search it is on.
    pub role: Role,
    /// The instruction for the template, instead of the model's own.
    pub instruction: Option<&'a str>,
    /// The other text of a pair, for models that score pairs.
    pub query: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

/// One text as the encoder sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Ids after truncation, special tokens included.
    pub ids: Vec<u32>,
    /// Token types, parallel to `ids`; empty means all 0.
    pub types: Vec<u32>,
    /// How many of the last ids were added to a query that is shorter than the model wants queries: no tokens of it.
    pub padding: usize,
    /// How many of the first ids are a prompt's, special tokens before it included, and are left out of the pooling.
    pub prompt: usize,
    /// Which side of a search the text is on.
    pub role: Role,
    /// Number of tokens before truncation, special tokens included.
    pub total: usize,
}

impl Tokens {
    /// Number of tokens after truncation, special tokens included.
    pub fn embedded(&self) -> usize {
        self.ids.len() - self.padding
    }

    /// Whether something was cut.
    pub fn truncated(&self) -> bool {
        self.embedded() < self.total
    }
}

/// A tokenizer with the frame that it puts around a single text.
pub(crate) struct Tokenizer {
    /// The model's folder, for messages.
    folder: PathBuf,
    inner: tokenizers::Tokenizer,
    /// Ids before a text (`[CLS]`).
    before: Vec<u32>,
    /// Ids after a text (`[SEP]`).
    after: Vec<u32>,
    /// The values of its BERT normalizer, if it has one.
    normalizer: Option<BertValues>,
    /// Bytes of a slice, where a text may be read in slices.
    slice: Option<usize>,
    /// The rules of model2vec, for its models.
    model2vec: Option<Model2vec>,
}

/// How model2vec reads a text.
#[derive(Clone, Copy, Debug)]
struct Model2vec {
    /// The token that is left out, after truncation.
    unknown: Option<u32>,
    /// Characters of a text for each token of the limit, that are looked at: the median length of the vocabulary's tokens.
    characters: usize,
}

/// A text's tokens without the frame.
#[derive(Default)]
struct Raw {
    ids: Vec<u32>,
    /// The bytes that each token covers; empty unless they were asked for.
    offsets: Vec<(usize, usize)>,
}

impl Tokenizer {
    /// Reads the content of `tokenizer.json`; `folder` is for messages. `keys` are those of `tokenizer_config.json`. With
    /// `lowercase`, texts are lower-cased before anything else.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`]; [`LoadError::UnsupportedValue`] for a key that cannot be applied.
    pub(crate) fn new(folder: &Path, content: &[u8], keys: &BertKeys, lowercase: bool) -> Result<Tokenizer, LoadError> {
        let refuse = |message: String| LoadError::Tokenizer { folder: folder.to_path_buf(), message };
        catch_unwind(|| {
            let mut inner = open(content).map_err(refuse)?;
            let normalizer = keys.apply(&mut inner)?;
            Tokenizer::framed_by_its_file(folder, inner, normalizer, lowercase).map_err(refuse)
        })
        .unwrap_or_else(|panic| Err(refuse(format!("the tokenizers library panicked: {}", panic_message(&*panic)))))
    }

    /// As [`Tokenizer::new`], for a static model: without a frame, and by the rules of model2vec if it is one of its models.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`].
    pub(crate) fn of_static(folder: &Path, content: &[u8], model2vec: bool) -> Result<Tokenizer, LoadError> {
        let mut tokenizer = Tokenizer::new(folder, content, &BertKeys::default(), false)?;
        (tokenizer.before, tokenizer.after) = (Vec::new(), Vec::new());
        if model2vec {
            tokenizer.model2vec = Some(Model2vec {
                unknown: unknown(&tokenizer.inner, content),
                characters: median_length(tokenizer.inner.get_vocab(true).keys()),
            });
        }
        Ok(tokenizer)
    }

    fn framed_by_its_file(
        folder: &Path,
        mut inner: tokenizers::Tokenizer,
        normalizer: Option<BertValues>,
        lowercase: bool,
    ) -> Result<Tokenizer, String> {
        if lowercase {
            lower(&mut inner)?;
        }
        let (before, after) = frame(&inner)?;
        let slice = slices::are_safe(&inner).then_some(slices::SLICE);
        Ok(Tokenizer { folder: folder.to_path_buf(), inner, before, after, normalizer, slice, model2vec: None })
    }

    /// The values of its BERT normalizer, if it has one.
    pub(crate) fn normalizer(&self) -> Option<BertValues> {
        self.normalizer
    }

    /// The largest id of the vocabulary and of the frame. An added token can be larger: it is given only for a text that
    /// holds it, and models are published whose word table lacks some.
    ///
    /// Cost: a copy of the vocabulary, about 3 ms for 30,000 words.
    pub(crate) fn largest_id(&self) -> u32 {
        let vocabulary = self.inner.get_vocab(false).into_values();
        vocabulary.chain(self.before.iter().chain(&self.after).copied()).max().unwrap_or(0)
    }

    /// Number of tokens that are added to every text.
    pub(crate) fn special_tokens(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Tokenises a text and cuts it to `max_length` tokens, special tokens included. `go_on` is asked between the slices
    /// of a long text; `None` when it says no.
    ///
    /// # Errors
    /// [`PipelineError::TextTooLong`] under [`Truncate::Error`], [`PipelineError::TemplateTooLong`] under
    /// [`Truncate::Start`], [`PipelineError::Tokenizer`], [`PipelineError::TokenizerPanicked`].
    pub(crate) fn encode_while(
        &self,
        rendered: &Rendered<'_>,
        max_length: usize,
        truncate: Truncate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Tokens>, PipelineError> {
        let with_offsets = truncate == Truncate::Start && !rendered.is_plain();
        let Some(Raw { mut ids, offsets }) = self.raw(&rendered.whole, with_offsets, go_on)? else { return Ok(None) };
        let length = ids.len() + self.special_tokens();
        let total = length - self.unknown_among(&ids);
        if truncate == Truncate::End
            && let Some(part) = self.first_characters(&rendered.whole, max_length)
        {
            let Some(raw) = self.raw(part, false, go_on)? else { return Ok(None) };
            ids = raw.ids;
        }
        if ids.len() + self.special_tokens() <= max_length {
            return Ok(Some(Tokens { ids: self.framed(&[&ids]), total, ..Tokens::default() }));
        }
        let room = max_length.saturating_sub(self.special_tokens());
        let ids = match truncate {
            Truncate::End => self.framed(&[&ids[..room]]),
            Truncate::Start => {
                let (head, tail) = template_tokens(&offsets, rendered);
                let Some(kept) = room.checked_sub(head + tail) else {
                    return Err(PipelineError::TemplateTooLong {
                        limit: max_length,
                        actual: head + tail + self.special_tokens(),
                    });
                };
                let end = ids.len() - tail;
                self.framed(&[&ids[..head], &ids[end - kept..end], &ids[end..]])
            }
            Truncate::Error => {
                return Err(PipelineError::TextTooLong { limit: max_length, actual: length });
            }
        };
        Ok(Some(Tokens { ids, total, ..Tokens::default() }))
    }

    /// The byte where each token of a text without a template begins, without the frame, in order. `go_on` is asked
    /// between slices of the text; `None` when it says no.
    ///
    /// # Errors
    /// [`PipelineError::Tokenizer`], [`PipelineError::TokenizerPanicked`].
    pub(crate) fn starts(&self, text: &str, go_on: &dyn Fn() -> bool) -> Result<Option<Vec<usize>>, PipelineError> {
        let mut starts = Vec::new();
        for (at, slice) in slices::cut(text, self.slice.unwrap_or(text.len())) {
            if !go_on() {
                return Ok(None);
            }
            starts.extend(self.run(slice, true)?.get_offsets().iter().map(|(start, _)| at + start));
        }
        // They are in order already, unless a normalizer moves characters about.
        starts.sort_unstable();
        Ok(Some(starts))
    }

    /// The least limit in tokens under which nothing of a text in its template is cut; more than `limit` is said of a text
    /// that model2vec's rule cuts under `limit`.
    ///
    /// # Errors
    /// [`PipelineError::Tokenizer`], [`PipelineError::TokenizerPanicked`].
    pub(crate) fn needed(&self, rendered: &Rendered<'_>, limit: usize) -> Result<usize, PipelineError> {
        let raw = self.raw(&rendered.whole, false, &|| true)?.expect("nobody said no");
        let length = raw.ids.len() + self.special_tokens();
        Ok(match self.first_characters(&rendered.whole, limit) {
            Some(_) => length.max(limit.saturating_add(1)),
            None => length,
        })
    }

    /// The beginning of a text that model2vec looks at under a limit in tokens, when that is not all of it.
    fn first_characters<'a>(&self, text: &'a str, max_length: usize) -> Option<&'a str> {
        let most = max_length.saturating_mul(self.model2vec?.characters);
        let (end, _) = text.char_indices().nth(most)?;
        Some(&text[..end])
    }

    /// How many of the ids are of the token that is left out.
    fn unknown_among(&self, ids: &[u32]) -> usize {
        let unknown = self.model2vec.and_then(|rules| rules.unknown);
        unknown.map_or(0, |unknown| ids.iter().filter(|id| **id == unknown).count())
    }

    /// How many ids the reference counts as a prompt's: those of the prompt alone, with its frame, but for the last one if
    /// that is of the frame. In the text's ids they need not be the same tokens, where a tokenizer joins prompt and text.
    ///
    /// # Errors
    /// [`PipelineError::Tokenizer`], [`PipelineError::TokenizerPanicked`].
    pub(crate) fn prompt_length(&self, prompt: &str) -> Result<usize, PipelineError> {
        let raw = self.raw(prompt, false, &|| true)?.expect("nobody said no");
        Ok(self.before.len() + raw.ids.len() + self.after.len().saturating_sub(1))
    }

    /// Runs the library, without the frame. `None` when `go_on` says no.
    fn raw(&self, text: &str, with_offsets: bool, go_on: &dyn Fn() -> bool) -> Result<Option<Raw>, PipelineError> {
        let mut raw = Raw::default();
        for (start, slice) in slices::cut(text, self.slice.unwrap_or(text.len())) {
            if start > 0 && !go_on() {
                return Ok(None);
            }
            let encoding = self.run(slice, with_offsets)?;
            raw.ids.extend_from_slice(encoding.get_ids());
            if with_offsets {
                raw.offsets.extend(encoding.get_offsets().iter().map(|(from, to)| (start + from, start + to)));
            }
        }
        Ok(Some(raw))
    }

    fn run(&self, text: &str, with_offsets: bool) -> Result<Encoding, PipelineError> {
        // Unwind safety: all that a panic can leave behind are the library's caches, which only save time.
        let run = AssertUnwindSafe(|| {
            if with_offsets { self.inner.encode(text, false) } else { self.inner.encode_fast(text, false) }
        });
        match catch_unwind(run) {
            Ok(Ok(encoding)) => Ok(encoding),
            Ok(Err(error)) => Err(PipelineError::Tokenizer { message: error.to_string() }),
            Err(panic) => Err(PipelineError::TokenizerPanicked { message: panic_message(&*panic) }),
        }
    }

    fn framed(&self, parts: &[&[u32]]) -> Vec<u32> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + self.special_tokens();
        let mut ids = Vec::with_capacity(length);
        ids.extend_from_slice(&self.before);
        parts.iter().for_each(|part| ids.extend_from_slice(part));
        ids.extend_from_slice(&self.after);
        if let Some(unknown) = self.model2vec.and_then(|rules| rules.unknown) {
            ids.retain(|id| *id != unknown);
        }
        ids
    }
}

/// The library's tokenizer without the file's padding and truncation.
fn open(content: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let mut inner = tokenizers::Tokenizer::from_bytes(content).map_err(|error| error.to_string())?;
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|error| error.to_string())?;
    Ok(inner)
}

/// The id of the unknown token: of the word that `unk_token` names, or a Unigram model's `unk_id`.
fn unknown(inner: &tokenizers::Tokenizer, content: &[u8]) -> Option<u32> {
    let json: Value = serde_json::from_slice(content).ok()?;
    let model = &json["model"];
    match model["unk_token"].as_str() {
        Some(token) => inner.token_to_id(token),
        None => model["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
    }
}

/// The median length of words in characters, rounded down.
fn median_length<'a>(words: impl Iterator<Item = &'a String>) -> usize {
    let mut lengths: Vec<usize> = words.map(|word| word.chars().count()).collect();
    lengths.sort_unstable();
    let upper = lengths.len() / 2;
    match lengths.len() {
        0 => 0,
        count if count % 2 == 1 => lengths[upper],
        _ => usize::midpoint(lengths[upper - 1], lengths[upper]),
    }
}

/// Puts a Lowercase normalizer in front, unless there is one, as sentence-transformers does for `do_lower_case`.
fn lower(inner: &mut tokenizers::Tokenizer) -> Result<(), String> {
    let mut steps: Vec<NormalizerWrapper> = vec![Lowercase.into()];
    match inner.get_normalizer() {
        None => {}
        Some(NormalizerWrapper::Lowercase(_)) => return Ok(()),
        Some(NormalizerWrapper::Sequence(sequence)) => {
            if sequence.as_ref().iter().any(|step| matches!(step, NormalizerWrapper::Lowercase(_))) {
                return Ok(());
            }
            steps.extend(sequence.as_ref().iter().cloned());
        }
        Some(other) => steps.push(other.clone()),
    }
    inner.with_normalizer(Some(Sequence::new(steps))).map_err(|error| error.to_string())?;
    Ok(())
}

/// What the post-processor puts before and after a single text: seen by giving it two ids that no vocabulary has.
fn frame(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>), String> {
    const PROBE: [u32; 2] = [u32::MAX - 1, u32::MAX];
    let tokens = PROBE.map(|id| Token::new(id, String::new(), (0, 0)));
    let framed =
        inner.post_process(Encoding::from_tokens(tokens.to_vec(), 0), None, true).map_err(|error| error.to_string())?;
    let ids = framed.get_ids();
    let start = ids
        .windows(2)
        .position(|pair| pair == PROBE)
        .ok_or("its post-processor does not keep the text in one piece")?;
    let (before, after) = (&ids[..start], &ids[start + 2..]);
    if before.iter().chain(after).any(|id| PROBE.contains(id)) {
        return Err("its post-processor repeats the text".to_owned());
    }
    if framed.get_type_ids().iter().any(|id| *id != 0) {
        return Err(
            "its post-processor gives a single text other token types than 0, which is not supported".to_owned()
        );
    }
    Ok((before.to_vec(), after.to_vec()))
}

/// How many tokens at the start and at the end belong to the template alone. A token that also covers a part of the text
/// (a blank of the template merged with the first word) belongs to the text.
fn template_tokens(offsets: &[(usize, usize)], rendered: &Rendered<'_>) -> (usize, usize) {
    let head = offsets.iter().take_while(|(_, end)| *end <= rendered.text.start).count();
    let tail = offsets[head..].iter().rev().take_while(|(start, _)| *start >= rendered.text.end).count();
    (head, tail)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "it gave no message".to_owned(),
    }
}

pub(crate) mod pairs;
#[cfg(test)]
mod tests;
