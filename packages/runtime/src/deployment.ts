/**
 * The deployment that a database belongs to (decision 34). Each side's schema has one row with an id and, for each secret that
 * its data depends on, a keyed value computed from both. A start with another secret, or on another deployment's database, is
 * refused immediately. Without the row it would adopt the payments in flight and fail each of them.
 */
import { createHmac, randomUUID, type KeyObject } from 'node:crypto';
import { ConfigurationError } from './errors.ts';
import type { Database } from './postgres.ts';

/** A secret that the data depends on. */
export interface DeploymentSecret {
  /** Its variable, named in the error message. */
  readonly variable: string;
  /** The current key, then those that may still have been in use at the last start (a rotation). */
  readonly keys: readonly KeyObject[];
}

interface Row {
  deployment_id: string;
  secrets: Record<string, string>;
}

/**
 * Compares the secrets with the database's values and stores those of new secrets. Returns the id of the deployment. Throws
 * ConfigurationError naming every variable that does not fit.
 */
export async function checkDeployment(
  database: Database,
  schema: string,
  secrets: readonly DeploymentSecret[],
): Promise<string> {
  const table = `${schema}.deployment`;
  const read = (): Promise<Row[]> =>
    database.query<Row>(`SELECT deployment_id, secrets FROM ${table}`);
  let [row] = await read();
  if (row === undefined) {
    const deployment_id = randomUUID();
    const values = Object.fromEntries(
      secrets.map((secret) => [secret.variable, keyedValues(secret, deployment_id)[0]]),
    );
    // Of several concurrent first starts one wins; the others compare with what it wrote.
    await database.query(
      `INSERT INTO ${table} (deployment_id, secrets) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
      [deployment_id, JSON.stringify(values)],
    );
    [row] = await read();
    if (row === undefined) throw new ConfigurationError(`${table} was emptied during the start`);
  }
  const wrong: string[] = [];
  const changed: Record<string, string> = {};
  for (const secret of secrets) {
    const kept = row.secrets[secret.variable];
    const values = keyedValues(secret, row.deployment_id);
    const [current] = values;
    if (current === undefined || kept === current) continue;
    // A key placed before the former one (a rotation), or a secret that an earlier version did not check.
    if (kept === undefined || values.includes(kept)) changed[secret.variable] = current;
    else wrong.push(secret.variable);
  }
  if (wrong.length > 0) {
    throw new ConfigurationError(
      `${wrong.join(' and ')} ${wrong.length === 1 ? 'is not the one' : 'are not those'} that this database was used with before: ` +
        `give the former ${wrong.length === 1 ? 'one' : 'ones'}, or correct DATABASE_URL if it leads to the database of another deployment`,
    );
  }
  if (Object.keys(changed).length > 0) {
    await database.query(`UPDATE ${table} SET secrets = secrets || $1::jsonb`, [
      JSON.stringify(changed),
    ]);
  }
  return row.deployment_id;
}

function keyedValues({ variable, keys }: DeploymentSecret, deployment_id: string): string[] {
  return keys.map((key) =>
    createHmac('sha256', key).update(`duebridge ${variable} ${deployment_id}`).digest('base64url'),
  );
}
