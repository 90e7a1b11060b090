/** The packages as they are published: packed, installed into an empty folder, used. */

import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import test from 'ava'
import { run } from './helpers/child.ts'
import { MINILM, ROOT, real, tiny } from './helpers/models.ts'
import { install } from './packed/install.mjs'

real(MINILM)
const { application, folder, main, others } = install()
test.after.always(() => rmSync(folder, { recursive: true, force: true }))

const installed = join(application, 'node_modules')
const json = (path: string) => JSON.parse(readFileSync(path, 'utf8'))

for (const program of ['smoke.mjs', 'smoke.cjs']) {
  test(`${program} in an empty folder`, async (t) => {
    const { status, stdout, stderr } = await run([program, tiny('tiny-bert-cls')], { cwd: application })
    t.is(stderr, '')
    t.regex(stdout, /^ok /m)
    t.is(status, 0)
  })
}

test('an example runs where it is installed', async (t) => {
  const { status, stdout, stderr } = await run([join('node_modules', 'simile', 'examples', 'search.mjs')], {
    cwd: application,
  })
  t.is(status, 0, stderr)
  t.regex(stdout, /^.*HNSW/)
})

const SETTINGS: Record<string, string[]> = {
  'node20, ES modules': ['--module', 'node20'],
  'node20, CommonJS': ['--module', 'node20', '--rootDir', '.'],
  bundler: ['--module', 'esnext', '--moduleResolution', 'bundler'],
  commonjs: ['--module', 'commonjs', '--moduleResolution', 'bundler'],
}
for (const [setting, args] of Object.entries(SETTINGS)) {
  test.serial(`types: ${setting}`, (t) => {
    const type = setting === 'node20, ES modules' ? 'module' : 'commonjs'
    writeFileSync(join(application, 'package.json'), JSON.stringify({ name: 'application', private: true, type }))
    const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    // Strict, and our declarations are checked too (no skipLibCheck).
    const strict = [
      '--noEmit',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--noUncheckedIndexedAccess',
      '--target',
      'es2022',
    ]
    const types = [
      '--lib',
      'es2023,esnext.disposable',
      '--typeRoots',
      join(ROOT, 'node_modules', '@types'),
      '--types',
      'node',
    ]
    try {
      execFileSync(process.execPath, [tsc, ...strict, ...types, ...args, 'consumer.ts'], {
        cwd: application,
        encoding: 'utf8',
      })
      t.pass()
    } catch (error) {
      t.fail((error as { stdout: string }).stdout)
    }
  })
}

test('without the package of the platform: an error that says what is missing and what to do', async (t) => {
  const bare = join(folder, 'bare')
  const { name } = json(join(ROOT, 'package.json'))
  const source = `import { TextEmbedding, EmbedError, NativeEmbeddingService } from 'simile'
    const service = new NativeEmbeddingService()
    for (const call of [service.embed(['a']), service.embed(['a']), TextEmbedding.load()]) {
      const error = await call.catch((error) => error)
      console.log(EmbedError.is(error, 'ModelInitialization'), error.message)
    }`
  execFileSync(
    'npm',
    ['install', '--offline', '--ignore-scripts', '--no-package-lock', '--prefix', bare, main, ...others],
    { stdio: 'ignore' },
  )
  const { status, stdout, stderr } = await run(['--input-type=module', '--eval', source], { cwd: bare })
  t.is(status, 0, stderr)
  const lines = stdout.trim().split('\n')
  t.is(lines.length, 3)
  for (const line of lines) {
    t.regex(line, /^true /)
    t.regex(line, new RegExp(`${name}-${process.platform}-${process.arch}`))
    t.regex(line, /NAPI_RS_NATIVE_LIBRARY_PATH/)
    t.regex(line, new RegExp(`The loader said: Cannot find module '${name}-`))
  }
})

