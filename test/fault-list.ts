/**
 * The catalogue of faults: what goes wrong in the world, what has to happen then, and which test makes it happen. docs/faults.md is
 * written from it. F01 to F68 are scenarios of the sandbox partner and driven by faults.test.ts, all of them; the rest is here.
 */

/** Where a fault is made to happen. */
export type Proof =
  /** A test: its file, and how its title begins. */
  | { readonly file: string; readonly title: string }
  /** A fault of the crash rig (test/rig/faults.ts, drills.ts), by its kind. */
  | { readonly rig: string };

/** One fault. */
export interface ListedFault {
  readonly id: string;
  /** What happens, and what must follow from it. */
  readonly what: string;
  readonly proofs: readonly Proof[];
  /** What of it no test makes happen, and why. */
  readonly untested?: string;
}

const test = (file: string, title: string): Proof => ({ file, title });
const rig = (kind: string): Proof => ({ rig: kind });

const RUNTIME = 'packages/runtime/src';
const PARTNER = 'packages/partner/src';
const PLATFORM = 'packages/platform/src';

/**
 * Faults of the partner whose scenario alone would pass a wrong reading, because payments end all the same: the test that tells the
 * reading itself. A partner that errs in one field after another is caught by any of them; a token that is believed for ever is renewed
 * by the first 401, and one that is used once is fetched for each call.
 */
export const PARTNER_FAULTS_READ: Readonly<Record<string, readonly Proof[]>> = (() => {
  const oauth = `${PLATFORM}/partners/oauth-client.test.ts`;
  const retryAfter = [test(oauth, 'Retry-After is clamped, and nonsense is ignored')];
  const steps = `${PLATFORM}/engine/payment-steps.test.ts`;
  const record = `${PLATFORM}/partners/payment-record.test.ts`;
  const life = [test(oauth, 'expires_in is read as seconds')];
  const refused = [test(oauth, 'an invalid token answer is refused')];
  const other = [test(record, 'a record of another payment, amount')];
  return {
    F10: retryAfter,
    F35: [
      test(record, 'succeeded without a usable posted_at is not yet the end'),
      test(steps, 'succeeded without posted_at is accepted, polled five more times'),
    ],
    F57: [test(oauth, 'a revoked token leads to one new fetch and one repeat')],
    F65: [test(oauth, 'a thousand waiting payments fetch one token')],
    ...Object.fromEntries(['F27', 'F28', 'F30', 'F31'].map((id) => [id, other])),
    ...Object.fromEntries(
      ['F51', 'F52', 'F53', 'F54', 'F55', 'F56', 'F58'].map((id) => [id, life]),
    ),
    ...Object.fromEntries(['F59', 'F61', 'F64'].map((id) => [id, refused])),
  };
})();

