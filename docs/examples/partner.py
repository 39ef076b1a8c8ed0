"""A partner server in plain Python 3.10 or later: the standard library alone, one file.

    PARTNER_KEY=... python3 partner.py      listens on 127.0.0.1:4400, keeps its books in partner.db

It hosts what the platform calls: accounts, balances, payments. Replace the two marked places by
your own system. What must stay as it is: the primary key on platform_payment_id, the insert that
does nothing when the id is known, and the answer that leaves only after the commit.
"""

import hmac
import json
import os
import re
import sqlite3
import sys
import threading
import time
import uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

KEY = os.environ.get("PARTNER_KEY") or sys.exit(
    "Set PARTNER_KEY, the key that the platform sends as x-api-key."
)
MAX_BODY_BYTES = 65_536
MAX_AMOUNT_IN_CENTS = 10_000_000  # your own limit for one payment

database = sqlite3.connect(
    os.environ.get("PARTNER_DB", "partner.db"), check_same_thread=False, isolation_level=None
)
database.row_factory = sqlite3.Row
lock = threading.Lock()  # one connection, many threads: one at a time
database.executescript(
    """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;  -- an answer that left must survive a power cut
    CREATE TABLE IF NOT EXISTS account (
      biller_id TEXT, account_id TEXT, status TEXT NOT NULL, amount_due_in_cents INTEGER NOT NULL,
      PRIMARY KEY (biller_id, account_id)
    );
    CREATE TABLE IF NOT EXISTS payment (
      platform_payment_id TEXT PRIMARY KEY,  -- over all accounts, forever: this is the whole idempotency
      payment_id TEXT NOT NULL, platform_batch_id TEXT NOT NULL,
      biller_id TEXT NOT NULL, account_id TEXT NOT NULL, amount_in_cents INTEGER NOT NULL,
      status TEXT NOT NULL, initiated_at TEXT NOT NULL, posted_at TEXT, failure_reason TEXT
    );
    -- Your accounts: the first place to replace by your own system.
    INSERT OR IGNORE INTO account VALUES
      ('my-biller', 'A-1', 'active', 12500), ('my-biller', 'A-2', 'active', 9900),
      ('my-biller', 'A-3', 'inactive', 0);
    """
)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def query(sql: str, *values: object) -> list[sqlite3.Row]:
    with lock:
        return database.execute(sql, values).fetchall()


def find_account(biller_id: str, account_id: str) -> sqlite3.Row | None:
    sql = "SELECT * FROM account WHERE biller_id = ? AND account_id = ?"
    return next(iter(query(sql, biller_id, account_id)), None)


def find_payment(platform_payment_id: str) -> sqlite3.Row | None:
    sql = "SELECT * FROM payment WHERE platform_payment_id = ?"
    return next(iter(query(sql, platform_payment_id)), None)


def apply_payments() -> None:
    """Posts what was accepted: the second place to replace by your own system."""
    for payment in query("SELECT * FROM payment WHERE status = 'processing'"):
        account = find_account(payment["biller_id"], payment["account_id"])
        if account is None or account["status"] != "active":
            end = ("failed", None, "The account was not found or is not active.")
        elif payment["amount_in_cents"] > MAX_AMOUNT_IN_CENTS:
            end = ("failed", None, "The amount is above the maximum that we take.")
        else:
            end = ("succeeded", now(), None)
        with lock:
            database.execute("BEGIN IMMEDIATE")  # status and balance move together, or not at all
            database.execute(
                "UPDATE payment SET status = ?, posted_at = ?, failure_reason = ?"
                " WHERE platform_payment_id = ? AND status = 'processing'",  # what has ended never changes
                (*end, payment["platform_payment_id"]),
            )
            if end[0] == "succeeded":
                database.execute(
                    "UPDATE account SET amount_due_in_cents = amount_due_in_cents - ?"
                    " WHERE biller_id = ? AND account_id = ?",
                    (payment["amount_in_cents"], payment["biller_id"], payment["account_id"]),
                )
            database.execute("COMMIT")


def apply_for_ever() -> None:
    while True:
        try:
            apply_payments()
        except Exception as error:
            # A server that cannot post must not go on accepting; what was half done is undone.
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(0.2)