test('what is in the packages, and how big it is', (t) => {
  const files = (path: string): string[] =>
    readdirSync(path, { withFileTypes: true, recursive: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
  const main = files(join(installed, 'simile')).map((file) => file.slice(join(installed, 'simile').length + 1))
  t.deepEqual(
    main.filter(
      (file) =>
        !/^(dist\/(core|esm|cjs|native)\/|docs\/[\w-]+\.md$|examples\/\w+\.mjs$|package\.json$|(README|CHANGELOG|CONTRIBUTING)\.md$|LICENSE-(MIT|APACHE)$)/.test(
          file,
        ),
    ),
    [],
  )
  t.deepEqual(
    main.filter((file) => /\.(node|tsbuildinfo)$/.test(file)),
    [],
  )
  for (const page of main.filter((file) => file.endsWith('.md'))) {
    const links = readFileSync(join(installed, 'simile', page), 'utf8').matchAll(/\]\((?!https?:)([^)#\s]+)/g)
    const paths = Array.from(links, ([, target]) => join(dirname(page), target as string))
    t.deepEqual(
      paths.filter((path) => !main.includes(path)),
      [],
      `links of ${page}`,
    )
  }
  const megabytes = files(installed).reduce((sum, file) => sum + statSync(file).size, 0) / 1e6
  t.log(`${megabytes.toFixed(1)} MB unpacked`)
  t.true(megabytes < 15, `${megabytes} MB`)
  const { dependencies = {}, scripts = {}, optionalDependencies } = json(join(installed, 'simile', 'package.json'))
  t.true(Object.keys(dependencies).length <= 5)
  t.is(optionalDependencies, undefined, 'written at release')
  t.deepEqual(
    Object.keys(scripts).filter((name) => /^(pre|post)?install$|^prepare$/.test(name)),
    [],
    'no install scripts',
  )
})

test('each platform of the addon has its package, in step with the main one', (t) => {
  const root = json(join(ROOT, 'package.json'))
  // The addon for GPUs is a package that nobody gets unasked; see below.
  const folders = readdirSync(join(ROOT, 'npm'))
    .filter((name) => !name.startsWith('cuda-'))
    .sort()
  t.is(folders.length, root.napi.targets.length)
  for (const platform of folders) {
    const manifest = json(join(ROOT, 'npm', platform, 'package.json'))
    const [os, cpu, abi] = platform.split('-')
    t.is(manifest.name, `simile-${platform}`)
    t.is(manifest.version, root.version, platform)
    t.is(manifest.license, root.license, platform)
    t.deepEqual(manifest.os, [os])
    t.deepEqual(manifest.cpu, [cpu])
    t.deepEqual(manifest.libc, abi === 'gnu' ? ['glibc'] : abi === 'musl' ? ['musl'] : undefined)
    t.deepEqual(manifest.files, [`simile.${platform}.node`])
  }
})

test('the addon for GPUs is an optional peer in step with the main package', (t) => {
  const root = json(join(ROOT, 'package.json'))
  const manifest = json(join(ROOT, 'npm', 'cuda-linux-x64', 'package.json'))
  t.is(manifest.version, root.version)
  t.is(manifest.license, root.license)
  t.deepEqual([manifest.os, manifest.cpu, manifest.libc], [['linux'], ['x64'], ['glibc']])
  t.deepEqual(manifest.files, [manifest.main])
  t.is(root.peerDependencies[manifest.name], root.version)
  t.true(root.peerDependenciesMeta[manifest.name].optional)
})

test('every test file is run, and no other file looks like one', (t) => {
  const specs = readdirSync(join(ROOT, '__test__'), { recursive: true }).filter((file) =>
    /\.(spec|test)\.[cm]?[jt]s$/.test(String(file)),
  )
  t.deepEqual(
    specs.filter((file) => !String(file).endsWith('.spec.ts') || String(file).includes('fixtures')),
    [],
  )
  t.true(existsSync(join(ROOT, 'npm')))
})
