/** When the next step of a payment is due, counted down. */
import type { ListedPayment } from '@duebridge/contract';
import { useEffect, useState } from 'preact/hooks';
import { lasting, moment } from './parts.tsx';

const STEPS = { submit: 'send', poll: 'poll', settle: 'settle' } as const;

export function NextStep({ payment }: { payment: ListedPayment }) {
  const { next_step, paused, stage } = payment;
  const at = next_step === null ? undefined : Date.parse(next_step.at);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (at === undefined) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [at]);
  if (paused) return <>paused</>;
  if (stage === 'review') return <>waits for an operator</>;
  if (next_step === null || at === undefined) return <>–</>;
  const words = STEPS[next_step.step];
  return (
    <time dateTime={next_step.at} title={moment(next_step.at)}>
      {at - now < 1_000 ? `${words} due now` : `${words} in ${lasting(at - now)}`}
    </time>
  );
}
