<?php
/**
 * A partner server in plain PHP 8.1 or later: PDO with SQLite, one file.
 *
 *     PARTNER_KEY=... PHP_CLI_SERVER_WORKERS=4 php -S 127.0.0.1:4400 partner.php      keeps its books in partner.db
 *
 * It hosts what the platform calls: accounts, balances, payments. Replace the two marked places by your own system. What must stay
 * as it is: the primary key on platform_payment_id, the insert that does nothing when the id is known, and the answer that leaves
 * only after the commit.
 */
declare(strict_types=1);

const MAX_BODY_BYTES = 65_536;
const MAX_AMOUNT_IN_CENTS = 10_000_000; // your own limit for one payment

/** Thrown anywhere, answered as JSON. */
final class Refusal extends Exception
{
    public function __construct(public readonly int $status, public readonly string $name, string $message)
    {
        parent::__construct($message);
    }
}

function books(): PDO
{
    static $books = null;
    if ($books !== null) return $books;
    $books = new PDO('sqlite:' . (getenv('PARTNER_DB') ?: 'partner.db'), options: [PDO::ATTR_TIMEOUT => 10]);
    $books->setAttribute(PDO::ATTR_DEFAULT_FETCH_MODE, PDO::FETCH_ASSOC);
    $books->exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL'); // an answer that left must survive a power cut
    $books->exec("CREATE TABLE IF NOT EXISTS account (biller_id TEXT, account_id TEXT, status TEXT NOT NULL,
                  amount_due_in_cents INTEGER NOT NULL, PRIMARY KEY (biller_id, account_id));
                  CREATE TABLE IF NOT EXISTS payment (
                    platform_payment_id TEXT PRIMARY KEY, -- over all accounts, forever: this is the whole idempotency
                    payment_id TEXT NOT NULL, platform_batch_id TEXT NOT NULL, biller_id TEXT NOT NULL, account_id TEXT NOT NULL,
                    amount_in_cents INTEGER NOT NULL, status TEXT NOT NULL, initiated_at TEXT NOT NULL, posted_at TEXT,
                    failure_reason TEXT);
                  -- Your accounts: the first place to replace by your own system.
                  INSERT OR IGNORE INTO account VALUES ('my-biller', 'A-1', 'active', 12500), ('my-biller', 'A-2', 'active', 9900),
                    ('my-biller', 'A-3', 'inactive', 0)");
    return $books;
}

function query(string $sql, array $values = []): array
{
    $statement = books()->prepare($sql);
    $statement->execute($values);
    return $statement->fetchAll();
}

function now(): string
{
    return (new DateTimeImmutable('now', new DateTimeZone('UTC')))->format('Y-m-d\TH:i:s.v\Z');
}

function findAccount(string $biller, string $account): ?array
{
    return query('SELECT * FROM account WHERE biller_id = ? AND account_id = ?', [$biller, $account])[0] ?? null;
}

