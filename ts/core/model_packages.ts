/**
 * Models as npm packages: the model `org/name` is in `@simile-models/org--name`, all in lower case, so
 * that a model can be pinned in a lock file, mirrored by a private registry and used without a hub.
 * Its `package.json` says what it holds: `"simile": {"model": "org/name", "revision": "...", "folder": "."}`.
 *
 * Finding one is a matter of Node's resolution, so it is done here; the addon reads the folders.
 */

import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

/** The package that would hold this model; `undefined` for what can only be a folder. */
export function modelPackageName(model: string): string | undefined {
  if (!/^\w[\w.-]*(\/\w[\w.-]*)?$/.test(model)) return undefined
  return `@simile-models/${model.toLowerCase().replace('/', '--')}`
}

/** Folders of the installed packages for this model: the application's, then this package's own neighbour. */
export function modelPackageFolders(model: string): string[] {
  const name = modelPackageName(model)
  if (name === undefined) return []
  const folders = new Set<string>()
  for (const from of [() => join(process.cwd(), 'package.json'), () => __filename]) {
    try {
      folders.add(dirname(createRequire(from()).resolve(`${name}/package.json`)))
    } catch {
      // Not installed there, which is the ordinary case; or the working directory was deleted.
    }
  }
  return [...folders]
}
