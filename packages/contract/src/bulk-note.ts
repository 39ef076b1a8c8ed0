/** What an act did to one payment, as the console and the command line say it. A file without schemas: the console's build takes it whole. */
import type { BulkAct, PartnerAnswer, ReviewClose } from './operate.ts';

/** `answer` is that of the act's own operation. */
export function bulkNote(act: BulkAct, answer: unknown): string {
  switch (act) {
    case 'resume':
      return 'It is sent again';
    case 'withdraw':
      return 'It is canceled';
    case 'poll':
      return `The partner says ${(answer as PartnerAnswer).answer.replaceAll('_', ' ')}`;
    case 'close':
      return (answer as ReviewClose).outcome === 'closed'
        ? 'It ended as failed'
        : 'It waits for a second person';
  }
}
