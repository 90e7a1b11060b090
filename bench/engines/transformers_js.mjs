/** @huggingface/transformers in its documented way: a feature-extraction pipeline, 32 texts a call, in the order they come. */

import { requireRival } from '../lib/paths.mjs'

const BATCH = 32

const { pipeline, env } = requireRival('@huggingface/transformers')
let extract

/** @param {{ onnxModel: string, threads: number }} options */
export async function load({ onnxModel, threads }) {
  env.allowRemoteModels = false
  extract = await pipeline('feature-extraction', onnxModel, {
    dtype: 'fp32',
    device: 'cpu',
    local_files_only: true,
    session_options: { intraOpNumThreads: threads, interOpNumThreads: 1 },
  })
}

/** @param {string[]} texts */
export async function embed(texts) {
  const rows = []
  for (let at = 0; at < texts.length; at += BATCH) {
    const output = await extract(texts.slice(at, at + BATCH), { pooling: 'mean', normalize: true })
    const [count, dimensions] = output.dims
    for (let row = 0; row < count; row++) rows.push(output.data.slice(row * dimensions, (row + 1) * dimensions))
  }
  return rows
}
