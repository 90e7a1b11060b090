/**
 * onnxruntime-node driven by hand, the best that a JavaScript user can do with it: the fused f32 graph, texts sorted by
 * length so that a batch pads little, batches of 32, token states pooled and normalised here.
 */

import path from 'node:path'
import { readJson, requireRival } from '../lib/paths.mjs'

const BATCH = 32

const { InferenceSession, Tensor } = requireRival('onnxruntime-node')
const { AutoTokenizer, env } = requireRival('@huggingface/transformers')
let session
let tokenizer
let maxLength

/** @param {{ onnxModel: string, threads: number }} options */
export async function load({ onnxModel, threads }) {
  env.allowRemoteModels = false
  maxLength = readJson(path.join(onnxModel, 'sentence_bert_config.json')).max_seq_length
  tokenizer = await AutoTokenizer.from_pretrained(onnxModel, { local_files_only: true })
  session = await InferenceSession.create(path.join(onnxModel, 'onnx/model_fused.onnx'), {
    executionProviders: ['cpu'],
    graphOptimizationLevel: 'all',
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
  })
}

/** @param {string[]} texts */
export async function embed(texts) {
  const ids = texts.map((text) => cut(tokenizer.encode(text)))
  const order = texts.map((_, index) => index).sort((a, b) => ids[b].length - ids[a].length)
  const rows = new Array(texts.length)
  for (let at = 0; at < order.length; at += BATCH) {
    const batch = order.slice(at, at + BATCH)
    const states = await run(batch.map((index) => ids[index]))
    batch.forEach((index, row) => {
      rows[index] = unitMean(states, row, ids[index].length)
    })
  }
  return rows
}

/** Keeps [CLS] and [SEP]; the text between them loses its end. */
function cut(ids) {
  return ids.length <= maxLength ? ids : [...ids.slice(0, maxLength - 1), ids.at(-1)]
}

async function run(batch) {
  const length = batch[0].length // the longest comes first
  const dims = [batch.length, length]
  const inputIds = new BigInt64Array(batch.length * length)
  const mask = new BigInt64Array(batch.length * length)
  batch.forEach((ids, row) => {
    for (let i = 0; i < ids.length; i++) inputIds[row * length + i] = BigInt(ids[i])
    mask.fill(1n, row * length, row * length + ids.length)
  })
  const { last_hidden_state: states } = await session.run({
    input_ids: new Tensor('int64', inputIds, dims),
    attention_mask: new Tensor('int64', mask, dims),
    token_type_ids: new Tensor('int64', new BigInt64Array(batch.length * length), dims),
  })
  return states
}

/** Mean over the tokens of one sequence of [batch, length, hidden], scaled to length 1. */
function unitMean({ data, dims: [, length, hidden] }, row, tokens) {
  const mean = new Float32Array(hidden)
  const start = row * length * hidden
  for (let at = start; at < start + tokens * hidden; at += hidden) {
    for (let i = 0; i < hidden; i++) mean[i] += data[at + i]
  }
  let squares = 0
  for (let i = 0; i < hidden; i++) squares += mean[i] * mean[i]
  const scale = 1 / Math.max(Math.sqrt(squares), 1e-12)
  for (let i = 0; i < hidden; i++) mean[i] *= scale
  return mean
}
