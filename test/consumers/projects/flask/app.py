"""The account service of docs/partner-kit.md in Flask: three signed operations, and books of its own."""
import hashlib, hmac, json, os, sqlite3, time
from flask import Flask, request

SECRET = os.environ["DUEBRIDGE_PARTNER_ACCOUNTS_SECRET"].encode()
app = Flask(__name__)
books = sqlite3.connect("books.sqlite", isolation_level=None, check_same_thread=False)
books.executescript("""
  CREATE TABLE account (id TEXT PRIMARY KEY, active INTEGER, due INTEGER);
  CREATE TABLE booking (id TEXT PRIMARY KEY, answer TEXT);
  INSERT INTO account VALUES ('A-1', 1, 12050), ('A-2', 1, 4000), ('A-3', 0, 0)""")


@app.before_request
def check_signature():
    fields = dict(part.split("=", 1) for part in request.headers.get("Duebridge-Signature", "").split(",") if "=" in part)
    signed = f"{fields.get('t')}.{request.method}.{request.environ['REQUEST_URI']}.".encode() + request.get_data()
    expected = hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
    is_fresh = fields.get("t", "").isdigit() and abs(time.time() - int(fields["t"])) < 300
    if not is_fresh or not hmac.compare_digest(expected, fields.get("v1", "")):
        return {"code": "UNAUTHORIZED", "message": "The signature is missing, wrong or old"}, 401


def found(value):
    return value or ({"code": "NOT_FOUND", "message": "Resource not found"}, 404)


@app.get("/accounts/<biller>/<account>")
def find_account(biller, account):
    row = books.execute("SELECT active, due FROM account WHERE id = ?", (account,)).fetchone()
    status = "active" if row and row[0] else "inactive"
    known = row and {"biller_id": biller, "account_id": account, "status": status, "balance": {"amount_due_in_cents": row[1]}}
    return found(known if biller == "my-biller" else None)


@app.get("/payments/<payment>")
def find_posting(payment):
    row = books.execute("SELECT answer FROM booking WHERE id = ?", (payment,)).fetchone()
    return found(row and json.loads(row[0]))


@app.post("/payments")
def post_payment():
    payment = request.get_json()
    known = books.execute("SELECT answer FROM booking WHERE id = ?", (payment["platform_payment_id"],)).fetchone()
    if known:
        return json.loads(known[0])
    books.execute("BEGIN IMMEDIATE")
    taken = books.execute(
        "UPDATE account SET due = due - ? WHERE id = ? AND active AND ? = 'my-biller'",
        (payment["amount_in_cents"], payment["account_id"], payment["biller_id"]),
    ).rowcount
    answer = {"outcome": "posted"} if taken else {"outcome": "failed", "reason": "The account was not found or is not active."}
    books.execute("INSERT INTO booking VALUES (?, ?)", (payment["platform_payment_id"], json.dumps(answer)))
    books.execute("COMMIT")
    return answer


app.run(port=4300, threaded=False)
