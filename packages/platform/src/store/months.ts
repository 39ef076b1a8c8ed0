/**
 * Months: payments and their audit are partitioned by month (decision 63), so that vacuum, indexes and removal are those of a month.
 *
 * enters: time passing.  leaves: a partition for each of the next months, made by a function of the database whose owner may make tables.
 * holds:  no statement of the platform names a partition; the id of a payment and the time of a line say where they are.
 */
import { sql, type Database } from '@duebridge/runtime';

const makeStatement = sql(`SELECT duebridge_platform.make_months() AS made`);

/** Makes the partitions of this month and the next three that are missing; gives their names. Any number of replicas may do so. */
export async function makeMonths(database: Database): Promise<readonly string[]> {
  const [row] = await database.query<{ made: string[] }>(makeStatement);
  return row?.made ?? [];
}
