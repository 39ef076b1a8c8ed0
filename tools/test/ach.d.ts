/** What a test uses of a library that has no types. */
declare module '@ach/ach' {
  import type { Duplex } from 'node:stream';

  /** Its parsers by format: text of a file in, one object out. */
  export default function ach(): { getParser(format: 'ach'): Duplex };
}
