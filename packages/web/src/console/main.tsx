/** The operator console: sign-in, navigation, keys, and the page that the address names. */
import './language.ts';
import { useEffect, useState } from 'preact/hooks';
import { render, type TargetedSubmitEvent } from 'preact';
import { useSignal } from '@preact/signals';
import { ApiError, call, leave, self, whoAmI, wordsOf } from './api.ts';
import { AuditPageOf } from './audit.tsx';
import { BulkPage } from './bulk.tsx';
import { BatchesPage, BatchPageOf, ReconciliationPage } from './batches.tsx';
import { MoneyPage } from './money.tsx';
import { OperatorsPage, SettingsPage } from './operators.tsx';
import { OverviewPage } from './overview.tsx';
import { PartnerPage, PartnersPage } from './partners.tsx';
import { announcement, fieldsOf, movePage, moveRow, refreshes, settings } from './parts.tsx';
import { PaymentPageOf } from './payment.tsx';
import { PaymentsPage } from './payments.tsx';
import { PeoplePage } from './people.tsx';
import { followLinks, go, link, parts } from './route.ts';
import { myPlaces, Search } from './search.tsx';
import 'uplot/dist/uPlot.min.css';
import './style.css';

function Page() {
  const [place = '', id] = parts.value;
  switch (place) {
    case '':
      return self.value?.partner_id === undefined ? (
        <OverviewPage />
      ) : (
        <PartnerPage id={self.value.partner_id} />
      );
    case 'payments':
      return id === undefined ? <PaymentsPage /> : <PaymentPageOf id={id} key={id} />;
    case 'bulk':
      return <BulkPage />;
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
    case 'people':
      return <PeoplePage />;
    case 'operators':
      return <OperatorsPage />;
    case 'settings':
      return <SettingsPage />;
    default:
      return <h1>There is no such page</h1>;
  }
}

function SignIn() {
  const trouble = useSignal(
    new URLSearchParams(location.search).get('refused') === null
      ? ''
      : 'Your identity is not an operator here: ask an admin to add you.',
  );
  const [oidc, setOidc] = useState(false);
  useEffect(() => {
    fetch('/console/sign-in')
      .then((response) => response.json())
      .then((ways: { oidc: boolean }) => setOidc(ways.oidc))
      .catch(() => setOidc(false));
  }, []);
  const submit = async (event: TargetedSubmitEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const key = fieldsOf(event.currentTarget)('key');
    trouble.value = '';
    try {
      await call('POST', '/console/sign-in', { key });
      await whoAmI();
    } catch (error) {
      trouble.value = wordsOf(error);
    }
  };
  return (
    <main class="sign-in">
      <h1>duebridge console</h1>
      <form onSubmit={(event) => void submit(event)}>
        <label>
          Operator key
          <input name="key" type="password" required autocomplete="current-password" />
        </label>
        <p class="trouble" role="alert">
          {trouble.value}
        </p>
        <button type="submit" class="primary">
          Sign in
        </button>
      </form>
      {oidc ? (
        <p>
          <a class="button" href="/console/oidc/start" target="_self">
            Sign in with your organisation
          </a>
        </p>
      ) : null}
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

// Keys -------------------------------------------------------------------------------------------------------------------------

let gone = false;

addEventListener('keydown', (event) => {
  const { target, key } = event;
  if (key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && self.value) {
    event.preventDefault();
    document.querySelector<HTMLElement>('#search')?.focus();
    return;
  }
  const inField =
    target instanceof Element &&
    target.closest('input:not([type=checkbox]), textarea, select, dialog');
  if (inField !== null || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!settings.value.shortcuts || self.value === null) return;
  if (gone) {
    gone = false;
    const place = myPlaces().find((one) => one.key === key);
    if (place !== undefined) go(place.to);
    return;
  }
  switch (key) {
    case 'g':
      gone = true;
      return;
    case 'j':
    case 'k':
      moveRow(key === 'j' ? 1 : -1);
      break;
    case 'h':
    case 'l':
      movePage(key === 'l' ? 1 : -1);
      break;
    case 'r':
      refreshes.value += 1;
      announcement.value = 'Read again.';
      break;
    case 'x':
      document.activeElement?.closest('tr[data-row]')?.querySelector<HTMLElement>('input')?.click();
      break;
    case '/':
      document.querySelector<HTMLElement>('#search')?.focus();
      break;
    case '?':
      go(link('settings'));
      break;
    default:
      return;
  }
  event.preventDefault();
});

const root = document.querySelector('#console');
if (root !== null) {
  document.addEventListener('click', followLinks);
  // Back must not show the page as the browser kept it: its operator may have signed out since.
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) location.reload();
  });
  render(<Console />, root);
  void whoAmI();
}
