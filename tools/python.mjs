// Runs a script of this folder with the Python of this machine: `node tools/python.mjs SCRIPT [ARGUMENT ...]`.
// PYTHON names another interpreter; otherwise the first of python3, python, py that is at least 3.11 is taken.

import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'

const OLDEST = [3, 11]

/** The command of a Python that is new enough; throws an Error that says what was found instead. */
export function findPython(env = process.env) {
  const candidates = env.PYTHON ? [env.PYTHON] : ['python3', 'python', 'py']
  const found = []
  for (const command of candidates) {
    const { status, stdout } = spawnSync(command, ['-c', 'import sys; print(*sys.version_info[:2])'], {
      encoding: 'utf8',
    })
    if (status !== 0) continue
    const [major, minor] = stdout.trim().split(' ').map(Number)
    if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return command
    found.push(`${command} is ${major}.${minor}`)
  }
  throw new Error(
    `Python ${OLDEST.join('.')} or newer is needed here and was not found (tried ${candidates.join(', ')}` +
      `${found.length > 0 ? `; ${found.join(', ')}` : ''}). Install one, or name it in PYTHON.`,
  )
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  try {
    const { status } = spawnSync(findPython(), process.argv.slice(2), { stdio: 'inherit' })
    process.exitCode = status ?? 1
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  }
}