class Refusal(Exception):
    """Raised anywhere, answered as JSON."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def payment_record(row: sqlite3.Row) -> dict:
    record = dict(row)
    if record["failure_reason"] is None:
        del record["failure_reason"]
    return record


def existing_account(biller_id: str, account_id: str) -> sqlite3.Row:
    account = find_account(biller_id, account_id)
    if account is None:
        raise Refusal(404, "ACCOUNT_NOT_FOUND", "Account not found")
    return account


def existing_payment(platform_payment_id: str, *place: str) -> dict:
    payment = find_payment(platform_payment_id)
    if payment is None or (place and place != (payment["biller_id"], payment["account_id"])):
        raise Refusal(404, "PAYMENT_NOT_FOUND", "Payment not found")
    return payment_record(payment)


def read_instruction(content_type: str, raw: bytes, platform_payment_id: str) -> tuple[int, str]:
    if content_type.split(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "UNSUPPORTED_MEDIA_TYPE", "Send application/json")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):  # the latter for brackets within brackets without end
        raise Refusal(400, "INVALID_REQUEST", "The body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "INVALID_REQUEST", "The body is not an object")
    amount, batch = body.get("amount_in_cents"), body.get("platform_batch_id")
    if type(amount) is not int or not 1 <= amount < 2**53:  # True is an int too, to isinstance
        raise Refusal(400, "INVALID_REQUEST", "amount_in_cents must be a whole number from 1")
    if not isinstance(batch, str) or not re.fullmatch("[A-Za-z0-9._-]{1,64}", batch):
        raise Refusal(400, "INVALID_REQUEST", "platform_batch_id must be an id of the platform")
    if body.get("platform_payment_id", platform_payment_id) != platform_payment_id:
        raise Refusal(400, "INVALID_REQUEST", "platform_payment_id is not the one in the path")
    return amount, batch


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> dict:
        """Gives the body of a 200, or raises Refusal."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]{1,9}", length):
            self.close_connection = True  # what follows may be a body, never the next request
            raise Refusal(400, "INVALID_REQUEST", "Send the body with its Content-Length")
        if int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise Refusal(413, "PAYLOAD_TOO_LARGE", "The body is too large")
        raw = self.rfile.read(int(length))
        given = self.headers.get("x-api-key", "")
        if not hmac.compare_digest(given.encode(), KEY.encode()):
            raise Refusal(401, "UNAUTHORIZED", "The key is missing or not valid")
        # Split first, decode after: an encoded slash belongs to an id, it is no step in the path.
        parts = [unquote(part) for part in self.path.split("?")[0].split("/")[1:]]
        match self.command, parts:
            case "GET", ["biller", biller_id, "account", account_id]:
                account = dict(existing_account(biller_id, account_id))
                return account | {"balance": {"amount_due_in_cents": account.pop("amount_due_in_cents")}}
            case "GET", ["biller", biller_id, "account", account_id, "balance"]:
                account = existing_account(biller_id, account_id)
                return {"amount_due_in_cents": account["amount_due_in_cents"]}
            case "GET", ["biller", biller_id, "account", account_id, "payment", payment_id]:
                return existing_payment(payment_id, biller_id, account_id)
            case "GET", ["payment", payment_id]:
                return existing_payment(payment_id)
            case "PUT", ["biller", biller_id, "account", account_id, "payment", payment_id]:
                content_type = self.headers.get("Content-Type", "")
                amount, batch = read_instruction(content_type, raw, payment_id)
                # A known id changes nothing here, whatever else came with it; then both read what is stored.
                query(
                    "INSERT INTO payment VALUES (?, ?, ?, ?, ?, ?, 'processing', ?, NULL, NULL)"
                    " ON CONFLICT DO NOTHING",
                    *(payment_id, str(uuid.uuid4()), batch, biller_id, account_id, amount, now()),
                )
                return payment_record(find_payment(payment_id))
        raise Refusal(404, "NOT_FOUND", "There is nothing here")

    def serve(self) -> None:
        try:
            status, body = 200, self.answer()
        except Refusal as refusal:
            status, body = refusal.status, {"code": refusal.code, "message": refusal.message}
        except Exception as error:  # for your log, never for the caller
            print(repr(error), file=sys.stderr)
            status, body = 500, {"code": "INTERNAL_ERROR", "message": "An unexpected error occurred"}
        content = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # the caller hung up; the payment stands all the same

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = serve

    def log_message(self, format: str, *args: object) -> None:
        pass  # ids of accounts stand in the paths


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # the default of 5 turns callers away
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a connection that was cut is no event


server = Server(("127.0.0.1", int(os.environ.get("PORT", "4400"))), Handler)
threading.Thread(target=apply_for_ever, daemon=True).start()
print(f"Partner server at http://127.0.0.1:{server.server_port}", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    pass
