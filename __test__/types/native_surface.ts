/** The addon's generated types fit what ts/core/native.ts was written against. Compiled, never run. */

import type { NativeBinding } from '../../dist/core/native.js'
import type * as generated from '../../dist/native/binding.cjs'

declare const addon: typeof generated
export const binding: NativeBinding = addon
