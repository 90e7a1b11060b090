/** What was chosen and what was done, for bug reports. */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import test from 'ava'
import { cpuFeatures, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { ROOT, tiny } from './helpers/models.ts'

test('cpuFeatures names what computes', (t) => {
  const { isa, available, threads, parallelism, architecture } = cpuFeatures()
  t.true(available.includes(isa))
  t.is(available.at(-1), 'portable')
  t.true(threads >= 1)
  t.true(parallelism >= 1 && parallelism <= availableParallelism())
  t.truthy(architecture)
})

test('threads follow the processors that the process may use', async (t) => {
  const allowed =
    process.platform === 'linux' && /Cpus_allowed_list:\s*(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))
  if (!allowed) return t.pass('only Linux has taskset')
  const program = `import { cpuFeatures } from 'simile'
    const { threads, parallelism } = cpuFeatures()
    console.log(threads, parallelism)`
  const child = (env: NodeJS.ProcessEnv) =>
    spawnSync('taskset', ['-c', allowed[1] as string, process.execPath, '--input-type=module', '--eval', program], {
      cwd: ROOT,
      env: { ...process.env, ...env },
      encoding: 'utf8',
    })
  const bound = child({ SIMILE_THREADS: '' })
  if ((bound.error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT') return t.pass('no taskset')
  t.is(bound.stdout, '1 1\n', bound.stderr)
  t.is(child({ SIMILE_THREADS: '3' }).stdout, '3 1\n', 'who asks for more gets it')
})

test('SIMILE_ISA forces each instruction set that there is', async (t) => {
  for (const isa of cpuFeatures().available) {
    const { stdout, stderr } = await runModule(
      `import { cpuFeatures, TextEmbedding } from 'simile'
       const model = await TextEmbedding.load(${JSON.stringify(tiny('tiny-bert-cls'))})
       console.log(cpuFeatures().isa, (await model.embed(['a']))[0].length)`,
      { env: { SIMILE_ISA: isa } },
    )
    t.is(stdout, `${isa} 32\n`, stderr)
  }
})

test('stats count calls, texts, tokens and cuts', async (t) => {
  const model = await TextEmbedding.load(tiny('tiny-bert-cls'))
  t.like(model.stats(), { calls: 0, failed: 0, texts: 0, tokens: 0, truncated: 0, paddingEfficiency: 1 })
  const rows = await model.embed(['one', 'the dog and the fox and the world '.repeat(40)])
  await t.throwsAsync(model.embed(['a'], { instruction: 'no place for it' }))
  const stats = model.stats()
  t.like(stats, { calls: 1, texts: 2, truncated: 1 })
  t.is(
    stats.tokens,
    rows.tokens.reduce((sum, { embedded }) => sum + embedded, 0),
  )
  t.true(stats.paddedTokens >= stats.tokens)
  t.is(stats.paddingEfficiency, stats.tokens / stats.paddedTokens)
  t.true(stats.batches >= 1)
  for (const [name, value] of Object.entries(stats)) t.true(Number.isFinite(value) && value >= 0, name)
})
