/** Files that change under a loaded model: a typed error where vectors could be wrong, never another vector and never the end of the process. */

import {
  cpSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'ava'
import { EmbedError, TextEmbedding } from 'simile'
import { tiny } from './helpers/models.ts'

const scratch = mkdtempSync(join(tmpdir(), 'simile-changed-files-'))
test.after.always(() => rmSync(scratch, { recursive: true, force: true }))

const TEXTS = ['hello world', 'the quick brown fox jumps over the lazy dog', '']

/** A model of its own, written an hour ago, and its weights file. */
function copy(name: string): { folder: string; weights: string } {
  const folder = join(scratch, name.replace(/\W+/g, '-'))
  cpSync(tiny('tiny-bert-mean-pooler'), folder, { recursive: true })
  const weights = join(folder, 'model.safetensors')
  const past = Date.now() / 1000 - 3600
  utimesSync(weights, past, past)
  return { folder, weights }
}

/** The same number of bytes, all tensors 0. */
function overwrite(path: string): void {
  const bytes = readFileSync(path)
  bytes.fill(0, 8 + Number(bytes.readBigUInt64LE()))
  writeFileSync(path, bytes)
}

const HARMFUL: [string, (weights: string) => void][] = [
  ['cut to half', (weights) => truncateSync(weights, Math.floor(statSync(weights).size / 2))],
  ['emptied', (weights) => truncateSync(weights, 0)],
  ['overwritten in place', overwrite],
]

for (const [what, change] of HARMFUL) {
  test(`weights ${what}: an error until the model is loaded again`, async (t) => {
    const { folder, weights } = copy(what)
    const model = await TextEmbedding.load(folder)
    const before = await model.embed(TEXTS)
    change(weights)
    for (let i = 0; i < 2; i++) {
      const error = await t.throwsAsync(model.embed(TEXTS))
      t.true(EmbedError.is(error) && error.code === 'InferenceFailed', String(error))
      t.regex(String(error), /model\.safetensors changed while the model was loaded; load the model again/)
    }
    cpSync(join(tiny('tiny-bert-mean-pooler'), 'model.safetensors'), weights)
    const again = await TextEmbedding.load(folder)
    t.deepEqual([...(await again.embed(TEXTS))], [...before])
  })
}

const HARMLESS: [string, (weights: string) => void][] = [
  ['deleted', (weights) => rmSync(weights)],
  [
    'replaced by a rename',
    (weights) => {
      cpSync(weights, `${weights}.new`)
      overwrite(`${weights}.new`)
      renameSync(`${weights}.new`, weights)
    },
  ],
]

for (const [what, change] of HARMLESS) {
  test(`weights ${what}: the loaded model stays as it is`, async (t) => {
    const { folder, weights } = copy(what)
    const model = await TextEmbedding.load(folder)
    const before = await model.embed(TEXTS)
    change(weights)
    const after = await model.embed(TEXTS)
    t.deepEqual([...after], [...before])
    t.is(after.contractId, before.contractId)
  })
}