/** Faults of the database, of processes and time, and of callers. */
export const FAULTS_BEYOND_THE_PARTNER: readonly ListedFault[] = [
  // The database
  {
    id: 'F69',
    what: 'A backend or the whole of PostgreSQL is killed: nothing acknowledged is lost, and an error may have committed.',
    proofs: [
      test('test/crash.test.ts', 'nothing acknowledged is lost and nothing is paid twice'),
      test(`${RUNTIME}/embedded-postgres.test.ts`, 'a server whose backend is killed comes back'),
      rig('PostgreSQL SIGKILL'),
    ],
  },
  {
    id: 'F70',
    what: 'The connection is cut between COMMIT and its answer: the outcome is unknown until it is read again by id.',
    proofs: [
      test(
        `${PLATFORM}/checkout/confirm-once.test.ts`,
        'a commit whose answer is lost leaves no payment',
      ),
      test(
        `${RUNTIME}/group-commit.test.ts`,
        'a lost connection is reported to all and repeated for none: the write may have happened',
      ),
      rig('cut at COMMIT'),
    ],
  },
  {
    id: 'F71',
    what: 'The connection is cut within a transaction: it is rolled back, and tried again.',
    proofs: [
      test(
        `${RUNTIME}/postgres.test.ts`,
        'a session lost before COMMIT was sent surely wrote nothing',
      ),
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'cutting every database connection again and again loses and duplicates nothing',
      ),
      rig('database flaps'),
    ],
  },
  {
    id: 'F72',
    what: 'A serialization failure or a deadlock: the whole transaction is tried again, a bounded number of times.',
    proofs: [
      test(
        `${RUNTIME}/postgres.test.ts`,
        'two transactions that lock in opposite order both commit',
      ),
      test(
        `${RUNTIME}/postgres.test.ts`,
        'a transaction that always conflicts gives up as unavailable, having written nothing',
      ),
    ],
  },
  {
    id: 'F73',
    what: 'Disk full, read only, too many connections, pool exhausted: 503 before anything is accepted, and recovery without help.',
    proofs: [
      test(`${RUNTIME}/postgres.test.ts`, 'a full pool refuses in time instead of hanging'),
      test(`${RUNTIME}/postgres.test.ts`, 'a database that is set to read only'),
      test(`${RUNTIME}/postgres.test.ts`, 'a full disk, a standby, a time limit or a lost right'),
      rig('disk full'),
    ],
    untested:
      'The full disk only where the user may mount a small one (root); the crash rig says so where not.',
  },
  {
    id: 'F74',
    what: 'synchronous_commit is off for a session, role or database: the servers refuse to start on it.',
    proofs: [
      test(
        `${RUNTIME}/postgres.test.ts`,
        'a database that would lose acknowledged payments is refused',
      ),
    ],
  },
  {
    id: 'F75',
    what: 'fsync or full_page_writes is off: the servers refuse to start on it.',
    proofs: [
      test('test/front-door.test.ts', 'both report an unusable database alike'),
      test(
        `${RUNTIME}/postgres.test.ts`,
        'a database that would lose acknowledged payments is refused',
      ),
      rig('power loss'),
    ],
    untested:
      'Power loss only where the user may mount a loop device (root). A disk that says it has written what it has not, and pages torn in the middle.',
  },
  {
    id: 'F76',
    what: 'Failover to a standby: a synchronous one loses nothing; what an asynchronous one lost is put again under the same id.',
    proofs: [
      rig('failover'),
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'a partner restored from a backup takes the payment under a new id',
      ),
    ],
  },
  {
    id: 'F77',
    what: 'A replica lags: every decision is taken on the primary, and a payment is read as soon as it was acknowledged.',
    proofs: [
      test(`${PARTNER}/status.test.ts`, 'a payment is found right after its acknowledgement'),
      test(`${RUNTIME}/postgres.test.ts`, 'a database that is set to read only, as a standby is'),
    ],
  },
  {
    id: 'F78',
    what: 'A statement, a lock or an idle session hits its time limit: 503, and the pool recovers.',
    proofs: [
      test(`${RUNTIME}/postgres.test.ts`, 'a statement that hangs is cut off by the server'),
      test(`${RUNTIME}/postgres.test.ts`, 'idle sessions that the server ends'),
      rig('database silent'),
    ],
  },
  {
    id: 'F79',
    what: 'Either side is restored from an older backup: what is missing is named by reconciliation, and nothing is posted twice.',
    proofs: [
      rig('restore of a backup'),
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'a partner restored from a backup takes the payment under a new id',
      ),
    ],
  },
  {
    id: 'F80',
    what: 'A migration during load: traffic passes, and the version before goes on.',
    proofs: [
      test(
        `${RUNTIME}/migrations.test.ts`,
        'a migration that meets a busy table lets the traffic pass',
      ),
      rig('version N beside N+1'),
    ],
  },
  // Processes, hosts and time
  {
    id: 'F81',
    what: 'SIGKILL at each numbered step of a payment: every guarantee holds. The steps are enumerated.',
    proofs: [
      test(`${PLATFORM}/engine/crash.test.ts`, 'killed '),
      test('test/rig/rig.test.ts', 'kills, lost commits, power loss, a bad gateway'),
      rig('SIGKILL at a step'),
    ],
  },
  {
    id: 'F82',
    what: 'SIGTERM under load: what is under way is finished or handed over, nothing acknowledged is lost.',
    proofs: [
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'a stop aborts open reads at once, releases every payment, and the next worker finishes',
      ),
      test(
        `${RUNTIME}/http/closing.test.ts`,
        'closing answers requests in progress and wakes waiting ones, then refuses connections',
      ),
      rig('SIGTERM under load'),
    ],
  },
  {
    id: 'F83',
    what: 'SIGTERM, and SIGKILL before it has finished.',
    proofs: [
      test(
        `${RUNTIME}/lifecycle.test.ts`,
        'a signal stops once and gracefully; a second one ends at once',
      ),
      rig('SIGTERM, then SIGKILL'),
    ],
  },
  {
    id: 'F84',
    what: 'A process stands still for longer than its lease: when it goes on, its writes change nothing.',
    proofs: [
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'a worker that lost its lease registers under a new id and writes nothing under the old one',
      ),
      rig('SIGSTOP in a lock'),
    ],
  },
  {
    id: 'F85',
    what: 'Two workers, one lease: never both, in any order of events.',
    proofs: [
      test(`${PLATFORM}/engine/lease.test.ts`, 'in every order of the first nine events'),
      test(
        `${PARTNER}/neighbours.test.ts`,
        'while a call runs, however late, its payment is in no other call',
      ),
    ],
  },
  {
    id: 'F86',
    what: 'The lease ends while a call is under way: the next worker sends the same PUT, which does no harm.',
    proofs: [
      test(`${PLATFORM}/engine/crash.test.ts`, 'killed '),
      test('test/simulation/simulation.test.ts', 'whatever goes wrong, nothing is lost'),
    ],
  },
  {
    id: 'F87',
    what: 'A wall clock steps, at a host or at the database, or two hosts disagree: nothing is lost, doubled or stuck.',
    proofs: [
      test(
        `${PARTNER}/apply.test.ts`,
        'a clock that steps back by an hour keeps no payment processing',
      ),
      test(
        `${PLATFORM}/engine/orphans.test.ts`,
        'a worker that died before the database clock stepped back',
      ),
      test(`${PLATFORM}/checkout/confirm-once.test.ts`, 'a database clock that is an hour ahead'),
      rig('clock steps'),
    ],
    untested:
      'On real processes only where libfaketime is installed; the crash rig says so where not. Leap seconds: PostgreSQL and Node have none.',
  },
  {
    id: 'F88',
    what: 'Out of memory, out of file descriptors, no room for the log: the process ends, is started again, and converges.',
    proofs: [
      test(`${PLATFORM}/engine/slots.test.ts`, 'whichever workers join, leave or die'),
      test('test/crash.test.ts', 'nothing acknowledged is lost and nothing is paid twice'),
      rig('SIGKILL of everything'),
      rig('disk full'),
    ],
    untested:
      'Running out of descriptors and of memory are not made to happen one by one: each ends in a kill or a refused connection, and those are.',
  },
  {
    id: 'F89',
    what: 'Old and new code side by side during a deployment.',
    proofs: [rig('version N beside N+1'), rig('SIGTERM under load')],
    untested:
      'The next version is this one with one more migration: its code cannot be known today.',
  },
  {
    id: 'F90',
    what: 'A bug that one payment meets: that payment only; an error that nobody caught ends the process.',
    proofs: [
      test(
        `${PLATFORM}/engine/engine.test.ts`,
        'a bug in one payment’s step stops no other payment, and the step is retried',
      ),
      test(`${RUNTIME}/lifecycle.test.ts`, 'a stop that hangs or fails, and a start that hangs'),
    ],
  },
  // Concurrency and callers
  {
    id: 'F91',
    what: 'One id in 1,000 PUTs at once: one row, one posting, equal answers.',
    proofs: [test(`${PARTNER}/accept.test.ts`, '1,000 PUTs of one id over 50 connections')],
  },
  {
    id: 'F92',
    what: 'One id with different amounts in one race: the first wins, the rest leave a trace.',
    proofs: [
      test(
        `${PARTNER}/accept.test.ts`,
        'different amounts race for one id: the first one wins, whichever it is',
      ),
      test(
        `${PARTNER}/accept.test.ts`,
        'a repeat with different fields changes nothing and leaves a trace',
      ),
    ],
  },
  {
    id: 'F93',
    what: 'A hundred confirms from two tabs: one payment.',
    proofs: [test(`${PLATFORM}/checkout/flow.test.ts`, 'a hundred confirms from two tabs')],
  },
  {
    id: 'F94',
    what: 'A cancel races the posting: one terminal status.',
    proofs: [
      test(
        `${PARTNER}/apply.test.ts`,
        'a cancel races the posting: there is one terminal status, and the ledger agrees with it',
      ),
    ],
  },
  {
    id: 'F95',
    what: 'A key is revoked during a burst: soon no request passes, at any replica.',
    proofs: [
      test(`${PLATFORM}/replicas.test.ts`, 'a key revoked at one replica is refused at the other'),
      test(`${PARTNER}/auth.test.ts`, 'a revoked token is refused at every replica'),
    ],
  },
  {
    id: 'F96',
    what: 'Wrong types, -0, 1e400, 2^53+1, deep nesting, a mebibyte, invalid UTF-8: 4xx, never 500.',
    proofs: [
      test('packages/contract/src/json.test.ts', 'a number that is not a plain whole number'),
      test('packages/contract/src/json.test.ts', 'a deeply nested body is refused'),
      test(`${RUNTIME}/http/body.test.ts`, 'a body that is not what it claims is refused'),
      test(`${PLATFORM}/checkout/token.test.ts`, 'a body of a mebibyte is cut off'),
    ],
  },
  {
    id: 'F97',
    what: 'A NUL in an id or a text: 400, before PostgreSQL would refuse it.',
    proofs: [
      test('packages/contract/src/json.test.ts', 'strings that PostgreSQL refuses'),
      test(`${RUNTIME}/http/server.test.ts`, 'a path is decoded or refused'),
    ],
  },
  {
    id: 'F98',
    what: 'Lone surrogates, which collide as keys: refused.',
    proofs: [
      test('packages/contract/src/json.test.ts', 'strings that PostgreSQL refuses or that collide'),
    ],
  },
  {
    id: 'F99',
    what: 'Ids with %2F, spaces, dots, or too many characters: one documented pattern and length.',
    proofs: [
      test(`${RUNTIME}/http/server.test.ts`, 'a path is decoded or refused'),
      test('packages/contract/src/validate.test.ts', 'ids that a URL would change'),
    ],
  },
  {
    id: 'F100',
    what: 'A header that comes twice: refused.',
    proofs: [
      test(`${RUNTIME}/http/server.test.ts`, 'duplicate headers with two meanings are refused'),
    ],
  },
  {
    id: 'F101',
    what: 'A length and chunks, two lengths, bare line feeds: 400.',
    proofs: [
      test(`${RUNTIME}/http/server.test.ts`, 'what a proxy in front may read as another request'),
      test(`${RUNTIME}/http/server.test.ts`, 'no bytes make the server fail'),
      test(`${RUNTIME}/http/server.test.ts`, 'duplicate headers with two meanings are refused'),
    ],
  },
  {
    id: 'F102',
    what: 'A body that drips in: 408, and it holds up nobody else.',
    proofs: [
      test(
        `${RUNTIME}/http/server.test.ts`,
        'a request that arrives too slowly is ended with 408, whether in its headers or its body',
      ),
      test(
        `${PLATFORM}/checkout/token.test.ts`,
        'a caller that sends its body very slowly delays nobody else',
      ),
    ],
  },
  {
    id: 'F103',
    what: 'Thousands of idle connections, pipelining: caps, and the engine is not touched.',
    proofs: [
      test(
        `${PLATFORM}/engine/liveness.test.ts`,
        'more slow requests than there are connections do not disturb the heartbeat',
      ),
    ],
    untested:
      'Ten thousand idle sockets at once: beyond what the suite opens; the cap is Node’s maxConnections.',
  },
  {
    id: 'F104',
    what: 'Dates that no calendar has, times without an offset: refused instead of rolling over.',
    proofs: [
      test('packages/contract/src/time.test.ts', 'a date that does not exist is refused'),
      test('packages/contract/src/time.test.ts', 'a time without a zone is not an instant'),
    ],
  },
];
