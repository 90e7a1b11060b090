//! The addon: conversions between JavaScript and the engine, and nothing else. Only `ts/core/native.ts` calls it.
//!
//! # Protocol
//! - A method that works returns a promise at once and runs on threads of the engine. The promise resolves with a tagged
//!   value: the result, or a [`failure::NativeFailure`] (`code` is one of the engine's error kinds), which TypeScript
//!   turns into a typed error. It rejects only when an argument has the wrong JavaScript type, which is a bug of the
//!   TypeScript side, and it settles whatever happens: see [`settle`].
//! - Texts come in slices ([`batch::NativeTextBatch::push`]) and rows go out in slices ([`result::NativeResult::rows`]),
//!   so that no single call holds the JavaScript thread for long; TypeScript lets the event loop turn in between.
//! - Memory of results belongs to V8: each row is an `ArrayBuffer` of its own that was copied into, the same on Node and
//!   on Electron, where buffers of ours are refused.
//! - Models, queue and threads are the process's: worker threads share them. What belongs to one JavaScript environment
//!   is its calls, which are cancelled when it ends: see [`scope`].
//!
//! # Exit
//! Pending promises keep the process alive, as pending work does; nothing else does. Threads of the engine run on when an
//! environment ends. Their code stays: napi keeps the library in memory once a promise was made, and no thread is started
//! before that.

// In a test build, which nothing needs but `clippy --all-targets` makes, napi exports nothing.
#![cfg_attr(test, allow(dead_code))]

mod batch;
mod cancel;
mod cpu;
mod descriptor;
mod failure;
mod head;
mod model;
mod progress;
mod request;
mod result;
mod scope;
mod settle;
mod stats;
