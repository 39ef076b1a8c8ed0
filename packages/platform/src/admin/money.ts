/** The admin operations on money: the book, and whether it holds. */
import { platformAdminRoutes as routes, type Route } from '@duebridge/contract';
import type { Clock, Database, Handler } from '@duebridge/runtime';
import { checkMoney, HOURLY_DAYS, readBalances } from '../money/check.ts';

/** Mounts them by `serve`, which checks the caller's role. */
export function mountMoney(
  serve: <const R extends Route>(route: R, handler: Handler<R>) => void,
  { database, clock }: { readonly database: Database; readonly clock: Clock },
): void {
  serve(routes.get_money, async ({ query }) => ({
    balances: await readBalances(database, query.day),
  }));
  serve(routes.check_money, ({ query }) =>
    checkMoney(database, clock.now(), Math.min(36_500, Number(query.days ?? HOURLY_DAYS))),
  );
}
