/**
 * The dependencies and their licences.
 *
 *   node scripts/supply-chain.ts licences     fails for a dependency whose licence is not permissive, or is not known
 *   node scripts/supply-chain.ts sbom [FILE]  the bill of materials of what is shipped, CycloneDX 1.6, from package-lock.json
 *   node scripts/supply-chain.ts audit        known vulnerabilities in what is shipped; 1 when there are any, 2 when the registry's
 *                                             advisories cannot be reached, because then nothing was audited
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** One entry of package-lock.json, as npm writes it. */
interface Locked {
  readonly name?: string;
  readonly version?: string;
  readonly license?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly link?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** The part of package-lock.json that is read here. */
export interface Lock {
  readonly name: string;
  readonly version: string;
  readonly packages: Readonly<Record<string, Locked>>;
}

/** May be shipped: users of duebridge only have to keep a notice. */
const PERMISSIVE = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'MIT-0',
  'Unlicense',
]);
/** May be used to build and test, where nothing of it is shipped: copyleft for each file, and Python's own. */
const TOOLS = new Set([...PERMISSIVE, 'MPL-2.0', 'Python-2.0']);

/** Whether an SPDX expression can be met with allowed licences alone. Anything that is no such expression cannot. */
export function isAllowed(expression: string | undefined, allowed: ReadonlySet<string>): boolean {
  if (expression === undefined) return false;
  const text = expression.replace(/^\((.*)\)$/, '$1');
  // No nested expression occurs; if one does, it is refused, and a person reads it.
  if (/[()]/.test(text)) return false;
  return text
    .split(' OR ')
    .some((choice) => choice.split(' AND ').every((licence) => allowed.has(licence.trim())));
}

/** Entries that come from a registry, by the folder they are in. */
function installed(lock: Lock): [folder: string, entry: Locked][] {
  return Object.entries(lock.packages).filter(
    ([folder, { link }]) => folder.includes('node_modules/') && link !== true,
  );
}

/** Dependencies whose licence does not allow their use, each as a sentence. */
export function licenceProblems(lock: Lock): string[] {
  return installed(lock)
    .filter(([, { dev, license }]) => !isAllowed(license, dev === true ? TOOLS : PERMISSIVE))
    .map(([folder, { version, license, dev }]) => {
      const named = `${nameOf(folder)} ${version}`;
      const use = dev === true ? 'a tool' : 'shipped';
      return license === undefined
        ? `${named} (${use}) names no licence`
        : `${named} (${use}) is under ${license}, which is not among the permissive ones`;
    });
}

