"""An account service for `duebridge partner serve --accounts-url`: Python's standard library and SQLite, nothing else.

    DUEBRIDGE_PARTNER_ACCOUNTS_SECRET=... python3 account_service.py books.sqlite 8080
"""
import hashlib, hmac, json, os, sqlite3, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

SECRET = os.environ["DUEBRIDGE_PARTNER_ACCOUNTS_SECRET"].encode()
BOOKS = sys.argv[1]


def open_books():
    # One connection a request; IMMEDIATE transactions, so that a payment is judged and booked in one step.
    books = sqlite3.connect(BOOKS, timeout=10, isolation_level=None)
    books.row_factory = sqlite3.Row
    return books


with open_books() as setup:
    setup.execute("PRAGMA journal_mode = WAL")
    setup.execute("""CREATE TABLE IF NOT EXISTS account (biller_id TEXT, account_id TEXT, active INTEGER NOT NULL DEFAULT 1,
                     due_in_cents INTEGER NOT NULL, PRIMARY KEY (biller_id, account_id))""")
    setup.execute("CREATE TABLE IF NOT EXISTS booking (platform_payment_id TEXT PRIMARY KEY, answer TEXT NOT NULL)")


def find_account(books, biller_id, account_id):
    row = books.execute("SELECT * FROM account WHERE biller_id = ? AND account_id = ?", (biller_id, account_id)).fetchone()
    return row and {
        "biller_id": biller_id,
        "account_id": account_id,
        "status": "active" if row["active"] else "inactive",
        "balance": {"amount_due_in_cents": row["due_in_cents"]},
    }


def find_posting(books, platform_payment_id):
    row = books.execute("SELECT answer FROM booking WHERE platform_payment_id = ?", (platform_payment_id,)).fetchone()
    return row and json.loads(row["answer"])


def post_payment(books, payment):
    books.execute("BEGIN IMMEDIATE")
    answer = find_posting(books, payment["platform_payment_id"])
    if answer is None:  # else a repeat: the same answer, and nothing is booked
        account = find_account(books, payment["biller_id"], payment["account_id"])
        if account is None or account["status"] != "active":
            answer = {"outcome": "failed", "reason": "The account was not found or is not active."}
        else:
            answer = {"outcome": "posted", "posted_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            books.execute(
                "UPDATE account SET due_in_cents = due_in_cents - ? WHERE biller_id = ? AND account_id = ?",
                (payment["amount_in_cents"], payment["biller_id"], payment["account_id"]),
            )
        books.execute("INSERT INTO booking VALUES (?, ?)", (payment["platform_payment_id"], json.dumps(answer)))
    books.execute("COMMIT")
    return answer


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def is_signed(self, body):
        fields = dict(part.split("=", 1) for part in self.headers.get("Duebridge-Signature", "").split(",") if "=" in part)
        signed = f"{fields.get('t')}.{self.command}.{self.path}.".encode() + body
        expected = hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
        is_fresh = fields.get("t", "").isdigit() and abs(time.time() - int(fields["t"])) < 300
        return is_fresh and hmac.compare_digest(expected, fields.get("v1", ""))

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.is_signed(body):
            return self.answer(401, {"code": "UNAUTHORIZED", "message": "The signature is missing, wrong or old"})
        books = open_books()
        try:
            match [self.command, *map(unquote, self.path.strip("/").split("/"))]:
                case ["GET", "accounts", biller_id, account_id]:
                    found = find_account(books, biller_id, account_id)
                case ["POST", "payments"]:
                    found = post_payment(books, json.loads(body))
                case ["GET", "payments", platform_payment_id]:
                    found = find_posting(books, platform_payment_id)
                case _:
                    found = None
        finally:
            books.close()
        if found is None:
            return self.answer(404, {"code": "NOT_FOUND", "message": "Resource not found"})
        self.answer(200, found)

    do_GET = do_POST = handle_request

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass  # paths hold account numbers


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Service)
print(f"listening on {server.server_port}", flush=True)
server.serve_forever()
