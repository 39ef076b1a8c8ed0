/**
 * docs/operations.md is true: its tables of variables and of what leaves are those of the code, and its metrics are those that the servers
 * expose. Its grants are checked by grants.test.ts.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 prints these tables again instead of comparing them.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { startPartner } from '@duebridge/partner';
import { startPlatform } from '@duebridge/platform';
import type { Variable } from '@duebridge/runtime/cli';
import { testDatabase, type TestDatabase } from '@duebridge/runtime/testing';
import { variables as partnerVariables } from '../packages/partner/src/variables.ts';
import { LEAVING } from '../packages/platform/src/checkout/retention.ts';
import { variables as platformVariables } from '../packages/platform/src/variables.ts';
import { formatted } from './support/formatted.ts';

const file = join(import.meta.dirname, '../docs', 'operations.md');
const page = readFileSync(file, 'utf8');
const UPDATE = process.env['DUEBRIDGE_UPDATE_DOCS'] === '1';

type Side = 'platform' | 'partner';
const SIDES = {
  platform: platformVariables as Readonly<Record<string, Variable<unknown>>>,
  partner: partnerVariables as Readonly<Record<string, Variable<unknown>>>,
};

test('every variable, and what leaves when, is documented as the code has it', async () => {
  let printed = page;
  for (const side of ['platform', 'partner'] as const) {
    const mark = new RegExp(`(<!-- variables of ${side}: begin -->\n)[\\s\\S]*?(<!-- end -->)`);
    assert.match(printed, mark);
    printed = printed.replace(
      mark,
      (_all, begin, end) => `${begin}\n${table(SIDES[side])}\n\n${end}`,
    );
  }
  const leaving = Object.values(LEAVING).map(({ what, leaves }) => `| ${what} | ${leaves} |`);
  const rows = ['| what | leaves |', '| --- | --- |', ...leaving].join('\n');
  printed = printed.replace(
    /(<!-- what leaves: begin -->\n)[\s\S]*?(<!-- end -->)/,
    (_all, begin, end) => `${begin}\n${rows}\n\n${end}`,
  );
  printed = await formatted(printed);
  if (UPDATE) writeFileSync(file, printed);
  else assert.equal(page, printed, 'DUEBRIDGE_UPDATE_DOCS=1 prints docs/operations.md again');
});

function shown(value: unknown): string {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function table(variables: Readonly<Record<string, Variable<unknown>>>): string {
  const rows = Object.values(variables).map((row) => {
    const unset = row.otherwise ?? shown(row.default);
    const name = `\`${row.name}\`${row.secret ? ' (or `_FILE`)' : ''}`;
    return `| ${name} | ${row.description.replaceAll('|', '\\|')} | ${unset} |`;
  });
  return ['| variable | what it sets | when unset |', '| --- | --- | --- |', ...rows].join('\n');
}

/** A database that `migrate` has just made, owned by the role that made it. */
function database(t: TestContext, side: Side): Promise<TestDatabase> {
  const directory = new URL(`../packages/${side}/src/migrations/`, import.meta.url);
  return testDatabase(t, { migrations: { schema: `duebridge_${side}`, directory } });
}

/** Starts a server as its command does, without a port that somebody else could have. */
function start(
  side: Side,
  databaseUrl: string,
): Promise<{ adminUrl: string; stop(): Promise<void> }> {
  const common = { databaseUrl, port: 0, adminPort: 0, adminKey: ADMIN_KEY, migrate: false };
  return side === 'partner'
    ? startPartner({
        ...common,
        auth: { method: 'key', header: 'x-api-key', keys: ['a-key-of-the-test'] },
      })
    : startPlatform({
        ...common,
        sealKey: Buffer.alloc(32, 1).toString('base64'),
        keyPepper: Buffer.alloc(32, 2).toString('base64'),
      });
}

const ADMIN_KEY = 'an-admin-key-of-the-test';

for (const side of ['platform', 'partner'] as const) {
  test(`the documented metrics are those of the ${side}`, async (t) => {
    const made = await database(t, side);
    const server = await start(side, made.url);
    made.closing(() => server.stop());
    const scraped = await fetch(`${server.adminUrl}/metrics`, {
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    assert.equal(scraped.status, 200);
    const exposed = [...(await scraped.text()).matchAll(/^# HELP (duebridge_\w+)/gm)].map(
      ([, name = '']) => name,
    );
    const part = page.split(/^### /m).find((text) => text.startsWith(`Metrics of the ${side}`));
    const described = [...(part ?? '').matchAll(/^\| `(duebridge_\w+)`/gm)].map(
      ([, name = '']) => name,
    );
    assert.deepEqual(described.toSorted(), exposed.toSorted());
  });
}
