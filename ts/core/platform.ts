/** What this process runs on, as the packages of the addon are named. */

/** The platforms that a package is published for. */
export const PLATFORMS = [
  'darwin-arm64',
  'darwin-x64',
  'linux-arm64-gnu',
  'linux-arm64-musl',
  'linux-x64-gnu',
  'linux-x64-musl',
  'win32-arm64-msvc',
  'win32-x64-msvc',
] as const

/** This process's platform as the packages are named: system, processor and C library. */
export function platformName(): string {
  const { platform, arch } = process
  if (platform === 'win32') return `win32-${arch}-msvc`
  if (platform !== 'linux') return `${platform}-${arch}`
  const report = process.report?.getReport() as unknown as { header?: { glibcVersionRuntime?: string } } | undefined
  return `linux-${arch}-${report?.header?.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`
}
