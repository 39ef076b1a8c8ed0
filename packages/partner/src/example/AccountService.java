import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * An account service for {@code duebridge partner serve --accounts-url}: a JDK of 17 or newer, nothing else.
 *
 * <pre>DUEBRIDGE_PARTNER_ACCOUNTS_SECRET=... java AccountService.java [books [4300]]</pre>
 *
 * The folder {@code books} holds {@code accounts.csv} with a line {@code biller_id,account_id,active,due_in_cents} for each account,
 * and {@code bookings.csv}, where an outcome is on the disk before it is answered. Ids in both are percent-encoded as in a URL,
 * because they may be any printable text, commas included. In earnest, your database takes their place.
 */
public class AccountService {
    record Account(boolean active, long due) {}

    record Answer(int status, String content) {}

    /** Outcome of a payment; {@code postedAt} is empty where it failed. */
    record Booking(String payment, String biller, String account, long cents, String postedAt) {
        static Booking read(String line) {
            String[] fields = line.split(",", -1);
            return new Booking(decode(fields[0]), decode(fields[1]), decode(fields[2]), Long.parseLong(fields[3]), fields[4]);
        }

        String line() {
            return String.join(",", encode(payment), encode(biller), encode(account), Long.toString(cents), postedAt) + "\n";
        }

        String answer() {
            return postedAt.isEmpty()
                ? "{\"outcome\":\"failed\",\"reason\":\"The account was not found or is not active.\"}"
                : "{\"outcome\":\"posted\",\"posted_at\":\"" + postedAt + "\"}";
        }
    }

    static final Pattern ID = Pattern.compile("[^\\p{Cntrl}]{1,128}");
    static final Pattern SIGNATURE = Pattern.compile("t=(\\d{1,12}),v1=([0-9a-f]{64})");
    /** A string or a whole number of a JSON object, and what stands before it. */
    static final Pattern MEMBER = Pattern.compile(
        "\\G\\s*[{,]\\s*\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d{1,15}))(?=\\s*[,}])");

    final byte[] secret;
    /** By biller and account, with a line break between them, which no id holds. */
    final Map<String, Account> accounts = new HashMap<>();
    final Map<String, Booking> bookings = new HashMap<>();
    final FileChannel file;

    AccountService(Path books, String secret) throws IOException {
        this.secret = secret.getBytes(UTF_8);
        for (String line : Files.readAllLines(books.resolve("accounts.csv"))) {
            String[] fields = line.split(",");
            accounts.put(decode(fields[0]) + "\n" + decode(fields[1]), new Account(fields[2].equals("1"), Long.parseLong(fields[3])));
        }
        Path path = books.resolve("bookings.csv");
        String text = Files.exists(path) ? Files.readString(path) : "";
        // A last line without its end was cut off by a crash before it was answered: the payment is not booked.
        String whole = text.substring(0, text.lastIndexOf('\n') + 1);
        whole.lines().map(Booking::read).forEach(this::book);
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        long end = whole.getBytes(UTF_8).length;
        file.truncate(end).position(end);
    }

    static String encode(String id) {
        return URLEncoder.encode(id, UTF_8).replace("+", "%20");
    }

