// What computes: values that are refused, and what is said where a device, its package or a library is missing. No machine
// that runs these tests has a GPU; what ran on one is told in docs/cuda.md.

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import test from 'ava'
import { EmbedError, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { ROOT } from './helpers/models.ts'

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
const PACKAGE = 'simile-cuda-linux-x64'
/** CUDA has a package for Linux on x64 with glibc; what is said of it is said there. */
const hasPackage =
  process.platform === 'linux' &&
  process.arch === 'x64' &&
  'glibcVersionRuntime' in (process.report.getReport() as unknown as { header: object }).header

/** No such model is anywhere: an error that names it would have looked for it first. */
const NOWHERE = 'nobody/nothing'

test('a device that is not in this build is refused before the model is looked for', async (t) => {
  if (process.platform === 'darwin') return t.pass()
  const error = (await t.throwsAsync(TextEmbedding.load(NOWHERE, { device: 'metal', offline: true }))) as EmbedError
  t.true(EmbedError.is(error, 'ModelInitialization'))
  t.is(error.option, 'device')
  t.regex(error.message, /device 'metal' is not in this build: .*macOS.*use 'cpu' elsewhere/)
})

test('16 bits on the CPU are refused before the model is looked for', async (t) => {
  for (const precision of ['f16', 'bf16'] as const) {
    const error = (await t.throwsAsync(TextEmbedding.load(NOWHERE, { precision, offline: true }))) as EmbedError
    t.true(EmbedError.is(error, 'UnsupportedModel'), `${precision}: ${error.code}`)
    t.is(error.option, 'precision')
    t.regex(error.message, new RegExp(`precision '${precision}' on device 'cpu' is refused: .*use 'f32'`))
  }
})

/** What a load on `device` says in a process whose application has the CUDA package with these files, or has none. */
async function loadBeside(files: Record<string, string> | undefined, device = 'cuda') {
  const folder = mkdtempSync(join(tmpdir(), 'simile-device-'))
  try {
    writeFileSync(join(folder, 'package.json'), '{}')
    if (files !== undefined) {
      const home = join(folder, 'node_modules', PACKAGE)
      mkdirSync(home, { recursive: true })
      for (const [name, content] of Object.entries(files)) writeFileSync(join(home, name), content)
    }
    const source = `
      import { TextEmbedding } from ${JSON.stringify(pathToFileURL(join(ROOT, 'dist/esm/index.js')).href)}
      try {
        await TextEmbedding.load(${JSON.stringify(NOWHERE)}, { device: ${JSON.stringify(device)}, offline: true })
      } catch (error) {
        const { code, message, option } = error
        console.log(JSON.stringify({ code, message, option }))
      }`
    const { status, stdout, stderr } = await runModule(source, { cwd: folder })
    return { status, stderr, ...(JSON.parse(stdout) as { code: string; message: string; option?: string }) }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const manifest = (fields: object) => JSON.stringify({ name: PACKAGE, version, main: 'addon.cjs', ...fields })
const throwing = (message: string) =>
  `throw Object.assign(new Error(${JSON.stringify(message)}), {code: 'ERR_DLOPEN_FAILED'})`
const missing = (library: string) => throwing(`${library}: cannot open shared object file: No such file or directory`)

const CUDA_CASES: [what: string, files: Record<string, string> | undefined, message: RegExp][] = [
  [
    'no package',
    undefined,
    new RegExp(`optional package ${PACKAGE}, which is not installed: run "npm install ${PACKAGE}@${version}"`),
  ],
  [
    'another version',
    { 'package.json': manifest({ version: '9.9.9' }) },
    new RegExp(`has version 9.9.9 and simile ${version}, which must be equal: run "npm install ${PACKAGE}@${version}"`),
  ],
  ['no version', { 'package.json': manifest({ version: undefined }) }, /has version undefined/],
  [
    'no driver',
    { 'package.json': manifest({}), 'addon.cjs': missing('libcuda.so.1') },
    /the library libcuda\.so\.1 was not found: it belongs to the NVIDIA driver/,
  ],
  [
    'no CUDA runtime',
    { 'package.json': manifest({}), 'addon.cjs': missing('libcublas.so.13') },
    /the library libcublas\.so\.13 was not found: it belongs to the CUDA 13 runtime/,
  ],
  [
    'a file that is no addon',
    { 'package.json': manifest({ main: 'addon.node' }), 'addon.node': 'not an addon' },
    new RegExp(`${PACKAGE} could not be loaded: .*addon\\.node`),
  ],
  ['no file', { 'package.json': manifest({}) }, new RegExp(`${PACKAGE} could not be loaded: Cannot find module`)],
  [
    // The ordinary addon in the package's place: that it is the one that answers shows that the package's was taken.
    'an addon without CUDA',
    {
      'package.json': manifest({}),
      'addon.cjs': `module.exports = require(${JSON.stringify(join(ROOT, 'dist/native/binding.cjs'))})`,
    },
    /device 'cuda(:1)?' is not in this build: CUDA is an addon of its own/,
  ],
]

for (const [what, files, message] of CUDA_CASES) {
  test(`device 'cuda' says what is missing: ${what}`, async (t) => {
    for (const device of ['cuda', 'cuda:1']) {
      const said = await loadBeside(files, device)
      t.is(said.code, 'ModelInitialization', said.message)
      t.is(said.option, 'device')
      t.regex(said.message, hasPackage ? message : /there is a package for linux-x64-gnu only/)
      t.deepEqual([said.status, said.stderr], [0, ''], 'it neither crashes nor prints')
    }
  })
}

/** A package in `folder` whose loading throws `said`. */
function install(folder: string, packageVersion: string, said: string): void {
  const home = join(folder, 'node_modules', PACKAGE)
  mkdirSync(home, { recursive: true })
  writeFileSync(join(home, 'package.json'), manifest({ version: packageVersion }))
  writeFileSync(join(home, 'addon.cjs'), throwing(said))
}

test('the CUDA package beside this one is taken before the one in the working directory, of this version wherever it is', async (t) => {
  if (!hasPackage) return t.pass()
  const [mine, theirs] = ['the one beside', 'the one in the working directory']
  const cases: [beside: string | undefined, working: string | undefined, said: RegExp][] = [
    [version, version, new RegExp(mine)],
    [version, '9.9.9', new RegExp(mine)],
    ['9.9.9', version, new RegExp(theirs)],
    [undefined, version, new RegExp(theirs)],
    ['8.8.8', '9.9.9', /has version 8\.8\.8 and 9\.9\.9 and simile/],
  ]
  for (const [beside, working, said] of cases) {
    const folder = mkdtempSync(join(tmpdir(), 'simile-device-'))
    try {
      const [library, application] = [join(folder, 'library'), join(folder, 'application')]
      const copy = join(library, 'node_modules/simile')
      mkdirSync(copy, { recursive: true })
      mkdirSync(application)
      cpSync(join(ROOT, 'package.json'), join(copy, 'package.json'))
      // The addon is not needed, so that it is not copied.
      for (const part of ['core', 'cjs', 'esm']) {
        cpSync(join(ROOT, 'dist', part), join(copy, 'dist', part), { recursive: true })
      }
      symlinkSync(join(ROOT, 'node_modules/lru-cache'), join(library, 'node_modules/lru-cache'), 'dir')
      if (beside !== undefined) install(library, beside, mine)
      if (working !== undefined) install(application, working, theirs)
      const source = `
        import { TextEmbedding } from ${JSON.stringify(pathToFileURL(join(copy, 'dist/esm/index.js')).href)}
        const load = TextEmbedding.load(${JSON.stringify(NOWHERE)}, { device: 'cuda', offline: true })
        console.log((await load.catch((error) => error)).message)`
      const { stdout, stderr } = await runModule(source, { cwd: application })
      t.regex(stdout, said, `${beside} ${working}: ${stderr}`)
    } finally {
      rmSync(folder, { recursive: true })
    }
  }
})

test('the CUDA package and the optional dependency on it have the version of this package', (t) => {
  const read = (path: string) => JSON.parse(readFileSync(join(ROOT, path), 'utf8'))
  t.is(read('npm/cuda-linux-x64/package.json').version, version)
  const { peerDependencies, peerDependenciesMeta, optionalDependencies } = read('package.json')
  t.is(peerDependencies[PACKAGE], version)
  t.true(peerDependenciesMeta[PACKAGE].optional, 'never installed by itself')
  t.is(optionalDependencies?.[PACKAGE], undefined)
})
