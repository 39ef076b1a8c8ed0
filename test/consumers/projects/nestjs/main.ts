import 'reflect-metadata';
import { Body, Controller, Get, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { openPartnerDatabase, partnerHandler } from '@duebridge/partner';

@Controller()
class Own {
  @Get('own')
  answer(): string {
    return 'own';
  }

  @Post('own')
  echo(@Body() body: unknown): unknown {
    return body;
  }
}

@Module({ controllers: [Own] })
class App {
  readonly name = 'app';
}

async function main(): Promise<void> {
  const key = process.env['DUEBRIDGE_PARTNER_KEY'] ?? '';
  const { database, close } = await openPartnerDatabase({
    databaseUrl: process.env['DATABASE_URL'],
  });
  const payments = await partnerHandler({
    database,
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
    billers: [{ biller_id: 'my-biller', max_amount_in_cents: 500_000 }],
  });
  const app = await NestFactory.create(App, { rawBody: true, logger: ['error'] });
  app.use(payments);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(
      signal,
      () =>
        void payments
          .close()
          .then(() => app.close())
          .then(close),
    );
  }
  await app.listen(Number(process.env['PORT']));
}

void main();