    /** URLDecoder decodes forms, in which a plus is a space; in a path it is a plus. */
    static String decode(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), UTF_8);
    }

    void book(Booking booking) {
        bookings.put(booking.payment, booking);
        if (booking.postedAt.isEmpty()) return;
        accounts.computeIfPresent(booking.biller + "\n" + booking.account,
            (key, account) -> new Account(account.active, account.due - booking.cents));
    }

    synchronized String findAccount(String biller, String id) {
        Account account = accounts.get(biller + "\n" + id);
        return account == null ? null : """
            {"biller_id":"%s","account_id":"%s","status":"%s","balance":{"amount_due_in_cents":%d}}"""
            .formatted(quoted(biller), quoted(id), account.active ? "active" : "inactive", account.due);
    }

    synchronized String findPosting(String payment) {
        Booking booking = bookings.get(payment);
        return booking == null ? null : booking.answer();
    }

    /** Synchronized, so that a payment is judged and booked in one step. */
    synchronized String postPayment(String payment, String biller, String id, long cents) throws IOException {
        Booking booking = bookings.get(payment);
        if (booking == null) { // else a repeat: the same answer, and nothing is booked
            Account account = accounts.get(biller + "\n" + id);
            boolean takes = account != null && account.active;
            String postedAt = takes ? Instant.now().truncatedTo(ChronoUnit.SECONDS).toString() : "";
            booking = new Booking(payment, biller, id, cents, postedAt);
            long end = file.position();
            try {
                ByteBuffer line = ByteBuffer.wrap(booking.line().getBytes(UTF_8));
                while (line.hasRemaining()) file.write(line);
                file.force(false);
            } catch (IOException error) {
                file.truncate(end); // half a line must not stand before the next one
                throw error;
            }
            book(booking);
        }
        return booking.answer();
    }

    boolean isSigned(HttpExchange exchange, byte[] body) throws GeneralSecurityException {
        String header = exchange.getRequestHeaders().getFirst("Duebridge-Signature");
        Matcher signature = SIGNATURE.matcher(header == null ? "" : header);
        if (!signature.matches()) return false;
        String time = signature.group(1);
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        mac.update((time + "." + exchange.getRequestMethod() + "." + exchange.getRequestURI() + ".").getBytes(UTF_8));
        boolean isFresh = Math.abs(Instant.now().getEpochSecond() - Long.parseLong(time)) < 300;
        return isFresh && MessageDigest.isEqual(mac.doFinal(body), HexFormat.of().parseHex(signature.group(2)));
    }

    Answer answer(HttpExchange exchange) throws Exception {
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (!isSigned(exchange, body)) return problem(401, "UNAUTHORIZED", "The signature is missing, wrong or old");
        // Split before it is decoded: an id may contain a slash.
        String[] parts = exchange.getRequestURI().getRawPath().substring(1).split("/");
        for (int part = 0; part < parts.length; part++) parts[part] = decode(parts[part]);
        String found = null;
        switch (exchange.getRequestMethod() + " " + parts[0] + " " + parts.length) {
            case "GET accounts 3" -> found = findAccount(parts[1], parts[2]);
            case "GET payments 2" -> found = findPosting(parts[1]);
            case "POST payments 1" -> {
                Map<String, String> payment = readObject(new String(body, UTF_8));
                String id = payment.getOrDefault("platform_payment_id", "");
                String biller = payment.getOrDefault("biller_id", "");
                String account = payment.getOrDefault("account_id", "");
                for (String one : new String[] {id, biller, account}) {
                    if (!ID.matcher(one).matches()) return problem(400, "INVALID_REQUEST", "An id is missing or malformed");
                }
                String cents = payment.getOrDefault("amount_in_cents", "");
                if (!cents.matches("[1-9]\\d*")) return problem(400, "INVALID_REQUEST", "amount_in_cents must be a whole number");
                found = postPayment(id, biller, account, Long.parseLong(cents));
            }
            default -> { }
        }
        return found == null ? problem(404, "NOT_FOUND", "Resource not found") : new Answer(200, found);
    }

    /** Members of a JSON object of strings and whole numbers. The JDK has no JSON; your framework has. */
    static Map<String, String> readObject(String json) {
        Map<String, String> members = new HashMap<>();
        Matcher member = MEMBER.matcher(json);
        while (member.find()) {
            String text = member.group(2) == null ? member.group(3) : member.group(2);
            members.put(member.group(1), text.replaceAll("\\\\(.)", "$1")); // an id is sent with quotes and backslashes escaped alone
        }
        return members;
    }

    static String quoted(String id) {
        return id.replace("\\", "\\\\").replace("\"", "\\\"");
    }

    static Answer problem(int status, String code, String message) {
        return new Answer(status, "{\"code\":\"" + code + "\",\"message\":\"" + message + "\"}");
    }

    void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            Answer answer;
            try {
                answer = answer(exchange);
            } catch (Exception error) {
                System.err.println(error); // without the path, which holds account numbers
                answer = problem(500, "INTERNAL_ERROR", "Something went wrong");
            }
            byte[] content = answer.content.getBytes(UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(answer.status, content.length);
            exchange.getResponseBody().write(content);
        }
    }

    public static void main(String[] args) throws IOException {
        String secret = System.getenv("DUEBRIDGE_PARTNER_ACCOUNTS_SECRET");
        if (secret == null) {
            System.err.println("set DUEBRIDGE_PARTNER_ACCOUNTS_SECRET to the secret that the kit signs with");
            System.exit(2);
        }
        AccountService service = new AccountService(Path.of(args.length > 0 ? args[0] : "books"), secret);
        int port = args.length > 1 ? Integer.parseInt(args[1]) : 4300;
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/", service::handle);
        server.start();
        System.out.println("listening on " + server.getAddress().getPort());
    }
}
