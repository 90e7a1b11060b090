/**
 * The addon for NVIDIA GPUs: the whole engine again, in an optional package of its own that nothing installs by itself,
 * because its file does not load where the CUDA libraries are missing.
 *
 * Contract: {@link cudaAddon} gives its exports, loading them at the first use, or throws a `ModelInitializationError` that
 * says what is missing (the package, its version, a library) and how to get it. Nothing is remembered of a failure: what
 * was missing may be installed by the next call.
 */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { ModelInitializationError } from './errors'
import type { NativeBinding } from './native'
import { platformName } from './platform'

const PACKAGE = 'simile-cuda-linux-x64'
/** As {@link platformName} gives it. */
const PLATFORM = 'linux-x64-gnu'

let addon: NativeBinding | undefined

/** The addon's exports. */
export function cudaAddon(): NativeBinding {
  addon ??= load()
  return addon
}

function load(): NativeBinding {
  const platform = platformName()
  if (platform !== PLATFORM) {
    throw failed(`there is a package for ${PLATFORM} only, and this is ${platform}; use 'cpu'`)
  }
  const { version } = JSON.parse(readFileSync(join(__dirname, '../../package.json'), 'utf8')) as { version: string }
  const install = `run "npm install ${PACKAGE}@${version}"`
  const folders = packageFolders()
  if (folders.length === 0) {
    throw failed(`it comes in the optional package ${PACKAGE}, which is not installed: ${install}`)
  }
  // All files hold the same engine, and this layer speaks the protocol of its own version.
  const versions = folders.map(versionOf)
  const folder = folders[versions.indexOf(version)]
  if (folder === undefined) {
    throw failed(
      `${PACKAGE} has version ${versions.join(' and ')} and simile ${version}, which must be equal: ${install}`,
    )
  }
  try {
    return require(folder) as NativeBinding
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split('\n', 1)[0] as string) : String(cause)
    const library = /^(lib[\w.+-]+): cannot open shared object file/.exec(reason)?.[1]
    throw failed(library === undefined ? `${PACKAGE} could not be loaded: ${reason}` : missing(library), cause)
  }
}

/** Where the package is: beside this one, then beside the application. */
function packageFolders(): string[] {
  const folders = new Set<string>()
  for (const from of [() => __filename, () => join(process.cwd(), 'package.json')]) {
    try {
      folders.add(dirname(createRequire(from()).resolve(`${PACKAGE}/package.json`)))
    } catch {
      // Not installed there; or the working directory was deleted.
    }
  }
  return [...folders]
}

function versionOf(folder: string): string {
  try {
    return String((JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version?: unknown }).version)
  } catch {
    return 'unreadable'
  }
}

function missing(library: string): string {
  const source = library.startsWith('libcuda.')
    ? 'it belongs to the NVIDIA driver (580 or newer), so this machine has no NVIDIA GPU or no driver for it'
    : 'it belongs to the CUDA 13 runtime: install it, and put its folder where the loader looks (ldconfig, LD_LIBRARY_PATH)'
  return `the library ${library} was not found: ${source}`
}

function failed(reason: string, cause?: unknown): ModelInitializationError {
  return new ModelInitializationError(`device 'cuda' cannot be used: ${reason}`, { option: 'device', cause })
}
