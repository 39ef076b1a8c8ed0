/**
 * The way from nothing to a partner server that passes, for somebody who has the packages and an empty folder:
 * docs/quickstart-partner.md followed to the letter.
 */
import assert from 'node:assert/strict';
import { describe, after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { freePort, testDatabase } from '@duebridge/runtime/testing';
import { readPage } from '../support/page.ts';
import { Consumer, emptyFolder, packAll, type Cleanup } from './consumer.ts';

const page = readPage('docs/quickstart-partner.md');
const kitPage = readPage('docs/partner-kit.md');
const packed = await packAll(await emptyFolder({ after }, 'packed'));
const migrations = {
  schema: 'nothing',
  directory: pathToFileURL(`${await emptyFolder({ after }, 'no-migrations')}/`),
};

/** The way through step 3 that is followed here; projects.full.test.ts follows each of them, on every Node and with a database. */
const VARIANT = 'With Fastify';

describe('a stranger ends with a green report', { concurrency: true }, () => {
  test('who follows the page without a database, and takes the one that comes along', async (t) => {
    const port = await freePort();
    const environment = { PORT: String(port), ADMIN_PORT: '0' };
    const consumer = await Consumer.create(t, { packed, name: 'stranger', environment });
    const blocks = page
      .filter(({ heading }) => heading === VARIANT || !/^(With|Beside) /.test(heading))
      .flatMap((part) => part.blocks);
    const report = await consumer.follow(t, blocks);
    assert.match(report, /conforms to the interface: (\d+) of \1 checks passed/);
  });

  test('the program of partner-kit.md for Koa', async (t) => {
    const database = await testDatabase(t, { migrations });
    const port = await freePort();
    const consumer = await Consumer.create(t, {
      packed,
      name: 'koa',
      environment: {
        DATABASE_URL: database.url,
        DUEBRIDGE_PARTNER_KEY: 'a-key-that-only-we-two-know',
      },
    });
    await consumer.write('package.json', '{ "private": true, "type": "module" }');
    await consumer.install('@duebridge/partner', 'fastify', 'koa');
    const setup = page.flatMap(({ blocks }) => blocks).find(({ file }) => file === 'setup.js');
    await consumer.write('setup.js', setup?.text ?? '');
    await consumer.run('node', ['setup.js']);
    const program = kitPage
      .find(({ heading }) => heading === 'Koa')
      ?.blocks.find(({ language }) => language === 'js');
    assert.ok(program, 'the page has a program for Koa');
    await consumer.write(
      'koa.js',
      `import { openPartnerDatabase, partnerHandler } from '@duebridge/partner';
       import Koa from 'koa';
       const { database } = await openPartnerDatabase({ databaseUrl: process.env.DATABASE_URL });
       const auth = { method: 'key', header: 'x-api-key', keys: [process.env.DUEBRIDGE_PARTNER_KEY] };
       const accounts = undefined;
       const app = new Koa();
       ${program.text}
       app.use((ctx) => { ctx.body = 'own'; });
       app.listen(${port}, '127.0.0.1');`,
    );
    const cleanup: Cleanup = { after: (hook) => database.closing(hook) };
    await consumer.serve(cleanup, 'exec node koa.js', port);
    const headers = { 'x-api-key': 'a-key-that-only-we-two-know' };
    const account = `http://127.0.0.1:${port}/biller/my-biller/account/A-1`;
    const found = await fetch(account, { headers });
    assert.equal(found.status, 200);
    assert.equal(((await found.json()) as { account_id: string }).account_id, 'A-1');
    assert.equal((await fetch(account)).status, 401);
    assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), 'own');
  });
});