/** Posts what was accepted: the second place to replace by your own system. A cron job or a queue does it in earnest. */
function applyPayments(): void
{
    foreach (query("SELECT * FROM payment WHERE status = 'processing'") as $payment) {
        $place = [$payment['biller_id'], $payment['account_id']];
        [$status, $reason] = match (true) {
            (findAccount(...$place)['status'] ?? '') !== 'active' => ['failed', 'The account was not found or is not active.'],
            $payment['amount_in_cents'] > MAX_AMOUNT_IN_CENTS => ['failed', 'The amount is above the maximum that we take.'],
            default => ['succeeded', null],
        };
        books()->exec('BEGIN IMMEDIATE'); // status and balance move together, or not at all
        $ended = books()->prepare("UPDATE payment SET status = ?, posted_at = ?, failure_reason = ?
                                   WHERE platform_payment_id = ? AND status = 'processing'"); // what has ended never changes
        $ended->execute([$status, $reason === null ? now() : null, $reason, $payment['platform_payment_id']]);
        if ($status === 'succeeded' && $ended->rowCount() === 1) {
            query('UPDATE account SET amount_due_in_cents = amount_due_in_cents - ? WHERE biller_id = ? AND account_id = ?', [
                $payment['amount_in_cents'],
                ...$place,
            ]);
        }
        books()->exec('COMMIT');
    }
}

function existingAccount(string $biller, string $account): array
{
    return findAccount($biller, $account) ?? throw new Refusal(404, 'ACCOUNT_NOT_FOUND', 'Account not found');
}

function existingPayment(string $id, ?array $place = null): array
{
    $payment = query('SELECT * FROM payment WHERE platform_payment_id = ?', [$id])[0] ?? null;
    if ($payment === null || ($place !== null && $place !== [$payment['biller_id'], $payment['account_id']])) {
        throw new Refusal(404, 'PAYMENT_NOT_FOUND', 'Payment not found');
    }
    if ($payment['failure_reason'] === null) unset($payment['failure_reason']);
    return $payment;
}

/** The amount and the batch of a PUT. */
function readInstruction(string $raw, string $id): array
{
    if (strtolower(trim(explode(';', $_SERVER['CONTENT_TYPE'] ?? '')[0])) !== 'application/json') {
        throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send application/json');
    }
    $body = json_decode($raw); // an object becomes an object: [] and {} differ
    if (!$body instanceof stdClass) throw new Refusal(400, 'INVALID_REQUEST', 'The body is not a JSON object');
    $amount = $body->amount_in_cents ?? null;
    $batch = $body->platform_batch_id ?? null;
    if (!is_int($amount) || $amount < 1 || $amount >= 2 ** 53) {
        throw new Refusal(400, 'INVALID_REQUEST', 'amount_in_cents must be a whole number from 1');
    }
    if (!is_string($batch) || !preg_match('/^[A-Za-z0-9._-]{1,64}$/D', $batch)) {
        throw new Refusal(400, 'INVALID_REQUEST', 'platform_batch_id must be an id of the platform');
    }
    if (($body->platform_payment_id ?? $id) !== $id) {
        throw new Refusal(400, 'INVALID_REQUEST', 'platform_payment_id is not the one in the path');
    }
    return [$amount, $batch];
}

/** The body of a 200. */
function answer(): array
{
    $key = (string) getenv('PARTNER_KEY');
    if ($key === '') throw new Exception('Set PARTNER_KEY, the key that the platform sends as x-api-key.');
    $raw = (string) file_get_contents('php://input', length: MAX_BODY_BYTES + 1);
    if (strlen($raw) > MAX_BODY_BYTES) throw new Refusal(413, 'PAYLOAD_TOO_LARGE', 'The body is too large');
    if (!hash_equals($key, $_SERVER['HTTP_X_API_KEY'] ?? '')) {
        throw new Refusal(401, 'UNAUTHORIZED', 'The key is missing or not valid');
    }
    // Split first, decode after: an encoded slash belongs to an id, it is no step in the path.
    $parts = array_map('rawurldecode', array_slice(explode('/', explode('?', $_SERVER['REQUEST_URI'])[0]), 1));
    $named = array_map(fn (int $at): string => $at % 2 === 0 ? $parts[$at] : '*', array_keys($parts));
    $route = $_SERVER['REQUEST_METHOD'] . ' ' . implode('/', $named);
    if (str_starts_with($route, 'GET ')) applyPayments();
    switch ($route) {
        case 'GET biller/*/account/*':
            $account = existingAccount($parts[1], $parts[3]);
            $due = $account['amount_due_in_cents'];
            unset($account['amount_due_in_cents']);
            return $account + ['balance' => ['amount_due_in_cents' => $due]];
        case 'GET biller/*/account/*/balance':
            return ['amount_due_in_cents' => existingAccount($parts[1], $parts[3])['amount_due_in_cents']];
        case 'GET biller/*/account/*/payment/*':
            return existingPayment($parts[5], [$parts[1], $parts[3]]);
        case 'GET payment/*':
            return existingPayment($parts[1]);
        case 'PUT biller/*/account/*/payment/*':
            [, $biller, , $account, , $id] = $parts;
            [$amount, $batch] = readInstruction($raw, $id);
            // A known id changes nothing here, whatever else came with it; then both read what is stored.
            $values = [$id, bin2hex(random_bytes(16)), $batch, $biller, $account, $amount, now()];
            query("INSERT INTO payment VALUES (?, ?, ?, ?, ?, ?, 'processing', ?, NULL, NULL) ON CONFLICT DO NOTHING", $values);
            return existingPayment($id);
    }
    throw new Refusal(404, 'NOT_FOUND', 'There is nothing here');
}

try {
    [$status, $body] = [200, answer()];
} catch (Refusal $refusal) {
    [$status, $body] = [$refusal->status, ['code' => $refusal->name, 'message' => $refusal->getMessage()]];
} catch (Throwable $error) {
    error_log($error->getMessage()); // for your log, never for the caller
    [$status, $body] = [500, ['code' => 'INTERNAL_ERROR', 'message' => 'An unexpected error occurred']];
}
http_response_code($status);
header('Content-Type: application/json');
echo json_encode($body, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
