/**
 * The engines, as data. Adding one is a file in `engines/` and an entry here.
 *
 * `minimumCosine` is the lowest agreement with sentence-transformers that a run accepts of any text, so that no
 * engine is fast because it computes something else.
 */

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { BENCH, ROOT, readJson } from './paths.mjs'

/**
 * @typedef {object} Engine
 * @property {string} name
 * @property {'node' | 'python'} host the program that runs the adapter
 * @property {string} adapter path of the file with `load` and `embed`
 * @property {string} how how the engine is used, for the report
 * @property {string} version
 * @property {number} minimumCosine
 * @property {object} [options] handed to `load`, beside the model's folders and the number of threads
 */

/** Every float32 engine that cuts at the same token stays well above this: float32 rounding costs about 1e-6. */
const SAME = 0.99999
/** @huggingface/transformers cuts after the special tokens are added, so a text that is too long loses its last one. */
const WITHOUT_LAST_SEP = 0.98

/**
 * @param {{ baseline?: string }} options `baseline`: root of another checkout of simile, built
 * @returns {Engine[]} in the order of the report
 */
export function catalogue({ baseline } = {}) {
  return [
    simile('simile', ROOT),
    ...(baseline === undefined ? [] : [simile('baseline', path.resolve(baseline))]),
    {
      name: 'onnxruntime',
      host: 'node',
      adapter: adapter('onnxruntime.mjs'),
      how: 'onnxruntime-node by hand: fused f32 graph, texts sorted by length, batches of 32',
      version: npmPin('onnxruntime-node'),
      minimumCosine: SAME,
    },
    {
      name: 'transformers-js',
      host: 'node',
      adapter: adapter('transformers_js.mjs'),
      how: '@huggingface/transformers: f32 feature-extraction pipeline, batches of 32 as they come',
      version: npmPin('@huggingface/transformers'),
      minimumCosine: WITHOUT_LAST_SEP,
    },
    {
      name: 'sentence-transformers',
      host: 'python',
      adapter: adapter('sentence_transformers.py'),
      how: 'Python, torch f32, encode() with batches of 32 (it sorts by itself)',
      version: pythonPin('sentence-transformers'),
      minimumCosine: SAME,
    },
  ]
}

/** Not an engine: a Node process whose two other threads are busy, as the measure of what the event loop can do at best. */
export const BUSY_THREADS = {
  name: 'busy threads',
  host: 'node',
  adapter: adapter('busy_threads.mjs'),
  how: 'control: idle event loop, native threads busy with PBKDF2',
  version: process.version,
  minimumCosine: 0,
}

/** @returns {Engine} */
function simile(name, root) {
  return {
    name,
    host: 'node',
    adapter: adapter('simile.mjs'),
    how: `TextEmbedding.load(...).embed(texts), f32${root === ROOT ? '' : `, from ${root}`}`,
    version: simileVersion(root),
    minimumCosine: SAME,
    options: { root },
  }
}

function adapter(file) {
  return path.join(BENCH, 'engines', file)
}

/** Package version and commit, `+` when the tree has changes. */
function simileVersion(root) {
  const manifest = path.join(root, 'package.json')
  if (!existsSync(manifest)) return 'missing' // said better when it is asked for
  const { version } = readJson(manifest)
  try {
    const git = (...args) =>
      execFileSync('git', ['-C', root, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
    const changed = git('status', '--porcelain', '--untracked-files=no') === '' ? '' : '+'
    return `${version} (${git('rev-parse', '--short', 'HEAD')}${changed})`
  } catch {
    return version // an archive without git
  }
}

function npmPin(name) {
  return readJson(path.join(BENCH, 'rivals', 'package.json')).dependencies[name]
}

function pythonPin(name) {
  const pins = readFileSync(path.join(BENCH, 'rivals', 'requirements.txt'), 'utf8')
  return new RegExp(`^${name}==(\\S+)`, 'm').exec(pins)[1]
}
