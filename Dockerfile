# One image for both servers and every command: `docker run duebridge platform serve`, `… partner serve`, `… conform partner …`.
# It runs as an unprivileged user and writes no file, so the root file system can be read-only (docs/operations.md).

FROM node:24-alpine AS build
WORKDIR /src
COPY . .
# No install scripts: the embedded PostgreSQL and the tests' browsers are not needed here. package-lock.json pins the versions.
RUN npm ci --ignore-scripts \
 && npm run build \
 && npm prune --omit=dev --omit=optional --ignore-scripts \
 && rm -rf node_modules/@duebridge \
 && cp -r dist/packages/@duebridge dist/packages/duebridge node_modules/ \
 && chmod 755 node_modules/duebridge/bin/duebridge.js

FROM node:24-alpine
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    PORT=8080 \
    ADMIN_PORT=8081
WORKDIR /app
COPY --from=build /src/node_modules node_modules
# For operators: `docker compose exec platform-1 duebridge platform payments`.
RUN ln -s /app/node_modules/duebridge/bin/duebridge.js /usr/local/bin/duebridge
USER node
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/healthz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# Node is process 1: the servers handle SIGTERM themselves, finish their requests in flight, and start no other process.
# A limit of the heap because below 2 GB V8 lets it grow by less than its own size before it collects, and otherwise to four times
# of it. The other size is the room for new objects: with less, more of them grow old (bench/README.md, memory of a payment in flight).
ENTRYPOINT ["node", "--max-semi-space-size=32", "--max-old-space-size=1024", "node_modules/duebridge/bin/duebridge.js"]
CMD ["--help"]
