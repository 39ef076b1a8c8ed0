/** The operator console: sign-in, navigation, and the page that the address names. */
import { useEffect, useState } from 'preact/hooks';
import { render } from 'preact';
import { ApiError, call, leave, self, whoAmI } from './api.ts';
import { AuditPageOf } from './audit.tsx';
import { BatchesPage, BatchPageOf, ReconciliationPage } from './batches.tsx';
import { MoneyPage } from './money.tsx';
import { OverviewPage } from './overview.tsx';
import { PartnerPage, PartnersPage } from './partners.tsx';
import { announcement, changeZone, Form, inUtc } from './parts.tsx';
import { PaymentPageOf } from './payment.tsx';
import { PaymentsPage } from './payments.tsx';
import { followLinks, link, parts } from './route.ts';
import { myPlaces, Search } from './search.tsx';
import './style.css';

function Page() {
  const [place = '', id] = parts.value;
  const own = self.value?.partner_id;
  switch (place) {
    case '':
      return own === undefined ? <OverviewPage /> : <PartnerPage id={own} />;
    case 'payments':
      return id === undefined ? <PaymentsPage /> : <PaymentPageOf id={id} key={id} />;
    case 'partners':
      return id === undefined ? <PartnersPage /> : <PartnerPage id={id} key={id} />;
    case 'batches':
      return id === undefined ? <BatchesPage /> : <BatchPageOf id={id} key={id} />;
    case 'reconciliation':
      return <ReconciliationPage />;
    case 'money':
      return <MoneyPage />;
    case 'audit':
      return <AuditPageOf />;
    default:
      return <h1>There is no such page</h1>;
  }
}

function SignIn() {
  const [oidc, setOidc] = useState(false);
  useEffect(() => {
    fetch('/console/sign-in')
      .then((response) => response.json())
      .then((ways: { oidc: boolean }) => setOidc(ways.oidc))
      .catch(() => setOidc(false));
  }, []);
  return (
    <main class="sign-in">
      <h1>duebridge console</h1>
      {new URLSearchParams(location.search).has('refused') && (
        <p class="trouble" role="alert">
          Your identity is not an operator here: ask an admin to add you.
        </p>
      )}
      <Form
        fields={[
          {
            name: 'key',
            label: 'Operator key',
            type: 'password',
            required: true,
            autocomplete: 'current-password',
          },
        ]}
        button="Sign in"
        submit={async (values) => {
          await call('POST', '/console/sign-in', values);
          await whoAmI();
        }}
      />
      {oidc && (
        <p>
          <a class="button" href="/console/oidc/start" target="_self">
            Sign in with your organisation
          </a>
        </p>
      )}
    </main>
  );
}

async function signOut(): Promise<void> {
  try {
    await call('POST', '/console/sign-out');
  } catch (error) {
    if (error instanceof ApiError && error.again) {
      announcement.value =
        'You are still signed in, because the platform does not answer: sign out again.';
      return;
    }
  }
  leave(link());
}

function Console() {
  const [place = ''] = parts.value;
  const who = self.value;
  useEffect(() => {
    const name = myPlaces().find(({ path }) => path === place)?.name ?? 'Console';
    document.title = `${name} · duebridge`;
  }, [place]);
  if (who === undefined) return <p>Loading…</p>;
  if (who === null) return <SignIn />;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <header class="top">
        <strong>duebridge</strong>
        <nav aria-label="Console">
          {myPlaces().map(({ name, path, to }) => (
            <a key={path} href={to} aria-current={path === place ? 'page' : undefined}>
              {name}
            </a>
          ))}
        </nav>
        <span class="who">
          {who.name} ({who.role}){' '}
          <button type="button" aria-pressed={inUtc.value} onClick={changeZone}>
            UTC
          </button>{' '}
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        </span>
        <Search />
        {/* Beside the field, where it covers nothing and moves nothing. */}
        <div class="announcement" role="status">
          {announcement.value}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <Page />
      </main>
    </>
  );
}

const root = document.querySelector('#console');
if (root !== null) {
  document.addEventListener('click', followLinks);
  // With a modifier, as WCAG 2.1.4 wants it: single keys may be speech.
  addEventListener('keydown', (event) => {
    if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    document.querySelector<HTMLElement>('#search')?.focus();
  });
  // Back must not show the page as the browser kept it: its operator may have signed out since.
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) location.reload();
  });
  render(<Console />, root);
  void whoAmI();
}
