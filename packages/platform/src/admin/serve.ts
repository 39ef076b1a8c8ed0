/** How an admin operation is mounted (admin.ts). */
import type { Route } from '@duebridge/contract';
import type { Call, Handler } from '@duebridge/runtime';
import type { Operator } from './operators.ts';

/** A call with who makes it: the operator, and the name that the audit records. */
type AdminHandler<R extends Route> = (
  call: Call<R> & { readonly operator: Operator; readonly actor: string },
) => ReturnType<Handler<R>>;

/** Mounts an operation behind the role, and the tie to a partner, named in its table entry. */
export type Serve = <const R extends Route>(route: R, handler: AdminHandler<R>) => void;
