"""A small paying platform in plain Python, written from the interface alone: it shares no code with the
judge.

    PARTNER_URL=... PARTNER_KEY=... python3 caller.py                    static key in x-api-key
    PARTNER_URL=... CLIENT_ID=... CLIENT_SECRET=... python3 caller.py    OAuth client credentials

POST /pay {biller_id, account_id, amount_in_cents} starts a payment; GET /payments/ID returns its status.
"""

import http.client
import json
import os
import re
import threading
import time
import uuid
from datetime import date
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, urlencode, urlsplit

PARTNER = urlsplit(os.environ["PARTNER_URL"])
KEY = os.environ.get("PARTNER_KEY")
BATCH = f"batch-{date.today().isoformat()}"
TIMEOUT_SECONDS = 5
MAX_ANSWER_BYTES = 262_144

payments: dict[str, dict] = {}
token: str | None = None
token_lock = threading.Lock()


def send(method: str, path: str, headers: dict, body: bytes | None) -> tuple[int, dict, bytes]:
    """Makes one request on its own connection; http.client follows no redirects."""
    connection = http.client.HTTPConnection(PARTNER.hostname, PARTNER.port, timeout=TIMEOUT_SECONDS)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        connection.request(method, PARTNER.path + path, body, headers)
        answer = connection.getresponse()
        raw = bytearray()
        # The socket's timeout applies to each read; the deadline limits the whole response.
        while piece := answer.read1(65536):
            raw += piece
            if time.monotonic() > deadline or len(raw) > MAX_ANSWER_BYTES:
                raise TimeoutError("the answer does not end")
        if answer.length:
            raise http.client.IncompleteRead(bytes(raw))
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, bytes(raw)
    finally:
        connection.close()


def credential(refused: str | None) -> dict:
    global token
    if KEY is not None:
        return {"x-api-key": KEY}
    with token_lock:  # one request for all that wait
        if token is None or token == refused:
            form = {
                "grant_type": "client_credentials",
                "client_id": os.environ["CLIENT_ID"],
                "client_secret": os.environ["CLIENT_SECRET"],
                "scope": "read write",
            }
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            status, _, raw = send("POST", "/oauth/token", kind, urlencode(form).encode())
            given = json.loads(raw)
            text = given["access_token"]
            # Reject a token that cannot be sent in a header.
            usable = status == 200 and re.fullmatch(r"[\x21-\x7e]{1,4096}", text)
            if not usable or given["token_type"].lower() != "bearer":
                raise ValueError("no token that can be used")
            token = text
        return {"Authorization": f"Bearer {token}"}


def call(method: str, payment: dict, refused: str | None = None) -> tuple[dict | None, float]:
    """Returns the payment's record, if there was one, and how long to wait before the next call."""
    wait = payment["delay"]
    payment["delay"] = min(wait * 1.5, 5)
    path = "/biller/{}/account/{}/payment/{}".format(
        quote(payment["biller_id"], safe=""), quote(payment["account_id"], safe=""), payment["id"]
    )
    try:
        headers = credential(refused)
        held = headers.get("Authorization", "").removeprefix("Bearer ")
        body = None
        if method == "PUT":
            headers["Content-Type"] = "application/json"
            body = payment["bytes"]
        status, answered, raw = send(method, path, headers, body)
        if status == 401 and KEY is None and refused is None:
            return call(method, payment, held)
        if answered.get("retry-after", "").isdigit():
            wait = max(wait, min(int(answered["retry-after"]), 900))
        elif "retry-after" in answered:
            date_seconds = parsedate_to_datetime(answered["retry-after"]).timestamp()
            wait = max(wait, min(date_seconds - time.time(), 900))
        if status != 200:
            return None, wait
        record = json.loads(raw)
        return (record if isinstance(record, dict) and "status" in record else None), wait
    except (OSError, ValueError, TypeError, KeyError, AttributeError, http.client.HTTPException):
        return None, wait  # nobody knows what became of it, so ask again


def drive(payment: dict) -> None:
    while True:
        record, wait = call("PUT", payment)
        if record is not None:
            break
        time.sleep(wait)
    payment["delay"] = 0.15
    while payment["status"] == "processing":
        time.sleep(payment["delay"])
        record, wait = call("GET", payment)
        if record is not None and record["status"] in ("succeeded", "failed", "canceled"):
            same = (
                record.get("platform_payment_id") == payment["id"]
                and record.get("amount_in_cents") == payment["amount_in_cents"]
            )
            if same:
                payment["status"] = record["status"]
            return  # where it is not, the books differ: a person has to look
        time.sleep(max(0, wait - payment["delay"]))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payment_id = str(uuid.uuid4())
        amount = order["amount_in_cents"]
        instruction = {"amount_in_cents": amount, "platform_batch_id": BATCH}
        payment = order | {
            "id": payment_id,
            "status": "processing",
            "delay": 0.25,
            "bytes": json.dumps(instruction).encode(),
        }
        payments[payment_id] = payment
        threading.Thread(target=drive, args=(payment,), daemon=True).start()
        self.answer({"platform_payment_id": payment_id})

    def do_GET(self) -> None:
        payment = payments.get(self.path.split("/")[-1])
        self.answer({"status": "unknown" if payment is None else payment["status"]})

    def answer(self, body: dict) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


server = Server(("127.0.0.1", int(os.environ.get("PORT", "0"))), Handler)
print(f"Platform at http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
