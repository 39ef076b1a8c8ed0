/**
 * Compiles a schema into a check. Nothing is coerced, defaulted or removed: the check sees the value as it was sent (decision
 * 11).
 */
import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { Format } from 'typebox/format';
import type { Detail } from './errors.ts';
import { isDate, isDateTime, isOwnInstant, parseInstant } from './time.ts';
import { FORMAT_WORDS, PATTERN_WORDS } from './pattern-words.ts';

Format.Set('date', isDate);
Format.Set('date-time', isOwnInstant);
Format.Set('iso-instant', (text) => parseInstant(text) !== undefined);
Format.Set('iso-date-time', isDateTime);

/** Maximum number of problems in one answer: enough to fix a form in one go, too few to flood a log. */
const MAX_DETAILS = 20;

/** A compiled schema. */
export interface Check<T> {
  /** True when the value matches the schema. */
  holds(value: unknown): value is T;
  /** The problems, with paths that start at `root` (such as `body`); empty when the value matches. */
  problems(value: unknown, root: string): readonly Detail[];
}

/** Compiles a schema; call it once, at startup. Takes a TypeBox schema; returns a check of its static type. */
export function compileCheck<S extends TSchema>(schema: S): Check<Static<S>> {
  const compiled = Compile(schema);
  return {
    holds: (value): value is Static<S> => compiled.Check(value),
    problems(value, root) {
      if (compiled.Check(value)) return [];
      const problems = new Map<string, Detail>();
      for (const error of compiled.Errors(value)) {
        for (const detail of toDetails(error, root)) {
          if (problems.size < MAX_DETAILS && !problems.has(detail.path)) {
            problems.set(detail.path, detail);
          }
        }
      }
      return [...problems.values()];
    },
  };
}

type SchemaError = ReturnType<ReturnType<typeof Compile>['Errors']>[number];

function toDetails(error: SchemaError, root: string): Detail[] {
  const place = `${root}${error.instancePath.replaceAll('/', '.')}`;
  const named = (names: readonly string[], problem: string): Detail[] =>
    names.map((name) => ({ path: `${place}.${name}`, problem }));
  const here = (problem: string | undefined): Detail[] => [
    { path: place, problem: problem ?? error.message },
  ];
  switch (error.keyword) {
    case 'required':
      return named(error.params.requiredProperties, 'is required');
    case 'additionalProperties':
      return named(error.params.additionalProperties, 'is not known here');
    case 'boolean':
      // The schema library reports this before the one above, for the same field, in its own words.
      return here('is not known here');
    case 'type':
      return error.params.type === 'integer'
        ? here('must be a whole number written plainly, such as 1250')
        : here(`must be ${String(error.params.type)}`);
    case 'enum':
      return here(`must be one of ${error.params.allowedValues.join(', ')}`);
    case 'pattern':
      return here(PATTERN_WORDS[String(error.params.pattern)]);
    case 'format':
      return here(FORMAT_WORDS[error.params.format]);
    default:
      return here(error.message);
  }
}
