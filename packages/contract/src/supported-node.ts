/**
 * Refuses a Node that the packages do not run on. Every entry of a package that runs on a server imports this file before anything
 * else: below Node 22.19 what they depend on fails while it loads, with a message that names neither Node nor the fix.
 * It imports nothing, so that any Node which knows ES modules can read it. A name that is newer than Node 18 is used as
 * `crypto.hash`, of the default import: `import { hash }` fails while the modules are linked, before this file runs.
 */

/** The oldest Node that runs the packages: `engines` of every package.json. */
const OLDEST = { major: 22, minor: 19 };

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < OLDEST.major || (major === OLDEST.major && minor < OLDEST.minor)) {
  const problem = new Error(
    `Node ${OLDEST.major}.${OLDEST.minor} or newer is needed, and this is Node ${process.versions.node}: ` +
      'install a newer one from https://nodejs.org or with your version manager',
  );
  throw Object.assign(problem, { exitCode: 2 });
}
