/** Where the benchmark keeps things. Everything under `.work` and `results` is made by the scripts and ignored by git. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

export const BENCH = path.resolve(import.meta.dirname, '..')
export const ROOT = path.resolve(BENCH, '..')
/** What `bench:setup` makes: the rivals' packages, a Python environment, graphs, corpora, reference vectors. */
export const WORK = path.join(BENCH, '.work')
export const RESULTS = path.join(BENCH, 'results')
/** Tokenizer, configs and ONNX graphs: what the ONNX rivals load. */
export const ONNX_MODEL = path.join(WORK, 'model')
export const CORPORA = path.join(WORK, 'corpora')
/** sentence-transformers' own vectors of every corpus, which all engines are compared with. */
export const REFERENCE = path.join(WORK, 'reference')
export const LOGS = path.join(WORK, 'logs')
/** What the setup found out: `{ model, python }`, the model's folder and the Python interpreter. */
export const SETUP = path.join(WORK, 'setup.json')

/** Resolves packages of the rivals from where the setup installed them. */
export const requireRival = createRequire(path.join(WORK, 'package.json'))

/** @param {string} file */
export const readJson = (file) => JSON.parse(readFileSync(file, 'utf8'))