function nameOf(folder: string): string {
  return folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

function purlOf(name: string, version: string | undefined): string {
  return `pkg:npm/${name.replace('@', '%40')}@${version ?? '0'}`;
}

/** The folder in which Node finds `name` for a package in `folder`; undefined where it is not installed (an optional one). */
function resolved(lock: Lock, folder: string, name: string): string | undefined {
  for (let at = folder; ;) {
    const candidate = `${at === '' ? '' : `${at}/`}node_modules/${name}`;
    if (lock.packages[candidate] !== undefined) return candidate;
    if (at === '') return undefined;
    const up = at.lastIndexOf('/node_modules/');
    at = up < 0 ? '' : at.slice(0, up);
  }
}

/** The bill of materials of what is shipped: our packages' dependencies without the tools, with their hashes and who needs whom. */
export function sbom(lock: Lock): object {
  const shipped = installed(lock).filter(([, { dev }]) => dev !== true);
  const own = Object.entries(lock.packages).filter(([folder]) => /^packages\/[^/]+$/.test(folder));
  const refOf = (folder: string): string => {
    const entry = lock.packages[folder];
    const target = entry?.link === true ? lock.packages[entry.resolved ?? ''] : entry;
    return purlOf(target?.name ?? nameOf(folder), target?.version);
  };
  const rootRef = purlOf(lock.name, lock.version);
  const component = (folder: string, entry: Locked): object => ({
    type: 'library',
    'bom-ref': refOf(folder),
    name: entry.name ?? nameOf(folder),
    version: entry.version,
    purl: refOf(folder),
    licenses: [{ expression: entry.license ?? 'Apache-2.0' }],
    ...(entry.integrity === undefined
      ? {}
      : {
          hashes: [
            {
              alg: 'SHA-512',
              content: Buffer.from(entry.integrity.replace(/^sha512-/, ''), 'base64').toString(
                'hex',
              ),
            },
          ],
        }),
    ...(entry.resolved?.startsWith('https://') === true
      ? { externalReferences: [{ type: 'distribution', url: entry.resolved }] }
      : {}),
  });
  const needs = (folder: string, entry: Locked | undefined): object => ({
    ref: folder === '' ? rootRef : refOf(folder),
    dependsOn: [
      ...new Set(
        Object.keys({ ...entry?.dependencies, ...entry?.optionalDependencies })
          .map((name) => resolved(lock, folder, name))
          .filter((found) => found !== undefined)
          .map(refOf),
      ),
    ].toSorted(),
  });
  const all = unique([...own, ...shipped], ([folder]) => refOf(folder));
  const document = {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      component: {
        type: 'application',
        'bom-ref': rootRef,
        name: lock.name,
        version: lock.version,
        purl: rootRef,
        licenses: [{ expression: 'Apache-2.0' }],
      },
    },
    components: all.map(([folder, entry]) => component(folder, entry)),
    dependencies: [
      needs('', lock.packages['']),
      ...all.map(([folder, entry]) => needs(folder, entry)),
    ],
  };
  // Named by its content: the same lock file gives the same document, byte by byte.
  const hash = createHash('sha256').update(JSON.stringify(document)).digest('hex');
  const uuid = `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    serialNumber: `urn:uuid:${uuid}`,
    ...document,
  };
}

function unique<T>(items: readonly T[], keyOf: (item: T) => string): T[] {
  return [...new Map(items.map((item) => [keyOf(item), item])).values()];
}

/** What `npm audit --json` said, as an exit code and sentences. */
export function judgeAudit(output: string): { readonly code: 0 | 1 | 2; readonly said: string } {
  let report: {
    auditReportVersion?: number;
    message?: string;
    vulnerabilities?: Readonly<Record<string, { severity: string; range: string }>>;
  };
  try {
    report = JSON.parse(output) as typeof report;
  } catch {
    report = { message: output.slice(0, 200) };
  }
  if (report.auditReportVersion === undefined || report.vulnerabilities === undefined) {
    const why = report.message ?? 'npm said nothing';
    return {
      code: 2,
      said: `the registry's advisories cannot be reached, so nothing was audited: ${why}`,
    };
  }
  const found = Object.entries(report.vulnerabilities);
  if (found.length === 0) {
    return { code: 0, said: 'no known vulnerability in what is shipped' };
  }
  const lines = found.map(
    ([name, { severity, range }]) => `${name} ${range} has a known vulnerability (${severity})`,
  );
  return { code: 1, said: [...lines, 'npm audit --omit=dev shows more'].join('\n') };
}

function readLock(): Lock {
  const file = join(import.meta.dirname, '..', 'package-lock.json');
  return JSON.parse(readFileSync(file, 'utf8')) as Lock;
}

function audit(): Promise<string> {
  return new Promise((resolve) => {
    const words = ['audit', '--json', '--omit=dev', '--package-lock-only'];
    execFile('npm', words, { cwd: join(import.meta.dirname, '..') }, (error, out) =>
      // It exits with 1 for a finding as well as for an unreachable registry: its output says which.
      resolve(out === '' ? JSON.stringify({ message: error?.message }) : out),
    );
  });
}

async function main([command, file]: readonly string[]): Promise<number> {
  switch (command) {
    case 'licences': {
      const problems = licenceProblems(readLock());
      for (const problem of problems) console.error(problem);
      if (problems.length === 0) console.log('every licence is permissive');
      return problems.length === 0 ? 0 : 1;
    }
    case 'sbom': {
      const text = `${JSON.stringify(sbom(readLock()), undefined, 2)}\n`;
      if (file === undefined) process.stdout.write(text);
      else writeFileSync(file, text);
      return 0;
    }
    case 'audit': {
      const { code, said } = judgeAudit(await audit());
      console.log(said);
      return code;
    }
    default:
      console.error('name one of licences, sbom [FILE] and audit');
      return 3;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  process.exitCode = await main(process.argv.slice(2));
}
