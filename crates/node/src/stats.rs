//! Counters of one model.

use std::time::Duration;

use napi_derive::napi;
use simile_engine::StatisticsSnapshot;

/// Counters of one model as one service uses it; times in milliseconds.
#[napi(object, object_from_js = false)]
pub struct NativeStats {
    /// Calls that gave a result.
    pub calls: f64,
    /// Calls that ended otherwise.
    pub failed: f64,
    /// Of these, calls that were refused as `Overloaded`.
    pub refused: f64,
    /// Calls that wait now.
    pub queued_calls: f64,
    /// Their texts that wait now.
    pub queued_texts: f64,
    /// Texts that became vectors.
    pub texts: f64,
    /// Of these, texts that were cut.
    pub truncated: f64,
    /// Tokens that were computed.
    pub tokens: f64,
    /// Tokens that padding would have computed.
    pub padded_tokens: f64,
    /// Micro-batches.
    pub batches: f64,
    /// Time that calls waited.
    pub queue_ms: f64,
    /// Time in which texts were tokenised.
    pub tokenize_ms: f64,
    /// Time in which micro-batches ran.
    pub compute_ms: f64,
    /// Longest time between two checkpoints.
    pub longest_layer_ms: f64,
}

impl From<StatisticsSnapshot> for NativeStats {
    fn from(counted: StatisticsSnapshot) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        // Numbers of JavaScript are exact up to 2^53.
        NativeStats {
            calls: counted.calls as f64,
            failed: counted.failed as f64,
            refused: counted.refused as f64,
            queued_calls: counted.queued_calls as f64,
            queued_texts: counted.queued_texts as f64,
            texts: counted.texts as f64,
            truncated: counted.truncated as f64,
            tokens: counted.tokens as f64,
            padded_tokens: counted.padded_tokens as f64,
            batches: counted.batches as f64,
            queue_ms: ms(counted.queue_time),
            tokenize_ms: ms(counted.tokenise_time),
            compute_ms: ms(counted.compute_time),
            longest_layer_ms: ms(counted.longest_layer_time),
        }
    }
}
