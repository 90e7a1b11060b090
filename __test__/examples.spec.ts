/** The examples run, and print what they say that they print. */

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { run } from './helpers/child.ts'
import { MINILM, ROOT, real } from './helpers/models.ts'

real(MINILM)

const RUNS: [string[], RegExp][] = [
  [['search.mjs'], /^.*HNSW/],
  [['search.mjs', 'how to bake bread'], /^.*sourdough/],
  [['dedupe.mjs'], /3 groups of near-duplicates/],
  [['abort.mjs'], /stopped: too slow/],
  [['hybrid.mjs'], /^[\d.]+ A vector database stores vectors[^\n]*\n[\d.]+ HNSW is a graph index/],
  [['bulk.mjs'], /chunks of docs embedded, 0 of them cut\n[\d.]+ errors\.md/],
]

for (const [args, expected] of RUNS) {
  test(args.join(' '), async (t) => {
    const [file, ...rest] = args as [string, ...string[]]
    const { status, stdout, stderr } = await run([join('examples', file), ...rest])
    t.is(status, 0, stderr)
    t.regex(stdout, expected)
  })
}

test('every example is run', (t) => {
  const files = readdirSync(join(ROOT, 'examples')).filter((name) => /\.[cm]?[jt]s$/.test(name))
  t.deepEqual(files.sort(), [...new Set(RUNS.map(([[file]]) => file))].sort())
})
