/** The wire: schemas, routes, errors and rules that both sides share. Runs in Node and in browsers. */
export * from './account.ts';
export * from './admin.ts';
export * from './clauses.ts';
export * from './customer.ts';
export * from './errors.ts';
export * from './fields.ts';
export * from './flow.ts';
export * from './json.ts';
export * from './money.ts';
export * from './oauth.ts';
export * from './openapi.ts';
export * from './payment.ts';
export * from './routes.ts';
export * from './status.ts';
export * from './time.ts';
export * from './validate.ts';
