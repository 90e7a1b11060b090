//! Texts of any content through the pipeline's tokenizer, against the tokenizers library itself with a truncation
//! written for this test: equal ids, equal counts, the end cut is a beginning.
//!
//! An input is `[which tokenizer and limit, repeats]` and a text, which is repeated so that some reach the size at which
//! texts are read in slices. `SIMILE_FUZZ_TOKENIZER` names a `tokenizer.json` (of all-MiniLM-L6-v2, say) to use besides the committed ones.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use simile_fuzz::{files, folder, tiny, write_checkpoint};
use simile_kernels::Isa;
use simile_pipeline::{LoadOptions, PipelineError, Role, TextModel, Truncate};
use tempfile::TempDir;

/// Limits in tokens, special tokens included.
const LIMITS: [usize; 4] = [3, 8, 64, 512];

struct Subject {
    library: tokenizers::Tokenizer,
    /// A model for each limit and policy.
    models: Vec<(usize, Truncate, TextModel)>,
    _folder: TempDir,
}

fn subjects() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        let mut paths: Vec<PathBuf> =
            ["tiny-bert-cls", "tiny-bert-dense"].iter().map(|name| tiny(name).join("tokenizer.json")).collect();
        paths.extend(std::env::var_os("SIMILE_FUZZ_TOKENIZER").map(PathBuf::from));
        paths.iter().map(subject).collect()
    })
}

fn subject(path: &PathBuf) -> Subject {
    let mut library = tokenizers::Tokenizer::from_file(path).unwrap();
    library.with_padding(None);
    library.with_truncation(None).unwrap();
    let folder = folder();
    write_checkpoint(folder.path(), path);
    let files = files(folder.path());
    let mut models = Vec::new();
    for limit in LIMITS {
        for policy in Truncate::ALL {
            let mut options = LoadOptions::new(Isa::best());
            (options.max_length, options.truncate) = (Some(limit), Some(policy));
            models.push((limit, policy, TextModel::load(&files, &options).unwrap()));
        }
    }
    Subject { library, models, _folder: folder }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, repeats], text)) = data.split_first_chunk::<2>() else { return };
    let subjects = subjects();
    // Half of the time the last one, which is the real one where there is one.
    let subject = if which & 1 == 0 {
        subjects.last().unwrap()
    } else {
        &subjects[usize::from(which >> 1 & 31) % subjects.len()]
    };
    let text = String::from_utf8_lossy(text);
    // Few are made a little longer than the 16 KiB of a slice: each takes a second.
    let repeats = if repeats == 255 { 20_000 / text.len().max(1) } else { 0 };
    let text = text.repeat(repeats.max(1));

    let full = subject.library.encode_fast(text.as_str(), true).unwrap();
    let full = full.get_ids();
    let body = &full[1..full.len() - 1];
    let limit = LIMITS[usize::from(which >> 6)];
    for (limit, policy, model) in
        subject.models.iter().filter(|(of_model, ..)| *of_model == limit).take(if repeats > 0 { 1 } else { 3 })
    {
        let got = model.tokenize(Role::Generic, None, &text);
        if full.len() <= *limit {
            let got = got.unwrap();
            assert_eq!((got.ids.as_slice(), got.total), (full, full.len()), "whole, {limit}, {policy}");
            continue;
        }
        let room = limit - 2;
        let want = match policy {
            Truncate::End => &body[..room],
            Truncate::Start => &body[body.len() - room..],
            Truncate::Error => {
                let error = PipelineError::TextTooLong { limit: *limit, actual: full.len() };
                assert_eq!(got, Err(error));
                continue;
            }
        };
        let want = [&full[..1], want, &full[full.len() - 1..]].concat();
        let got = got.unwrap();
        assert_eq!((got.ids.as_slice(), got.total), (want.as_slice(), full.len()), "cut, {limit}, {policy}");
        if *policy == Truncate::End {
            assert!(full.starts_with(&got.ids[..limit - 1]), "the end cut is a beginning");
        }
    }
});
