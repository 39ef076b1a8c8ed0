<?php
/**
 * An account service for `duebridge partner serve --accounts-url`: PHP with PDO, SQLite here, any database in earnest.
 *
 *     DUEBRIDGE_PARTNER_ACCOUNTS_SECRET=... BOOKS=books.sqlite php -S 127.0.0.1:4300 account-service.php
 */
declare(strict_types=1);

function books(): PDO
{
    $books = new PDO('sqlite:' . getenv('BOOKS'), options: [PDO::ATTR_TIMEOUT => 10]);
    $books->setAttribute(PDO::ATTR_DEFAULT_FETCH_MODE, PDO::FETCH_ASSOC);
    $books->exec('CREATE TABLE IF NOT EXISTS account (biller_id TEXT, account_id TEXT, active INTEGER NOT NULL DEFAULT 1,
                  due_in_cents INTEGER NOT NULL, PRIMARY KEY (biller_id, account_id))');
    $books->exec('CREATE TABLE IF NOT EXISTS booking (platform_payment_id TEXT PRIMARY KEY, answer TEXT NOT NULL)');
    return $books;
}

function row(PDO $books, string $sql, array $values): ?array
{
    $statement = $books->prepare($sql);
    $statement->execute($values);
    return $statement->fetch() ?: null;
}

function findAccount(PDO $books, string $biller, string $account): ?array
{
    $found = row($books, 'SELECT * FROM account WHERE biller_id = ? AND account_id = ?', [$biller, $account]);
    return $found === null ? null : [
        'biller_id' => $biller,
        'account_id' => $account,
        'status' => $found['active'] ? 'active' : 'inactive',
        'balance' => ['amount_due_in_cents' => (int) $found['due_in_cents']],
    ];
}

function findPosting(PDO $books, string $id): ?array
{
    $found = row($books, 'SELECT answer FROM booking WHERE platform_payment_id = ?', [$id]);
    return $found === null ? null : json_decode($found['answer'], true);
}

function postPayment(PDO $books, array $payment): array
{
    ['platform_payment_id' => $id, 'biller_id' => $biller, 'account_id' => $account] = $payment;
    $books->exec('BEGIN IMMEDIATE'); // judged and booked in one step
    $answer = findPosting($books, $id);
    if ($answer === null) { // else a repeat: the same answer, and nothing is booked
        if ((findAccount($books, $biller, $account)['status'] ?? '') !== 'active') {
            $answer = ['outcome' => 'failed', 'reason' => 'The account was not found or is not active.'];
        } else {
            $answer = ['outcome' => 'posted', 'posted_at' => gmdate('Y-m-d\TH:i:s\Z')];
            $books->prepare('UPDATE account SET due_in_cents = due_in_cents - ? WHERE biller_id = ? AND account_id = ?')
                ->execute([$payment['amount_in_cents'], $biller, $account]);
        }
        $books->prepare('INSERT INTO booking VALUES (?, ?)')->execute([$id, json_encode($answer)]);
    }
    $books->exec('COMMIT');
    return $answer;
}

function isSigned(string $method, string $path, string $body): bool
{
    parse_str(str_replace(',', '&', $_SERVER['HTTP_DUEBRIDGE_SIGNATURE'] ?? ''), $fields);
    $time = (string) ($fields['t'] ?? '');
    $expected = hash_hmac('sha256', "$time.$method.$path.$body", (string) getenv('DUEBRIDGE_PARTNER_ACCOUNTS_SECRET'));
    return ctype_digit($time) && abs(time() - (int) $time) < 300 && hash_equals($expected, (string) ($fields['v1'] ?? ''));
}

function answer(int $status, array $value): void
{
    http_response_code($status);
    header('Content-Type: application/json');
    echo json_encode($value);
}

$method = $_SERVER['REQUEST_METHOD'];
$path = $_SERVER['REQUEST_URI'];
$body = (string) file_get_contents('php://input');
if (!isSigned($method, $path, $body)) {
    answer(401, ['code' => 'UNAUTHORIZED', 'message' => 'The signature is missing, wrong or old']);
    return;
}
$parts = array_map('rawurldecode', explode('/', trim($path, '/')));
$found = match (true) {
    $method === 'GET' && $parts[0] === 'accounts' && count($parts) === 3 => findAccount(books(), $parts[1], $parts[2]),
    $method === 'POST' && $parts === ['payments'] => postPayment(books(), json_decode($body, true)),
    $method === 'GET' && $parts[0] === 'payments' && count($parts) === 2 => findPosting(books(), $parts[1]),
    default => null,
};
$found === null ? answer(404, ['code' => 'NOT_FOUND', 'message' => 'Resource not found']) : answer(200, $found);
