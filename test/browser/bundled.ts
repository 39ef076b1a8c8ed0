/** A file of a test's site, with what it imports, as one script for a page. `alias`: where packages are that are not installed. */
import { build, type Rolldown } from 'vite';

export async function bundled(
  file: string,
  alias: Readonly<Record<string, string>> = {},
): Promise<string> {
  const made = (await build({
    configFile: false,
    logLevel: 'error',
    // A file outside the repository has its React.
    resolve: { alias, dedupe: ['react', 'react-dom'] },
    define: { 'process.env.NODE_ENV': '"development"' },
    oxc: { jsx: { runtime: 'automatic', importSource: 'react' } },
    build: {
      write: false,
      minify: false,
      rolldownOptions: { input: file, output: { format: 'iife' } },
    },
  })) as Rolldown.RolldownOutput;
  return made.output[0].code;
}
