// @ts-check
import { readFile } from 'node:fs/promises';
import { openPartnerDatabase } from '@duebridge/partner';

/**
 * Makes the tables of accounts.sql.
 * @param {import('@duebridge/partner').Database} database
 */
export async function makeAccounts(database) {
  await database.query(await readFile(new URL('../accounts.sql', import.meta.url), 'utf8'));
}

if (process.argv[1] === import.meta.filename) {
  const { database, close } = await openPartnerDatabase({ databaseUrl: process.env.DATABASE_URL });
  await makeAccounts(database);
  await close();
}
