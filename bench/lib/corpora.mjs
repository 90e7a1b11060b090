/** The corpora that `setup/make_corpora.py` wrote. */

import { readFileSync } from 'node:fs'
import path from 'node:path'
import { CORPORA, readJson } from './paths.mjs'

export const CORPUS_NAMES = ['short', 'mixed', 'long']

/** @param {string} name  @returns {string[]} */
export function readCorpus(name) {
  return readFileSync(path.join(CORPORA, `${name}.jsonl`), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
}

/**
 * Counts of one corpus; `tokens` are those that remain after the cut at the model's limit, specials counted, so that
 * tokens/s of different engines mean the same work whatever they pad.
 *
 * @param {string} name
 * @returns {{ texts: number, tokens: number, mean: number, p50: number, p95: number, max: number, truncated: number }}
 */
export function corpusCounts(name) {
  return readJson(path.join(CORPORA, 'corpora.json'))[name]
}
