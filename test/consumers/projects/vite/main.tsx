import { createDuebridge } from '@duebridge/web/embed';
import { DuebridgeFrame } from '@duebridge/web/embed/react';
import { createRoot } from 'react-dom/client';

const fetchToken = async (): Promise<string> => {
  const answer = await fetch('/token', { method: 'POST' });
  const { token } = (await answer.json()) as { token: string };
  return token;
};

const root = document.getElementById('root');
if (root !== null) {
  createRoot(root).render(
    <DuebridgeFrame partner="acme" frameOrigin="https://pay.example" fetchToken={fetchToken} />,
  );
}
document.title = typeof createDuebridge;
