// Installs the packed packages into an empty folder and runs the smoke programs there:
//
//     node __test__/packed/run.mjs [NODE ...]
//
// NODE is the path of another runtime's binary, for instance that of the npm package node@22 installed somewhere.
// Default: the node that runs this. Exit code 0 when every runtime did everything.

import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { install, ROOT } from './install.mjs'

const runtimes = process.argv.length > 2 ? process.argv.slice(2) : [process.execPath]
const model = join(ROOT, '__test__', 'fixtures', 'tiny', 'tiny-bert-cls')
const { application, folder } = install()
let failures = 0
try {
  for (const runtime of runtimes) {
    for (const program of ['smoke.mjs', 'smoke.cjs']) {
      const { status, signal, stdout, stderr } = spawnSync(runtime, [program, model], {
        cwd: application,
        encoding: 'utf8',
        timeout: 120_000,
      })
      const fine = status === 0 && /^ok /m.test(stdout) && stderr === ''
      if (!fine) failures++
      console.log(`${fine ? 'passed' : 'FAILED'} ${program} ${runtime} ${stdout.trim()}`)
      if (!fine) console.error(`status ${status}, signal ${signal}\n${stderr}`)
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exitCode = failures === 0 ? 0 : 1
